package iptables

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

func (m *module) ports(p *ruleParser, o *option) bool {
	side := netfilter.Src
	switch o.text {
	case "--dport", "--destination-port":
		side = netfilter.Dst
	case "--sport", "--source-port":
	default:
		return false
	}
	return m.with(p, o, func(s string) (netfilter.Match, error) {
		if strings.Contains(s, ",") {
			return nil, fmt.Errorf("%q is not a port or a range", s)
		}
		r, err := parsePorts(s)
		return netfilter.Ports{Side: side, Ranges: r}, err
	})
}

func (m *module) multiport(p *ruleParser, o *option) bool {
	var side netfilter.Side
	switch o.text {
	case "--dports", "--destination-ports":
		side = netfilter.Dst
	case "--sports", "--source-ports":
		side = netfilter.Src
	case "--ports":
		side = netfilter.Either
	default:
		return false
	}
	return m.with(p, o, func(s string) (netfilter.Match, error) {
		r, err := parsePorts(s)
		return netfilter.Ports{Side: side, Ranges: r}, err
	})
}

var tcpFlags = map[string]uint8{
	"FIN": netfilter.FIN, "SYN": netfilter.SYN, "RST": netfilter.RST, "PSH": netfilter.PSH,
	"ACK": netfilter.ACK, "URG": netfilter.URG, "ALL": 0x3f, "NONE": 0,
}

func parseFlags(s string) (uint8, error) {
	var bits uint8
	for f := range strings.SplitSeq(s, ",") {
		b, ok := tcpFlags[strings.ToUpper(f)]
		if !ok {
			n, err := strconv.ParseUint(f, 0, 8)
			if err != nil {
				return 0, fmt.Errorf("%q is not a TCP flag", f)
			}
			b = uint8(n)
		}
		bits |= b
	}
	return bits, nil
}

func (m *module) tcp(p *ruleParser, o *option) bool {
	switch o.text {
	case "--syn":
		o.add(&m.exprs, netfilter.TCPFlags{Mask: netfilter.SYN | netfilter.RST | netfilter.ACK | netfilter.FIN, Set: netfilter.SYN})
	case "--tcp-flags":
		mask, ok := p.value(o)
		if !ok {
			return true
		}
		return m.with(p, o, func(set string) (netfilter.Match, error) {
			bits, err := parseFlags(mask.text)
			if err != nil {
				return nil, err
			}
			on, err := parseFlags(set)
			return netfilter.TCPFlags{Mask: bits, Set: on}, err
		})
	case "--tcp-option":
		return m.with(p, o, func(string) (netfilter.Match, error) {
			return netfilter.Undecidably{Because: "which TCP options the packet has is not known"}, nil
		})
	default:
		return false
	}
	return true
}

// ofProtocol reads what sctp and dccp ask besides ports.
func (m *module) ofProtocol(p *ruleParser, o *option) bool {
	switch o.text {
	case "--chunk-types":
		p.value(o)
	case "--dccp-types", "--dccp-option":
	default:
		return false
	}
	return m.with(p, o, func(string) (netfilter.Match, error) {
		return netfilter.Undecidably{Because: "the packet's type is not known"}, nil
	})
}

// icmpTypes are the names that iptables has for ICMP types, with the code where
// the name is of one.
var icmpTypes = map[string]string{
	"any": "any", "echo-reply": "0", "pong": "0", "destination-unreachable": "3", "network-unreachable": "3/0", "host-unreachable": "3/1",
	"protocol-unreachable": "3/2", "port-unreachable": "3/3", "fragmentation-needed": "3/4", "source-route-failed": "3/5",
	"network-unknown": "3/6", "host-unknown": "3/7", "network-prohibited": "3/9", "host-prohibited": "3/10",
	"TOS-network-unreachable": "3/11", "TOS-host-unreachable": "3/12", "communication-prohibited": "3/13",
	"host-precedence-violation": "3/14", "precedence-cutoff": "3/15", "source-quench": "4", "redirect": "5", "network-redirect": "5/0",
	"host-redirect": "5/1", "TOS-network-redirect": "5/2", "TOS-host-redirect": "5/3", "echo-request": "8", "ping": "8",
	"router-advertisement": "9", "router-solicitation": "10", "time-exceeded": "11", "ttl-exceeded": "11",
	"ttl-zero-during-transit": "11/0", "ttl-zero-during-reassembly": "11/1", "parameter-problem": "12", "ip-header-bad": "12/0",
	"required-option-missing": "12/1", "timestamp-request": "13", "timestamp-reply": "14", "address-mask-request": "17", "address-mask-reply": "18",
}

var icmpv6Types = map[string]string{
	"destination-unreachable": "1", "packet-too-big": "2", "no-route": "1/0", "communication-prohibited": "1/1", "beyond-scope": "1/2", "address-unreachable": "1/3", "port-unreachable": "1/4", "failed-policy": "1/5", "reject-route": "1/6", "ttl-zero-during-transit": "3/0", "ttl-zero-during-reassembly": "3/1", "bad-header": "4/0", "unknown-header-type": "4/1", "unknown-option": "4/2", "time-exceeded": "3", "ttl-exceeded": "3", "parameter-problem": "4",
	"echo-request": "128", "ping": "128", "echo-reply": "129", "pong": "129", "router-solicitation": "133",
	"router-advertisement": "134", "neighbour-solicitation": "135", "neighbor-solicitation": "135",
	"neighbour-advertisement": "136", "neighbor-advertisement": "136", "redirect": "137",
}

func (m *module) icmp(p *ruleParser, o *option) bool {
	names, proto := icmpTypes, uint8(1)
	if m.name != "icmp" {
		names, proto = icmpv6Types, 58
	}
	if o.text != "--icmp-type" && o.text != "--icmpv6-type" {
		return false
	}
	return m.with(p, o, func(s string) (netfilter.Match, error) {
		match := netfilter.ICMPType{Proto: proto, Last: 255, Code: -1}
		typ, code, coded := strings.Cut(s, "/")
		if n, named := names[typ]; named {
			typ, code, coded = strings.Cut(n, "/")
		}
		if typ == "any" || typ == "255" && proto == 1 {
			return match, nil
		}
		n, err := strconv.ParseUint(typ, 10, 8)
		if err != nil {
			return nil, fmt.Errorf("ICMP type %q is not known", s)
		}
		match.First, match.Last = uint8(n), uint8(n)
		if coded {
			c, err := strconv.ParseUint(code, 10, 8)
			if err != nil {
				return nil, fmt.Errorf("ICMP code %q is not a number", code)
			}
			match.Code = int(c)
		}
		return match, nil
	})
}
