package host

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ParseAddr reads the output of `ip addr`, `ip -o addr` or `ip -br addr`. A
// text with no address in it leaves the node's addresses unknown.
func (h *Host) ParseAddr(text string) {
	iface := ""
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch {
		case strings.HasSuffix(f[0], ":") && isNumber(strings.TrimSuffix(f[0], ":")):
			// "3: eth0@if4: <...>" or, with -o, "3: eth0    inet 10.0.0.1/24 ..."
			iface = ifaceName(f[1])
			h.addrFields(iface, f[2:])
			h.link(iface, f[2:])
		case f[0] == "inet" || f[0] == "inet6":
			h.addrFields(iface, f)
		case len(f) > 2 && isState(f[1]):
			// -br: "eth0@if4  UP  10.0.0.1/24 fe80::1/64"
			for _, w := range f[2:] {
				h.addPrefix(ifaceName(f[0]), w)
			}
		}
	}
}

// link reads "<BROADCAST,UP> mtu 1450 qdisc noqueue master cni0 state UP".
func (h *Host) link(iface string, f []string) {
	if len(f) == 0 || !strings.HasPrefix(f[0], "<") {
		return
	}
	if h.links == nil {
		h.links, h.masters, h.up = map[string]bool{}, map[string]bool{}, map[string]bool{}
	}
	h.links[iface] = true
	h.up[iface] = slices.Contains(strings.Split(strings.Trim(f[0], "<>"), ","), "UP")
	for i := 0; i+1 < len(f); i++ {
		if f[i] == "master" {
			h.masters[f[i+1]] = true
		}
	}
}

func (h *Host) addrFields(iface string, f []string) {
	for i := 0; i+1 < len(f); i++ {
		if f[i] == "inet" || f[i] == "inet6" {
			h.addPrefix(iface, f[i+1])
			return
		}
	}
}

func (h *Host) addPrefix(iface, s string) {
	addr, _, _ := strings.Cut(s, "/")
	if a, err := netip.ParseAddr(addr); err == nil {
		h.AddAddress(a.WithZone(""), iface)
	}
}

func ifaceName(s string) string {
	s = strings.TrimSuffix(s, ":")
	name, _, _ := strings.Cut(s, "@")
	return name
}

func isState(s string) bool {
	switch s {
	case "UP", "DOWN", "UNKNOWN", "LOWERLAYERDOWN", "DORMANT", "NOTPRESENT", "TESTING":
		return true
	}
	return false
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

var routeTypes = map[string]bool{
	"unicast": true, "local": true, "broadcast": true, "anycast": true, "multicast": true,
	"blackhole": true, "unreachable": true, "prohibit": true, "throw": true, "nat": true,
}

// ParseRoute reads the output of `ip route` or `ip route show table all`, of
// either family. Lines that are no routes are passed over.
func (h *Host) ParseRoute(text string) {
	v6 := strings.Contains(text, "::")
	var cur *Route
	flush := func() {
		if cur != nil {
			h.addRoute(*cur)
		}
		cur = nil
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[0] == "nexthop" {
			if cur != nil {
				cur.options(f[1:])
			}
			continue
		}
		flush()
		if r, ok := parseRoute(f, strings.TrimSpace(line), v6); ok {
			r.Line = n
			cur = &r
		}
	}
	flush()
}

func parseRoute(f []string, text string, v6 bool) (Route, bool) {
	r := Route{Type: "unicast", Table: "main", Text: text}
	if routeTypes[f[0]] {
		r.Type = f[0]
		if f = f[1:]; len(f) == 0 {
			return Route{}, false
		}
	}
	switch dst := f[0]; {
	case dst == "default":
		r.Prefix = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		// "default" says its family only by what follows.
		if v6 && (strings.Contains(text, "::") || strings.Contains(text, " pref ")) {
			r.Prefix = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	case strings.Contains(dst, "/"):
		p, err := netip.ParsePrefix(dst)
		if err != nil {
			return Route{}, false
		}
		r.Prefix = p
	default:
		a, err := netip.ParseAddr(dst)
		if err != nil {
			return Route{}, false
		}
		r.Prefix = netip.PrefixFrom(a, a.BitLen())
	}
	r.options(f[1:])
	return r, true
}

// options reads what follows a route's prefix, or one of its several ways: the
// first that may be used stands for all.
func (r *Route) options(f []string) {
	if strings.Contains(strings.Join(f, " "), " dev ") || len(f) > 0 && f[0] == "dev" {
		dead, down := slices.Contains(f, "dead"), slices.Contains(f, "linkdown")
		if r.hops > 0 && !r.Dead && !r.LinkDown || r.hops > 0 && dead {
			r.hops++
			return
		}
		r.Dead, r.LinkDown = dead, down
		r.hops++
	}
	for i := 0; i+1 < len(f); i++ {
		switch f[i] {
		case "via":
			if (f[i+1] == "inet6" || f[i+1] == "inet") && i+2 < len(f) {
				i++
			}
			r.Via, _ = netip.ParseAddr(f[i+1])
		case "dev":
			r.Dev = f[i+1]
		case "table":
			r.Table = f[i+1]
		case "metric":
			r.Metric, _ = strconv.Atoi(f[i+1])
		case "scope":
			r.Scope = f[i+1]
		default:
			continue
		}
		i++
	}
}
