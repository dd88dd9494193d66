package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// policyNamesServicePort: a rule admits the client on the Service's port, and
// policies see the pod's, because the address and port are rewritten before
// they are asked.
var policyNamesServicePort = &Check{
	Code: diagnosis.PolicyNamesServicePort, Needs: needsOfPolicy, Applies: toPods,
	Run: func(p *Pass) {
		for _, group := range p.missesOf(true) {
			var named, real []string
			var evidence []diagnosis.Evidence
			for _, m := range group {
				b := m.flow.backend
				miss := m.misses[0]
				if slices.Contains(named, miss.Want) && slices.Contains(real, b.portText()) {
					continue
				}
				named, real = addWord(named, miss.Want), addWord(real, b.portText())
				evidence = append(evidence, policyEvidence(m.near.Policy, miss.Field, "port "+miss.Want),
					p.serviceField(".spec.ports", fmt.Sprintf("port %d/%s, which is %s on pod %s", b.port.number, b.port.protocol, b.portText(), podName(b))))
			}
			ref := group[0].near.Policy
			p.Report(Finding{
				Subject:  policySubject(ref),
				Title:    fmt.Sprintf("NetworkPolicy %s goes by the Service's port, %s; policies see the pod's, %s", ref.Name, join(named, 3), join(real, 3)),
				Expected: fmt.Sprintf("a rule for port %s, which the packet has after DNAT", join(real, 3)),
				Found:    fmt.Sprintf("%s: %s", group[0].misses[0].Field, join(named, 3)),
				Evidence: evidence,
				Fixes:    []Proposal{p.addPolicyPorts(group)},
				Explains: p.explained(group),
			})
		}
	},
}

func addWord(words []string, w string) []string {
	if slices.Contains(words, w) {
		return words
	}
	return append(words, w)
}

func podName(b *policyBackend) string {
	if b.pod == nil {
		return b.addr.Addr().String()
	}
	return b.pod.Name
}
