package walk

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// proxyNotRunning: nothing on the node programs Services. It is raised when
// what was read says so and nothing that was read says otherwise; a list that
// was not read says nothing.
var proxyNotRunning = &Check{
	Code: diagnosis.ProxyNotRunning, Needs: needsOfNode, Applies: onNodes,
	Explains: []diagnosis.Code{
		diagnosis.VIPNotProgrammed, diagnosis.StaleBackend, diagnosis.BackendMissing, diagnosis.RejectedAsEmpty,
		diagnosis.WrongBackendPort, diagnosis.HookMissing, diagnosis.MasqueradeMissing, diagnosis.UnevenOdds,
		diagnosis.NodePortNotProgrammed, diagnosis.ExternalIPNotProgrammed, diagnosis.AffinityNotProgrammed,
	},
	Run: func(p *Pass) {
		probes := p.probes()
		for _, v := range p.node.views {
			evidence := v.noProxy()
			if len(evidence) == 0 {
				continue
			}
			severity, found := diagnosis.Warning, "its rules are as the objects ask for now, and nobody will change them"
			for _, pr := range probes {
				if pr.view == v && pr.bad() {
					severity, found = diagnosis.Error, "its rules are not as the objects ask"
				}
			}
			p.Report(Finding{
				Subject:  p.onNode(v),
				Severity: severity,
				Title:    "no kube-proxy runs on " + v.label() + ", and no known replacement",
				Expected: "a kube-proxy, or what stands in for it",
				Found:    "none; " + found,
				Evidence: evidence,
				Fixes:    []Proposal{p.startProxy(v)},
			})
		}
	},
}

// noProxy is the evidence that the node has no service proxy; nil where there
// is one, or where it isn't known.
func (v *nodeView) noProxy() []diagnosis.Evidence {
	s := v.seen
	alive := slices.ContainsFunc(s.processes, func(pr proxyProcess) bool { return pr.state != "Z" })
	if s.replacedBy != nil || s.answered != "" || alive || podRuns(s.pod) || crashLoops(s.pod) != nil {
		return nil // one that crashes is VIP331's
	}
	var out []diagnosis.Evidence
	if s.processesRead && len(s.processes) > 0 {
		out = append(out, v.frozenProxy()...)
	} else if s.processesRead {
		t := v.state.Text(snapshot.ProxyProcess)
		out = append(out, diagnosis.Evidence{
			Source: textName(t) + " of " + v.label(), Quote: "no process kube-proxy, k3s, rke2 or kubelite in the node's network namespace",
			Command: v.onNodeCommand("ps -e -o pid,stat,comm | grep -e kube-proxy -e k3s -e rke2 -e kubelite"),
		})
	}
	// A pod that is there and does not run, or that other nodes have one, says
	// that this one should.
	if s.podsRead && v.name != "" && (s.pod != nil || s.podsElsewhere > 0) {
		quote := fmt.Sprintf("%d kube-proxy pods on other nodes, none on %s", s.podsElsewhere, v.name)
		if s.pod != nil {
			quote = fmt.Sprintf("pod %s on %s is %s and not ready", s.pod.Name, v.name, s.pod.Status.Phase)
		}
		out = append(out, diagnosis.Evidence{
			Source: "pods in " + snapshot.ProxyNamespace, Ref: "Pod/" + snapshot.ProxyNamespace, Quote: quote, Command: showProxyPods(v.name),
		})
	} else if !s.processesRead {
		return nil
	}
	return out
}

func showProxyPods(node string) string {
	if node == "" {
		return kubectl("get", "pods", "-n", snapshot.ProxyNamespace, "-o", "wide")
	}
	return kubectl("get", "pods", "-n", snapshot.ProxyNamespace, "-o", "wide", "--field-selector", "spec.nodeName="+node)
}

func podRuns(pod *corev1.Pod) bool {
	if pod == nil || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true
}
