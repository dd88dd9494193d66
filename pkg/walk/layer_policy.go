package walk

import (
	"fmt"
	"slices"

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

// toPods is the Applies of every policy check.
func toPods(p *Pass) bool { return p.Service != nil && len(p.policyBackends()) > 0 }

var needsOfPolicy = []snapshot.Resource{snapshot.NetworkPolicies, snapshot.Pods}

func summarisePolicy(p *Pass) Summary {
	if isExternalName(p) {
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
	if len(flows) == 0 {
		p.Missing(diagnosis.LayerPolicy, p.clientMissing())
		return Summary{Status: diagnosis.Unknown, Text: "the client was not found"}
	}
	p.notePolicyUnknowns(flows)
	return p.summariseFlows(flows)
}

func (p *Pass) summariseFlows(flows []*policyFlow) Summary {
	inward := isolatingPolicies(flows, netpol.Ingress)
	outward := isolatingPolicies(flows, netpol.Egress)
	r := reachOf(flows)
	switch {
	case r.allowed == r.all && len(inward)+len(outward) == 0 && p.Client.Kind == AnyPod:
		return Summary{Text: "no NetworkPolicy isolates a backend"}
	case r.allowed == r.all && len(inward)+len(outward) == 0:
		return Summary{Text: fmt.Sprintf("no NetworkPolicy isolates %s or a backend", p.Client)}
	case p.Client.Kind != AnyPod:
		return Summary{Text: p.namedSummary(flows)}
	}
	n := 0
	for _, c := range p.policy.clients {
		if reachOf(c.flows).allowed > 0 {
			n++
		}
	}
	text := "only clients' egress policies apply: "
	if len(inward) > 0 {
		text = "isolated by " + policyNames(flows, netpol.Ingress) + ": "
	}
	if n == len(p.policy.clients) && r.allowed == r.all {
		return Summary{Text: text + "every client that was read is admitted"}
	}
	return Summary{Text: fmt.Sprintf("%s%d of %d kinds of client admitted", text, n, len(p.policy.clients))}
}

func (p *Pass) namedSummary(flows []*policyFlow) string {
	r := reachOf(flows)
	switch {
	case r.allowed == r.all:
		return fmt.Sprintf("%s may reach %s", p.Client, countBackends(len(backendNames(flows))))
	case r.denied == r.all:
		return fmt.Sprintf("%s may reach no backend", p.Client)
	case r.denied > 0:
		return fmt.Sprintf("%s may reach %d of %d backends", p.Client, r.allowed, r.all)
	}
	return fmt.Sprintf("whether %s may reach every backend is not known", p.Client)
}

// clientMissing says that the client that --from names was not read.
func (p *Pass) clientMissing() diagnosis.Missing {
	m := diagnosis.Missing{What: p.Client.String(), Why: "no such object was read"}
	if len(p.policyClients()) > 0 {
		m.Why, m.Supply = "it has no address of the backends' family", p.again()+" --from IP   (another address of the client)"
		return m
	}
	switch p.Client.Kind {
	case OnePod:
		m.Supply = kubectl("get", "pod", p.Client.Name, "-n", p.Client.Namespace, "-o", "yaml")
	case OnNode:
		m.Supply = kubectl("get", "node", p.Client.Name, "-o", "yaml")
	}
	return m
}

// notePolicyUnknowns makes the layer unknown where a verdict is, or where what
// was read does not tell, and says of verdicts that hang on an implementation
// that they do.
func (p *Pass) notePolicyUnknowns(flows []*policyFlow) {
	p.missUnknownFlows(flows)
	p.noteContested(flows)
	p.missOthers()
	p.missSource(flows)
	if p.policy.left > 0 {
		p.noteOnce(diagnosis.LayerPolicy, diagnosis.Missing{
			What: fmt.Sprintf("%d more kinds of client", p.policy.left), Why: fmt.Sprintf("only the first %d were judged", maxPolicyClients),
			Supply: p.again() + " --from NAMESPACE/POD",
		})
	}
	if p.Client.Kind != AnyPod {
		return
	}
	if !p.hasAll(snapshot.Pods) && len(isolatingPolicies(flows, netpol.Ingress)) > 0 {
		p.noteOnce(diagnosis.LayerPolicy, diagnosis.Missing{
			What: "pods of other namespaces as clients", Why: "only some namespaces' pods were read", Supply: p.again() + " --from NAMESPACE/POD",
		})
	}
	if !p.hasAll(snapshot.NetworkPolicies) {
		p.noteOnce(diagnosis.LayerPolicy, diagnosis.Missing{
			What: "what other namespaces' policies forbid their own pods", Why: "only some namespaces' NetworkPolicies were read",
			Supply: "kubectl get networkpolicies.networking.k8s.io -A -o yaml > networkpolicies.yaml   (then: --objects networkpolicies.yaml)",
		})
	}
}

// missUnknownFlows tells each reason for not knowing once, with an example.
func (p *Pass) missUnknownFlows(flows []*policyFlow) {
	by := map[string][]*policyFlow{}
	var reasons []netpol.Caveat
	for _, f := range flows {
		if !f.is(netpol.Unknown) {
			continue
		}
		for _, d := range directions {
			if f.result(d).Verdict != netpol.Unknown {
				continue
			}
			for _, c := range f.result(d).Caveats {
				if by[c.Text] == nil {
					reasons = append(reasons, c)
				}
				by[c.Text] = append(by[c.Text], f)
			}
		}
	}
	for _, c := range reasons {
		fs := by[c.Text]
		p.Missing(diagnosis.LayerPolicy, diagnosis.Missing{
			What: "whether " + join(clientNames(fs), 2) + " may reach " + join(backendNames(fs), 2), Why: c.Text, Supply: p.policySupply(c),
		})
	}
}

// noteContested: of a named client all that plugins differ on; of any client
// only that a backend may be open though policies select it.
func (p *Pass) noteContested(flows []*policyFlow) {
	for _, f := range flows {
		for _, c := range f.decision.Caveats() {
			if !c.Contested || f.is(netpol.Unknown) || p.Client.Kind == AnyPod && c.Kind != netpol.CaveatHostNetworkSubject {
				continue
			}
			p.noteOnce(diagnosis.LayerPolicy, diagnosis.Missing{
				What: "how this cluster's network plugin enforces it", Why: c.Text, Supply: "the plugin's documentation; try it from the client",
			})
		}
	}
}

// missOthers: nobody who was read gets through, and a rule may be for somebody
// who was not.
func (p *Pass) missOthers() {
	if p.Client.Kind != AnyPod {
		return
	}
	for _, port := range p.policyPorts() {
		if !shut(onPort(p.policy.flows, port)) || p.openToOthers(port) != unreadPods {
			continue
		}
		p.Missing(diagnosis.LayerPolicy, diagnosis.Missing{
			What: fmt.Sprintf("whether any client gets to port %d/%s", port.number, port.protocol),
			Why:  "none that was read does, and a rule may admit pods that were not read", Supply: "kubectl get pods -A -o yaml > pods.yaml   (then: --objects pods.yaml)",
		})
	}
}

// missSource: what is asked about makes the source another than the client's,
// or the client may be a pod that was not read.
func (p *Pass) missSource(flows []*policyFlow) {
	c := p.policy.clients[0]
	if p.Client.Kind == AnyPod || len(isolatingPolicies(flows, netpol.Ingress)) == 0 {
		return
	}
	if c.pod != nil && p.rewritten() {
		p.Missing(diagnosis.LayerPolicy, diagnosis.Missing{
			What: "which source the backends see", Why: "kube-proxy rewrites it to a node's address for this kind of address; it was judged as " + c.label,
			Supply: p.again() + " --from node/NODE",
		})
	}
	if p.Client.Kind == FromAddress && c.pod == nil && !p.hasAll(snapshot.Pods) && p.mayBePod() {
		p.Missing(diagnosis.LayerPolicy, diagnosis.Missing{
			What: "whose address " + p.Client.Addr.String() + " is", Why: "it may be a pod's, and not all pods were read",
			Supply: "kubectl get pods -A -o yaml > pods.yaml   (then: --objects pods.yaml)",
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
	const namespaces, nodes = "kubectl get namespaces -o yaml > namespaces.yaml   (then: --objects namespaces.yaml)", "kubectl get nodes -o yaml > nodes.yaml   (then: --objects nodes.yaml)"
	switch c.Kind {
	case netpol.CaveatNamespaceUnread:
		return namespaces
	case netpol.CaveatInvalidPolicy:
		return kubectl("get", "networkpolicy", c.Policy.Name, "-n", c.Policy.Namespace, "-o", "yaml")
	case netpol.CaveatPortUnknown:
		return "kubectl get service " + shellQuote(p.Service.Name) + " -n " + shellQuote(p.Service.Namespace) + " -o yaml   (a headless Service without ports leaves the port to its clients)"
	case netpol.CaveatAddressUnknown:
		if p.Client.Kind == FromExternal && !p.Has(snapshot.Nodes) {
			return nodes
		}
		if p.Client.Kind == FromExternal {
			return p.again() + " --from IP"
		}
	}
	return p.again() + " --from NAMESPACE/POD"
}
