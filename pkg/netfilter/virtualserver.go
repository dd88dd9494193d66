package netfilter

import (
	"cmp"
	"net/netip"
	"slices"
)

// Method is how IPVS hands a packet to a real server, as ipvsadm names it.
type Method string

const (
	// Masq: the destination is rewritten.
	Masq Method = "Masq"
	// DirectRoute: the packet goes to the real server's link with its destination
	// as it was; the real server must have that address itself.
	DirectRoute Method = "Route"
	// Tunnel: likewise, inside a packet to the real server.
	Tunnel Method = "Tunnel"
	// LocalNode: the node itself is the real server; nothing is rewritten.
	LocalNode Method = "Local"
)

// NotShown stands for a number of a RealServer that the text does not show.
const NotShown = -1

// RealServer is one destination of a VirtualServer.
type RealServer struct {
	Addr netip.AddrPort
	// Method is "" where the text does not show it.
	Method Method
	// Weight 0 is quiesced: it gets no new connection. NotShown is possible, as
	// it is for Active and Inactive, the connections that it has.
	Weight           int
	Active, Inactive int
	Line             int
	Text             string
}

// VirtualServer is one service of IPVS.
type VirtualServer struct {
	// Addr is its address and port; port 0 is every port that no other has. It is
	// the zero AddrPort where packets are chosen by Mark.
	Addr netip.AddrPort
	Mark uint32
	// Family is that of Addr, or of the real servers; 0 where neither tells.
	Family   Family
	Protocol uint8
	// Scheduler is its name: rr, wrr, sh, ...; "" where the text does not show it.
	Scheduler string
	// Flags are the scheduler's, as ipvsadm names them: sh-fallback, sh-port.
	Flags []string
	// Persistent: a client stays at the real server that it drew, for Timeout
	// seconds (0 where the text shows the kernel's ticks), with all clients of
	// its network where Mask is set.
	Persistent bool
	Timeout    int
	Mask       string
	// OnePacket: every packet of UDP is scheduled for itself.
	OnePacket bool
	Real      []RealServer
	// Cut says why real servers may be missing, "" where all are here.
	Cut string
	// Source, Line and Text are where it stands.
	Source string
	Line   int
	Text   string

	table *Table // under which steps quote it
	chain *ChainDef
}

// VirtualServers are all that was read of a node's IPVS. They are not changed
// after they were made.
type VirtualServers struct {
	list   []*VirtualServer
	byAddr map[virtualKey]*VirtualServer
	byMark map[uint32][]*VirtualServer
	// partial says why there may be more, "" where the list is all that the node
	// has.
	partial string
}

type virtualKey struct {
	protocol uint8
	addr     netip.AddrPort
}

// NewVirtualServers makes them of a list. partial says why the node may have
// more; "" means that it has not. Of two that are alike the first counts.
func NewVirtualServers(list []*VirtualServer, partial string) *VirtualServers {
	v := &VirtualServers{list: list, partial: partial, byAddr: make(map[virtualKey]*VirtualServer, len(list)), byMark: map[uint32][]*VirtualServer{}}
	for _, s := range list {
		if s.Mark != 0 {
			v.byMark[s.Mark] = append(v.byMark[s.Mark], s)
			continue
		}
		if k := (virtualKey{s.Protocol, s.Addr}); v.byAddr[k] == nil {
			v.byAddr[k] = s
		}
	}
	v.place()
	return v
}

// All lists them in the order of the text.
func (v *VirtualServers) All() []*VirtualServer { return v.list }

// Partial says why the node may have more than were read; "" where it has not.
func (v *VirtualServers) Partial() string { return v.partial }

// Find gives the virtual server of one address, port and protocol; nil where
// none was read.
func (v *VirtualServers) Find(p Protocol, addr netip.AddrPort) *VirtualServer {
	n, ok := p.Number()
	if !ok {
		return nil
	}
	return v.byAddr[virtualKey{n, addr}]
}

// takes is the virtual server that the kernel finds for a packet: by its mark,
// by address and port, by address alone (ip_vs_service_find). Known is false
// where that hangs on what was not read.
func (v *VirtualServers) takes(s *State) (found *VirtualServer, known bool) {
	if s.Mark != 0 {
		for _, m := range v.byMark[s.Mark] {
			if m.Family == 0 || !s.Dst.IsValid() || m.Family == FamilyOf(s.Dst) {
				return m, m.Family != 0 || !s.Dst.IsValid()
			}
		}
	}
	if !s.Dst.IsValid() || s.DstPortUnknown {
		return nil, len(v.list) == 0 && v.partial == ""
	}
	if m := v.byAddr[virtualKey{s.Protocol, netip.AddrPortFrom(s.Dst, s.DstPort)}]; m != nil {
		return m, true
	}
	if m := v.byAddr[virtualKey{s.Protocol, netip.AddrPortFrom(s.Dst, 0)}]; m != nil {
		return m, v.partial == ""
	}
	return nil, v.partial == ""
}

// drawn is one way in which a scheduler may decide.
type drawn struct {
	real *RealServer // nil: none is usable
	p    float64
}

// schedule gives what a new connection without history may draw. Why, where
// set, says that the shares are not known; each is then taken to be as likely
// as any other.
func (v *VirtualServer) schedule() (out []drawn, why string) {
	usable := make([]*RealServer, 0, len(v.Real))
	for i := range v.Real {
		switch r := &v.Real[i]; {
		case r.Weight > 0:
			usable = append(usable, r)
		case r.Weight == NotShown:
			usable = append(usable, r)
			why = "the text does not show the weights"
		}
	}
	if len(usable) == 0 {
		return []drawn{{nil, 1}}, why
	}
	switch v.Scheduler {
	case "rr", "":
		if v.Scheduler == "" && len(usable) > 1 {
			why = "the text does not show the scheduler"
		}
	case "wrr":
		return byWeight(usable), why
	case "sh", "dh":
		return v.hashed(usable)
	case "fo":
		return []drawn{{slices.MaxFunc(usable, func(a, b *RealServer) int { return cmp.Compare(a.Weight, b.Weight) }), 1}}, why
	case "twos":
		if len(usable) > 2 {
			why = "scheduler twos draws two by weight, and takes the one with fewer connections"
		}
	default:
		if len(usable) > 1 {
			why = "scheduler " + v.Scheduler + " chooses by " + chosenBy(v.Scheduler) + ", which no listing tells of a new one"
		}
	}
	return evenly(usable), why
}

func evenly(usable []*RealServer) []drawn {
	out := make([]drawn, len(usable))
	for i, r := range usable {
		out[i] = drawn{r, 1 / float64(len(usable))}
	}
	return out
}

func byWeight(usable []*RealServer) []drawn {
	sum := 0
	for _, r := range usable {
		sum += max(1, r.Weight)
	}
	out := make([]drawn, len(usable))
	for i, r := range usable {
		out[i] = drawn{r, float64(max(1, r.Weight)) / float64(sum)}
	}
	return out
}

// hashed are the draws of sh and dh, whose table has places for quiesced real
// servers as well; a client that hashes to one of those is refused, unless sh
// was told to look further (sh-fallback).
func (v *VirtualServer) hashed(usable []*RealServer) ([]drawn, string) {
	what := "the client's address"
	if v.Scheduler == "dh" {
		what = "the destination"
	}
	why := "scheduler " + v.Scheduler + " chooses by a hash of " + what + ": a client always draws the same one"
	quiesced := 0
	for _, r := range v.Real {
		if r.Weight == 0 {
			quiesced++
		}
	}
	if quiesced == 0 || slices.Contains(v.Flags, "sh-fallback") {
		if len(usable) == 1 {
			why = ""
		}
		return evenly(usable), why
	}
	share := 1 / float64(len(v.Real))
	out := make([]drawn, 0, len(usable)+1)
	for _, r := range usable {
		out = append(out, drawn{r, share})
	}
	return append(out, drawn{nil, float64(quiesced) * share}), why
}

// chosenBy says what a scheduler looks at besides weights.
func chosenBy(scheduler string) string {
	switch scheduler {
	case "mh":
		return "a hash of the client's address"
	case "lblc", "lblcr":
		return "the destination, and the connections that there are"
	case "lc", "wlc", "sed", "nq", "ovf":
		return "the connections that there are"
	}
	return "what is not known of it"
}
