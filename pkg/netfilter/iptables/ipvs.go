package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// ipvs reads -m ipvs. What an option negates is asked of packets that IPVS
// handled alone, so that it isn't a negation of the match as a whole.
func (m *module) ipvs(p *ruleParser, o *option) bool {
	var parse func(string) (netfilter.Virtually, error)
	switch o.text {
	case "--ipvs":
		m.exprs = append(m.exprs, matching(netfilter.Virtually{Invert: o.not}))
		return true
	case "--vaddr":
		parse = virtualAddr
	case "--vport":
		parse = func(s string) (netfilter.Virtually, error) {
			port, err := parsePort(s)
			return netfilter.Virtually{Port: netfilter.PortRange{First: port, Last: port}}, err
		}
	case "--vproto":
		parse = func(s string) (netfilter.Virtually, error) {
			n, ok := netfilter.Protocol(strings.ToLower(s)).Number()
			if !ok {
				return netfilter.Virtually{}, fmt.Errorf("protocol %q is not known", s)
			}
			return netfilter.Virtually{Proto: n}, nil
		}
	case "--vdir":
		parse = func(s string) (netfilter.Virtually, error) {
			reply := strings.EqualFold(s, "REPLY")
			if !reply && !strings.EqualFold(s, "ORIGINAL") {
				return netfilter.Virtually{}, fmt.Errorf("%q is no direction: ORIGINAL or REPLY", s)
			}
			return netfilter.Virtually{Reply: reply, Orig: !reply}, nil
		}
	case "--vmethod":
		parse = virtualMethod
	case "--vportctl":
		return m.with(p, o, func(string) (netfilter.Match, error) {
			return netfilter.Undecidably{Because: "match ipvs --vportctl can't be decided: it depends on an earlier connection"}, nil
		})
	default:
		return false
	}
	v, ok := p.value(o)
	if !ok {
		return true
	}
	match, err := parse(v.text)
	if err != nil {
		p.failf(v, "%s", err)
		return true
	}
	match.Invert = o.not
	m.exprs = append(m.exprs, matching(match))
	return true
}

func virtualAddr(s string) (netfilter.Virtually, error) {
	m, err := parseNet(s, netfilter.Dst)
	if err != nil {
		return netfilter.Virtually{}, err
	}
	in, ok := m.(netfilter.AddrIn)
	if !ok {
		return netfilter.Virtually{}, fmt.Errorf("the mask of %s is no prefix", s)
	}
	// The zero Prefix asks for nothing; one of no bits asks for any address.
	return netfilter.Virtually{Addr: netip.PrefixFrom(in.Prefix.Addr(), in.Prefix.Bits())}, nil
}

func virtualMethod(s string) (netfilter.Virtually, error) {
	switch strings.ToUpper(s) {
	case "MASQ":
		return netfilter.Virtually{Method: netfilter.Masq}, nil
	case "GATE":
		return netfilter.Virtually{Method: netfilter.DirectRoute}, nil
	case "IPIP":
		return netfilter.Virtually{Method: netfilter.Tunnel}, nil
	}
	return netfilter.Virtually{}, fmt.Errorf("%q is no way of forwarding: MASQ, GATE or IPIP", s)
}
