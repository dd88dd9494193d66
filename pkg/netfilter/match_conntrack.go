package netfilter

import (
	"fmt"
	"net/netip"
)

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
