package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// unevenOdds: kube-proxy gives every backend the same share of new connections,
// and this node does not. Where a share falls to nobody those connections are
// lost, and it is an error. What makes it uneven on purpose (a traffic policy,
// topology hints) is in who may be drawn, not in the odds.
var unevenOdds = &Check{
	Code: diagnosis.UnevenOdds, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return pr.uneven() != nil }) {
			pr := f.worst()
			x := pr.uneven()
			each := percent(1 / float64(len(x.draws)))
			finding := Finding{
				Subject:  p.onNode(f.view),
				Severity: diagnosis.Warning,
				Title:    fmt.Sprintf("%s does not share %s out evenly: %s", f.view.label(), frontendText(pr.frontend, pr.dst), x.text()),
				Expected: fmt.Sprintf("each of %s drawn for %s of new connections", count(len(x.draws), "backend"), each),
				Found:    x.text() + ", for " + f.affected(),
				Evidence: x.evidence(pr),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			}
			if x.fell >= rounding {
				finding.Severity = diagnosis.Error
				finding.Title = fmt.Sprintf("%s sends %s of new connections to %s nowhere: its rules draw no backend for them", f.view.label(), percent(x.fell), frontendText(pr.frontend, pr.dst))
				finding.Expected = "every new connection sent to a backend"
			}
			p.Report(finding)
		}
	},
}

// worst is the probe of which most connections fall to nobody, or else the
// first.
func (f nodeFault) worst() *probe {
	worst, fell := f.first(), 0.0
	for _, pr := range f.probes {
		if x := pr.uneven(); x != nil && x.fell > fell+rounding {
			worst, fell = pr, x.fell
		}
	}
	return worst
}
