package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// policyLayer is what the policy checks share of one Service.
type policyLayer struct {
	listed   bool
	backends []*policyBackend
	behind   map[netip.Addr]behind

	judged  bool
	clients []*policyClient
	flows   []*policyFlow
	// left is how many kinds of client were not examined.
	left int

	faults *[]policyFault
	misses *[]policyMiss
}

// policyFlow is one client's flow to one backend, and the verdict.
type policyFlow struct {
	client   *policyClient
	backend  *policyBackend
	decision *netpol.Decision
}

func (f *policyFlow) result(d netpol.Direction) *netpol.Result {
	if d == netpol.Egress {
		return &f.decision.Egress
	}
	return &f.decision.Ingress
}

func (f *policyFlow) denied(d netpol.Direction) bool { return f.result(d).Verdict == netpol.Denied }

func (f *policyFlow) is(v netpol.Verdict) bool { return f.decision.Verdict == v }

// policies is the evaluator over everything that was read, made once a walk.
func (w *world) policies() *netpol.Evaluator {
	if w.evaluator == nil {
		o := &w.snap.Objects
		w.evaluator = netpol.New(netpol.Objects{Pods: o.Pods, Namespaces: o.Namespaces, Policies: o.NetworkPolicies, Nodes: o.Nodes})
	}
	return w.evaluator
}

// policyFlows judges every client's flow to every backend. A client that can
// be sent to none has no part in it.
func (p *Pass) policyFlows() []*policyFlow {
	if p.policy.judged {
		return p.policy.flows
	}
	p.policy.judged = true
	for _, c := range p.policyClients() {
		p.judgeClient(c)
		if len(c.flows) > 0 {
			p.policy.clients = append(p.policy.clients, c)
			p.policy.flows = append(p.policy.flows, c.flows...)
		}
	}
	return p.policy.flows
}

// judgeClient asks once for backends that are alike, where the client is a pod
// of any kind.
func (p *Pass) judgeClient(c *policyClient) {
	known := map[string]*netpol.Decision{}
	for _, b := range p.policyBackends() {
		f := p.flowTo(c, b)
		if f == nil {
			continue
		}
		if f.decision = known[b.kind]; f.decision == nil || p.Client.Kind != AnyPod {
			p.judgeFlow(f)
			known[b.kind] = f.decision
		}
		c.flows = append(c.flows, f)
	}
}

// flowTo is nil where there is no such flow: the two have no address family
// in common, or they are one pod and nobody asked about that one. (What a pod
// may do to itself through a Service is undefined.)
func (p *Pass) flowTo(c *policyClient, b *policyBackend) *policyFlow {
	if !c.shares(b) || p.Client.Kind == AnyPod && c.pod != nil && c.pod == b.pod {
		return nil
	}
	return &policyFlow{client: c, backend: b}
}

// flow is the connection as policies see it.
func (f *policyFlow) flow() netpol.Flow {
	b := f.backend
	return netpol.Flow{
		From: f.client.source(b), To: b.peer(), Port: int32(b.addr.Port()), Protocol: b.port.protocol, VIP: b.vip, VIPPort: b.port.number,
	}
}

func (p *Pass) judgeFlow(f *policyFlow) {
	d := p.policies().Evaluate(f.flow())
	f.decision = &d
	if f.client.outside && f.denied(netpol.Ingress) {
		p.doubtOutside(f)
	}
}

// doubtOutside takes a refusal back where a rule goes by addresses: nobody
// knows which one a client outside has.
func (p *Pass) doubtOutside(f *policyFlow) {
	for _, ref := range f.decision.Ingress.Isolating {
		pol := p.policies().Policy(ref)
		if pol == nil || !slices.ContainsFunc(peersOfSpec(&pol.Spec), isBlock) {
			continue
		}
		f.decision.Verdict, f.decision.Ingress.Verdict = netpol.Unknown, netpol.Unknown
		f.decision.Ingress.Caveats = append(slices.Clone(f.decision.Ingress.Caveats), netpol.Caveat{
			Kind: netpol.CaveatAddressUnknown, Policy: ref,
			Text: fmt.Sprintf("%s admits some addresses outside of the cluster and not others", ref),
		})
		return
	}
}

// rewritten says whether the source of every packet is rewritten to a node's,
// because the target is one of the Service's addresses for the outside alone.
func (p *Pass) rewritten() bool {
	fronts := p.Frontends()
	return len(fronts) > 0 && !proxy.ExternalLocal(p.Service) &&
		!slices.ContainsFunc(fronts, func(f proxy.Frontend) bool { return f.Kind == proxy.ClusterIP })
}

// reach is how much of a Service a client gets to.
type reach struct{ allowed, denied, all int }

func reachOf(flows []*policyFlow) reach {
	var r reach
	for _, f := range flows {
		r.all++
		switch f.decision.Verdict {
		case netpol.Allowed:
			r.allowed++
		case netpol.Denied:
			r.denied++
		}
	}
	return r
}

// onPort are the flows to one port of the Service.
func onPort(flows []*policyFlow, port policyPort) []*policyFlow {
	var out []*policyFlow
	for _, f := range flows {
		if f.backend.port == port {
			out = append(out, f)
		}
	}
	return out
}

func withVerdict(flows []*policyFlow, v netpol.Verdict) []*policyFlow {
	return slices.DeleteFunc(slices.Clone(flows), func(f *policyFlow) bool { return !f.is(v) })
}

func deniedBy(flows []*policyFlow, d netpol.Direction) []*policyFlow {
	return slices.DeleteFunc(slices.Clone(flows), func(f *policyFlow) bool { return !f.denied(d) })
}

// isolatingPolicies are those that isolate the client (Egress) or the backend
// (Ingress) of any of the flows.
func isolatingPolicies(flows []*policyFlow, d netpol.Direction) []netpol.PolicyRef {
	seen := map[netpol.PolicyRef]bool{}
	var out []netpol.PolicyRef
	for _, f := range flows {
		for _, r := range f.result(d).Isolating {
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b netpol.PolicyRef) int { return strings.Compare(a.String(), b.String()) })
	return out
}
