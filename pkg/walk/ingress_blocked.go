package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// ingressBlocked: the backend is isolated for ingress and no rule admits the
// client on the pod's port. Where no client was named and some are admitted,
// that others are refused is told as an info: it is what the policy is for.
var ingressBlocked = &Check{
	Code: diagnosis.IngressBlocked, Needs: needsOfPolicy, Applies: toPods,
	Run: func(p *Pass) { p.reportBlocked(netpol.Ingress) },
}

// reportBlocked raises the running check's code for the first port on which
// the direction keeps clients out.
func (p *Pass) reportBlocked(d netpol.Direction) {
	if p.Raised(diagnosis.SomeBackendsBlocked) {
		return // said there, with the direction and the policies
	}
	for _, f := range p.policyFaults(d) {
		severity := diagnosis.Error
		title := fmt.Sprintf("%s is blocked from %s by %s policy: %s", f.who(), p.Service.Name, directionText(d), policyNames(f, d))
		if !f.total {
			if f.named || d == netpol.Egress {
				continue // the client gets through, or it is the clients' own affair
			}
			severity = diagnosis.Info
			title = fmt.Sprintf("%d of %d kinds of client are refused by %s policy: %s", len(clientsOf(f.flows)), len(p.policy.clients), directionText(d), policyNames(f, d))
		}
		p.Report(Finding{
			Severity: severity,
			Title:    title,
			Expected: fmt.Sprintf("a rule that admits %s on %d/%s", f.flows[0].client.label, f.flows[0].backend.addr.Port(), f.flows[0].backend.protocol),
			Found:    fmt.Sprintf("no %s rule of %s matches", directionText(d), policyNames(f, d)),
			Evidence: p.denialEvidence(f, d),
			Fixes:    p.admit(f, d),
		})
		return
	}
}

func clientsOf(fs []policyFlow) map[string]bool {
	out := map[string]bool{}
	for _, f := range fs {
		out[f.client.label] = true
	}
	return out
}

func policyNames(f policyFault, d netpol.Direction) string {
	var names []string
	for _, r := range isolatingPolicies(f.flows, d) {
		names = append(names, r.String())
	}
	return join(names, 3)
}
