package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// probe is one packet of one caller to one frontend, walked through one node's
// rules and judged against what kube-proxy ought to do.
type probe struct {
	view     *nodeView
	caller   caller
	frontend proxy.Frontend
	dst      netip.AddrPort
	expect   proxy.Expectation
	outcomes []netfilter.Outcome
	judgement
	// unsure says why the expectation may be another; empty where it is certain.
	unsure string
	// inside is how the node serves the Service's cluster IP, where it leaves
	// this address of it untouched; nil where it does not.
	inside []netfilter.Outcome
	// fenced: the rules' source ranges leave out a client that stands for many,
	// and no object was read that would tell whether they are to.
	fenced bool
	// hairpin probes ask one thing only: whether a backend that draws itself is
	// masqueraded. They are not shown as paths.
	hairpin bool
}

// caller is where a packet comes from, as one node sees it.
type caller struct {
	kind  proxy.ClientKind
	label string
	addr  netip.Addr
}

// Addresses of the documentation ranges (RFC 5737, RFC 3849) stand for a client
// outside the cluster: no cluster rule speaks of them.
var (
	outside4 = netip.MustParseAddr("203.0.113.77")
	outside6 = netip.MustParseAddr("2001:db8:ffff::77")
)

// probes walks every frontend that was asked about, from every caller that it
// may have, on every node whose rules are at hand.
func (p *Pass) probes() []*probe {
	if p.node.done {
		return p.node.probes
	}
	p.node.done = true
	if p.audit != nil {
		p.auditProbes()
		return p.node.probes
	}
	for _, v := range p.nodeViews() {
		if !p.concerns(v) {
			continue
		}
		p.node.views = append(p.node.views, v)
		if p.opts.resynced[v.name] || v.lackForMode() != nil {
			continue
		}
		if p.Service == nil {
			p.assumeVIP(v)
		}
		for _, f := range p.nodeFrontends() {
			p.probeFrontend(v, f)
		}
	}
	for _, pr := range p.node.probes {
		if !pr.hairpin {
			p.paths = append(p.paths, p.path(pr))
		}
	}
	return p.node.probes
}

// concerns says whether a node is on the client's way: a pod's packets meet the
// rules of its own node, a packet to NODE:PORT those of that node.
func (p *Pass) concerns(v *nodeView) bool {
	if n := p.Target.Node; n != "" && v.name != "" && n != v.name {
		return false
	}
	if n := p.clientNode(); n != "" && v.name != "" && n != v.name {
		return false
	}
	return true
}

// clientNode is the node that the client's packets meet first, "" for any.
func (p *Pass) clientNode() string {
	switch p.Client.Kind {
	case OnNode:
		return p.Client.Name
	case OnePod:
		if pod := p.clientPod(); pod != nil {
			return pod.Spec.NodeName
		}
	case FromAddress:
		if pod := p.clientPod(); pod != nil {
			return pod.Spec.NodeName
		}
		if n := p.nodeByAddress[p.Client.Addr]; n != nil {
			return n.Name
		}
	}
	return ""
}

// clientPod is the pod that --from names, by name or address; nil where it
// names none that was read.
func (p *Pass) clientPod() *corev1.Pod {
	switch p.Client.Kind {
	case OnePod:
		return p.podByName[types.NamespacedName{Namespace: p.Client.Namespace, Name: p.Client.Name}]
	case FromAddress:
		for _, pod := range p.podsByIP[p.Client.Addr] {
			if !pod.Spec.HostNetwork {
				return pod
			}
		}
	}
	return nil
}

// nodeFrontends are the frontends to walk. Where there is no Service, the
// address that was asked about is the only one.
func (p *Pass) nodeFrontends() []proxy.Frontend {
	if p.Service != nil {
		return p.Frontends()
	}
	t := p.Target
	if !t.Addr.IsValid() || t.Port == 0 {
		return nil
	}
	f := proxy.Frontend{Kind: proxy.ClusterIP, IP: t.Addr, Port: t.Port, ServicePort: t.Port, Protocol: t.Protocol, V6: t.Addr.Is6()}
	if f.Protocol == "" {
		f.Protocol = corev1.ProtocolTCP
	}
	return []proxy.Frontend{f}
}

func (p *Pass) probeFrontend(v *nodeView, f proxy.Frontend) {
	fam := familyOf(f.V6)
	if len(v.rulesLack[fam]) > 0 && v.cilium == nil {
		for _, m := range v.rulesLack[fam] {
			p.Missing(diagnosis.LayerNode, m)
		}
		if len(v.rules.TablesRead(fam)) == 0 && !v.rules.Whole(fam) {
			return // a text that is not whole is still walked; none cannot be
		}
	}
	dst, ok := p.destination(v, f)
	if !ok {
		p.Missing(diagnosis.LayerNode, diagnosis.Missing{
			What: fmt.Sprintf("an address of %s for node port %d", v.label(), f.Port), Why: "neither the Node nor `ip addr` was read", Supply: v.supply(),
		})
		return
	}
	if f.Kind == proxy.NodePort && p.Target.Node == "" && !v.servesNodePorts(dst.Addr()) {
		p.noteNodePort(v, dst)
		return
	}
	for _, c := range p.callers(v, f, dst) {
		p.node.probes = append(p.node.probes, p.walkPacket(v, f, dst, c))
	}
	if pr := p.hairpinProbe(v, f, dst); pr != nil {
		p.node.probes = append(p.node.probes, pr)
	}
}

func (p *Pass) walkPacket(v *nodeView, f proxy.Frontend, dst netip.AddrPort, c caller) *probe {
	if c.kind == proxy.NodeClient {
		c.addr = v.ownSource(dst.Addr(), c.addr)
	}
	pr := &probe{view: v, caller: c, frontend: f, dst: dst}
	pr.outcomes = pr.walk()
	if p.Service != nil {
		pr.expect = proxy.ExpectFrom(p.Service, p.Slices(), v.proxyNode(), c.kind, c.addr, f)
		if c.kind == proxy.NodeClient && f.Kind == proxy.ClusterIP && v.takesForPod(c.addr) {
			pr.expect.Masquerade = proxy.MasqMaybe
		}
		p.judge(pr)
		p.judgeIPVS(pr)
		p.settle(pr)
		pr.inside = p.insideOf(pr)
	} else {
		pr.judgeAlone()
		p.settleAlone(pr)
	}
	return pr
}

// walk takes the packet through what programs the node's Services.
func (pr *probe) walk() []netfilter.Outcome {
	if pr.view.cilium != nil {
		return pr.view.ciliumOutcomes(pr)
	}
	return netfilter.Walk(pr.view.rules, pr.view.host, pr.packet())
}

// destination is where the packet goes; a node port needs an address of the
// node.
func (p *Pass) destination(v *nodeView, f proxy.Frontend) (netip.AddrPort, bool) {
	if f.IP.IsValid() {
		return netip.AddrPortFrom(f.IP, uint16(f.Port)), true
	}
	if p.asksNodeAddress() && p.Target.Addr.Is6() == f.V6 {
		return netip.AddrPortFrom(p.Target.Addr, uint16(f.Port)), true
	}
	a, ok := v.address(f.V6)
	if ok && !v.servesNodePorts(a) {
		for _, other := range v.proxyNode().Addresses {
			if other.Is6() == f.V6 && other.IsGlobalUnicast() && v.servesNodePorts(other) {
				a = other
				break
			}
		}
	}
	return netip.AddrPortFrom(a, uint16(f.Port)), ok
}

// asksNodeAddress says whether one address of a node was asked about.
func (p *Pass) asksNodeAddress() bool { return p.Target.Addr.IsValid() && p.Target.Node != "" }

// address is the node's InternalIP of a family, or else its first own address
// that others can reach and that is not a pod network's gateway.
func (v *nodeView) address(v6 bool) (netip.Addr, bool) {
	if v.object != nil {
		for _, a := range v.object.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err == nil && a.Type == corev1.NodeInternalIP && ip.Unmap().Is6() == v6 {
				return ip.Unmap(), true
			}
		}
	}
	if r, ok := v.host.Lookup(outside(v6)); ok {
		// The address on the interface that leads out.
		for _, a := range v.host.Addresses() {
			if a.Is6() == v6 && a.IsGlobalUnicast() && v.host.Interface(a) == r.Dev {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

func outside(v6 bool) netip.Addr {
	if v6 {
		return outside6
	}
	return outside4
}

// callers are the clients of a frontend on a node: for a cluster IP a pod and
// the node itself, for an outside address a client from outside; or the one
// that --from names.
func (p *Pass) callers(v *nodeView, f proxy.Frontend, dst netip.AddrPort) []caller {
	outsider := caller{proxy.ExternalClient, "external", outside(f.V6)}
	if dst.Addr().IsLoopback() {
		// Nobody else reaches these, and this is the source that they have then.
		return []caller{{proxy.NodeClient, strings.TrimSpace("node " + v.name), dst.Addr()}}
	}
	switch p.Client.Kind {
	case FromExternal:
		if f.Kind == proxy.ClusterIP {
			return nil // a cluster IP has no clients outside
		}
		return []caller{outsider}
	case OnNode:
		return p.nodeCaller(v, f)
	case OnePod, FromAddress:
		return p.namedCaller(v, f)
	}
	if f.Kind != proxy.ClusterIP {
		return append([]caller{outsider}, p.admitted(v, f)...)
	}
	var out []caller
	if a, ok := p.somePodAddress(v, f, dst); ok {
		out = append(out, caller{proxy.PodClient, p.Client.String(), a})
	}
	return append(out, p.nodeCaller(v, f)...)
}

func (p *Pass) nodeCaller(v *nodeView, f proxy.Frontend) []caller {
	if p.Client.Kind == OnNode && v.name != "" && v.name != p.Client.Name {
		return nil
	}
	a, ok := v.address(f.V6)
	if !ok {
		return nil
	}
	return []caller{{proxy.NodeClient, strings.TrimSpace("node " + v.name), a}}
}

func (p *Pass) namedCaller(v *nodeView, f proxy.Frontend) []caller {
	pod := p.clientPod()
	switch {
	case pod != nil && pod.Spec.HostNetwork:
		cs := p.nodeCaller(v, f)
		for i := range cs {
			cs[i].label = p.Client.String()
		}
		return cs
	case pod != nil:
		for _, a := range podAddrs(pod) {
			if a.Is6() == f.V6 {
				return []caller{{proxy.PodClient, "pod " + pod.Namespace + "/" + pod.Name, a}}
			}
		}
		return nil
	case p.Client.Kind != FromAddress || p.Client.Addr.Is6() != f.V6:
		return nil
	}
	n := p.nodeByAddress[p.Client.Addr]
	switch {
	case n != nil && n.Name == v.name || v.host.Local(p.Client.Addr) == netfilter.True:
		return []caller{{proxy.NodeClient, p.Client.String(), p.Client.Addr}}
	case n == nil && (v.takesForPod(p.Client.Addr) || p.inPodRange(p.Client.Addr)):
		return []caller{{proxy.PodClient, p.Client.String(), p.Client.Addr}}
	}
	return []caller{{proxy.ExternalClient, p.Client.String(), p.Client.Addr}}
}

// takesForPod says whether the node's kube-proxy takes a source for a pod's, by
// the cluster's CIDR. With some networks that has the nodes in it, too.
func (v *nodeView) takesForPod(a netip.Addr) bool {
	return slices.ContainsFunc(v.seen.localCIDRs, func(r netip.Prefix) bool { return r.Contains(a) })
}

// inPodRange says whether the address is in a node's range of pods.
func (p *Pass) inPodRange(a netip.Addr) bool {
	for i := range p.snap.Objects.Nodes {
		for _, text := range podCIDRs(&p.snap.Objects.Nodes[i]) {
			if r, err := netip.ParsePrefix(text); err == nil && r.Contains(a) {
				return true
			}
		}
	}
	return false
}

// somePodAddress is an address that stands for "any pod" of the node: a pod of
// its own that is not a backend, or else a free address of its pod range.
func (p *Pass) somePodAddress(v *nodeView, f proxy.Frontend, dst netip.AddrPort) (netip.Addr, bool) {
	backend := map[netip.Addr]bool{}
	for _, e := range p.serviceEndpoints() {
		backend[e.Addr] = true
	}
	for _, a := range v.podAddrs {
		if a.Is6() == f.V6 && !backend[a] {
			return a, true
		}
	}
	return p.freePodAddress(v, f, dst, backend)
}

// freePodAddress is the highest address of the node's pod range that no pod
// has; where the range is not known, one next to a backend's, by the objects or
// else by where the rules send.
func (p *Pass) freePodAddress(v *nodeView, f proxy.Frontend, dst netip.AddrPort, backend map[netip.Addr]bool) (netip.Addr, bool) {
	node := v.proxyNode()
	for _, c := range node.PodCIDRs {
		if c.Addr().Is6() != f.V6 {
			continue
		}
		for a := lastAddr(c).Prev(); c.Contains(a); a = a.Prev() {
			if !backend[a] && len(p.podsByIP[a]) == 0 {
				return a, true
			}
		}
	}
	if a, ok := nextTo(backend, f.V6); ok {
		return a, true
	}
	sent := map[netip.Addr]bool{}
	for _, o := range netfilter.Walk(v.rules, v.host, packetTo(f, dst, outside(f.V6))) {
		if o.Rewritten && o.To.Addr().IsValid() {
			sent[o.To.Addr()] = true
		}
	}
	if a, ok := nextTo(sent, f.V6); ok {
		return a, true
	}
	// Nothing is known of the pods: a client that no rule has heard of.
	return outside(f.V6), true
}

// nextTo is a free address beside one of a set's.
func nextTo(set map[netip.Addr]bool, v6 bool) (netip.Addr, bool) {
	addrs := make([]netip.Addr, 0, len(set))
	for a := range set {
		if a.Is6() == v6 {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, b := range addrs {
		if a := b.Next(); a.IsValid() && !set[a] {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// packetTo is the first packet of a connection to a frontend, coming in.
func packetTo(f proxy.Frontend, dst netip.AddrPort, src netip.Addr) netfilter.Packet {
	return netfilter.Packet{
		Src: src, Dst: dst.Addr(), DstPort: dst.Port(),
		Protocol: netfilter.Protocol(strings.ToLower(string(f.Protocol))),
	}
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (p *Pass) serviceEndpoints() []Endpoint {
	if p.Service == nil {
		return nil
	}
	return p.Endpoints()
}

// hairpinProbe is a backend on this node that calls its own Service; nil where
// there is none. Whatever it draws, drawing itself needs its source rewritten,
// or the answer never comes back through the node.
func (p *Pass) hairpinProbe(v *nodeView, f proxy.Frontend, dst netip.AddrPort) *probe {
	if f.Kind != proxy.ClusterIP || p.Service == nil || p.Client.Kind != AnyPod || v.cilium != nil {
		return nil
	}
	want := proxy.Expect(p.Service, p.Slices(), v.proxyNode(), proxy.PodClient, f)
	for _, b := range want.Backends {
		// A pod on the host's network is the node; it has no hairpin.
		if b.Local && v.host.Local(b.Addr.Addr()) == netfilter.False {
			pr := &probe{view: v, caller: caller{proxy.PodClient, "the backend itself", b.Addr.Addr()}, frontend: f, dst: dst, expect: want, hairpin: true}
			pkt := packetTo(f, dst, b.Addr.Addr())
			pkt.In = v.host.Route(pkt.Src)
			pr.outcomes = netfilter.Walk(v.rules, v.host, pkt)
			for _, o := range pr.outcomes {
				if o.Verdict == netfilter.DNAT && o.To == b.Addr && o.Masquerade == netfilter.False {
					pr.unmasked = append(pr.unmasked, o)
				}
			}
			return pr
		}
	}
	return nil
}

func familyOf(v6 bool) netfilter.Family {
	if v6 {
		return netfilter.IPv6
	}
	return netfilter.IPv4
}
