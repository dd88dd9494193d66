package walk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// cniAgentNotReady: the agent of the cluster's network on a node that the
// packets touch is absent, crashes or is not ready, or the node itself says that
// it has no network.
var cniAgentNotReady = &Check{
	Code: diagnosis.CNIAgentNotReady, Applies: hasFrontends,
	Run: func(p *Pass) {
		p.probes()
		for _, t := range p.networkTroubles() {
			p.Report(p.networkFinding(t))
		}
	},
}

// cniAgent is the agent that a network plugin runs on every node: the labels of
// its pods, any of which will do.
type cniAgent struct {
	name   string
	labels []string
}

// cniAgents are those of the usual plugins, by the labels of their own manifests
// and of the distributions.
var cniAgents = []cniAgent{
	{"Calico", []string{"k8s-app=calico-node"}},
	{"Canal", []string{"k8s-app=canal"}},
	{"Cilium", []string{"k8s-app=cilium"}},
	{"Flannel", []string{"app=flannel", "k8s-app=flannel"}},
	{"Weave Net", []string{"name=weave-net"}},
	{"Antrea", []string{"component=antrea-agent"}},
	{"kube-router", []string{"k8s-app=kube-router"}},
	{"AWS VPC CNI", []string{"k8s-app=aws-node"}},
	{"Azure CNI", []string{"k8s-app=azure-cns", "k8s-app=azure-cni"}},
	{"OVN-Kubernetes", []string{"app=ovnkube-node"}},
	{"Kube-OVN", []string{"app=kube-ovn-cni"}},
	{"kindnet", []string{"app=kindnet", "k8s-app=kindnet"}},
}

// networkTrouble is what is the matter with the network of nodes.
type networkTrouble struct {
	nodes    []string
	severity diagnosis.Severity
	// what says it: "Flannel's agent crashes".
	what, found string
	evidence    []diagnosis.Evidence
	agent       *corev1.Pod
}

// networkTroubles looks at each node that the Service's packets touch; nodes in
// the same trouble are told of together.
func (p *Pass) networkTroubles() []networkTrouble {
	var out []networkTrouble
	for _, name := range p.touchedNodes() {
		t, ok := p.nodeWithoutNetwork(name)
		if !ok {
			t, ok = p.agentTrouble(name)
		}
		if !ok {
			continue
		}
		if i := slices.IndexFunc(out, func(o networkTrouble) bool { return o.what == t.what && o.severity == t.severity }); i >= 0 {
			out[i].nodes = append(out[i].nodes, name)
			continue
		}
		t.nodes = []string{name}
		out = append(out, t)
	}
	return out
}

// touchedNodes are the nodes of the backends, of the client, and those whose
// rules are looked at; sorted.
func (p *Pass) touchedNodes() []string {
	var out []string
	for _, e := range p.Endpoints() {
		if e.Node != "" && !slices.Contains(out, e.Node) {
			out = append(out, e.Node)
		}
	}
	for _, v := range p.node.views {
		if v.name != "" && !slices.Contains(out, v.name) {
			out = append(out, v.name)
		}
	}
	if n := p.clientNode(); n != "" && !slices.Contains(out, n) {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// networkNotReady is in the message with which the kubelet says that it is not
// ready for want of a network plugin.
const networkNotReady = "NetworkPluginNotReady"

// nodeWithoutNetwork reads the node's own conditions.
func (p *Pass) nodeWithoutNetwork(name string) (networkTrouble, bool) {
	n := p.nodeByName[name]
	if n == nil {
		return networkTrouble{}, false
	}
	for _, c := range n.Status.Conditions {
		quote := strings.TrimSpace(fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
		t := networkTrouble{severity: diagnosis.Error, found: quote, evidence: []diagnosis.Evidence{{
			Source: "node/" + name + " .status.conditions", Ref: "node/" + name, Quote: quote,
			Command: kubectl("get", "node", name, "-o", "jsonpath={.status.conditions}"),
		}}}
		switch {
		case c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue:
			t.what = "the node says that it has no network (NetworkUnavailable)"
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && (strings.Contains(c.Message, networkNotReady) || strings.Contains(c.Message, "cni plugin not initialized")):
			t.what = "the kubelet waits for the network plugin"
		default:
			continue
		}
		if a, pod := p.agentOn(name); pod != nil {
			t.agent = pod
			if r := p.whyNotReady(pod); !podReady(pod) {
				t.found += "; " + a.name + "'s agent " + pod.Name + ": " + r.text
				t.evidence = append(t.evidence, r.evidence...)
			}
		}
		return t, true
	}
	return networkTrouble{}, false
}

// networkAgents are the agents' pods that were read, by plugin; looked for once.
func (w *world) networkAgents() [][]*corev1.Pod {
	if w.cniPods == nil {
		w.cniPods = make([][]*corev1.Pod, len(cniAgents))
		for i, a := range cniAgents {
			w.cniPods[i] = w.agents(&replacementKind{pods: a.labels})
		}
	}
	return w.cniPods
}

// agentOn is the agent of the cluster's network on a node, nil where there is
// none.
func (p *Pass) agentOn(node string) (cniAgent, *corev1.Pod) {
	for i, pods := range p.networkAgents() {
		for _, pod := range pods {
			if pod.Spec.NodeName == node {
				return cniAgents[i], pod
			}
		}
	}
	return cniAgent{}, nil
}

// agentTrouble looks at the agent's pod on a node. One that is missing says
// something only where other nodes have one, and the node is no newcomer.
func (p *Pass) agentTrouble(node string) (networkTrouble, bool) {
	for at, pods := range p.networkAgents() {
		if len(pods) == 0 {
			continue
		}
		a := cniAgents[at]
		i := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node && pod.DeletionTimestamp == nil })
		if i < 0 {
			if t, ok := p.agentAbsent(a, pods, node); ok {
				return t, true
			}
			continue
		}
		pod := pods[i]
		if podReady(pod) || p.snap.TakenAt.Sub(pod.CreationTimestamp.Time) < agentGrace {
			return networkTrouble{}, false
		}
		if n := p.nodeByName[node]; n != nil && !nodeReady(n) {
			return networkTrouble{}, false // the node is down, with all that it runs
		}
		r := p.whyNotReady(pod)
		return networkTrouble{
			severity: diagnosis.Warning, agent: pod, what: fmt.Sprintf("%s's agent %s", a.name, r.class.one), found: pod.Name + ": " + r.text, evidence: r.evidence,
		}, true
	}
	return networkTrouble{}, false
}

// agentGrace is how long an agent may take to come up on a node.
const agentGrace = 2 * time.Minute

func (p *Pass) agentAbsent(a cniAgent, pods []*corev1.Pod, node string) (networkTrouble, bool) {
	n := p.nodeByName[node]
	others := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" || pod.Spec.NodeName == node })
	if n == nil || len(others) == 0 || !p.snap.Reads.Has(snapshot.Pods, pods[0].Namespace) || p.snap.TakenAt.Sub(n.CreationTimestamp.Time) < agentGrace || withoutAgents(n) {
		return networkTrouble{}, false
	}
	if _, pod := p.agentOn(node); pod != nil {
		return networkTrouble{}, false // another network has this node, or this one's new agent
	}
	return networkTrouble{
		severity: diagnosis.Warning,
		what:     a.name + "'s agent is missing",
		found:    fmt.Sprintf("%s of %s on other nodes, none on %s", count(len(others), "pod"), a.name, node),
		evidence: []diagnosis.Evidence{{
			Source: "pods in " + others[0].Namespace, Ref: "Pod/" + others[0].Namespace,
			Quote:   fmt.Sprintf("%s on %s; none on %s", others[0].Name, others[0].Spec.NodeName, node),
			Command: kubectl("get", "pods", "-n", others[0].Namespace, "-o", "wide"),
		}},
	}, true
}

// withoutAgents says whether a node is of a kind that runs no DaemonSets of
// Linux: a virtual one, or Windows.
func withoutAgents(n *corev1.Node) bool {
	return n.Labels["type"] == "virtual-kubelet" || n.Labels["eks.amazonaws.com/compute-type"] == "fargate" ||
		n.Labels[corev1.LabelOSStable] == "windows" || n.Status.NodeInfo.OperatingSystem == "windows"
}

func (p *Pass) networkFinding(t networkTrouble) Finding {
	f := Finding{
		Severity: t.severity,
		Title:    fmt.Sprintf("%s on %s", t.what, join(t.nodes, 3)),
		Expected: "a network agent that runs and is ready on every node that the Service's packets touch",
		Found:    t.found,
		Evidence: t.evidence,
		Explains: []diagnosis.Code{diagnosis.NoRouteToBackend},
	}
	f.Subject = p.ServiceSubject()
	if len(t.nodes) == 1 {
		f.Subject.Node = t.nodes[0]
	} else {
		f.Explains = nil
	}
	look := []string{kubectl("get", "pods", "-A", "-o", "wide", "--field-selector", "spec.nodeName="+t.nodes[0])}
	if t.agent != nil {
		look = []string{kubectl("describe", "pod", t.agent.Name, "-n", t.agent.Namespace), kubectl("logs", t.agent.Name, "-n", t.agent.Namespace, "--all-containers", "--tail=50")}
	}
	f.Fixes = []Proposal{{
		Fix: diagnosis.Fix{
			Title: "find out why the network's agent does not run on " + t.nodes[0], Commands: look, BlastRadius: "these commands only look",
			Undo: []string{"nothing to undo: these only look"}, Verify: []string{kubectl("get", "node", t.nodes[0]), p.again()},
		},
		NotSimulated: changesNode,
	}}
	if t.agent != nil && !isStatic(t.agent) {
		f.Fixes = append(f.Fixes, Proposal{
			Fix: diagnosis.Fix{
				Title: "restart that agent, once its log has been read", Commands: []string{kubectl("delete", "pod", t.agent.Name, "-n", t.agent.Namespace)},
				BlastRadius: "the network's agent of " + t.nodes[0] + " alone: pods there keep their network meanwhile, and no new one gets any",
				Undo:        []string{"nothing to undo: the restart changes no object and no configuration"},
				Verify:      []string{kubectl("get", "pods", "-n", t.agent.Namespace, "-o", "wide", "--field-selector", "spec.nodeName="+t.nodes[0]), p.again()},
			},
			NotSimulated: changesNode,
		})
	}
	return f
}
