// Package cilium reads which Services a Cilium agent has programmed on its
// node, where Cilium stands in for kube-proxy: what `cilium-dbg service list`
// prints, as a table or as JSON (-o json), and what `cilium-dbg bpf lb list`
// prints of the maps themselves, in both forms too. The forms are those of
// cilium/cilium, cilium-dbg/cmd/service_list.go and bpf_lb_list.go and
// api/v1/models, from 1.10 on.
package cilium

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Backend is one address that a frontend's packets are sent to.
type Backend struct {
	Addr netip.AddrPort
	// State is active, terminating, quarantined or maintenance; "" where the form
	// does not say.
	State string
	// Weight is 100 where none is set; 0 takes no new connections.
	Weight int
	// Line and Text are where it stands: for JSON the line on which its Service
	// begins, and the row that the table would have.
	Line int
	Text string
}

// Active says whether new connections are sent to the backend.
func (b Backend) Active() bool {
	return (b.State == "" || b.State == "active") && b.Weight > 0
}

// Frontend is one address and port that the node knows.
type Frontend struct {
	Addr netip.AddrPort
	// Protocol is TCP, UDP, SCTP or ANY; "" where the form does not say, as
	// Cilium before 1.17 did not tell them apart.
	Protocol string
	// Internal: it is for clients inside the cluster alone, beside another one
	// for those outside (a Local traffic policy).
	Internal bool
	// Type is ClusterIP, NodePort, LoadBalancer, ExternalIPs, HostPort, ...
	Type     string
	Backends []Backend
	Line     int
	Text     string
}

// Services is what one node knows.
type Services struct {
	// Source names the text, for quotes.
	Source    string
	Frontends []Frontend
	byAddr    map[netip.AddrPort][]int
}

// Problem is a line that was not understood, and left out.
type Problem struct {
	Line    int
	Message string
}

// Lookup finds the frontend for a packet to addr. inside says that the client
// is a pod or a node. A frontend at the unspecified address (0.0.0.0, ::) is at
// every address of the node, which nodeAddress says addr is. nil where the node
// knows none.
func (s *Services) Lookup(addr netip.AddrPort, protocol string, inside, nodeAddress bool) *Frontend {
	if f := s.lookup(addr, protocol, inside); f != nil || !nodeAddress {
		return f
	}
	any := netip.IPv4Unspecified()
	if addr.Addr().Is6() {
		any = netip.IPv6Unspecified()
	}
	return s.lookup(netip.AddrPortFrom(any, addr.Port()), protocol, inside)
}

func (s *Services) lookup(addr netip.AddrPort, protocol string, inside bool) *Frontend {
	var found *Frontend
	for _, i := range s.byAddr[addr] {
		f := &s.Frontends[i]
		if f.Protocol != "" && f.Protocol != "ANY" && !strings.EqualFold(f.Protocol, protocol) {
			continue
		}
		if found == nil || f.Internal == inside && found.Internal != inside {
			found = f
		}
	}
	if found != nil && found.Internal && !inside {
		return nil
	}
	return found
}

// index sorts backends that slots gave in any order, and finds frontends by
// address.
func (s *Services) index() {
	s.byAddr = make(map[netip.AddrPort][]int, len(s.Frontends))
	for i := range s.Frontends {
		f := &s.Frontends[i]
		s.byAddr[f.Addr] = append(s.byAddr[f.Addr], i)
		slices.SortStableFunc(f.Backends, func(a, b Backend) int { return a.Addr.Compare(b.Addr) })
	}
}

// endpoint reads ADDRESS:PORT[/PROTOCOL][/i], with brackets around an IPv6
// address.
func endpoint(s string) (addr netip.AddrPort, protocol string, internal bool, err error) {
	text := s
	if rest, ok := strings.CutSuffix(text, "/i"); ok {
		text, internal = rest, true
	}
	if at := strings.LastIndexByte(text, '/'); at >= 0 {
		protocol, text = strings.ToUpper(text[at+1:]), text[:at]
		switch protocol {
		case "TCP", "UDP", "SCTP", "ANY":
		case "NONE":
			protocol = ""
		default:
			return addr, "", false, fmt.Errorf("%q: no protocol %q", s, protocol)
		}
	}
	addr, err = netip.ParseAddrPort(text)
	if err != nil {
		return addr, "", false, fmt.Errorf("%q is no ADDRESS:PORT", s)
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), protocol, internal, nil
}

// row is how the table prints a backend.
func row(f *Frontend, n int, b Backend) string {
	text := fmt.Sprintf("%s %s %d => %s", frontendText(f), f.Type, n, b.Addr)
	if f.Protocol != "" {
		text += "/" + f.Protocol
	}
	if b.State != "" {
		text += " (" + b.State + ")"
	}
	return text
}

func frontendText(f *Frontend) string {
	text := f.Addr.String()
	if f.Protocol != "" {
		text += "/" + f.Protocol
	}
	if f.Internal {
		text += "/i"
	}
	return text
}

func atoi(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0
}
