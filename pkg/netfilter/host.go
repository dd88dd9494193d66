package netfilter

import (
	"net/netip"
	"slices"
)

// StaticHost is a Host of listed facts. The zero StaticHost knows nothing but
// that loopback addresses are local.
type StaticHost struct {
	// Addresses are the node's own.
	Addresses []netip.Addr
	// LocalNets are networks that are local as a whole (what ip route show table
	// local lists besides single addresses); 127.0.0.0/8 and ::1 always are.
	LocalNets []netip.Prefix
	// Links are the node's interfaces with their addresses, which are local.
	Links []Link
	// Complete: an address that is not listed is not the node's. Otherwise it
	// is not known whether it is.
	Complete bool
	// Routes say by which interface a destination is reached: the longest
	// prefix wins, and of equal ones the first.
	Routes []StaticRoute
	// Forward4 and Forward6 are net.ipv4.ip_forward and
	// net.ipv6.conf.all.forwarding.
	Forward4, Forward6 Tri
	// Sysctls are settings by their dotted names, as far as they are known.
	Sysctls map[string]string
}

// Sysctl gives a setting's value, if it is known.
func (h *StaticHost) Sysctl(name string) (string, bool) {
	v, ok := h.Sysctls[name]
	return v, ok
}

// Link is an interface and its addresses, each with the length of its network.
type Link struct {
	Name  string
	Addrs []netip.Prefix
}

// StaticRoute is a route by its interface.
type StaticRoute struct {
	To    netip.Prefix
	Iface string
}

// Local says whether a is one of the node's own addresses.
func (h *StaticHost) Local(a netip.Addr) Tri {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() || slices.Contains(h.Addresses, a) ||
		slices.ContainsFunc(h.LocalNets, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return True
	}
	for _, l := range h.Links {
		if slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return True
		}
	}
	if h.Complete {
		return False
	}
	return Unknown
}

// Route gives the interface of the longest matching prefix; networks of Links
// count as routes.
func (h *StaticHost) Route(a netip.Addr) string {
	best, bits := "", -1
	take := func(p netip.Prefix, iface string) {
		if p.Contains(a) && p.Bits() > bits {
			best, bits = iface, p.Bits()
		}
	}
	for _, r := range h.Routes {
		take(r.To, r.Iface)
	}
	for _, l := range h.Links {
		for _, p := range l.Addrs {
			take(p, l.Name)
		}
	}
	return best
}

// Forwarding says whether packets of the family are forwarded.
func (h *StaticHost) Forwarding(v6 bool) Tri {
	if v6 {
		return h.Forward6
	}
	return h.Forward4
}

// Broadcast says whether a is the last address of one of the Links' networks.
func (h *StaticHost) Broadcast(a netip.Addr) Tri {
	for _, l := range h.Links {
		for _, p := range l.Addrs {
			if p.Addr().Is4() && p.Bits() < 31 && lastOf(p) == a {
				return True
			}
		}
	}
	return False
}

// Primary is the first address of a family on an interface: where REDIRECT
// sends what comes in by it.
func (h *StaticHost) Primary(iface string, v6 bool) netip.Addr {
	for _, l := range h.Links {
		if l.Name != iface {
			continue
		}
		for _, p := range l.Addrs {
			if p.Addr().Is6() == v6 {
				return p.Addr()
			}
		}
	}
	return netip.Addr{}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}
