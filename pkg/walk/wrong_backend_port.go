package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// wrongBackendPort: the right pod, and a port that the EndpointSlice does not
// give it.
var wrongBackendPort = &Check{
	Code: diagnosis.WrongBackendPort, Needs: needsOfNode, Applies: onNodes,
	Explains: []diagnosis.Code{diagnosis.BackendMissing, diagnosis.UnevenOdds},
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return len(pr.wrongPort) > 0 }) {
			pr := f.first()
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    fmt.Sprintf("%s sends %s to the right pod on the wrong port: %s", f.view.label(), share(pr.wrongPort), listTo(pr.wrongPort)),
				Expected: "sent to " + listBackends(pr.expect.Backends),
				Found:    "DNAT to " + listTo(pr.wrongPort) + ", for " + f.affected(),
				Evidence: append(wayEvidence(f.view, pr.wrongPort[0]), p.backendsEvidence(pr.expect.Backends)...),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			})
		}
	},
}
