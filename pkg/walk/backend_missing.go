package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// backendMissing: a usable endpoint that the node never draws. With others
// drawn, clients get through, and the load is not shared as it should be.
var backendMissing = &Check{
	Code: diagnosis.BackendMissing, Needs: needsOfNode, Applies: onNodes,
	Explains: []diagnosis.Code{diagnosis.UnevenOdds},
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return len(pr.missing) > 0 }) {
			pr := f.first()
			severity := diagnosis.Error
			if len(pr.missing) < len(pr.expect.Backends) {
				severity = diagnosis.Warning
			}
			evidence := p.backendsEvidence(pr.missing)
			for _, o := range pr.outcomes {
				if o.Rewritten {
					evidence = append(evidence, wayEvidence(f.view, o)...)
					break
				}
			}
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Severity: severity,
				Title:    fmt.Sprintf("%s never sends to %s, %d of %d usable endpoints", f.view.label(), listBackends(pr.missing), len(pr.missing), len(pr.expect.Backends)),
				Expected: "each of " + listBackends(pr.expect.Backends) + " drawn",
				Found:    "drawn: " + listTo(rewritten(pr.outcomes)) + ", for " + f.affected(),
				Evidence: slices.Concat(evidence, f.view.frozenProxy(), p.knownBugs(f.view, diagnosis.BackendMissing)),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			})
		}
	},
}
