package walk

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

func index(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// prepare settles what the walks of all frontends share: which addresses are
// the node's own, where its node ports are asked for, who stands for a pod.
// After it nothing of the view is changed.
func (v *auditView) prepare() {
	v.vips = map[netip.Addr]bool{}
	for i := range v.found.list {
		if f := &v.found.list[i]; f.IP.IsValid() {
			v.vips[f.IP] = true
		}
	}
	v.pods = v.podRanges()
	for _, v6 := range []bool{false, true} {
		i := index(v6)
		v.nodePortAt[i] = v.nodePortAddress(v6)
		v.node[i] = v.nodePortAt[i]
		if own := v.ownAddresses(v6); len(own) > 0 {
			v.node[i], v.ownKnown[i] = own[0], true
		}
	}
	v.host.Fallback = v.local
	if v.rules.Excerpt() {
		v.hooked = UsuallyHooked(v.rules)
	}
	for _, v6 := range []bool{false, true} {
		// The rule that leads to the node ports is looked for once.
		v.rulesServeNodePorts(v.nodePortAt[index(v6)])
		v.pod[index(v6)] = v.podAddress(v6)
	}
}

// local says whether an address is the node's own where `ip addr` was not read.
// One that kube-proxy's rules name as a VIP is taken for none, nor is a pod's:
// kube-proxy in these modes gives neither to an interface of the node.
func (v *auditView) local(a netip.Addr) netfilter.Tri {
	i := index(a.Is6())
	switch {
	case a == v.nodePortAt[i]:
		return netfilter.True
	case v.vips[a], a == v.pod[i], a == outside(a.Is6()), slices.ContainsFunc(v.pods, func(r netip.Prefix) bool { return r.Contains(a) }):
		return netfilter.False
	}
	return netfilter.Unknown
}

// assumeVIP takes the address that was asked about for none of the node's own
// where `ip addr` was not read and kube-proxy's rules name it, as an audit does.
func (p *Pass) assumeVIP(v *nodeView) {
	vip := p.Target.Addr
	if v.host.AddressesRead() || !vip.IsValid() || v.seen.mode() != "iptables" || !v.namesVIP(vip) {
		return
	}
	before := v.host.Fallback
	v.host.Fallback = func(a netip.Addr) netfilter.Tri {
		if a == vip {
			return netfilter.False
		}
		return before(a)
	}
	p.Note(diagnosis.LayerNode, diagnosis.Missing{
		What: "the addresses of " + v.label(), Why: "`ip addr` is not in the input: " + vip.String() + ", which kube-proxy's rules name, is taken for none of them", Supply: v.supply(),
	})
}

// namesVIP says whether a rule of kube-proxy's is for the address.
func (v *nodeView) namesVIP(vip netip.Addr) bool {
	rules := v.rules.OnlyFamily(familyOf(vip.Is6()))
	for _, at := range frontendChains {
		for _, c := range rules.Chains(at.table, at.chain) {
			for r := range c.RulesTo(vip) {
				for d := range r.Destinations() {
					if d.Addr == vip && d.Port != 0 {
						return true
					}
				}
			}
		}
	}
	return false
}

// nodePortAddress is an address of the node at which it serves node ports: its
// own, or the one that the rules name, or else a stand-in for any.
func (v *auditView) nodePortAddress(v6 bool) netip.Addr {
	for _, a := range v.ownAddresses(v6) {
		if v.servesNodePorts(a) {
			return a
		}
	}
	var loopback netip.Addr
	for _, a := range v.found.nodeAddrs {
		switch {
		case a.Is6() != v6:
		case a.IsLoopback():
			loopback = a
		default:
			return a
		}
	}
	switch {
	case loopback.IsValid():
		return loopback
	case v6:
		return nodeStandIn6
	}
	return nodeStandIn4
}

// ownAddresses are the node's, the one that it is known by first.
func (v *auditView) ownAddresses(v6 bool) []netip.Addr {
	var out []netip.Addr
	if a, ok := v.address(v6); ok {
		out = append(out, a)
	}
	for _, a := range v.host.Addresses() {
		if a.Is6() == v6 && a.IsGlobalUnicast() && !v.vips[a] {
			out = append(out, a)
		}
	}
	return out
}

// podRanges are the networks that the rules take for pods': what kube-proxy
// does not masquerade, by the first rule that says so.
func (v *auditView) podRanges() []netip.Prefix {
	var out []netip.Prefix
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if r, ok := v.podRange(fam); ok {
			out = append(out, r)
		}
	}
	return out
}

func (v *auditView) podRange(fam netfilter.Family) (netip.Prefix, bool) {
	rules := v.rules.OnlyFamily(fam)
	most := 16 // chains to look into; each of a cluster IP says it
	for c := range rules.AllChains("nat") {
		if !strings.HasPrefix(c.Name, "KUBE-SVC-") {
			continue
		}
		if r, ok := notMasqueraded(c, "! -s ", "KUBE-MARK-MASQ"); ok {
			return r, true
		}
		if most--; most == 0 {
			break
		}
	}
	most = 16
	for c := range rules.AllChains(kubeProxyTable) {
		if c.Name != "services" && !strings.HasPrefix(c.Name, "service-") {
			continue
		}
		if r, ok := notMasqueraded(c, " saddr != ", "m"); ok { // mark set, or jump mark-for-masquerade
			return r, true
		}
		if most--; most == 0 {
			break
		}
	}
	return netip.Prefix{}, false
}

// notMasqueraded reads the network that the first rules of a chain except from
// masquerading.
func notMasqueraded(c netfilter.Chain, except, does string) (netip.Prefix, bool) {
	most := 4
	for r := range c.Rules() {
		if _, rest, ok := strings.Cut(r.Text, except); ok && strings.Contains(rest, does) {
			word, _, _ := strings.Cut(rest, " ")
			if p, err := netip.ParsePrefix(word); err == nil {
				return p, true
			}
		}
		if most--; most == 0 {
			break
		}
	}
	return netip.Prefix{}, false
}

// podAddress stands for any pod of the node: an address beside a backend's, as
// the rules send, or else the last of the pods' range.
func (v *auditView) podAddress(v6 bool) netip.Addr {
	const tries = 32
	left := tries
	for i := range v.found.list {
		f := &v.found.list[i]
		if f.V6 != v6 || f.Kind == proxy.NodePort {
			continue
		}
		dst := netip.AddrPortFrom(f.IP, uint16(f.Port))
		sent := map[netip.Addr]bool{}
		for _, o := range netfilter.Walk(v.rules, v.host, packetTo(f.Frontend, dst, outside(v6))) {
			// The node's own processes are backends, too.
			if o.Rewritten && o.To.Addr().IsValid() && v.host.Local(o.To.Addr()) != netfilter.True && v.isPod(o.To.Addr()) {
				sent[o.To.Addr()] = true
			}
		}
		if a, ok := nextTo(sent, v6); ok {
			return a
		}
		if left--; left == 0 {
			break
		}
	}
	for _, r := range v.pods {
		if r.Addr().Is6() == v6 {
			return lastAddr(r).Prev()
		}
	}
	return outside(v6)
}

// isPod says whether an address may be a pod's, where the rules tell.
func (v *auditView) isPod(a netip.Addr) bool {
	return !slices.ContainsFunc(v.pods, func(r netip.Prefix) bool { return r.Addr().Is6() == a.Is6() }) ||
		slices.ContainsFunc(v.pods, func(r netip.Prefix) bool { return r.Contains(a) })
}

// auditProbes walks the group's frontends on every audited node.
func (p *Pass) auditProbes() {
	for _, v := range p.audit.views {
		if !p.concerns(v.nodeView) {
			continue
		}
		p.node.views = append(p.node.views, v.nodeView)
		p.noteAudit(v)
		for i := range p.auditOf.frontends {
			p.auditFrontend(v, &p.auditOf.frontends[i])
		}
	}
	p.paths = make([]diagnosis.Path, 0, len(p.node.probes))
	for _, pr := range p.node.probes {
		p.paths = append(p.paths, p.auditPath(pr))
	}
}

// noteAudit says what of the node's rules was not read, and what was assumed of
// its addresses.
func (p *Pass) noteAudit(v *auditView) {
	v4, v6 := false, false
	for i := range p.auditOf.frontends {
		if p.auditOf.frontends[i].V6 {
			v6 = true
		} else {
			v4 = true
		}
	}
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if fam == netfilter.IPv4 && v4 || fam == netfilter.IPv6 && v6 {
			for _, m := range v.rulesLack[fam] {
				p.Missing(diagnosis.LayerNode, m)
			}
		}
	}
	if n := p.audit.unnamed; n > 0 {
		p.Note(diagnosis.LayerNode, diagnosis.Missing{
			What: count(n, "VIP") + " without a name", Why: "nothing is noted beside the rules, so whether they are in namespace " + strings.Join(p.opts.Namespaces, ", ") + " is not known",
			Supply: "vipwalk -A --node-state FILE   (every VIP that the rules name)",
		})
	}
	if n := len(v.found.portless); n > 0 {
		p.Note(diagnosis.LayerNode, diagnosis.Missing{
			What: count(n, "rule") + " of " + v.label() + " for an address without a port", Why: fmt.Sprintf("line %d is the first; the tool that printed it may be older than the one that wrote it", v.found.portless[0].Line),
			Supply: "look at the rule: " + v.found.portless[0].Text,
		})
	}
	if !v.host.AddressesRead() {
		p.Note(diagnosis.LayerNode, diagnosis.Missing{
			What: "the addresses of " + v.label(), Why: "`ip addr` is not in the input: no VIP and no pod's address is taken for the node's own, and its own packets are walked to one VIP alone",
			Supply: v.supply(),
		})
	}
}

func (p *Pass) auditFrontend(v *auditView, rf *ruleFrontend) {
	f := rf.Frontend
	dst := netip.AddrPortFrom(f.IP, uint16(f.Port))
	if f.Kind == proxy.NodePort {
		dst = netip.AddrPortFrom(v.nodePortAt[index(f.V6)], uint16(f.Port))
	}
	for _, c := range p.auditCallers(v, rf, dst) {
		pr := p.walkPacket(v.nodeView, f, dst, c)
		if c.kind == proxy.PodClient && c.addr == v.pod[index(f.V6)] && pr.reaches(c.addr) {
			c.addr = pr.another(c.addr)
			pr = p.walkPacket(v.nodeView, f, dst, c)
		}
		pr.admitSources()
		p.assume(v, pr)
		p.node.probes = append(p.node.probes, pr)
	}
}

// auditCallers are the clients of a frontend: for a cluster IP a pod and the
// node itself, for an outside address a client from outside; for a node port at
// a loopback address the node alone. Where the node's own address is not known
// a stand-in is walked to the first cluster IP of the family only: it shows
// whether the node's own packets come to kube-proxy's rules at all.
func (p *Pass) auditCallers(v *auditView, f *ruleFrontend, dst netip.AddrPort) []caller {
	if p.Client.Kind != AnyPod {
		return p.callers(v.nodeView, f.Frontend, dst)
	}
	if dst.Addr().IsLoopback() {
		return []caller{{proxy.NodeClient, strings.TrimSpace("node " + v.name), dst.Addr()}}
	}
	if f.Kind != proxy.ClusterIP {
		return []caller{{proxy.ExternalClient, "external", outside(f.V6)}}
	}
	i := index(f.V6)
	out := []caller{{proxy.PodClient, p.Client.String(), v.pod[i]}}
	if v.ownKnown[i] || f.first {
		out = append(out, caller{proxy.NodeClient, strings.TrimSpace("node " + v.name), v.node[i]})
	}
	return out
}

// reaches says whether the packet may be sent to the address.
func (pr *probe) reaches(a netip.Addr) bool {
	return slices.ContainsFunc(pr.outcomes, func(o netfilter.Outcome) bool { return o.To.Addr() == a })
}

// another is an address beside one that is a backend's.
func (pr *probe) another(a netip.Addr) netip.Addr {
	for b := a.Next(); b.IsValid(); b = b.Next() {
		if !pr.reaches(b) {
			return b
		}
	}
	return a
}

// admitSources takes back what rules alone give no reason to hold against the
// node: that a load balancer's address is for certain sources is what its
// Service asks for, and the client from outside that was walked is none.
func (pr *probe) admitSources() {
	if pr.frontend.Kind == proxy.LoadBalancer || pr.frontend.Kind == proxy.ExternalIP {
		pr.walled = slices.DeleteFunc(pr.walled, forSourcesOnly)
	}
}

// forSourcesOnly says whether kube-proxy's rules for loadBalancerSourceRanges
// dropped the packet: KUBE-FW- leads to the mark to drop up to 1.24, what falls
// through it is dropped in KUBE-PROXY-FIREWALL from 1.25 on.
func forSourcesOnly(o netfilter.Outcome) bool {
	last := lastStep(o)
	switch {
	case last.Table == kubeProxyTable:
		return strings.HasPrefix(last.Chain, "firewall-") || strings.Contains(last.Text, "@firewall")
	case last.Chain == "KUBE-PROXY-FIREWALL":
		return true
	}
	return last.Chain == "KUBE-FIREWALL" && slices.ContainsFunc(o.Steps, func(s netfilter.Step) bool { return strings.HasPrefix(s.Chain, "KUBE-FW-") })
}

// auditPath is a probe as an audit's report shows it: what becomes of the
// packet, in short; the rules only where something is the matter, as ten
// thousand healthy Services have a million of them.
func (p *Pass) auditPath(pr *probe) diagnosis.Path {
	out := diagnosis.Path{
		Node: pr.view.name, Client: pr.caller.label, Frontend: frontendText(pr.frontend, pr.dst),
		Status: pr.status(), Summary: cmp.Or(p.auditOf.assumed[pr], pr.summary()), Outcomes: make([]diagnosis.Outcome, 0, len(pr.outcomes)),
	}
	whole := pr.bad() || len(pr.undecided) > 0 || len(pr.outcomes) == 1
	for _, o := range pr.outcomes {
		if !whole {
			o.Steps, o.Unknowns = nil, nil
		}
		out.Outcomes = append(out.Outcomes, ReportOutcome(o))
	}
	return out
}
