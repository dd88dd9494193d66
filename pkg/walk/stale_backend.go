package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// staleBackend: the node still sends to an address that the EndpointSlices do
// not name any more, or not as one that may be drawn.
var staleBackend = &Check{
	Code: diagnosis.StaleBackend, Needs: needsOfNode, Applies: onNodes,
	Explains: []diagnosis.Code{diagnosis.BackendMissing, diagnosis.UnevenOdds, diagnosis.AffinityNotProgrammed, diagnosis.ConntrackStale},
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return len(pr.stale) > 0 }) {
			pr := f.first()
			expected := "sent only to " + listBackends(pr.expect.Backends)
			if len(pr.expect.Backends) == 0 {
				expected = "sent to nobody: " + pr.expect.Why
			}
			evidence := append(wayEvidence(f.view, pr.stale[0]), p.endpointsEvidence())
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    fmt.Sprintf("%s still sends %s to %s, not among the endpoints that it may use", f.view.label(), share(pr.stale), listTo(pr.stale)),
				Expected: expected,
				Found:    "DNAT to " + listTo(pr.stale) + ", for " + f.affected(),
				Evidence: slices.Concat(evidence, f.view.frozenProxy(), p.knownBugs(f.view, diagnosis.StaleBackend)),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			})
		}
	},
}
