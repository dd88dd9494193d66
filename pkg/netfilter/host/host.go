// Package host reads what `ip addr`, `ip route` and sysctl print, and answers
// the three questions that a packet walk asks of a node besides its rules:
// whether an address is the node's own, by which interface it sends, and
// whether it forwards.
package host

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Host is a node's addresses, routes and forwarding switches, as far as they
// were read. The zero value knows nothing. It implements netfilter.Host.
type Host struct {
	addresses     map[netip.Addr]string // address -> interface
	addressesRead bool
	links         map[string]bool // interfaces that `ip addr` shows with all they are
	masters       map[string]bool // interfaces that have ports: bridges and bonds
	up            map[string]bool // of links: that they are up
	interfaces    map[netip.Addr][]string
	routes        []Route
	routesRead    bool
	tables        map[string]*table
	tableNames    []string  // in the order of the text
	familyRead    [2]bool   // by index: a route of the family was read
	whole         [2]bool   // and table local with them, so all tables
	rules         [2][]Rule // of policy routing, by priority; empty where not read
	sysctls       map[string]string
	// Fallback answers for an address when the node's own were not read; nil
	// means that nothing is known.
	Fallback func(netip.Addr) netfilter.Tri
}

// Route is one line of `ip route`.
type Route struct {
	// Type is unicast, local, broadcast, multicast, blackhole, unreachable,
	// prohibit or throw.
	Type   string
	Prefix netip.Prefix
	Via    netip.Addr
	Dev    string
	Table  string // "main" where the line does not say
	Metric int
	// Scope is link for what is on the wire itself.
	Scope string
	// Dead routes are passed over by the kernel; of a route with LinkDown the
	// interface has no carrier. Of several ways, all are so.
	Dead, LinkDown bool
	Line           int
	Text           string

	hops int // ways that were read
}

var _ netfilter.Host = (*Host)(nil)

// AddressesRead says whether the node's own addresses are known.
func (h *Host) AddressesRead() bool { return h.addressesRead }

// Addresses lists the node's own, sorted.
func (h *Host) Addresses() []netip.Addr {
	out := make([]netip.Addr, 0, len(h.addresses))
	for a := range h.addresses {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// Interface is the one that has the address, "" where it isn't the node's.
func (h *Host) Interface(a netip.Addr) string { return h.addresses[a.Unmap()] }

// AddAddress records one of the node's own addresses, and that they are known.
func (h *Host) AddAddress(a netip.Addr, iface string) {
	if h.addresses == nil {
		h.addresses = map[netip.Addr]string{}
	}
	h.addresses[a.Unmap()] = iface
	h.addressesRead = true
	if h.interfaces == nil {
		h.interfaces = map[netip.Addr][]string{}
	}
	if on := h.interfaces[a.Unmap()]; !slices.Contains(on, iface) {
		h.interfaces[a.Unmap()] = append(on, iface)
	}
}

// Interfaces are all that have the address.
func (h *Host) Interfaces(a netip.Addr) []string { return h.interfaces[a.Unmap()] }

// Local implements netfilter.Host. The local routing table counts too: an
// address may be the node's own by a route alone.
func (h *Host) Local(a netip.Addr) netfilter.Tri {
	a = a.Unmap()
	if a.IsLoopback() {
		return netfilter.True
	}
	if _, ok := h.addresses[a]; ok {
		return netfilter.True
	}
	for _, name := range h.tableNames {
		if r, ok := h.LookupIn(name, a); ok && r.Type == "local" {
			return netfilter.True
		}
	}
	if h.addressesRead {
		return netfilter.False
	}
	if h.Fallback != nil {
		return h.Fallback(a)
	}
	return netfilter.Unknown
}

// Route implements netfilter.Host: the device of the longest matching prefix
// of the main table, "" where the routes were not read or none matches. Policy
// routing by rules is not looked at.
func (h *Host) Route(a netip.Addr) string {
	if r, ok := h.Lookup(a); ok {
		return r.Dev
	}
	return ""
}

// Lookup finds the main table's route to the address.
func (h *Host) Lookup(a netip.Addr) (Route, bool) { return h.LookupIn("main", a) }

// RoutesRead says whether the routes are known.
func (h *Host) RoutesRead() bool { return h.routesRead }

// Bridge says that an interface is no bridge: it has no ports. Of one that has,
// it isn't known (it may be a bond).
func (h *Host) Bridge(iface string) netfilter.Tri {
	if h.links[iface] && !h.masters[iface] {
		return netfilter.False
	}
	return netfilter.Unknown
}

// Master says whether an interface has ports: that it is a bridge, or a bond.
func (h *Host) Master(iface string) bool { return h.masters[iface] }

// Up says whether an interface is up (not whether it has a carrier).
func (h *Host) Up(iface string) netfilter.Tri {
	if !h.links[iface] {
		return netfilter.Unknown
	}
	return netfilter.Of(h.up[iface])
}

// Link says whether the node has an interface of that name; Unknown where `ip
// addr` was not read with all that it shows of interfaces.
func (h *Host) Link(iface string) netfilter.Tri {
	switch {
	case h.links[iface]:
		return netfilter.True
	case len(h.links) > 0:
		return netfilter.False
	}
	return netfilter.Unknown
}

// Forwarding implements netfilter.Host by net.ipv4.ip_forward, or
// net.ipv6.conf.all.forwarding.
func (h *Host) Forwarding(v6 bool) netfilter.Tri {
	v, ok := h.Sysctl(ForwardingSysctl(v6))
	if !ok {
		return netfilter.Unknown
	}
	return netfilter.Of(v != "0")
}

// ForwardingSysctl is the name of the switch for a family.
func ForwardingSysctl(v6 bool) string {
	if v6 {
		return "net.ipv6.conf.all.forwarding"
	}
	return "net.ipv4.ip_forward"
}

// Sysctl returns the value of a setting by its dotted name, if it was read.
func (h *Host) Sysctl(name string) (string, bool) {
	v, ok := h.sysctls[name]
	return v, ok
}

// ParseSysctl reads lines "name = value" as `sysctl -a` prints them; anything
// else is passed over.
func (h *Host) ParseSysctl(text string) {
	if h.sysctls == nil {
		h.sysctls = map[string]string{}
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, "="); ok {
			h.sysctls[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
}
