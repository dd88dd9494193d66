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
			if f.view.inIPVS() {
				p.reportUnmaskedInIPVS(f)
				continue
			}
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    fmt.Sprintf("%s does not masquerade packets of %s: answers may not come back through it", f.view.label(), outsiders(pr.caller.label)),
				Expected: "source rewritten to the node's address (in " + f.view.proxyChains().postrouting + ")",
				Found:    "source stays " + pr.caller.addr.String() + " on the way to " + listTo(pr.unmasked) + ", for " + f.affected(),
				Evidence: append(wayEvidence(f.view, pr.unmasked[0]), f.view.masqueradeRules(pr)...),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			})
		}
	},
}

// masqueradeRules quotes KUBE-POSTROUTING, or what stands for it, as it is, or says that it isn't.
func (v *nodeView) masqueradeRules(pr *probe) []diagnosis.Evidence {
	names := v.proxyChains()
	chain, ok := v.rules.OnlyFamily(familyOf(pr.frontend.V6)).Chain(names.table, names.postrouting)
	e := diagnosis.Evidence{
		Source: v.rulesName(pr.frontend.V6) + " of " + v.label(), Ref: names.table + " " + names.postrouting,
		Quote: fmt.Sprintf("no chain %s in table %s", names.postrouting, names.table), Command: v.grepRules(names.postrouting, pr.frontend.V6),
	}
	if ok {
		e.Source, e.Line, e.Command = chain.Source+" of "+v.label(), chain.Line, showBase(v, chain)
		e.Quote = fmt.Sprintf(":%s (%d rules)", names.postrouting, chain.NumRules)
		for r := range chain.Rules() {
			e.Quote += "; " + r.Text
		}
	}
	return []diagnosis.Evidence{e}
}
