package walk

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// policyMiss is the rule that comes nearest to opening a fault, and so near
// that it looks like a mistake.
type policyMiss struct {
	fault policyFault
	flow  *policyFlow
	near  netpol.NearMiss
	// misses are those to mend: of the ports where servicePort is set, of one
	// item of the peers otherwise.
	misses      []netpol.Miss
	servicePort bool
}

// policyMisses has at most one for each fault.
func (p *Pass) policyMisses() []policyMiss {
	if p.policy.misses != nil {
		return *p.policy.misses
	}
	var out []policyMiss
	for _, f := range p.policyFaults() {
		if m, ok := p.nearest(f); ok {
			out = append(out, m)
		}
	}
	p.policy.misses = &out
	return out
}

// nearest looks through every rule that keeps any of the fault's flows out: a
// rule that names the Service's port before one that misses the peer, then by
// how little is amiss.
func (p *Pass) nearest(f policyFault) (best policyMiss, ok bool) {
	for _, fl := range p.suspects(f) {
		for _, near := range p.policies().NearMisses(fl.flow(), f.direction) {
			for _, m := range p.mistakes(near, fl) {
				m.fault, m.flow, m.near = f, fl, near
				if !ok || m.before(best) {
					best, ok = m, true
				}
			}
		}
	}
	return best, ok
}

func (m policyMiss) before(o policyMiss) bool {
	if m.servicePort != o.servicePort {
		return m.servicePort
	}
	return cmp.Or(cmp.Compare(len(m.misses), len(o.misses)), cmp.Compare(m.distance(), o.distance())) < 0
}

func (m policyMiss) distance() (n int) {
	for _, miss := range m.misses {
		n += miss.Distance
	}
	return n
}

// maxSuspects bounds the flows whose near misses are looked for.
const maxSuspects = 400

// suspects are the flows to compare with the rules: the fault's own, or, where
// no client is named, those of every kind of pod that labels tell apart. Of
// backends that are alike one will do.
func (p *Pass) suspects(f policyFault) []*policyFlow {
	own := f.flows
	if p.Client.Kind == AnyPod && !p.rewritten() {
		own = p.labelledFlows(f)
	}
	type pair struct {
		client *policyClient
		kind   string
	}
	seen := map[pair]bool{}
	var out []*policyFlow
	for _, fl := range own {
		if k := (pair{fl.client, fl.backend.kind}); !seen[k] && len(out) < maxSuspects {
			seen[k] = true
			out = append(out, fl)
		}
	}
	return out
}

// labelledFlows are to the fault's backends from every kind of pod that labels
// tell apart. That they are denied too follows from the coarser kinds' being.
func (p *Pass) labelledFlows(f policyFault) []*policyFlow {
	var out []*policyFlow
	backends := alikeOnce(f.flows)
	for _, c := range p.clientsOf(p.policyKinds().labelled) {
		for _, b := range backends {
			if len(out) >= maxSuspects {
				return out
			}
			if fl := p.flowTo(c, b); fl != nil {
				out = append(out, fl)
			}
		}
	}
	return out
}

// alikeOnce are the flows' backends, of those that are alike one.
func alikeOnce(flows []*policyFlow) []*policyBackend {
	var out []*policyBackend
	seen := map[string]bool{}
	for _, fl := range flows {
		if !seen[fl.backend.kind] {
			seen[fl.backend.kind] = true
			out = append(out, fl.backend)
		}
	}
	return out
}

// mistakes are the ways in which a rule nearly holds. A rule for somebody else
// has none.
func (p *Pass) mistakes(n netpol.NearMiss, fl *policyFlow) []policyMiss {
	if !n.PeerFailed {
		return slices.DeleteFunc([]policyMiss{{misses: servicePorts(n), servicePort: true}}, func(m policyMiss) bool { return len(m.misses) == 0 })
	}
	if n.PortFailed || n.ProtocolFailed {
		return nil
	}
	var out []policyMiss
	for item := range itemsOf(n) {
		if misses := p.nearItem(n, item, fl); len(misses) > 0 {
			out = append(out, policyMiss{misses: misses})
		}
	}
	return out
}

func servicePorts(n netpol.NearMiss) []netpol.Miss {
	return slices.DeleteFunc(slices.Clone(n.Misses), func(m netpol.Miss) bool { return m.Kind != netpol.MissServicePort })
}

// itemsOf is how many items of the peers the misses speak of.
func itemsOf(n netpol.NearMiss) int {
	most := 0
	for _, m := range n.Misses {
		most = max(most, m.Item+1)
	}
	return most
}

// nearItem is what is amiss in one item of a rule's peers, if all of it looks
// like a mistake. Where no client is named, one mistake alone has to explain
// it: among all pods of a cluster, some are alike by chance.
func (p *Pass) nearItem(n netpol.NearMiss, item int, fl *policyFlow) []netpol.Miss {
	var out []netpol.Miss
	for _, m := range n.Misses {
		switch {
		case m.Item != item:
		case m.Kind == netpol.MissSplitPeers:
			if looksWrong(m) {
				return []netpol.Miss{m}
			}
		case !looksWrong(m):
			return nil
		default:
			out = append(out, m)
		}
	}
	if p.Client.Kind == AnyPod && (len(out) > 1 || len(out) == 1 && out[0].Distance > 0 && systemPod(fl)) {
		return nil
	}
	return out
}

// looksWrong: the miss is near, and what the rule asks for is not simply
// somebody else, who is there.
func looksWrong(m netpol.Miss) bool {
	switch m.Kind {
	case netpol.MissNamespaceSelector, netpol.MissSplitPeers:
		return m.Near && m.Selects == 0
	}
	return m.Near
}

// systemPod says whether the client is one of the cluster's own, whom a policy
// for an application hardly ever means by a slip of the pen.
func systemPod(fl *policyFlow) bool {
	return fl.client.pod != nil && strings.HasPrefix(fl.client.pod.Namespace, "kube-")
}

// missesOf groups the misses of one kind by policy, in order.
func (p *Pass) missesOf(servicePort bool) [][]policyMiss {
	var out [][]policyMiss
	for _, m := range p.policyMisses() {
		if m.servicePort != servicePort {
			continue
		}
		i := slices.IndexFunc(out, func(g []policyMiss) bool { return g[0].near.Policy == m.near.Policy })
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], m)
	}
	return out
}

// explained are the diagnoses that follow from near misses: of a direction, or
// of the backends that some flows do not reach, if a near miss accounts for
// each of their faults.
func (p *Pass) explained(group []policyMiss) []diagnosis.Code {
	var out []diagnosis.Code
	for _, m := range group {
		code := blockedCode(m.fault.direction)
		same := func(f policyFault) bool { return !f.partial && f.direction == m.fault.direction }
		if m.fault.partial {
			code, same = diagnosis.SomeBackendsBlocked, func(f policyFault) bool { return f.partial }
		}
		if p.allMissed(same) && !slices.Contains(out, code) {
			out = append(out, code)
		}
	}
	return out
}

func (p *Pass) allMissed(which func(policyFault) bool) bool {
	for _, f := range p.policyFaults() {
		if which(f) && !p.missed(f) {
			return false
		}
	}
	return true
}

func (p *Pass) missed(f policyFault) bool {
	return slices.ContainsFunc(p.policyMisses(), func(m policyMiss) bool {
		return m.fault.direction == f.direction && m.fault.port == f.port
	})
}
