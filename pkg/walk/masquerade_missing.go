package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// masqueradeMissing: the packet reaches the right backend with its source as it
// was, and the answer will not come back through this node: a client from
// outside, the node itself, or a backend that draws itself.
var masqueradeMissing = &Check{
	Code: diagnosis.MasqueradeMissing, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return len(pr.unmasked) > 0 }) {
			pr := f.first()
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    fmt.Sprintf("%s does not masquerade %s: answers will not come back through it", f.view.label(), pr.caller.label),
				Expected: "source rewritten to the node's address (KUBE-MARK-MASQ, then KUBE-POSTROUTING)",
				Found:    "source stays " + pr.caller.addr.String() + " on the way to " + listTo(pr.unmasked),
				Evidence: append(wayEvidence(f.view, pr.unmasked[0]), f.view.masqueradeRules(pr)...),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			})
		}
	},
}

// masqueradeRules quotes KUBE-POSTROUTING as it is, or says that it isn't.
func (v *nodeView) masqueradeRules(pr *probe) []diagnosis.Evidence {
	chain, ok := v.rules.OnlyFamily(familyOf(pr.frontend.V6)).Chain("nat", "KUBE-POSTROUTING")
	e := diagnosis.Evidence{
		Source: v.rulesName(pr.frontend.V6) + " of " + v.label(), Ref: "nat KUBE-POSTROUTING",
		Quote: "no chain KUBE-POSTROUTING in table nat", Command: v.onNodeCommand("sudo iptables-save | grep KUBE-POSTROUTING"),
	}
	if ok {
		e.Line, e.Quote = chain.Line, fmt.Sprintf(":KUBE-POSTROUTING (%d rules)", chain.NumRules)
		for r := range chain.Rules() {
			e.Quote += "; " + r.Text
		}
	}
	return []diagnosis.Evidence{e}
}
