package walk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// policyChecks are layer 4: NetworkPolicy, for the client and each backend, on
// the pod's port. Those that explain others come first.
var policyChecks = []*Check{
	policyNamesServicePort,
	peerNearlyMatches,
	someBackendsBlocked,
	ingressBlocked,
	egressBlocked,
}

// policyLayer is what the policy checks share of one Service.
type policyLayer struct {
	done     bool
	backends []policyBackend
	clients  []policyClient
	// flows has the decision of each client for each backend.
	flows []policyFlow
	// groups counts how many clients there were before those that are alike
	// were taken together, and left how many were not examined.
	groups, left int
}

// toPods is the Applies of every policy check.
func toPods(p *Pass) bool { return p.Service != nil && len(p.policyBackends()) > 0 }

var needsOfPolicy = []snapshot.Resource{snapshot.NetworkPolicies, snapshot.Pods}

func summarisePolicy(p *Pass) Summary {
	if p.Service.Spec.Type == "ExternalName" {
		return Summary{Status: diagnosis.Skipped, Text: "no pod behind it that a policy could isolate"}
	}
	if len(p.policyBackends()) == 0 {
		s := Summary{Status: diagnosis.Unknown, Text: "no backend to judge", Because: p.emptyBecause()}
		if !p.Has(snapshot.EndpointSlices) {
			p.Need(diagnosis.LayerPolicy, snapshot.EndpointSlices)
			s.Because = nil
		}
		return s
	}
	if !p.Has(snapshot.NetworkPolicies) || !p.Has(snapshot.Pods) {
		return Summary{Status: diagnosis.Unknown, Text: "not examined"}
	}
	flows := p.policyFlows()
	p.notePolicyUnknowns(flows)
	return p.summariseFlows(flows)
}

func (p *Pass) summariseFlows(flows []policyFlow) Summary {
	isolating := isolatingPolicies(flows, netpol.Ingress)
	n := 0
	for _, c := range p.policy.clients {
		if reach := p.reachOf(c); reach.allowed == reach.all {
			n++
		}
	}
	all := len(p.policy.clients)
	switch {
	case all == 0 && p.Client.Kind != AnyPod:
		p.Missing(diagnosis.LayerPolicy, p.clientMissing())
		return Summary{Status: diagnosis.Unknown, Text: "the client was not found"}
	case len(isolating) == 0 && len(isolatingPolicies(flows, netpol.Egress)) == 0:
		return Summary{Text: "no NetworkPolicy isolates the client or a backend"}
	case p.Client.Kind != AnyPod && n == all:
		return Summary{Text: fmt.Sprintf("%s may reach %s", p.Client, countBackends(len(p.policy.backends)))}
	case p.Client.Kind != AnyPod:
		return Summary{Text: fmt.Sprintf("%s may not reach every backend", p.Client)}
	case n == all:
		return Summary{Text: fmt.Sprintf("%s: every client that was read is admitted", policyList(isolating))}
	}
	return Summary{Text: fmt.Sprintf("%s: %d of %d kinds of client admitted", policyList(isolating), n, all)}
}

func policyList(refs []netpol.PolicyRef) string {
	if len(refs) == 0 {
		return "only clients' egress policies apply"
	}
	var names []string
	for _, r := range refs {
		names = append(names, r.String())
	}
	return "isolated by " + join(names, 2)
}

// isolatingPolicies are those that isolate the client (Egress) or the backend
// (Ingress) of any of the flows.
func isolatingPolicies(flows []policyFlow, d netpol.Direction) []netpol.PolicyRef {
	var out []netpol.PolicyRef
	for _, f := range flows {
		for _, r := range f.result(d).Isolating {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b netpol.PolicyRef) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// clientMissing says that the client that --from names was not read.
func (p *Pass) clientMissing() diagnosis.Missing {
	m := diagnosis.Missing{What: p.Client.String(), Why: "no such object was read"}
	switch p.Client.Kind {
	case OnePod:
		m.Supply = kubectl("get", "pod", p.Client.Name, "-n", p.Client.Namespace, "-o", "yaml")
	case OnNode:
		m.Supply = kubectl("get", "node", p.Client.Name, "-o", "yaml")
	default:
		m.Why, m.Supply = "it has no address of the backends' family", "name the client by another address: --from IP"
	}
	return m
}

// notePolicyUnknowns makes the layer unknown where a verdict is, and says of
// verdicts that hang on an implementation that they do.
func (p *Pass) notePolicyUnknowns(flows []policyFlow) {
	for _, f := range flows {
		for _, c := range f.decision.Caveats() {
			switch {
			case f.decision.Verdict == netpol.Unknown:
				p.Missing(diagnosis.LayerPolicy, diagnosis.Missing{
					What: "whether " + f.client.label + " may reach " + f.backend.label(), Why: c.Text, Supply: p.policySupply(c),
				})
			case c.Contested && p.Client.Kind != AnyPod:
				p.noteOnce(diagnosis.LayerPolicy, diagnosis.Missing{
					What: "how this cluster's network plugin enforces it", Why: c.Text, Supply: "the plugin's documentation; try it from the client",
				})
			}
		}
	}
	if p.policy.left > 0 {
		p.noteOnce(diagnosis.LayerPolicy, diagnosis.Missing{
			What: fmt.Sprintf("%d more kinds of client", p.policy.left), Why: fmt.Sprintf("only the first %d were judged", maxPolicyClients),
			Supply: p.again() + " --from NAMESPACE/POD",
		})
	}
	if p.Client.Kind == AnyPod && p.snap.Reads.Of(snapshot.Pods, "").Status != snapshot.Done && len(isolatingPolicies(flows, netpol.Ingress)) > 0 {
		p.noteOnce(diagnosis.LayerPolicy, diagnosis.Missing{
			What: "pods of other namespaces as clients", Why: "only some namespaces' pods were read", Supply: p.again() + " --from NAMESPACE/POD",
		})
	}
}

func (p *Pass) noteOnce(l diagnosis.Layer, m diagnosis.Missing) {
	if !slices.Contains(p.notes[l], m) {
		p.Note(l, m)
	}
}

// needPoliciesOf makes the layer unknown for want of a namespace's policies.
func (p *Pass) needPoliciesOf(namespace string) {
	p.Missing(diagnosis.LayerPolicy, missingResource(p.snap.Reads.Of(snapshot.NetworkPolicies, namespace), " -n "+shellQuote(namespace)))
}

func (p *Pass) policySupply(c netpol.Caveat) string {
	switch c.Kind {
	case netpol.CaveatNamespaceUnread:
		return "kubectl get namespaces -o yaml > namespaces.yaml   (then: --objects namespaces.yaml)"
	case netpol.CaveatInvalidPolicy:
		return kubectl("get", "networkpolicy", c.Policy.Name, "-n", c.Policy.Namespace, "-o", "yaml")
	}
	return p.again() + " --from NAMESPACE/POD"
}
