package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const changesNode = "it changes a node, not an API object, so it cannot be tried on paper"

// restartProxy is the mend for rules that are not what the objects ask: a
// kube-proxy that starts anew writes all of its rules.
func (p *Pass) restartProxy(v *nodeView) Proposal {
	fix := diagnosis.Fix{
		Title:       "restart kube-proxy on " + v.label() + ", which writes all its rules anew",
		BlastRadius: "kube-proxy of " + v.label() + " alone; the rules in the kernel stay while it restarts, and connections go on",
		Undo:        []string{"nothing to undo: the restart changes no object and no configuration"},
		Verify:      []string{p.again(), v.onNodeCommand("curl -s http://127.0.0.1:10256/healthz")},
	}
	switch s := v.seen; {
	case s.pod != nil:
		fix.Commands = []string{
			fmt.Sprintf("kubectl logs -n %s %s --tail=50   (read this first: it may say why)", snapshot.ProxyNamespace, s.pod.Name),
			fmt.Sprintf("kubectl delete pod -n %s %s", snapshot.ProxyNamespace, s.pod.Name),
		}
	case len(s.processes) > 0 && s.processes[0].name != "kube-proxy":
		unit := s.processes[0].name
		fix.Commands = []string{v.onNodeCommand("sudo systemctl restart " + unit)}
		fix.BlastRadius = unit + " on " + v.label() + ", with all that it runs in its process; pods keep running"
	case v.name != "":
		fix.Commands = []string{
			showProxyPods(v.name),
			fmt.Sprintf("kubectl delete pod -n %s -l k8s-app=kube-proxy --field-selector spec.nodeName=%s", snapshot.ProxyNamespace, v.name),
		}
	default:
		fix.Commands = []string{"kubectl delete pod -n kube-system -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE   (NODE: this node's name)"}
	}
	return Proposal{Fix: fix, NotSimulated: changesNode}
}

// startProxy is the mend for a node without one.
func (p *Pass) startProxy(v *nodeView) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "find out why kube-proxy does not run on " + v.label() + ", and start it",
			Commands: []string{
				fmt.Sprintf("kubectl get daemonset -n %s kube-proxy -o wide", snapshot.ProxyNamespace),
				showProxyPods(v.name),
				fmt.Sprintf("kubectl get events -n %s --sort-by=.lastTimestamp", snapshot.ProxyNamespace),
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
	tool := "iptables"
	if pr.frontend.V6 {
		tool = "ip6tables"
	}
	var out []Proposal
	if len(v.forwardJump(pr)) > 0 {
		out = append(out, p.restartProxy(v))
	}
	if isPolicy(last) && last.Chain == "FORWARD" {
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
			Commands:    []string{showChain(v, last.Table, last.Chain), v.onNodeCommand("systemctl is-active docker firewalld ufw nftables")},
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
