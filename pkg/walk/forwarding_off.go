package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// forwardingOff: the node does not forward, so nothing from a pod or from
// outside gets to a pod. kube-proxy and kubelet do not set this in iptables
// mode; something else turned it off.
var forwardingOff = &Check{
	Code: diagnosis.ForwardingOff, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Explains: []diagnosis.Code{diagnosis.DroppedAfterDNAT},
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			p.reportForwardingOf(v)
		}
		for _, f := range p.faults(func(pr *probe) bool { return len(pr.blocked) > 0 && forwardingFault(pr.blocked) }) {
			pr := f.first()
			name := host.ForwardingSysctl(pr.frontend.V6)
			if f.view.host.Forwarding(pr.frontend.V6) != netfilter.False {
				continue
			}
			src := "sysctl"
			if t := f.view.state.Text(snapshot.Sysctl); t.Ref != "" {
				src = t.Ref
			}
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    fmt.Sprintf("%s does not forward packets: %s = 0", f.view.label(), name),
				Expected: name + " = 1",
				Found:    name + " = 0; concerns " + f.affected(),
				Evidence: append([]diagnosis.Evidence{{
					Source: src + " of " + f.view.label(), Ref: name, Quote: name + " = 0",
					Command: f.view.onNodeCommand("sysctl " + name),
				}}, wayEvidence(f.view, pr.blocked[0])...),
				Fixes: []Proposal{{
					Fix: diagnosis.Fix{
						Title:       "turn forwarding on",
						Commands:    []string{f.view.onNodeCommand("sudo sysctl -w " + name + "=1")},
						BlastRadius: "every packet that " + f.view.label() + " would forward, not this Service's alone; until it starts anew, so keep it in /etc/sysctl.d/ too, and find what turned it off",
						Undo:        []string{f.view.onNodeCommand("sudo sysctl -w " + name + "=0")},
						Verify:      []string{p.again()},
					},
					NotSimulated: "it changes a node, not an API object",
				}},
			})
		}
	},
}
