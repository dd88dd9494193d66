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
	Run: func(p *Pass) {
		for _, group := range p.missesOf(false) {
			m := group[0]
			miss, ref := m.misses[0], m.near.Policy
			who, end := m.flow.client.label, "the client, "+m.flow.client.label
			if m.near.Direction == netpol.Egress {
				who, end = m.flow.backend.label(), "the backend, "+m.flow.backend.label()
			}
			var evidence []diagnosis.Evidence
			for _, miss := range m.misses {
				evidence = append(evidence, p.itemEvidence(m.near, miss), p.peerEvidence(m.flow, m.near.Direction, miss))
			}
			p.Report(Finding{
				Subject:  policySubject(ref),
				Title:    fmt.Sprintf("NetworkPolicy %s nearly admits %s: %s", ref.Name, who, missText(miss)),
				Expected: miss.Want,
				Found:    fmt.Sprintf("%s (%s)", miss.Got, end),
				Evidence: evidence,
				Fixes:    p.mendPeers(group),
				Explains: p.explained(group),
			})
		}
	},
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
	case netpol.MissNamespaceSelector:
		return "its podSelector stands without a namespaceSelector, which means the policy's own namespace"
	case netpol.MissSplitPeers:
		return "it asks for pod and namespace at once, where either may have been meant"
	case netpol.MissHostNetwork:
		return "its selectors would fit, but the pod is on its node's network, where policies see the node's address"
	case netpol.MissIPBlockVIP:
		return fmt.Sprintf("its ipBlock %s holds the Service's address, which policies do not see", m.Want)
	}
	return fmt.Sprintf("it asks for %s, and there is %s", m.Want, m.Got)
}
