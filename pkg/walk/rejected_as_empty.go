package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// rejectedAsEmpty: the node turns the packet away by the rule that kube-proxy
// writes for a Service without endpoints, and there are endpoints. A refusal
// that is right is a consequence of layer 2 and no diagnosis.
var rejectedAsEmpty = &Check{
	Code: diagnosis.RejectedAsEmpty, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return len(pr.refused) > 0 }) {
			pr := f.first()
			var severity diagnosis.Severity // the catalogue's
			fixes := []Proposal{p.restartProxy(f.view)}
			if p.Service == nil {
				severity, fixes = diagnosis.Info, nil // for all that is known it is as it should be
			}
			title := fmt.Sprintf("%s refuses %s as a Service without endpoints", f.view.label(), frontendText(pr.frontend, pr.dst))
			if n := len(pr.expect.Backends); n > 0 {
				title += fmt.Sprintf("; there are %d", n)
			} else {
				title += "; whether there are any was not read"
			}
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Severity: severity,
				Title:    title,
				Expected: pr.wantText(),
				Found:    string(pr.refused[0].Verdict) + " by kube-proxy's rule for no endpoints, for " + f.affected(),
				Evidence: append(wayEvidence(f.view, pr.refused[0]), p.backendsEvidence(pr.expect.Backends)...),
				Fixes:    fixes,
			})
		}
	},
}
