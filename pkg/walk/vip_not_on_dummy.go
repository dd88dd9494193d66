package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// vipNotOnDummy: on a node in IPVS mode an address of the Service is on no
// interface, so that packets to it are routed on and IPVS never sees them; or
// one of kube-proxy's sets, by which the rules around IPVS go, lacks its member.
// That kube-ipvs0 is DOWN and NOARP is as it should be.
var vipNotOnDummy = &Check{
	Code: diagnosis.VIPNotOnDummy, Needs: needsOfNode, Applies: onNodes,
	Explains: []diagnosis.Code{diagnosis.MasqueradeMissing, diagnosis.DroppedAfterDNAT},
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			if v.inIPVS() && !p.opts.resynced[v.name] && !p.justChanged(v) {
				p.reportUnbound(v)
				p.reportLackingSets(v)
			}
		}
	},
}

// justChanged says whether kube-proxy may be about to add what is missing.
func (p *Pass) justChanged(v *nodeView) bool {
	at := p.readAt(v)
	recent := func(t time.Time) bool { return !t.IsZero() && at.Sub(t) < freshness }
	return len(v.frozenProxy()) == 0 && (recent(p.Service.CreationTimestamp.Time) || v.seen.startedAfter(recent))
}

func (p *Pass) reportUnbound(v *nodeView) {
	if !v.host.AddressesRead() {
		return
	}
	fronts := p.Frontends()
	var lost []netip.Addr
	for _, a := range proxy.DummyAddresses(p.Service) {
		if v.host.Local(a) == netfilter.False && slices.ContainsFunc(fronts, func(f proxy.Frontend) bool { return f.IP == a }) {
			lost = append(lost, a)
		}
	}
	if len(lost) == 0 {
		return
	}
	found := ipvsDevice + " does not have it, nor does another interface"
	title := "%s has no interface with %s: packets to it are routed on, past its virtual server"
	if v.host.Link(ipvsDevice) == netfilter.False {
		found = "there is no device " + ipvsDevice
		title = "%s has no device " + ipvsDevice + ", so that %s is on no interface: packets to it are routed on, past its virtual server"
	}
	evidence := []diagnosis.Evidence{v.dummyEvidence(lost)}
	for _, s := range v.virtual.All() {
		if s.Mark == 0 && slices.Contains(lost, s.Addr.Addr()) && len(evidence) < 3 {
			evidence = append(evidence, v.serverEvidence(s, s.Line, s.Text))
		}
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf(title, v.label(), addrs(lost)),
		Expected: addrs(lost) + " on " + ipvsDevice,
		Found:    found + "; pods and clients outside get no answer, the node's own processes may",
		Evidence: append(evidence, v.frozenProxy()...),
		Fixes:    append([]Proposal{p.restartProxy(v)}, p.bindAddress(v, lost)...),
	})
}

func addrs(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return join(out, 3)
}

// dummyEvidence quotes kube-ipvs0, or that there is none.
func (v *nodeView) dummyEvidence(lost []netip.Addr) diagnosis.Evidence {
	if bound := v.boundByIPVS(); len(bound) > 0 {
		e := v.deviceEvidence(bound)
		e.Quote += "; none is " + addrs(lost)
		return e
	}
	e := diagnosis.Evidence{
		Source: "ip addr of " + v.label(), Quote: fmt.Sprintf("no device %s with an address, none of the node's %s is %s", ipvsDevice, count(len(v.host.Addresses()), "address"), addrs(lost)),
		Command: v.onNodeCommand("ip addr show"),
	}
	if t := v.state.Text(snapshot.IPAddr); t.Status == snapshot.Done {
		e.Source = textName(t) + " of " + v.label()
	}
	return e
}

// bindAddress proposes to put the address back by hand, where the device is
// there.
func (p *Pass) bindAddress(v *nodeView, lost []netip.Addr) []Proposal {
	if v.host.Link(ipvsDevice) != netfilter.True {
		return nil
	}
	var add, del []string
	for _, a := range lost {
		to := fmt.Sprintf("%s/%d dev %s", a, a.BitLen(), ipvsDevice)
		add = append(add, v.onNodeCommand("sudo ip addr add "+to))
		del = append(del, v.onNodeCommand("sudo ip addr del "+to))
	}
	return []Proposal{{
		Fix: diagnosis.Fix{
			Title: "put the address back by hand, as kube-proxy does", Commands: add,
			BlastRadius: "packets to " + addrs(lost) + " on " + v.label() + " alone; kube-proxy takes the address away again if it does not know the Service",
			Undo:        del, Verify: []string{p.again()},
		},
		NotSimulated: changesNode,
	}}
}

// lackingMembers are the elements that kube-proxy's sets ought to have of the
// Service and have not, as far as both are known.
func (p *Pass) lackingMembers(v *nodeView) []proxy.SetMember {
	if v.sets == nil {
		return nil
	}
	node := v.proxyNode()
	var out []proxy.SetMember
	for _, m := range proxy.SetMembers(p.Service, p.Slices(), node, v.servedAddresses()) {
		if !slices.Contains(p.Frontends(), m.Frontend) || !bears(m) || v.name == "" && strings.Contains(m.Set, "LOOP-BACK") {
			continue
		}
		if strings.Contains(m.Set, "LOOP-BACK") && !p.steadyBackend(v, m) {
			continue
		}
		state, sides, ok := memberQuestion(m)
		if !ok {
			continue
		}
		if in, _ := v.sets.Contains(m.Set, sides, state); in == netfilter.False {
			out = append(out, m)
		}
	}
	return out
}

// bears says whether what becomes of a packet to the Service hangs on a set.
// That of all addresses is for other ports; that of source addresses hangs on
// the node's own, as kube-proxy takes it.
func bears(m proxy.SetMember) bool {
	for _, name := range []string{"IPVS-IPS", "HEALTH-CHECK-NODE-PORT", "LOAD-BALANCER-SOURCE-IP"} {
		if m.Set == proxy.SetName(name, m.Frontend.V6) {
			return false
		}
	}
	return true
}

// steadyBackend says whether an endpoint on the node is ready, and not just now.
func (p *Pass) steadyBackend(v *nodeView, m proxy.SetMember) bool {
	for _, b := range proxy.Expect(p.Service, p.Slices(), v.proxyNode(), proxy.PodClient, m.Frontend).Backends {
		if b.Local && strings.HasPrefix(m.Member, b.Addr.Addr().String()+",") {
			return !p.becameReady(b, v)
		}
	}
	return false
}

// memberQuestion makes of a member the packet that asks for it.
func memberQuestion(m proxy.SetMember) (*netfilter.State, []string, bool) {
	parts := strings.Split(m.Member, ",")
	s := &netfilter.State{}
	if len(parts) == 1 {
		if port, err := strconv.ParseUint(parts[0], 10, 16); err == nil {
			s.Dst = netip.IPv4Unspecified()
			s.Protocol, _ = protocolNumber(m.Frontend)
			s.DstPort = uint16(port)
			return s, []string{"dst"}, true
		}
		return nil, nil, false
	}
	proto, port, ok := strings.Cut(parts[1], ":")
	n, known := netfilter.Protocol(proto).Number()
	p, err := strconv.ParseUint(port, 10, 16)
	dst, bad := netip.ParseAddr(parts[0])
	if !ok || !known || err != nil || bad != nil {
		return nil, nil, false
	}
	s.Dst, s.Protocol, s.DstPort = dst, n, uint16(p)
	if len(parts) == 2 {
		return s, []string{"dst", "dst"}, true
	}
	src, _, _ := strings.Cut(parts[2], "/")
	if s.Src, err = netip.ParseAddr(src); err != nil {
		return nil, nil, false
	}
	return s, []string{"dst", "dst", "src"}, true
}

func protocolNumber(f proxy.Frontend) (uint8, bool) {
	return netfilter.Protocol(strings.ToLower(string(f.Protocol))).Number()
}

func (p *Pass) reportLackingSets(v *nodeView) {
	lacking := p.lackingMembers(v)
	if len(lacking) == 0 {
		return
	}
	var names []string
	var evidence []diagnosis.Evidence
	for _, m := range lacking {
		if !slices.Contains(names, m.Set) {
			names = append(names, m.Set)
			evidence = append(evidence, v.setEvidence(m))
		}
	}
	f := Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("set %s of %s lacks %s: %s", lacking[0].Set, v.label(), lacking[0].Member, lackMeans(lacking[0])),
		Expected: fmt.Sprintf("%s in %s", lacking[0].Member, lacking[0].Set),
		Found:    fmt.Sprintf("%s of the Service not in %s", count(len(lacking), "member"), join(names, 3)),
		Fixes:    []Proposal{p.restartProxy(v)},
	}
	for _, pr := range p.probes() {
		if pr.view != v || len(pr.filtered)+len(pr.unmasked) == 0 {
			continue
		}
		f.Severity = diagnosis.Error
		if len(pr.filtered) > 0 {
			f.Title = fmt.Sprintf("%s rejects %s in KUBE-IPVS-FILTER: set %s lacks %s", v.label(), frontendText(pr.frontend, pr.dst), lacking[0].Set, lacking[0].Member)
			evidence = append(evidence, ruleEvidence(v, lastStep(pr.filtered[0])))
			break
		}
	}
	f.Evidence = append(evidence, v.frozenProxy()...)
	p.Report(f)
}

// lackMeans says what becomes of packets where a set lacks its member.
func lackMeans(m proxy.SetMember) string {
	switch {
	case strings.Contains(m.Set, "LOOP-BACK"):
		return "a backend that draws itself is not masqueraded, and gets no answer"
	case strings.Contains(m.Set, "-LOCAL"):
		return "its clients are masqueraded, though the traffic policy is to keep their addresses"
	case strings.Contains(m.Set, "SOURCE-CIDR"), strings.HasSuffix(m.Set, "SOURCE-CID"):
		return "clients of that source range are dropped"
	case strings.HasSuffix(m.Set, "LOAD-BALANCER-FW"):
		return "loadBalancerSourceRanges keep nobody out"
	case strings.Contains(m.Set, "NODE-PORT"):
		return "clients of the node port are not masqueraded"
	}
	return "packets to it may be rejected, and are not masqueraded"
}

// setEvidence quotes a set's line, and that the member is not among its own.
func (v *nodeView) setEvidence(m proxy.SetMember) diagnosis.Evidence {
	e := diagnosis.Evidence{
		Source: "ipset save of " + v.label(), Ref: "set " + m.Set, Quote: fmt.Sprintf("%s, %s is not among them", count(v.sets.Size(m.Set), "member"), m.Member),
		Command: v.onNodeCommand("sudo ipset list " + shellQuote(m.Set) + " | grep -F " + shellQuote(m.Member)),
	}
	for _, t := range v.state.All(snapshot.IpsetSave) {
		n := 0
		for line := range strings.Lines(t.Content) {
			n++
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "create "+m.Set+" ") || text == "Name: "+m.Set {
				e.Source, e.Line, e.Quote = textName(t)+" of "+v.label(), n, text+"; "+e.Quote
				return e
			}
		}
	}
	return e
}

// judgeIPVS sorts what the rules around IPVS turned away because a set lacks its
// member, which is no rule of somebody else's.
func (p *Pass) judgeIPVS(pr *probe) {
	if !pr.view.inIPVS() {
		return
	}
	pr.judgeMarks()
	if len(pr.blocked) == 0 {
		return
	}
	lacking := slices.ContainsFunc(p.lackingMembers(pr.view), func(m proxy.SetMember) bool { return m.Frontend == pr.frontend })
	pr.blocked = slices.DeleteFunc(pr.blocked, func(o netfilter.Outcome) bool {
		last := lastStep(o)
		switch {
		case last.Table == ipvsTable:
			// IPVS itself refuses: no real server is usable.
			pr.refused = append(pr.refused, o)
		case last.Chain == "KUBE-IPVS-FILTER" && lacking:
			pr.filtered = append(pr.filtered, o)
		default:
			return false
		}
		return true
	})
}
