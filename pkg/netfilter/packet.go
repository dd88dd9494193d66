// Package netfilter walks one packet through one node's ruleset the way the
// kernel does: hooks in order of priority, chains, jumps and returns, the
// routing decision, NAT. It knows nothing of Kubernetes and nothing of any
// text dialect: the packages below it (iptables, nftables, ipset) turn text
// into a Ruleset.
//
// Every match is true, false or unknown. A walk's result is the complete set
// of outcomes with their probabilities; an undecidable match that could change
// an outcome makes that outcome unknown, and one that could not is only named.
package netfilter

import (
	"net/netip"
)

// Protocol is a transport protocol by its lower-case name: tcp, udp, sctp,
// icmp, icmpv6; or a number for any other.
type Protocol string

const (
	TCP    Protocol = "tcp"
	UDP    Protocol = "udp"
	SCTP   Protocol = "sctp"
	ICMP   Protocol = "icmp"
	ICMPv6 Protocol = "icmpv6"
)

// Packet is the first packet of a new connection as it enters the node.
type Packet struct {
	Src, Dst netip.Addr // one family, unmapped
	Protocol Protocol
	// SrcPort 0 means an ephemeral port that is not known; a match on it is
	// then unknown. DstPort is always known.
	SrcPort, DstPort uint16
	// In is the interface it arrives on; "" means not known (a match on it is
	// then unknown unless InOneOf decides). Meaningless with LocalProcess.
	In string
	// LocalProcess: sent by a process on the node, so it enters at OUTPUT.
	LocalProcess bool
}

// Tri is a truth value that may be unknown. The zero value is Unknown.
type Tri int8

const (
	Unknown Tri = iota
	False
	True
)

// Of turns a bool into a Tri.
func Of(b bool) Tri {
	if b {
		return True
	}
	return False
}

// Not negates; Unknown stays Unknown.
func (t Tri) Not() Tri {
	switch t {
	case True:
		return False
	case False:
		return True
	}
	return Unknown
}

// And is three-valued: False beats Unknown beats True.
func (t Tri) And(u Tri) Tri {
	if t == False || u == False {
		return False
	}
	if t == True && u == True {
		return True
	}
	return Unknown
}

func (t Tri) String() string {
	switch t {
	case True:
		return "true"
	case False:
		return "false"
	}
	return "unknown"
}

// Host is what a walk needs to know of the node besides its rules. Each
// question may be answered Unknown.
type Host interface {
	// Local says whether the address is one of the node's own (what
	// addrtype --dst-type LOCAL and the routing decision ask).
	Local(netip.Addr) Tri
	// Route says by which interface the node would send a packet to the
	// address; "" where it isn't known.
	Route(netip.Addr) (iface string)
	// Forwarding says whether the node forwards packets of this family.
	Forwarding(v6 bool) Tri
}
