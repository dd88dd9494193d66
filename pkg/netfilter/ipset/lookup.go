package ipset

import (
	"fmt"
	"net/netip"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// mostNested bounds sets in sets: list:set holds no list:set in the kernel.
const mostNested = 4

// Contains says whether the packet's parts named by sides ("src" or "dst", one
// for each part of an element) are in the set. Where it can't be told, it says
// why.
func (s *Sets) Contains(name string, sides []string, st *netfilter.State) (netfilter.Tri, string) {
	return s.contains(name, sides, st, 0)
}

func (s *Sets) contains(name string, sides []string, st *netfilter.State, depth int) (netfilter.Tri, string) {
	t := s.byName[name]
	switch {
	case t == nil:
		return netfilter.Unknown, fmt.Sprintf("set %s is not in the input", name)
	case len(t.dims) == 0:
		return netfilter.Unknown, fmt.Sprintf("set %s: %s", name, t.missing)
	case t.dims[0] == dimSet:
		return s.inAny(t, sides, st, depth)
	case len(sides) < len(t.dims):
		return netfilter.False, "" // as the kernel has it
	}
	in, why := t.lookup(sides, st)
	switch {
	case in == netfilter.False && t.missing != "":
		return netfilter.Unknown, fmt.Sprintf("set %s: %s", name, t.missing)
	case in == netfilter.Unknown:
		return in, fmt.Sprintf("set %s: %s", name, why)
	}
	return in, ""
}

// inAny is for a set of sets.
func (s *Sets) inAny(t *set, sides []string, st *netfilter.State, depth int) (netfilter.Tri, string) {
	if depth >= mostNested {
		return netfilter.Unknown, fmt.Sprintf("set %s: sets are in each other", t.name)
	}
	why := ""
	for _, m := range t.members {
		in, w := s.contains(m, sides, st, depth+1)
		switch in {
		case netfilter.True:
			return in, ""
		case netfilter.Unknown:
			why = w
		}
	}
	switch {
	case why != "":
		return netfilter.Unknown, why
	case t.missing != "":
		return netfilter.Unknown, fmt.Sprintf("set %s: %s", t.name, t.missing)
	}
	return netfilter.False, ""
}

// question is what is asked of a set: a key and the addresses that its
// networks are to hold.
type question struct {
	k     key
	ips   int
	addrs [2]netip.Addr
	nets  int
	why   string // why the packet doesn't tell
}

func (t *set) lookup(sides []string, st *netfilter.State) (netfilter.Tri, string) {
	q := question{}
	for i, d := range t.dims {
		if in := q.ask(t, d, sides[i] == "src", st); in == netfilter.False {
			return in, ""
		}
	}
	if q.why != "" {
		if len(t.buckets) == 0 {
			return netfilter.False, ""
		}
		return netfilter.Unknown, q.why
	}
	b := t.buckets[q.k]
	if b == nil {
		return netfilter.False, ""
	}
	return netfilter.Of(b.holds(q.addrs, t.nets)), ""
}

// ask puts one part of the packet into the question; False when no element can
// have it.
func (q *question) ask(t *set, d dim, src bool, st *netfilter.State) netfilter.Tri {
	addr, port := st.Dst, st.DstPort
	known := !st.DstPortUnknown
	if src {
		addr, port, known = st.Src, st.SrcPort, st.SrcPort != 0
	}
	switch d {
	case dimIP, dimNet:
		switch {
		case !addr.IsValid():
			q.why = "the address after NAT is not known"
		case addr.Is6() != t.v6:
			return netfilter.False
		case d == dimIP:
			if q.ips < len(q.k.ip) {
				q.k.ip[q.ips] = t.masked(addr)
			}
			q.ips++
		default:
			q.addrs[q.nets] = addr
			q.nets++
		}
	case dimPort, dimBarePort:
		return q.port(d, st.Protocol, port, known)
	case dimMark:
		q.k.mark = st.Mark
	case dimIface:
		name, exists := st.InName()
		if !src {
			name, exists = st.OutName()
		}
		if !exists {
			return netfilter.False
		}
		if name == "" {
			q.why = "the interface is not known"
		}
		q.k.iface = name
	case dimMAC:
		q.why = "link-layer addresses are not known to the walk"
	}
	return netfilter.Unknown
}

func (q *question) port(d dim, proto uint8, port uint16, known bool) netfilter.Tri {
	switch proto {
	case 6, 17, 132, 136:
		if !known {
			q.why = "the port is not known"
		}
		q.k.port = port
	case 1, 58:
		q.why = "which type of ICMP it is, is not known"
	default:
		if d == dimBarePort {
			return netfilter.False
		}
	}
	if d == dimPort {
		q.k.proto = proto
	}
	return netfilter.Unknown
}

// holds says whether the networks of an element hold the addresses. The most
// specific network decides, as the kernel looks at that first.
func (b *bucket) holds(addrs [2]netip.Addr, nets int) bool {
	if nets == 1 {
		for _, bits := range b.bits {
			p, err := addrs[0].Prefix(bits)
			if err != nil {
				continue
			}
			if nomatch, ok := b.byNet[p]; ok {
				return !nomatch
			}
		}
		return false
	}
	best, in := -1, false
	for _, p := range b.pairs {
		if nets == 2 && !(p.nets[0].Contains(addrs[0]) && p.nets[1].Contains(addrs[1])) {
			continue
		}
		bits := 0
		if nets == 2 {
			bits = p.nets[0].Bits() + p.nets[1].Bits()
		}
		if bits > best || bits == best && p.nomatch {
			best, in = bits, !p.nomatch
		}
	}
	return in
}
