package walk

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// policyFault is one direction of one Service port that is shut where it ought
// to be open: to the client that --from names, or, where none is named, to
// everybody.
type policyFault struct {
	direction netpol.Direction
	port      policyPort
	// flows are those denied in the direction; never empty.
	flows []*policyFlow
	// partial says that the named client gets to other backends on the port.
	partial bool
}

// policyFaults lists what is an error. That of several clients some are refused
// and others admitted is what policies are for, and none.
func (p *Pass) policyFaults() []policyFault {
	if p.policy.faults != nil {
		return *p.policy.faults
	}
	var out []policyFault
	for _, port := range p.policyPorts() {
		flows := onPort(p.policyFlows(), port)
		if p.Client.Kind != AnyPod {
			out = append(out, namedFaults(port, flows)...)
		} else if shut(flows) && p.openToOthers(port) == nobodyElse {
			out = append(out, commonFaults(port, flows)...)
		}
	}
	p.policy.faults = &out
	return out
}

// namedFaults are those of the one client: every denied flow counts.
func namedFaults(port policyPort, flows []*policyFlow) []policyFault {
	partial := len(withVerdict(flows, netpol.Allowed)) > 0
	var out []policyFault
	for _, d := range directions {
		if shut := deniedBy(flows, d); len(shut) > 0 {
			out = append(out, policyFault{d, port, shut, partial})
		}
	}
	return out
}

var directions = []netpol.Direction{netpol.Ingress, netpol.Egress}

// commonFaults are those by which nobody gets through: the directions that
// alone keep everybody out or, where neither does, both.
func commonFaults(port policyPort, flows []*policyFlow) []policyFault {
	var alone, some []policyFault
	for _, d := range directions {
		shut := deniedBy(flows, d)
		if len(shut) == 0 {
			continue
		}
		f := policyFault{direction: d, port: port, flows: shut}
		some = append(some, f)
		if len(shut) == len(flows) {
			alone = append(alone, f)
		}
	}
	if len(alone) > 0 {
		return alone
	}
	return some
}

// shut says whether no client at all gets to any backend on the port.
func shut(flows []*policyFlow) bool {
	return len(flows) > 0 && !slices.ContainsFunc(flows, func(f *policyFlow) bool { return !f.is(netpol.Denied) })
}

// others says who may get through, of those that were not read.
type others string

const (
	nobodyElse others = ""
	// unreadPods: a rule may admit pods that were not read.
	unreadPods others = "pods that were not read"
	// addresses: a rule admits addresses, which need not be any pod's.
	addresses others = "addresses"
)

// openToOthers looks at the rules of a port on which no client that was read
// gets through: for whom else they may be meant. That keeps a Service that only
// serves another namespace, or the outside, from being called broken.
func (p *Pass) openToOthers(port policyPort) others {
	found := nobodyElse
	for _, b := range p.policyBackends() {
		if b.port != port || b.pod == nil {
			continue
		}
		refs := p.policies().Isolating(b.pod, netpol.Ingress)
		if len(refs) == 0 && !p.hasAll(snapshot.Pods) {
			found = unreadPods // only the clients' own policies keep them in
		}
		for _, ref := range refs {
			switch p.ruleForOthers(ref, b) {
			case addresses:
				return addresses
			case unreadPods:
				found = unreadPods
			}
		}
	}
	return found
}

func (p *Pass) ruleForOthers(ref netpol.PolicyRef, b *policyBackend) others {
	found := nobodyElse
	for _, rule := range p.policies().Policy(ref).Spec.Ingress {
		if !mayHavePort(rule.Ports, b) {
			continue
		}
		if slices.ContainsFunc(rule.From, isBlock) {
			return addresses
		}
		beyond := len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool { return peer.NamespaceSelector != nil })
		if beyond && !p.hasAll(snapshot.Pods) || !p.anybodyRead() {
			found = unreadPods
		}
	}
	return found
}

// anybodyRead says whether any client is a pod, or a workload's: one that is
// made up shows only that not everybody is let in.
func (p *Pass) anybodyRead() bool {
	return slices.ContainsFunc(p.policy.clients, func(c *policyClient) bool { return !c.absent || len(c.pod.Labels) > 0 })
}

func isBlock(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil }

// mayHavePort says whether a rule's ports may hold the backend's; in doubt they
// do.
func mayHavePort(ports []networkingv1.NetworkPolicyPort, b *policyBackend) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(np networkingv1.NetworkPolicyPort) bool {
		switch {
		case np.Protocol != nil && *np.Protocol != b.port.protocol:
			return false
		case np.Port == nil || np.Port.Type == intstr.String || b.addr.Port() == 0:
			return true
		}
		end := np.Port.IntVal
		if np.EndPort != nil {
			end = *np.EndPort
		}
		return np.Port.IntVal <= int32(b.addr.Port()) && int32(b.addr.Port()) <= end
	})
}

// faultPorts names the Service ports of faults, where they are not all it has.
func (p *Pass) faultPorts(fs []policyFault) string {
	var names []string
	for _, f := range fs {
		if t := fmt.Sprintf("%d/%s", f.port.number, f.port.protocol); !slices.Contains(names, t) {
			names = append(names, t)
		}
	}
	if len(names) == len(p.policyPorts()) {
		return ""
	}
	return " on port " + join(names, 3)
}

func allFlows(fs []policyFault) []*policyFlow {
	var out []*policyFlow
	for _, f := range fs {
		out = append(out, f.flows...)
	}
	return out
}

func clientNames(flows []*policyFlow) []string {
	var out []string
	seen := map[*policyClient]bool{}
	for _, f := range flows {
		if !seen[f.client] {
			seen[f.client] = true
			out = append(out, f.client.label)
		}
	}
	return out
}

func backendNames(flows []*policyFlow) []string {
	var out []string
	seen := map[*policyBackend]bool{}
	for _, f := range flows {
		if !seen[f.backend] {
			seen[f.backend] = true
			out = append(out, f.backend.label())
		}
	}
	return out
}

// who names the clients that faults keep out.
func (p *Pass) who(fs []policyFault) string {
	if p.Client.Kind != AnyPod {
		return fs[0].flows[0].client.label
	}
	names := clientNames(allFlows(fs))
	if len(names) < len(p.policy.clients) {
		return fmt.Sprintf("%d of %d kinds of client", len(names), len(p.policy.clients))
	}
	return "every client that was read"
}

func policyNames(flows []*policyFlow, d netpol.Direction) string {
	var names []string
	for _, r := range isolatingPolicies(flows, d) {
		names = append(names, r.String())
	}
	return join(names, 3)
}

func directionText(d netpol.Direction) string { return strings.ToLower(string(d)) }

// blockedCode is the diagnosis of a direction that is shut.
func blockedCode(d netpol.Direction) diagnosis.Code {
	if d == netpol.Egress {
		return diagnosis.EgressBlocked
	}
	return diagnosis.IngressBlocked
}
