package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// policyNamesServicePort: a rule admits the client on the Service's port, and
// policies see the pod's, because the address and port are rewritten before
// they are asked.
var policyNamesServicePort = &Check{
	Code: diagnosis.PolicyNamesServicePort, Needs: needsOfPolicy, Applies: toPods,
	Explains: []diagnosis.Code{diagnosis.IngressBlocked, diagnosis.EgressBlocked, diagnosis.SomeBackendsBlocked, diagnosis.PeerNearlyMatches},
	Run: func(p *Pass) {
		for _, d := range []netpol.Direction{netpol.Ingress, netpol.Egress} {
			for _, f := range p.blocking(d) {
				fl, near, ok := p.nearest(f, d, onlyPort)
				if !ok {
					continue
				}
				miss, _ := missOf(near, netpol.MissServicePort)
				pod := fmt.Sprintf("%d/%s", fl.backend.addr.Port(), fl.backend.protocol)
				p.Report(Finding{
					Subject: policySubject(near.Policy),
					Title: fmt.Sprintf("NetworkPolicy %s names port %s, the Service's; policies see the pod's, %s",
						near.Policy.Name, miss.Want, pod),
					Expected: fmt.Sprintf("a rule for port %s, which the packet has after DNAT", pod),
					Found:    fmt.Sprintf("%s: %s", miss.Field, miss.Want),
					Evidence: []diagnosis.Evidence{
						policyEvidence(near.Policy, miss.Field, "port "+miss.Want),
						p.serviceField(".spec.ports", fmt.Sprintf("port %d to targetPort, on the pod %s", fl.backend.servicePort, pod)),
					},
					Fixes: []Proposal{p.addPolicyPort(near, miss, fl)},
				})
				return
			}
		}
	},
}
