package netpol

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// Peer is one end of a flow: a pod, or an address. An address that belongs to
// a running pod of the evaluator's is taken for that pod.
type Peer struct {
	// Pod may be one of those the Evaluator was made from or any other (made
	// up from a template, say). With IP set as well, IP is which of its
	// addresses the flow uses.
	Pod *corev1.Pod
	// IP is an address outside of the cluster, a node's, or a pod's.
	IP netip.Addr
	// Node says that this end is the node of that name itself, under IP.
	Node string
}

// PodPeer is the pod as an end of a flow.
func PodPeer(pod *corev1.Pod) Peer { return Peer{Pod: pod} }

// IPPeer is the address as an end of a flow.
func IPPeer(ip netip.Addr) Peer { return Peer{IP: ip} }

// NodePeer is a node (its kubelet, or what it masquerades) as an end of a
// flow; ip is the address under which it appears.
func NodePeer(name string, ip netip.Addr) Peer { return Peer{Node: name, IP: ip} }

// Flow is a connection as policies see it: after DNAT, so To is the backend
// and Port its own port, not the Service's.
type Flow struct {
	From, To Peer
	// Port is the pod's port; 0 where it is not known.
	Port int32
	// Protocol is TCP where it is empty.
	Protocol corev1.Protocol
	// VIP and VIPPort are the Service's address and port where the client goes
	// through one. Policies don't see them; they explain near misses, and a
	// pod that reaches itself.
	VIP     netip.Addr
	VIPPort int32
}

func (f Flow) protocol() corev1.Protocol {
	if f.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return f.Protocol
}

func (f Flow) throughService() bool { return f.VIP.IsValid() || f.VIPPort != 0 }

// endpoint is a Peer with what the Evaluator knows of it.
type endpoint struct {
	pod   *pod   // nil where it is no pod
	node  string // the node whose network it shares, where that is known
	host  bool   // it is a node, or shares its node's network
	addrs []netip.Addr
}

// selectable: label selectors can reach only pods with a network of their own
// that still run.
func (e endpoint) selectable() bool {
	return e.pod != nil && !e.pod.hostNetwork && !e.pod.finished
}

func (e endpoint) known() bool { return e.pod != nil || e.host || len(e.addrs) > 0 }

func (e *Evaluator) endpoint(p Peer) endpoint {
	ip := p.IP.Unmap()
	if p.Pod != nil {
		return podEndpoint(e.pod(p.Pod), ip)
	}
	if p.Node == "" && ip.IsValid() {
		if owner := e.podByIP[ip]; owner != nil {
			return podEndpoint(owner, ip)
		}
	}
	out := endpoint{node: p.Node, host: p.Node != ""}
	if ip.IsValid() {
		out.addrs = []netip.Addr{ip}
		if node, ok := e.nodeByIP[ip]; ok && p.Node == "" {
			out.node, out.host = node, true
		}
	}
	if p.Node != "" && !ip.IsValid() {
		out.addrs = e.nodeAddrs[p.Node]
	}
	return out
}

func podEndpoint(p *pod, ip netip.Addr) endpoint {
	out := endpoint{pod: p, host: p.hostNetwork, addrs: p.addrs}
	if p.hostNetwork {
		out.node = p.node
	}
	if ip.IsValid() {
		out.addrs = []netip.Addr{ip}
	}
	return out
}

// addrPair is a source and a destination; invalid where not known.
type addrPair struct{ from, to netip.Addr }

func (p addrPair) mixed() bool {
	return p.from.IsValid() && p.to.IsValid() && p.from.Is4() != p.to.Is4()
}

// addrPairs are the addresses that a flow between the two may use: one pair
// for each family that both have. Where they share none, or one end's
// addresses are not known, it is the single pair of what there is.
func addrPairs(from, to endpoint) []addrPair {
	var pairs []addrPair
	for _, f := range from.addrs {
		for _, t := range to.addrs {
			if f.Is4() == t.Is4() && !haveFamily(pairs, t) {
				pairs = append(pairs, addrPair{f, t})
			}
		}
	}
	if len(pairs) > 0 {
		return pairs
	}
	return []addrPair{{first(from.addrs), first(to.addrs)}}
}

func haveFamily(pairs []addrPair, a netip.Addr) bool {
	for _, p := range pairs {
		if p.to.Is4() == a.Is4() {
			return true
		}
	}
	return false
}

func first(addrs []netip.Addr) netip.Addr {
	if len(addrs) == 0 {
		return netip.Addr{}
	}
	return addrs[0]
}
