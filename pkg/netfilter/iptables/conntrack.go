package iptables

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

var ctStates = map[string]netfilter.CTBits{
	"NEW": netfilter.CTNew, "ESTABLISHED": netfilter.CTEstablished, "RELATED": netfilter.CTRelated,
	"INVALID": netfilter.CTInvalid, "UNTRACKED": netfilter.CTUntracked, "SNAT": netfilter.CTSNAT, "DNAT": netfilter.CTDNAT,
}

func parseStates(s string) (netfilter.Match, error) {
	var any netfilter.CTBits
	for name := range strings.SplitSeq(s, ",") {
		b, ok := ctStates[strings.ToUpper(name)]
		if !ok {
			return nil, fmt.Errorf("connection state %q is not known", name)
		}
		any |= b
	}
	return netfilter.CTState{Any: any}, nil
}

func (m *module) conntrack(p *ruleParser, o *option) bool {
	switch o.text {
	case "--ctstate", "--state":
		return m.with(p, o, parseStates)
	case "--ctproto":
		return m.with(p, o, func(s string) (netfilter.Match, error) {
			n, ok := netfilter.Protocol(strings.ToLower(s)).Number()
			if !ok {
				return nil, fmt.Errorf("protocol %q is not known", s)
			}
			return netfilter.CTTuple{Proto: n}, nil
		})
	case "--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst":
		return m.with(p, o, func(s string) (netfilter.Match, error) {
			side, reply := tupleEnd(o.text)
			n, err := parseNet(s, side)
			in, ok := n.(netfilter.AddrIn)
			if err == nil && !ok {
				err = fmt.Errorf("%q is not a network", s)
			}
			return netfilter.CTTuple{Reply: reply, Side: side, Prefix: in.Prefix}, err
		})
	case "--ctorigsrcport", "--ctorigdstport", "--ctreplsrcport", "--ctrepldstport":
		return m.with(p, o, func(s string) (netfilter.Match, error) {
			side, reply := tupleEnd(o.text)
			r, err := parsePorts(s)
			return netfilter.CTTuple{Reply: reply, Side: side, Ports: r}, err
		})
	case "--ctdir":
		return m.with(p, o, func(s string) (netfilter.Match, error) {
			return netfilter.CTDirection{Reply: strings.EqualFold(s, "REPLY")}, nil
		})
	case "--ctstatus":
		return m.with(p, o, parseStatus)
	case "--ctexpire":
		return m.with(p, o, func(string) (netfilter.Match, error) {
			return netfilter.Undecidably{Because: "how long the connection is still tracked is not known"}, nil
		})
	}
	return false
}

func tupleEnd(option string) (side netfilter.Side, reply bool) {
	if strings.Contains(option, "dst") {
		side = netfilter.Dst
	}
	return side, strings.Contains(option, "repl")
}

// parseStatus reads --ctstatus: of a new connection only CONFIRMED can be.
func parseStatus(s string) (netfilter.Match, error) {
	match := netfilter.Match(netfilter.Never{})
	for name := range strings.SplitSeq(s, ",") {
		switch strings.ToUpper(name) {
		case "NONE", "EXPECTED", "SEEN_REPLY", "ASSURED":
		case "CONFIRMED":
			match = netfilter.CTConfirmed{}
		default:
			return nil, fmt.Errorf("connection status %q is not known", name)
		}
	}
	return match, nil
}

func (m *module) mark(p *ruleParser, o *option) bool {
	if o.text != "--mark" {
		return false
	}
	return m.with(p, o, func(s string) (netfilter.Match, error) {
		v, mask, err := parseMark(s)
		return netfilter.MarkIs{Value: v, Mask: mask, Conn: m.name == "connmark"}, err
	})
}
