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

// CTState matches when the packet is in one of the states.
type CTState struct{ Any CTBits }

// Eval compares with the state of a first packet.
func (m CTState) Eval(s *State) Tri { return Of(s.CT()&m.Any != 0) }

// Why is not asked.
func (CTState) Why(*State) string { return "" }

// CTTuple matches an address, a port or the protocol of the connection's
// original or reply tuple.
type CTTuple struct {
	Reply bool
	Side  Side
	// One of Prefix and Ports is set; with neither, Proto is compared.
	Prefix netip.Prefix
	Ports  []PortRange
	Proto  uint8
}

// Eval is False for a packet without a conntrack entry.
func (m CTTuple) Eval(s *State) Tri {
	if !s.Tracked() {
		return False
	}
	t := *s
	if m.Reply {
		t.Src, t.SrcPort, t.Dst, t.DstPort = s.Dst, s.DstPort, s.Src, s.SrcPort
		if s.DstPortUnknown {
			t.SrcPort = 0
		}
		t.DstPortUnknown = s.SrcPort == 0
	} else {
		t.Src, t.Dst = s.Packet.Src, s.Packet.Dst
		t.SrcPort, t.DstPort, t.DstPortUnknown = s.Packet.SrcPort, s.Packet.DstPort, false
	}
	switch {
	case m.Prefix.IsValid():
		return AddrIn{m.Side, m.Prefix}.Eval(&t)
	case m.Ports != nil:
		return Ports{m.Side, m.Ports}.Eval(&t)
	}
	return Of(s.Protocol == m.Proto)
}

// Why says what of the tuple isn't known.
func (m CTTuple) Why(*State) string {
	if m.Ports != nil {
		return fmt.Sprintf(whyNoPort, m.Side)
	}
	return whyNoAddr
}

// CTDirection matches the direction; a first packet goes in the original one.
type CTDirection struct{ Reply bool }

// Eval is False for a packet without a conntrack entry.
func (m CTDirection) Eval(s *State) Tri { return Of(s.Tracked() && !m.Reply) }

// Why is not asked.
func (CTDirection) Why(*State) string { return "" }

// CTConfirmed matches a connection that passed all hooks once: only a node's
// packet to itself can be one and be the first.
type CTConfirmed struct{}

// Eval is True on the way back in through lo.
func (CTConfirmed) Eval(s *State) Tri { return Of(s.Tracked() && s.loopback) }

// Why is not asked.
func (CTConfirmed) Why(*State) string { return "" }

// MarkIs matches mark & Mask == Value. Packets enter with mark 0: a mark that
// a socket set (SO_MARK) is not modelled.
type MarkIs struct {
	Value, Mask uint32
	// Conn compares the connection's mark, 0 for a new one.
	Conn bool
}

// Eval compares the mark as it is at this point.
func (m MarkIs) Eval(s *State) Tri {
	if !m.Conn {
		return Of(s.Mark&m.Mask == m.Value)
	}
	return Of(s.Tracked() && s.ConnMark&m.Mask == m.Value)
}

// Why is not asked.
func (MarkIs) Why(*State) string { return "" }

// AddrType matches the type of an address in the node's routing tables.
type AddrType struct {
	Side Side
	// Types as iptables names them: LOCAL, UNICAST, BROADCAST, ...
	Types []string
	// Iface: the type is asked of the packet's incoming ("in") or outgoing
	// ("out") interface alone.
	Iface string
}

// Eval answers LOCAL by Host.Local. An address that isn't local and is neither
// multicast nor a broadcast address is UNICAST.
func (m AddrType) Eval(s *State) Tri {
	t := False
	for _, typ := range m.Types {
		t = t.Not().And(m.is(typ, s).Not()).Not()
	}
	return t
}

func (m AddrType) is(typ string, s *State) Tri {
	a := s.addr(m.Side)
	local := s.local(a)
	if m.Side == Dst {
		local = s.LocalDst()
	}
	if !a.IsValid() && local != True {
		return Unknown
	}
	multi := Of(a.IsMulticast())
	broad := s.broadcast(a)
	switch typ {
	case "LOCAL":
		if m.Iface != "" && local == True {
			return Unknown // on which interface it is, is not known
		}
		return local
	case "MULTICAST":
		return multi
	case "BROADCAST":
		return broad
	case "UNICAST":
		return local.Not().And(multi.Not()).And(broad.Not())
	case "UNSPEC":
		return Of(a.IsValid() && a.IsUnspecified())
	}
	if local == True || multi == True || broad == True {
		return False
	}
	return Unknown // BLACKHOLE, PROHIBIT, ...: the routing tables would tell
}

// Why says what of the node isn't known.
func (m AddrType) Why(s *State) string {
	if a := s.addr(m.Side); a.IsValid() {
		return fmt.Sprintf("whether %s is of type %s on this node is not known", a, strings.Join(m.Types, ","))
	}
	return whyNoAddr
}

// Broadcaster is what a Host may know besides: whether an address is the
// broadcast address of one of its networks.
type Broadcaster interface{ Broadcast(netip.Addr) Tri }

func (s *State) broadcast(a netip.Addr) Tri {
	if a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return True
	}
	if b, ok := s.Host.(Broadcaster); ok && a.Is4() {
		return b.Broadcast(a)
	}
	return False
}

// PktType matches the link-layer type: the packets that are walked are sent
// to one host.
type PktType struct{ Type string }

// Eval tells by the destination address.
func (m PktType) Eval(s *State) Tri {
	multi := s.Dst.IsMulticast()
	switch m.Type {
	case "multicast":
		return Of(multi)
	case "broadcast":
		return s.broadcast(s.Dst)
	case "unicast", "host":
		return Of(!multi).And(s.broadcast(s.Dst).Not())
	}
	return Unknown
}

// Why says that the link layer isn't known.
func (PktType) Why(*State) string { return "the link-layer packet type is not known" }

// InSet matches the membership in a named set.
type InSet struct {
	Name  string
	Sides []string
}

// Eval asks the state's Sets; without, it is unknown.
func (m InSet) Eval(s *State) Tri {
	if s.Sets == nil {
		return Unknown
	}
	t, _ := s.Sets.Contains(m.Name, m.Sides, s)
	return t
}

// Why says that the set was not read, or what else kept it from an answer.
func (m InSet) Why(s *State) string {
	if s.Sets != nil {
		if _, why := s.Sets.Contains(m.Name, m.Sides, s); why != "" {
			return why
		}
	}
	return fmt.Sprintf("the contents of set %s are not in the input", m.Name)
}

// Recalled matches a source that is on a list of -m recent. The walk is that
// of a client without history, so only what the packet itself wrote counts.
type Recalled struct {
	List string
	// Hits is the least number of entries; 1 unless --hitcount says more.
	Hits int
}

// Eval is True only after a Remember on the same list.
func (m Recalled) Eval(s *State) Tri {
	return Of(m.Hits <= 1 && strings.Contains(s.recents, recentEntry(m.List)))
}

// Why is not asked.
func (Recalled) Why(*State) string { return "" }

func recentEntry(list string) string { return "\x00" + list + "\x00" }

// FromSocket matches properties of the sending process (-m owner).
type FromSocket struct{ What string }

// Eval is False for packets that no process on the node sent.
func (m FromSocket) Eval(s *State) Tri {
	if s.Packet.LocalProcess && (s.Hook == Output || s.Hook == Postrouting) {
		return Unknown
	}
	return False
}

// Why says what of the process isn't known.
func (m FromSocket) Why(*State) string { return "the sending process's " + m.What + " is not known" }

// Bridged matches what br_netfilter knows of a packet that crosses a bridge.
type Bridged struct{}

// Eval is False for a packet of the node's own.
func (Bridged) Eval(s *State) Tri {
	if s.Packet.LocalProcess {
		return False
	}
	return Unknown
}

// Why says that it isn't known.
func (Bridged) Why(*State) string { return "whether the packet crosses a bridge is not known" }
