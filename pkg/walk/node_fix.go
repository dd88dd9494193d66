package walk

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const changesNode = "it changes a node, not an API object, so it cannot be tried on paper"

// restartProxy is the mend for rules that are not what the objects ask: a
// kube-proxy that starts anew writes all of its rules.
func (p *Pass) restartProxy(v *nodeView) Proposal {
	if v.cilium != nil {
		return p.restartCilium(v)
	}
	fix := diagnosis.Fix{
		Title:       "restart kube-proxy on " + v.label() + ", which writes all its rules anew",
		BlastRadius: "kube-proxy of " + v.label() + " alone; the rules in the kernel stay while it restarts, and connections go on",
		Undo:        []string{"nothing to undo: the restart changes no object and no configuration"},
		Verify:      []string{p.again(), v.onNodeCommand("curl -s http://127.0.0.1:10256/healthz")},
	}
	switch s := v.seen; {
	case s.pod != nil && isStatic(s.pod):
		// Deleting a static pod's mirror restarts nothing.
		fix.Commands = []string{
			proxyLogs(s.pod),
			v.onNodeCommand("sudo crictl ps -q --name kube-proxy | xargs -r sudo crictl stop") + "   (the kubelet starts it again)",
		}
	case s.pod != nil:
		fix.Commands = []string{proxyLogs(s.pod), kubectl("delete", "pod", "-n", snapshot.ProxyNamespace, s.pod.Name)}
	case s.container() != "":
		unit := proxyUnits[s.container()]
		fix.Commands = []string{
			v.onNodeCommand("sudo journalctl -u "+unit+" -n 50") + "   (read this first: it may say why)",
			v.onNodeCommand("sudo systemctl restart " + unit),
		}
		fix.BlastRadius = unit + " on " + v.label() + ", with all that it runs in its process; pods keep running"
	case v.name != "":
		fix.Commands = []string{
			showProxyPods(v.name),
			kubectl("delete", "pod", "-n", snapshot.ProxyNamespace, "-l", "k8s-app=kube-proxy", "--field-selector", "spec.nodeName="+v.name),
		}
	default:
		fix.Commands = []string{"kubectl delete pod -n kube-system -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE   (NODE: this node's name)"}
	}
	return Proposal{Fix: fix, NotSimulated: changesNode}
}

// proxyUnits are the systemd units of what runs kube-proxy in its own process.
var proxyUnits = map[string]string{
	"k3s": "k3s", "k3s-server": "k3s", "k3s-agent": "k3s-agent", "kubelite": "snap.microk8s.daemon-kubelite",
}

// container is the process that has kube-proxy in it, "" where that is not so.
func (s proxySeen) container() string {
	name := ""
	for _, pr := range s.processes {
		if pr.name == "kube-proxy" {
			return ""
		}
		if proxyUnits[pr.name] != "" {
			name = pr.name
		}
	}
	return name
}

// isStatic says whether the kubelet runs the pod from a file of its node.
func isStatic(pod *corev1.Pod) bool {
	for _, o := range pod.OwnerReferences {
		if o.Kind == "Node" {
			return true
		}
	}
	return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" || pod.Annotations["kubernetes.io/config.source"] == "file"
}

func proxyLogs(pod *corev1.Pod) string {
	return kubectl("logs", "-n", snapshot.ProxyNamespace, pod.Name, "--tail=50") + "   (read this first: it may say why)"
}

// startProxy is the mend for a node without one.
func (p *Pass) startProxy(v *nodeView) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "find out why kube-proxy does not run on " + v.label() + ", and start it",
			Commands: []string{
				kubectl("get", "daemonset", "-n", snapshot.ProxyNamespace, "kube-proxy", "-o", "wide"),
				showProxyPods(v.name),
				kubectl("get", "events", "-n", snapshot.ProxyNamespace, "--sort-by=.lastTimestamp"),
			},
			BlastRadius: "these commands only look; what starts kube-proxy changes the rules of " + v.label() + " alone",
			Undo:        []string{"nothing to undo: these only look"},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// unblock proposes how to let packets past the rule that drops them. Which rule
// set is right is the node owner's to say, so these are narrow and have an
// exact way back.
func (p *Pass) unblock(v *nodeView, pr *probe, last netfilter.Step) []Proposal {
	tool := strings.TrimSuffix(v.saveTool(last.Source), "-save")
	var out []Proposal
	if len(v.forwardJump(pr)) > 0 {
		out = append(out, p.restartProxy(v))
	}
	if isPolicy(last) && last.Chain == "FORWARD" && last.Table == "filter" && !v.nftSources[last.Source] {
		for _, c := range v.proxyNode().PodCIDRs {
			if c.Addr().Is6() != pr.frontend.V6 {
				continue
			}
			rule := func(flag string) string {
				return v.onNodeCommand(fmt.Sprintf("sudo %s -t filter %s FORWARD %s %s -j ACCEPT -m comment --comment 'let pods through'", tool, flag, "-d", c))
			}
			from := func(flag string) string {
				return v.onNodeCommand(fmt.Sprintf("sudo %s -t filter %s FORWARD %s %s -j ACCEPT -m comment --comment 'let pods through'", tool, flag, "-s", c))
			}
			out = append(out, Proposal{
				Fix: diagnosis.Fix{
					Title:       "let forwarded packets of this node's pods through",
					Commands:    []string{rule("-A"), from("-A")},
					BlastRadius: "forwarded packets to and from " + c.String() + " on " + v.label() + "; gone at a reboot or a firewall reload, so mend what set the policy too",
					Undo:        []string{rule("-D"), from("-D")},
					Verify:      []string{p.again()},
				},
				NotSimulated: changesNode,
			})
		}
	}
	return append(out, Proposal{
		Fix: diagnosis.Fix{
			Title:       "see who wrote this rule, and have them let the Service's packets past",
			Commands:    []string{showChain(v, last), v.onNodeCommand("systemctl is-active docker firewalld ufw nftables")},
			BlastRadius: "these commands only look",
			Undo:        []string{"nothing to undo: these only look"},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	})
}

// frozenProxy quotes a kube-proxy process that is stopped or a zombie: it
// explains rules that no longer follow the objects.
func (v *nodeView) frozenProxy() []diagnosis.Evidence {
	for _, pr := range v.seen.processes {
		if pr.state == "T" || pr.state == "t" || pr.state == "Z" {
			return []diagnosis.Evidence{{
				Source: textName(v.state.Text(snapshot.ProxyProcess)) + " of " + v.label(), Line: pr.line, Quote: pr.text,
				Command: v.onNodeCommand("ps -o pid,stat,comm -p " + pr.pid),
			}}
		}
	}
	return nil
}

func rewritten(os []netfilter.Outcome) []netfilter.Outcome {
	var out []netfilter.Outcome
	for _, o := range os {
		if o.Rewritten {
			out = append(out, o)
		}
	}
	return out
}
