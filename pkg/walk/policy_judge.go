package walk

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// policyFault is what is wrong with the flows of one Service port in one
// direction.
type policyFault struct {
	// flows are those denied in the direction; never empty.
	flows []policyFlow
	// total says that no client that was examined gets to any backend; else
	// some do.
	total bool
	// named says that the client is the one that --from names.
	named bool
}

// policyFaults sorts the denied flows: by the named client, or, where none is
// named, only if nobody at all gets through. That some clients are refused and
// others admitted is what policies are for.
func (p *Pass) policyFaults(d netpol.Direction) []policyFault {
	var out []policyFault
	for _, port := range p.policyPorts() {
		f := policyFault{named: p.Client.Kind != AnyPod, total: true}
		n, allowed := 0, 0
		for _, fl := range p.policyFlows() {
			if fl.backend.servicePort != port.port || fl.backend.protocol != port.protocol {
				continue
			}
			n++
			if fl.decision.Verdict != netpol.Denied {
				allowed++
			}
			if fl.denied(d) {
				f.flows = append(f.flows, fl)
			}
		}
		f.total = allowed == 0
		if n > 0 && len(f.flows) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// blocking are the faults that keep the client, or every client, out.
func (p *Pass) blocking(d netpol.Direction) []policyFault {
	var out []policyFault
	for _, f := range p.policyFaults(d) {
		if f.total {
			out = append(out, f)
		}
	}
	return out
}

// policyPort is one Service port.
type policyPort struct {
	port     int32
	protocol corev1.Protocol
}

// policyPorts are the Service ports that have backends.
func (p *Pass) policyPorts() []policyPort {
	var out []policyPort
	for _, b := range p.policyBackends() {
		if port := (policyPort{b.servicePort, b.protocol}); !slices.Contains(out, port) {
			out = append(out, port)
		}
	}
	return out
}

// who names the clients of a fault.
func (f policyFault) who() string {
	if f.named {
		return f.flows[0].client.label
	}
	return "every client that was read"
}

// nearest is the rule that comes nearest to admitting one of the flows, by
// which a mistake is told from a policy that means what it says. ok is false
// where none is near.
func (p *Pass) nearest(f policyFault, d netpol.Direction, want func(netpol.NearMiss) bool) (policyFlow, netpol.NearMiss, bool) {
	for _, fl := range f.flows {
		for _, n := range p.policies().NearMisses(fl.flow, d) {
			if want(n) {
				return fl, n, true
			}
		}
	}
	return policyFlow{}, netpol.NearMiss{}, false
}

func missOf(n netpol.NearMiss, kinds ...netpol.MissKind) (netpol.Miss, bool) {
	for _, m := range n.Misses {
		for _, k := range kinds {
			if m.Kind == k && (m.Near || k == netpol.MissServicePort) {
				return m, true
			}
		}
	}
	return netpol.Miss{}, false
}

// onlyPort is a rule that would admit the flow, had it not named the Service's
// port.
func onlyPort(n netpol.NearMiss) bool {
	_, ok := missOf(n, netpol.MissServicePort)
	return ok && !n.PeerFailed
}

// nearPeer is a rule with the right port whose peer looks like a mistake.
func nearPeer(n netpol.NearMiss) bool {
	return n.PeerFailed && !n.PortFailed && !n.ProtocolFailed && n.Near()
}

func directionText(d netpol.Direction) string {
	if d == netpol.Egress {
		return "egress"
	}
	return "ingress"
}

func policyField(n netpol.NearMiss, m netpol.Miss) string {
	return fmt.Sprintf("networkpolicy/%s %s", n.Policy.Name, m.Field)
}
