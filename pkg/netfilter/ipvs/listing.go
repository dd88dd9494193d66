package ipvs

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

var protocols = map[string]uint8{"TCP": 6, "UDP": 17, "SCTP": 132}

// service reads "TCP  10.96.0.1:443 rr persistent 10800", or "FWM  5 rr".
func (p *parser) service(s string, f []word) {
	p.now, p.broken = nil, true
	if len(f) < 2 {
		p.problem(s, 0, "the line breaks off")
		return
	}
	v := &netfilter.VirtualServer{Source: p.source, Line: p.n, Text: strings.TrimSpace(s), Protocol: protocols[f[0].text]}
	rest := f[2:]
	if f[0].text == "FWM" {
		mark, err := strconv.ParseUint(f[1].text, p.base(), 32)
		if err != nil || mark == 0 {
			p.problem(s, f[1].column, "%q is no firewall mark", f[1].text)
			return
		}
		v.Mark = uint32(mark)
		if len(rest) > 0 && rest[0].text == "IPv6" {
			v.Family, rest = netfilter.IPv6, rest[1:]
		} else if !p.proc {
			v.Family = netfilter.IPv4
		}
	} else {
		addr, err := p.addrPort(f[1].text)
		if err != nil {
			p.problem(s, f[1].column, "%v", err)
			return
		}
		v.Addr, v.Family = addr, netfilter.FamilyOf(addr.Addr())
	}
	if p.form == plain {
		if len(rest) == 0 {
			p.problem(s, 0, "the line breaks off before the scheduler")
			return
		}
		v.Scheduler = rest[0].text
		if v.Scheduler == "none" {
			v.Scheduler = ""
		}
		if !p.flags(s, v, rest[1:]) {
			return
		}
	}
	p.add(v)
}

// flags reads what follows the scheduler. Words that bear on nothing here are
// passed over.
func (p *parser) flags(s string, v *netfilter.VirtualServer, f []word) bool {
	for i := 0; i < len(f); i++ {
		switch w := f[i].text; {
		case w == "ops":
			v.OnePacket = true
		case w == "persistent":
			if i++; i >= len(f) {
				p.problem(s, 0, "the line breaks off after persistent")
				return false
			}
			n, err := strconv.ParseUint(f[i].text, 10, 32)
			if err != nil {
				p.problem(s, f[i].column, "%q is no number of seconds", f[i].text)
				return false
			}
			v.Persistent = true
			if !p.proc {
				v.Timeout = int(n)
			} else if i+1 < len(f) {
				i++ // the netmask, in hexadecimal digits
				if f[i].text != "FFFFFFFF" && f[i].text != "00000080" {
					v.Mask = f[i].text
				}
			}
		case w == "mask" && i+1 < len(f):
			i++
			v.Mask = f[i].text
		case strings.HasPrefix(w, "(") || strings.Contains(w, "-fallback") || strings.Contains(w, "-port"):
			v.Flags = append(v.Flags, schedulerFlags(w)...)
		}
	}
	return true
}

// schedulerFlags splits "(sh-fallback,sh-port)".
func schedulerFlags(w string) []string {
	return strings.FieldsFunc(w, func(r rune) bool { return r == ',' || r == '(' || r == ')' })
}

// real reads "  -> 10.244.3.5:8080   Masq    1      0          2".
func (p *parser) real(s string, f []word) {
	if p.now == nil {
		if !p.broken {
			p.problem(s, f[0].column, "a real server without a virtual server before it")
		}
		return
	}
	if len(f) < 2 {
		p.problem(s, 0, "the line breaks off")
		return
	}
	addr, err := p.addrPort(f[1].text)
	if err != nil {
		p.problem(s, f[1].column, "%v", err)
		return
	}
	r := netfilter.RealServer{Addr: addr, Weight: netfilter.NotShown, Active: netfilter.NotShown, Inactive: netfilter.NotShown, Line: p.n, Text: strings.TrimSpace(s)}
	if !p.numbers(s, &r, f[2:]) {
		return
	}
	if p.now.Family == 0 {
		p.now.Family = netfilter.FamilyOf(addr.Addr())
	}
	p.now.Real = append(p.now.Real, r)
}

var methods = map[string]netfilter.Method{
	"Masq": netfilter.Masq, "Route": netfilter.DirectRoute, "Tunnel": netfilter.Tunnel, "Local": netfilter.LocalNode,
	"Bypass": netfilter.DirectRoute, // the kernel's own, for cache_bypass
}

// numbers reads a real server's columns.
func (p *parser) numbers(s string, r *netfilter.RealServer, f []word) bool {
	var into []*int
	switch p.form {
	case statistics:
		return true
	case plain:
		if len(f) > 0 {
			m, ok := methods[f[0].text]
			if !ok {
				p.problem(s, f[0].column, "%q is no way of forwarding: Masq, Route, Tunnel or Local", f[0].text)
				return false
			}
			r.Method, f = m, f[1:]
		}
		into = []*int{&r.Weight, &r.Active, &r.Inactive}
	case persistence:
		into = []*int{&r.Weight, nil, &r.Active, &r.Inactive}
	case thresholds:
		into = []*int{nil, nil, &r.Active, &r.Inactive}
	}
	for i, to := range into {
		if i >= len(f) {
			p.problem(s, 0, "the line breaks off: %d of %d numbers are there", len(f), len(into))
			return r.Weight >= 0
		}
		n, err := strconv.ParseUint(f[i].text, 10, 32)
		if err != nil || n > math.MaxInt32 {
			p.problem(s, f[i].column, "%q is no number", f[i].text)
			return false
		}
		if to != nil {
			*to = int(n)
		}
	}
	return true
}

// base is that of the text's numbers.
func (p *parser) base() int {
	if p.proc {
		return 16
	}
	return 10
}

// addrPort reads an address and a port: 10.0.0.1:80, [fd00::1]:80; of the kernel
// 0A000001:0050, [fd00:0000:...:0001]:0050.
func (p *parser) addrPort(s string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address and port", s)
	}
	host, port := s[:i], s[i+1:]
	n, err := strconv.ParseUint(port, p.base(), 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no port number; ipvsadm -n prints numbers", port)
	}
	if p.proc && len(host) == 8 {
		if a, err := strconv.ParseUint(host, 16, 32); err == nil {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}), uint16(n)), nil
		}
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	a, err := netip.ParseAddr(bare)
	if err != nil || a.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is no address; ipvsadm -n prints numbers", host)
	}
	if a.Is6() && bare == host {
		return netip.AddrPort{}, fmt.Errorf("%q is no address and port: an IPv6 address stands in brackets", s)
	}
	return netip.AddrPortFrom(a, uint16(n)), nil
}
