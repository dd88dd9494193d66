package netfilter

import (
	"fmt"
	"net/netip"
)

// mostChoices bounds the addresses and ports of a NAT range that the walk
// tells apart; the kernel picks among them by a hash or at random.
const mostChoices = 256

// Primary is what a Host may know besides: the address that REDIRECT gives to
// packets that come in by an interface.
type Primary interface {
	Primary(iface string, v6 bool) netip.Addr
}

// natChoice is one rewrite that a NAT action may make.
type natChoice struct {
	p    float64
	flow Flow
}

// applyNAT gives the rewrites that a NAT action may make, or why it can't be
// told. ok is false for an action that is no NAT.
func applyNAT(a Action, s *State, kind Kind) (choices []natChoice, why string, ok bool) {
	dst := s.Hook == Prerouting || s.Hook == Output
	switch a := a.(type) {
	case DestinationNAT:
		if kind != NAT || !dst {
			return nil, "the kernel refuses DNAT in this chain", true
		}
		choices, why = rangeChoices(a.To, s)
	case Redirected:
		if kind != NAT || !dst {
			return nil, "the kernel refuses REDIRECT in this chain", true
		}
		choices, why = redirect(a, s)
	case SourceNAT:
		if kind != NAT || dst {
			return nil, "the kernel refuses SNAT in this chain", true
		}
		choices = []natChoice{{1, sourceNAT(a, s)}}
	case Masqueraded:
		if kind != NAT || s.Hook != Postrouting {
			return nil, "the kernel refuses MASQUERADE in this chain", true
		}
		f := s.Flow
		f.Src, f.SrcPort, f.snat = netip.Addr{}, 0, true
		choices = []natChoice{{1, f}}
	case Netmapped:
		if kind != NAT {
			return nil, "the kernel refuses NETMAP in this chain", true
		}
		choices, why = netmap(a, s, dst)
	default:
		return nil, "", false
	}
	for i := range choices {
		settle(&choices[i].flow, s, dst)
	}
	return choices, why, true
}

// natOne rewrites to the one address and port that most DNAT rules have; false
// for any other case, which applyNAT sees to.
func (l *leg) natOne(to NATRange) bool {
	s := l.s
	if l.base().chain.Base.Kind != NAT || s.Hook != Prerouting && s.Hook != Output || !to.First.IsValid() || to.First != to.Last ||
		to.MinPort == 0 || to.MinPort != to.MaxPort || !hasPorts(s.Protocol) || s.Dst.IsValid() && to.First.Is4() != s.Dst.Is4() {
		return false
	}
	f := s.Flow
	f.Dst, f.DstPort, f.DstPortUnknown = to.First, to.MinPort, false
	settle(&f, s, true)
	s.Flow = f
	l.nextStation()
	return true
}

// settle marks the binding as made; the kernel counts a rewrite only where
// something changed (nf_nat_setup_info).
func settle(f *Flow, s *State, dst bool) {
	if !dst {
		f.srcBound = true
		f.spoken = f.spoken || f.snat
		return
	}
	f.dstBound = true
	if f.Dst != s.Dst || f.DstPort != s.DstPort {
		f.dnat = true
		if f.dstLocal == s.dstLocal {
			f.dstLocal = Unknown
		}
	}
}

// rangeChoices rewrites the destination. Of several addresses the kernel takes
// one by a hash of the ends; each is taken to be as likely as any other.
func rangeChoices(r NATRange, s *State) ([]natChoice, string) {
	addrs, why := r.addrs(s.Dst)
	if why != "" {
		return nil, why
	}
	ports, why := r.ports(s)
	if why != "" {
		return nil, why
	}
	if len(addrs)*len(ports) > mostChoices {
		return nil, fmt.Sprintf("one of %d destinations is picked", len(addrs)*len(ports))
	}
	out := make([]natChoice, 0, len(addrs)*len(ports))
	for _, a := range addrs {
		for _, p := range ports {
			f := s.Flow
			f.Dst, f.DstPort = a, p
			if r.MinPort != 0 {
				f.DstPortUnknown = false
			}
			out = append(out, natChoice{1 / float64(cap(out)), f})
		}
	}
	return out, ""
}

func (r NATRange) addrs(now netip.Addr) ([]netip.Addr, string) {
	if !r.First.IsValid() {
		return []netip.Addr{now}, ""
	}
	if now.IsValid() && r.First.Is4() != now.Is4() {
		return nil, "the new address is of another family"
	}
	var out []netip.Addr
	for a := r.First; a.IsValid() && a.Compare(r.Last) <= 0; a = a.Next() {
		if len(out) == mostChoices {
			return nil, fmt.Sprintf("one of the addresses %s to %s is picked", r.First, r.Last)
		}
		out = append(out, a)
	}
	return out, ""
}

// ports follows nf_nat_l4proto_unique_tuple: a port that is in the range
// already stays, unless a random one is asked for.
func (r NATRange) ports(s *State) ([]uint16, string) {
	if r.MinPort == 0 || !hasPorts(s.Protocol) {
		return []uint16{s.DstPort}, ""
	}
	if r.MinPort == r.MaxPort {
		return []uint16{r.MinPort}, ""
	}
	known := !s.DstPortUnknown
	if r.BasePort != 0 {
		if p := int(r.MinPort) + int(s.DstPort) - int(r.BasePort); known && p >= int(r.MinPort) && p <= int(r.MaxPort) {
			return []uint16{uint16(p)}, ""
		}
		return nil, fmt.Sprintf("how the port is shifted into %d-%d is not known", r.MinPort, r.MaxPort)
	}
	if known && !r.Random && r.MinPort <= s.DstPort && s.DstPort <= r.MaxPort {
		return []uint16{s.DstPort}, ""
	}
	if int(r.MaxPort)-int(r.MinPort) >= mostChoices {
		return nil, fmt.Sprintf("one of the ports %d to %d is picked", r.MinPort, r.MaxPort)
	}
	var out []uint16
	for p := int(r.MinPort); p <= int(r.MaxPort); p++ {
		out = append(out, uint16(p))
	}
	return out, ""
}

// redirect sends the packet to the node itself: to the loopback address from
// OUTPUT, else to the first address of the incoming interface.
func redirect(a Redirected, s *State) ([]natChoice, string) {
	v6 := s.Packet.Dst.Is6()
	to := netip.Addr{}
	switch p, ok := s.Host.(Primary); {
	case s.Hook == Output && v6:
		to = netip.IPv6Loopback()
	case s.Hook == Output:
		to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case ok:
		to = p.Primary(s.In, v6)
	}
	r := a.To
	r.First = netip.Addr{}
	choices, why := rangeChoices(r, s)
	for i := range choices {
		choices[i].flow.Dst = to
		choices[i].flow.dstLocal = True
	}
	return choices, why
}

func sourceNAT(a SourceNAT, s *State) Flow {
	f := s.Flow
	if !a.To.First.IsValid() {
		f.snat = f.snat || a.To.MinPort != 0
		f.SrcPort = 0
		return f
	}
	f.snat = f.snat || a.To.First != a.To.Last || a.To.First != f.Src
	f.Src, f.SrcPort = netip.Addr{}, 0
	if a.To.First == a.To.Last {
		f.Src = a.To.First
	}
	return f
}

// netmap replaces the network part of the destination, or of the source on
// the way out.
func netmap(a Netmapped, s *State, dst bool) ([]natChoice, string) {
	f := s.Flow
	old := f.Src
	if dst {
		old = f.Dst
	}
	if !old.IsValid() {
		return nil, whyNoAddr
	}
	if old.Is4() != a.To.Addr().Is4() {
		return nil, "the new address is of another family"
	}
	b, net := old.AsSlice(), a.To.Masked().Addr().AsSlice()
	for i := range b {
		keep := byte(0xff)
		if full := a.To.Bits() - 8*i; full >= 8 {
			keep = 0
		} else if full > 0 {
			keep = 0xff >> full
		}
		b[i] = b[i]&keep | net[i]
	}
	now, _ := netip.AddrFromSlice(b)
	if dst {
		f.Dst = now
	} else {
		f.snat = f.snat || now != f.Src
		f.Src = now
	}
	return []natChoice{{1, f}}, ""
}
