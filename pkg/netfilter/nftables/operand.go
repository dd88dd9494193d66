package nftables

import (
	"net/netip"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// presence says whether a packet has what an operand reads.
type presence uint8

const (
	// absent: the packet has none; the rule ends there, whatever it asks.
	absent presence = iota
	present
	unknown
)

// reading is what an operand finds in a packet.
type reading struct {
	datum
	has presence
	why string // why it is unknown
}

func known(d datum) reading       { return reading{datum: d, has: present} }
func number(n uint64) reading     { return reading{datum: datum{num: n}, has: present} }
func notKnown(why string) reading { return reading{has: unknown, why: why} }
func knownIf(ok bool, n uint64) reading {
	if !ok {
		return reading{}
	}
	return number(n)
}

// operand is what stands on the left of a comparison, or in the key of a map:
// a part of the packet, of its connection, or of the node.
type operand struct {
	kind kind
	read func(*netfilter.State) reading
	// is compares with a pattern where the value itself is not known; nil where
	// nothing can be said then.
	is func(*netfilter.State, pattern) netfilter.Tri
	// mod is set for a number that is drawn from [offset, offset+mod).
	mod, offset uint64
	// span is set for a number of [offset, offset+span) that is not known.
	span uint64
	// names is what of a destination it reads.
	names part
}

func (o *operand) random() bool { return o.mod > 0 }

// holds says whether a reading of the operand is in a pattern.
func (o *operand) holds(s *netfilter.State, r reading, p pattern) netfilter.Tri {
	switch {
	case r.has == absent:
		return netfilter.False
	case r.has == present:
		return netfilter.Of(p.holds(r.datum))
	case o.is != nil:
		return o.is(s, p)
	case p.all(o.kind):
		return netfilter.True
	}
	return netfilter.Unknown
}

// reader makes an operand.
func reader(k kind, read func(*netfilter.State) reading) *operand {
	return &operand{kind: k, read: read}
}

// opaque makes an operand of which nothing is known.
func opaque(k kind, why string) *operand {
	return reader(k, func(*netfilter.State) reading { return notKnown(why) })
}

func isV4(s *netfilter.State) bool { return s.Packet.Dst.Is4() }

func hasPorts(proto uint8) bool {
	switch proto {
	case 6, 17, 33, 132, 136:
		return true
	}
	return false
}

const whyNoAddr = "the address after NAT is not known"

func addrReading(a netip.Addr) reading {
	if !a.IsValid() {
		return notKnown(whyNoAddr)
	}
	return known(datum{addr: a})
}

// address reads ip saddr and its like; v4 and v6 say of which header.
func address(side netfilter.Side, v4 bool) *operand {
	return naming(side, partAddr, kindAddr, func(s *netfilter.State) reading {
		switch {
		case isV4(s) != v4:
			return reading{}
		case side == netfilter.Src:
			return addrReading(s.Src)
		}
		return addrReading(s.Dst)
	})
}

// port reads a port of the protocol, or of any with ports where proto is 0.
func port(side netfilter.Side, proto uint8) *operand {
	return naming(side, partPort, kindPort, func(s *netfilter.State) reading {
		switch {
		case proto != 0 && s.Protocol != proto, !hasPorts(s.Protocol):
			return reading{}
		case side == netfilter.Src && s.SrcPort == 0:
			return notKnown("the source port is not known")
		case side == netfilter.Src:
			return number(uint64(s.SrcPort))
		case s.DstPortUnknown:
			return notKnown("the destination port is not known")
		}
		return number(uint64(s.DstPort))
	})
}

// iface reads the name of an interface; at a hook where there is none the
// kernel compares with an empty name.
func iface(side netfilter.Side) *operand {
	o := reader(kindIface, func(s *netfilter.State) reading {
		name, exists := s.InName()
		why := "the incoming interface is not known"
		if side == netfilter.Dst {
			name, exists = s.OutName()
			why = "the outgoing interface is not known"
		}
		if exists && name == "" {
			return notKnown(why)
		}
		return known(datum{name: name})
	})
	o.is = func(s *netfilter.State, p pattern) netfilter.Tri {
		if p.any {
			return netfilter.True
		}
		return netfilter.Interface{Side: side, Name: p.first.name, Prefix: p.prefix}.Eval(s)
	}
	return o
}

var fibTypes = [...]string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW"}

// fibType reads the type of an address in the node's routing tables.
func fibType(side netfilter.Side, link string) *operand {
	why := func(s *netfilter.State) string {
		return netfilter.AddrType{Side: side, Types: []string{"LOCAL"}, Iface: link}.Why(s)
	}
	o := naming(side, partType, kindFibType, func(s *netfilter.State) reading { return notKnown(why(s)) })
	o.is = func(s *netfilter.State, p pattern) netfilter.Tri {
		if p.any {
			return netfilter.True
		}
		if !p.single() || p.first.num >= uint64(len(fibTypes)) {
			return netfilter.Unknown
		}
		return netfilter.AddrType{Side: side, Types: []string{fibTypes[p.first.num]}, Iface: link}.Eval(s)
	}
	return o
}

// wayBack reads whether the source is routed back the way the packet came, or
// with loose, at all: fib saddr . iif oif, fib saddr oif.
func wayBack(loose bool) *operand {
	m := netfilter.ReversePath{Loose: loose}
	o := reader(kindExists, func(s *netfilter.State) reading { return notKnown(m.Why(s)) })
	o.is = func(s *netfilter.State, p pattern) netfilter.Tri {
		exists := m.Eval(s)
		return netfilter.Of(p.holds(datum{num: 1})).And(exists).Not().And(netfilter.Of(p.holds(datum{})).And(exists.Not()).Not()).Not()
	}
	return o
}

// pktType reads the link-layer type of the packet.
func pktType() *operand {
	names := [...]string{"unicast", "broadcast", "multicast"}
	o := reader(kindPktType, func(*netfilter.State) reading { return notKnown(netfilter.PktType{}.Why(nil)) })
	o.is = func(s *netfilter.State, p pattern) netfilter.Tri {
		if !p.single() || p.first.num >= uint64(len(names)) {
			return netfilter.Unknown
		}
		return netfilter.PktType{Type: names[p.first.num]}.Eval(s)
	}
	return o
}

func ctState(s *netfilter.State) reading {
	var bits uint64
	ct := s.CT()
	for bit, n := range map[netfilter.CTBits]uint64{
		netfilter.CTNew: 8, netfilter.CTEstablished: 2, netfilter.CTRelated: 4, netfilter.CTInvalid: 1, netfilter.CTUntracked: 64,
	} {
		if ct&bit != 0 {
			bits |= n
		}
	}
	return number(bits)
}

func ctStatus(s *netfilter.State) reading {
	if !s.Tracked() {
		return reading{}
	}
	var bits uint64
	ct := s.CT()
	if ct&netfilter.CTSNAT != 0 {
		bits |= 16
	}
	if ct&netfilter.CTDNAT != 0 {
		bits |= 32
	}
	if (netfilter.CTConfirmed{}).Eval(s) == netfilter.True {
		bits |= 8
	}
	return number(bits)
}

// tuple reads an address or a port of the connection's own record.
func tuple(reply, isPort bool, side netfilter.Side, family netfilter.Family) *operand {
	k := kindAddr
	if isPort {
		k = kindPort
	}
	return reader(k, func(s *netfilter.State) reading {
		if !s.Tracked() || family != 0 && isV4(s) != (family == netfilter.IPv4) {
			return reading{}
		}
		a, p := s.Packet.Src, s.Packet.SrcPort
		switch {
		case !reply && side == netfilter.Dst:
			a, p = s.Packet.Dst, s.Packet.DstPort
		case reply && side == netfilter.Src:
			if a, p = s.Dst, s.DstPort; s.DstPortUnknown {
				p = 0
			}
		case reply:
			a, p = s.Src, s.SrcPort
		}
		switch {
		case !isPort:
			return addrReading(a)
		case p == 0:
			return notKnown("the port in the connection's record is not known")
		}
		return number(uint64(p))
	})
}

// socketOwner reads a property of the sending process.
func socketOwner(what string) *operand {
	m := netfilter.FromSocket{What: what}
	return reader(kindUser, func(s *netfilter.State) reading {
		if m.Eval(s) == netfilter.False {
			return reading{}
		}
		return notKnown(m.Why(s))
	})
}
