package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Side is the end of a packet that a match looks at.
type Side uint8

const (
	Src Side = iota
	Dst
	// Either end: multiport --ports.
	Either
)

func (s Side) String() string {
	return [...]string{"source", "destination", "source or destination"}[s]
}

func (s *State) addr(side Side) netip.Addr {
	if side == Src {
		return s.Src
	}
	return s.Dst
}

const (
	whyNoAddr = "the address after NAT is not known"
	whyNoPort = "the %s port is not known"
)

// Not negates a match.
type Not struct{ Match Match }

// Eval negates; unknown stays unknown.
func (m Not) Eval(s *State) Tri { return m.Match.Eval(s).Not() }

// Why is the negated match's.
func (m Not) Why(s *State) string { return m.Match.Why(s) }

// Never is a match that fails: a module's --rcheck without a history, say.
type Never struct{}

// Eval is False.
func (Never) Eval(*State) Tri { return False }

// Why is not asked.
func (Never) Why(*State) string { return "" }

// Undecidably is a match that can't be decided from rules alone.
type Undecidably struct{ Because string }

// Eval is Unknown.
func (Undecidably) Eval(*State) Tri { return Unknown }

// Why is the reason it was made with.
func (m Undecidably) Why(*State) string { return m.Because }

// AddrIn matches an address in a network (-s, -d).
type AddrIn struct {
	Side   Side
	Prefix netip.Prefix
}

// Eval compares the address as it is at this point.
func (m AddrIn) Eval(s *State) Tri {
	if m.Prefix.Bits() == 0 {
		return True
	}
	a := s.addr(m.Side)
	if !a.IsValid() {
		return Unknown
	}
	return Of(m.Prefix.Contains(a))
}

// Why says that the address isn't known.
func (m AddrIn) Why(*State) string { return whyNoAddr }

// AddrMasked matches an address under a mask that is no prefix
// (10.0.0.1/255.0.0.255).
type AddrMasked struct {
	Side       Side
	Addr, Mask netip.Addr
}

// Eval compares the bits of the mask.
func (m AddrMasked) Eval(s *State) Tri {
	a := s.addr(m.Side)
	if !a.IsValid() {
		return Unknown
	}
	x, y, mask := a.AsSlice(), m.Addr.AsSlice(), m.Mask.AsSlice()
	if len(x) != len(y) || len(x) != len(mask) {
		return False
	}
	for i := range x {
		if (x[i]^y[i])&mask[i] != 0 {
			return False
		}
	}
	return True
}

// Why says that the address isn't known.
func (m AddrMasked) Why(*State) string { return whyNoAddr }

// AddrRange matches First <= address <= Last (-m iprange).
type AddrRange struct {
	Side        Side
	First, Last netip.Addr
}

// Eval compares the address as it is at this point.
func (m AddrRange) Eval(s *State) Tri {
	a := s.addr(m.Side)
	if !a.IsValid() {
		return Unknown
	}
	return Of(m.First.Compare(a) <= 0 && a.Compare(m.Last) <= 0)
}

// Why says that the address isn't known.
func (m AddrRange) Why(*State) string { return whyNoAddr }

// Interface matches the name of an interface (-i, -o). Side Src is the one
// that the packet came in by, Dst the one that it leaves by.
type Interface struct {
	Side Side
	Name string
	// Prefix: Name is the beginning of the name ("cali+").
	Prefix bool
}

// Eval is False where the packet has no such interface at this hook, as the
// kernel compares with an empty name there.
func (m Interface) Eval(s *State) Tri {
	name, exists := s.InName()
	if m.Side == Dst {
		name, exists = s.OutName()
	}
	switch {
	case m.Prefix && m.Name == "":
		return True
	case !exists:
		return False
	case name != "":
		return Of(name == m.Name || m.Prefix && strings.HasPrefix(name, m.Name))
	case m.Name == "lo" && !m.Prefix && m.Side == Src && !s.loopback && s.Hook != Postrouting:
		return False // a packet from elsewhere does not come in by lo
	case m.Name == "lo" && !m.Prefix && m.Side == Dst && s.LocalDst() == False:
		return False
	}
	return Unknown
}

// Why says which interface isn't known.
func (m Interface) Why(*State) string {
	if m.Side == Dst {
		return "the outgoing interface is not known"
	}
	return "the incoming interface is not known"
}

// Proto matches the transport protocol.
type Proto struct{ Number uint8 }

// Eval compares the number.
func (m Proto) Eval(s *State) Tri { return Of(s.Protocol == m.Number) }

// Why is not asked.
func (Proto) Why(*State) string { return "" }

// PortRange is First to Last, both in it.
type PortRange struct{ First, Last uint16 }

// Ports matches a port in one of several ranges.
type Ports struct {
	Side   Side
	Ranges []PortRange
}

// Eval is False for a protocol without ports.
func (m Ports) Eval(s *State) Tri {
	if !hasPorts(s.Protocol) {
		return False
	}
	src := m.holds(s.SrcPort, s.SrcPort != 0)
	dst := m.holds(s.DstPort, !s.DstPortUnknown)
	switch m.Side {
	case Src:
		return src
	case Dst:
		return dst
	}
	return src.Not().And(dst.Not()).Not()
}

func (m Ports) holds(port uint16, known bool) Tri {
	if !known {
		if slices.ContainsFunc(m.Ranges, func(r PortRange) bool { return r.First <= 1 && r.Last == 65535 }) {
			return True
		}
		return Unknown
	}
	return Of(slices.ContainsFunc(m.Ranges, func(r PortRange) bool { return r.First <= port && port <= r.Last }))
}

// Why says which port isn't known.
func (m Ports) Why(*State) string { return fmt.Sprintf(whyNoPort, m.Side) }

// The TCP flags' bits.
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// TCPFlags matches flags & Mask == Set. The first packet of a TCP connection
// has SYN alone.
type TCPFlags struct{ Mask, Set uint8 }

// Eval compares with SYN.
func (m TCPFlags) Eval(s *State) Tri { return Of(s.Protocol == protoTCP && SYN&m.Mask == m.Set) }

// Why is not asked.
func (TCPFlags) Why(*State) string { return "" }

// ICMPType matches a range of types. The first packet of an ICMP flow that
// someone asks about is taken to be an echo request: a ping.
type ICMPType struct {
	Proto       uint8
	First, Last uint8
	// Code is compared where not negative.
	Code int
}

// Eval compares with an echo request (type 8, in ICMPv6 128; code 0).
func (m ICMPType) Eval(s *State) Tri {
	echo := uint8(8)
	if m.Proto == protoICMPv6 {
		echo = 128
	}
	return Of(s.Protocol == m.Proto && m.First <= echo && echo <= m.Last && m.Code <= 0)
}

// Why is not asked.
func (ICMPType) Why(*State) string { return "" }
