package netfilter

import (
	"fmt"
	"net/netip"
	"strings"
)

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

// ReversePath matches a packet whose source is routed back the way it came
// (-m rpfilter). A packet whose way in is not told is taken to come from where
// its source is.
type ReversePath struct {
	// Loose: any way back will do.
	Loose bool
}

// Eval asks Host.Route, which doesn't know rules of policy routing.
func (m ReversePath) Eval(s *State) Tri {
	if s.Packet.LocalProcess || s.In == "" || s.In == "lo" {
		return True
	}
	dev := ""
	if s.Host != nil && s.Src.IsValid() {
		dev = s.Host.Route(s.Src)
	}
	switch {
	case dev == "":
		return Unknown
	case m.Loose:
		return True
	}
	return Of(dev == s.In)
}

// Why says that the way back isn't known.
func (ReversePath) Why(s *State) string {
	return fmt.Sprintf("by which interface %s is reached is not known", s.Src)
}

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

// Bridger is what a Host may know besides: whether an interface is a bridge.
type Bridger interface{ Bridge(iface string) Tri }

// Eval is False for a packet of the node's own, and for one that came in by an
// interface that is no bridge.
func (Bridged) Eval(s *State) Tri {
	if s.Packet.LocalProcess {
		return False
	}
	if b, ok := s.Host.(Bridger); ok && s.In != "" && b.Bridge(s.In) == False {
		return False
	}
	return Unknown
}

// Why says that it isn't known.
func (Bridged) Why(*State) string { return "whether the packet crosses a bridge is not known" }
