package walk

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// policyClient is one client, or one that stands for several that policies
// cannot tell apart.
type policyClient struct {
	label string
	// One of pod, node and addr, or outside with neither.
	pod *corev1.Pod
	// addrs are the pod's or the node's, as far as they are known.
	addrs []netip.Addr
	node  string
	addr  netip.Addr
	// outside: some address outside of the cluster, nobody knows which.
	outside bool
	// masked says, where node is only whose address the backend sees, why.
	masked string
	// absent: it stands for pods of which none runs now.
	absent bool
	// flows are to every backend that it can be sent to.
	flows []*policyFlow
}

// maxPolicyClients bounds how many kinds of client are judged where none is
// named; those of the Service's own namespace come first.
const maxPolicyClients = 400

// anyNode names the node of a packet that comes in at whichever.
const anyNode = "(the node that it comes in at)"

// shares says whether client and backend have an address family in common; there
// is no flow between them otherwise.
func (c *policyClient) shares(b *policyBackend) bool {
	v6 := b.addr.Addr().Is6()
	if c.addr.IsValid() {
		return c.addr.Is6() == v6
	}
	return len(c.addrs) == 0 || slices.ContainsFunc(c.addrs, func(a netip.Addr) bool { return a.Is6() == v6 })
}

// source is the client as a backend sees it.
func (c *policyClient) source(b *policyBackend) netpol.Peer {
	switch {
	case c.pod != nil:
		return netpol.PodPeer(c.pod)
	case c.node != "":
		return netpol.NodePeer(c.node, netip.Addr{})
	case c.outside:
		return netpol.IPPeer(outside(b.addr.Addr().Is6()))
	}
	return netpol.IPPeer(c.addr)
}

func nodeAddresses(n *corev1.Node) []netip.Addr {
	if n == nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// policyClients are the callers to judge: the one that --from names, or every
// kind of pod that was read.
func (p *Pass) policyClients() []*policyClient {
	if p.Client.Kind != AnyPod {
		return p.namedPolicyClients()
	}
	nobody := &policyClient{label: "any pod", absent: true, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Service.Namespace}}}
	if !p.anythingIsolated(nobody.pod) {
		return []*policyClient{nobody}
	}
	if p.rewritten() {
		// Whoever calls, the backends see the node that it comes in at.
		c := &policyClient{label: "any client"}
		p.mask(c)
		c.addrs = nodeAddresses(p.nodeByName[c.node])
		return []*policyClient{c}
	}
	out := p.clientsOf(p.policyKinds().telling)
	if len(out) > maxPolicyClients {
		p.policy.left = len(out) - maxPolicyClients
		out = out[:maxPolicyClients]
	}
	if len(out) == 0 || len(out) == 1 && p.isOnlyBackend(out[0].pod) {
		nobody.label = "a pod of " + p.Service.Namespace + " without labels"
		out = append(out, nobody)
	}
	return out
}

// clientsOf makes clients of kinds, the Service's own namespace first.
func (p *Pass) clientsOf(kinds []*podKind) []*policyClient {
	out := make([]*policyClient, 0, len(kinds))
	for _, own := range []bool{true, false} {
		for _, k := range kinds {
			if (k.pod.Namespace == p.Service.Namespace) == own {
				out = append(out, &policyClient{label: k.label, pod: k.pod, addrs: k.addrs, absent: k.alike == 0})
			}
		}
	}
	return out
}

// isOnlyBackend says whether a pod is all that is behind the Service, so that
// it can call nobody but itself.
func (p *Pass) isOnlyBackend(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(p.policyBackends(), func(b *policyBackend) bool { return b.pod != pod })
}

// anythingIsolated says whether any policy could matter to the Service: one
// that isolates, or may isolate, a backend, or a pod of its namespace as a
// client. What other namespaces' policies forbid their own pods is not asked.
func (p *Pass) anythingIsolated(nobody *corev1.Pod) bool {
	for _, b := range p.policyBackends() {
		if b.pod != nil && p.isolates(b.pod, netpol.Ingress) {
			return true
		}
	}
	return p.isolates(nobody, netpol.Egress) || p.isolatesEgress(p.Service.Namespace)
}

// isolates asks without a peer, so that policies that may isolate count too.
func (w *world) isolates(pod *corev1.Pod, d netpol.Direction) bool {
	f := netpol.Flow{From: netpol.Peer{Node: anyNode}, To: netpol.PodPeer(pod)}
	if d == netpol.Egress {
		f.From, f.To = netpol.PodPeer(pod), netpol.IPPeer(outside4)
		r := w.policies().Evaluate(f).Egress
		return len(r.Isolating)+len(r.MayIsolate) > 0
	}
	r := w.policies().Evaluate(f).Ingress
	return len(r.Isolating)+len(r.MayIsolate) > 0
}

// isolatesEgress says whether a pod of the namespace is isolated for egress.
func (w *world) isolatesEgress(namespace string) bool {
	if is, known := w.egressByNS[namespace]; known {
		return is
	}
	is := slices.ContainsFunc(w.podsByNS[namespace], func(pod *corev1.Pod) bool { return w.isolates(pod, netpol.Egress) })
	if w.egressByNS == nil {
		w.egressByNS = map[string]bool{}
	}
	w.egressByNS[namespace] = is
	return is
}

// namedPolicyClients is the client that --from names; none where it was not read.
func (p *Pass) namedPolicyClients() []*policyClient {
	c := &policyClient{label: p.Client.String()}
	switch p.Client.Kind {
	case OnePod, FromAddress:
		if pod := p.clientPod(); pod != nil {
			return []*policyClient{p.podClient(pod)}
		}
		if p.Client.Kind == OnePod {
			return nil
		}
		if n := p.nodeByAddress[p.Client.Addr]; n != nil {
			c.node = n.Name
			break
		}
		c.addr = p.Client.Addr
		p.mask(c)
	case OnNode:
		if p.nodeByName[p.Client.Name] == nil {
			return nil
		}
		c.node = p.Client.Name
	case FromExternal:
		c.outside = true
		p.mask(c)
	}
	if c.node != "" {
		c.addrs = nodeAddresses(p.nodeByName[c.node])
	}
	return []*policyClient{c}
}

// podClient is a pod as a client. One that has finished, as a Job's, is judged
// as if it ran again: under which address nobody knows.
func (p *Pass) podClient(pod *corev1.Pod) *policyClient {
	if !p.snap.Reads.Has(snapshot.NetworkPolicies, pod.Namespace) {
		p.needPoliciesOf(pod.Namespace)
	}
	c := &policyClient{label: "pod " + pod.Namespace + "/" + pod.Name, pod: pod}
	if c.addrs = podAddrs(pod); finished(pod) {
		c.absent, c.addrs = true, nil
		c.pod = &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: pod.Spec}
	}
	return c
}

// mask gives a client outside of the cluster the address under which backends
// see it: its own where externalTrafficPolicy is Local, and that of the node
// that it came in at where it is Cluster, which rewrites the source.
func (p *Pass) mask(c *policyClient) {
	if proxy.ExternalLocal(p.Service) || !p.exposed() {
		return
	}
	c.addr, c.outside = netip.Addr{}, false
	c.node, c.masked = p.entryNode(), "externalTrafficPolicy is Cluster, so kube-proxy rewrites the source to the address of the node that the packet comes in at"
}

// exposed says whether clients outside come in by a node port, an external IP
// or a load balancer, of what was asked about.
func (p *Pass) exposed() bool {
	return slices.ContainsFunc(p.Frontends(), func(f proxy.Frontend) bool { return f.Kind != proxy.ClusterIP })
}

// entryNode is the node at which a packet from outside comes in: the one that
// was asked about, or one without a backend, because a backend's own node is
// let in whatever the policies say.
func (p *Pass) entryNode() string {
	if p.Target.Node != "" {
		return p.Target.Node
	}
	hosts := map[string]bool{}
	for _, b := range p.policyBackends() {
		if b.pod != nil {
			hosts[b.pod.Spec.NodeName] = true
		}
	}
	last := anyNode
	for i := range p.snap.Objects.Nodes {
		last = p.snap.Objects.Nodes[i].Name
		if !hosts[last] {
			break
		}
	}
	return last
}

// mayBePod says whether an address may be one of the cluster's pods: by the
// nodes' pod ranges, and in doubt it may.
func (p *Pass) mayBePod() bool {
	ranges := 0
	for i := range p.snap.Objects.Nodes {
		for _, text := range podCIDRs(&p.snap.Objects.Nodes[i]) {
			if c, err := netip.ParsePrefix(text); err == nil {
				ranges++
				if c.Contains(p.Client.Addr) {
					return true
				}
			}
		}
	}
	return ranges == 0
}

func addrsText(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return join(out, 4)
}
