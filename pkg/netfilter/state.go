package netfilter

import "net/netip"

// CTBits is a set of connection tracking states, as -m conntrack --ctstate
// and nft's ct state and ct status name them.
type CTBits uint8

// The states that a rule may ask for. SNAT and DNAT are set once an address
// or a port of the connection has been rewritten.
const (
	CTNew CTBits = 1 << iota
	CTEstablished
	CTRelated
	CTInvalid
	CTUntracked
	CTSNAT
	CTDNAT
)

// Flow is all of a packet's state that a rule can change or that changes on
// the way from hook to hook. It is comparable: two walks that reach the same
// place with equal Flows end alike.
type Flow struct {
	// Src and Dst are the addresses as they are at this point; the zero Addr
	// is one that is not known (a masqueraded source, say).
	Src, Dst netip.Addr
	// SrcPort 0 is not known.
	SrcPort, DstPort uint16
	// DstPortUnknown: a NAT table that was not read may have changed the port.
	DstPortUnknown bool
	Protocol       uint8
	Hook           Hook
	// In and Out are interface names; "" is not known. Which of them exists
	// hangs on the hook: see State.InName and State.OutName.
	In, Out string
	// Mark is the packet's mark (skb->mark), ConnMark the connection's.
	Mark, ConnMark uint32

	station   int            // index of the next station at Hook
	tracked   bool           // past the hook where conntrack sees the packet
	untracked bool           // NOTRACK
	dstBound  bool           // the connection's destination NAT is settled
	srcBound  bool           // the connection's source NAT is settled
	dnat      bool           // the destination was rewritten
	snat      bool           // the source was rewritten
	srcMaybe  bool           // a NAT table that was not read may have rewritten the source
	loopback  bool           // a local packet that came back in through lo
	dstLocal  Tri            // settled by REDIRECT or by the routing decision
	spoken    bool           // a rule of a filter chain, or source NAT, spoke of it
	doubt     bool           // rules that were not read might have stopped it
	recents   string         // lists that -m recent --set wrote to on the way
	served    *VirtualServer // by which IPVS handled the packet
	servedBy  *RealServer    // to which it sent it
	byIPVS    bool           // it was IPVS that rewrote the destination, not NAT
}

// State is what a match sees: the flow at this point, the packet as it came,
// and whatever knows more.
type State struct {
	Flow
	// Packet is the packet as it entered, before any rewrite.
	Packet Packet
	Host   Host
	// Sets answers for named sets; nil when none was read.
	Sets Sets
	// Virtual are the node's virtual servers; nil when none were read.
	Virtual *VirtualServers
}

// Sets knows the contents of named sets (ipset, nft named sets).
type Sets interface {
	// Contains says whether the flow's elements named by sides ("src", "dst",
	// once for each dimension of the set) are in the set, and why not if it
	// can't tell.
	Contains(set string, sides []string, s *State) (Tri, string)
}

// CT is the packet's connection tracking state: a first packet is NEW, or
// UNTRACKED after NOTRACK, or INVALID where conntrack hasn't seen it yet (the
// raw table), which is what the kernel's xt_conntrack answers there.
func (s *State) CT() CTBits {
	switch {
	case s.untracked:
		return CTUntracked
	case !s.tracked:
		return CTInvalid
	}
	b := CTNew
	if s.snat {
		b |= CTSNAT
	}
	if s.dnat && !s.byIPVS {
		b |= CTDNAT // IPVS rewrites without NAT's leave
	}
	return b
}

// Tracked says whether the packet has a conntrack entry at this point.
func (s *State) Tracked() bool { return s.tracked && !s.untracked }

// InName is the interface that the packet came in by: its name where known,
// and whether there is one at this hook at all.
func (s *State) InName() (name string, exists bool) {
	switch s.Hook {
	case Prerouting, Input, Forward:
		return s.In, true
	case Postrouting:
		// Kernels from 5.8 on show it here for forwarded packets, older ones
		// do not, so its name is not known.
		return "", !s.Packet.LocalProcess
	}
	return "", false
}

// OutName is the interface that the packet leaves by, likewise.
func (s *State) OutName() (name string, exists bool) {
	switch s.Hook {
	case Forward, Output, Postrouting:
		return s.Out, true
	}
	return "", false
}

// LocalDst says whether the destination is an address of the node.
func (s *State) LocalDst() Tri {
	if s.dstLocal != Unknown {
		return s.dstLocal
	}
	return s.local(s.Dst)
}

// LocalSrc says whether the source is an address of the node.
func (s *State) LocalSrc() Tri { return s.local(s.Src) }

func (s *State) local(a netip.Addr) Tri {
	switch {
	case !a.IsValid() || s.Host == nil:
		return Unknown
	case a.IsLoopback():
		return True
	}
	return s.Host.Local(a)
}

// Masquerade says whether the source has been rewritten so far.
func (f *Flow) Masquerade() Tri {
	if f.srcMaybe && !f.snat {
		return Unknown
	}
	return Of(f.snat)
}
