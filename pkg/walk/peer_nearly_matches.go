package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// peerNearlyMatches: a rule has the right port and misses the client by a
// label, or by the namespace that it does not name. Where no client is named,
// it is looked for only if nobody gets through: then some client was meant.
var peerNearlyMatches = &Check{
	Code: diagnosis.PeerNearlyMatches, Needs: needsOfPolicy, Applies: toPods,
	Explains: []diagnosis.Code{diagnosis.IngressBlocked, diagnosis.EgressBlocked, diagnosis.SomeBackendsBlocked},
	Run: func(p *Pass) {
		if p.Raised(diagnosis.PolicyNamesServicePort) {
			return
		}
		for _, d := range []netpol.Direction{netpol.Ingress, netpol.Egress} {
			for _, f := range p.blocking(d) {
				fl, near, ok := p.nearest(f, d, nearPeer)
				if !ok {
					continue
				}
				miss := nearestMiss(near)
				end := "the client"
				if d == netpol.Egress {
					end = "the backend"
				}
				p.Report(Finding{
					Subject:  policySubject(near.Policy),
					Title:    fmt.Sprintf("NetworkPolicy %s nearly admits %s: %s", near.Policy.Name, fl.client.label, missText(miss)),
					Expected: miss.Want,
					Found:    fmt.Sprintf("%s of %s", miss.Got, end),
					Evidence: []diagnosis.Evidence{
						policyEvidence(near.Policy, miss.Field, miss.Want),
						p.peerEvidence(fl, d, miss),
					},
					Fixes: p.mendPeer(near, miss, fl, d),
				})
				return
			}
		}
	},
}

// nearestMiss is the miss that looks most like a mistake.
func nearestMiss(n netpol.NearMiss) netpol.Miss {
	best, found := netpol.Miss{}, false
	for _, m := range n.Misses {
		if m.Near && (!found || m.Only && !best.Only || m.Only == best.Only && m.Distance < best.Distance) {
			best, found = m, true
		}
	}
	return best
}

// missText says a miss in words.
func missText(m netpol.Miss) string {
	switch m.Kind {
	case netpol.MissPodLabelValue, netpol.MissNamespaceLabelValue:
		return fmt.Sprintf("it asks for %s, and the label is %s", m.Want, m.Got)
	case netpol.MissPodLabelKey, netpol.MissNamespaceLabelKey:
		return fmt.Sprintf("it asks for %s, and the label's key is %s", m.Want, m.GotKey)
	case netpol.MissPodLabelAbsent, netpol.MissNamespaceLabelAbsent:
		return fmt.Sprintf("it asks for %s, and there is no such label", m.Want)
	case netpol.MissPodLabelExcluded, netpol.MissNamespaceLabelExcluded:
		return fmt.Sprintf("it excludes %s", m.Got)
	case netpol.MissNamespaceSelector:
		return "its podSelector stands without a namespaceSelector, which means the policy's own namespace"
	case netpol.MissSplitPeers:
		return "it asks for pod and namespace at once, where either may have been meant"
	case netpol.MissIPBlockVIP:
		return fmt.Sprintf("its ipBlock %s holds the Service's address, which policies do not see", m.Want)
	}
	return fmt.Sprintf("it asks for %s, and there is %s", m.Want, m.Got)
}
