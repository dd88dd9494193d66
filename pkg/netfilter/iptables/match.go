package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// module is one -m, while its options are being read.
type module struct {
	name string
	// foreign: its options are not known to us.
	foreign bool
	exprs   []netfilter.Expr
	// end adds what several options make together; nil for most modules.
	end func() []netfilter.Expr

	statistic *statistic
	recent    *recent
	limitTo   string // of addrtype: --limit-iface-in or -out

}

// undecidable are the modules whose match hangs on what rules don't hold, and
// on what.
var undecidable = map[string]string{
	"limit":     "it depends on the rate of packets",
	"hashlimit": "it depends on the rate of packets",
	"connlimit": "it depends on the number of connections",
	"connbytes": "it depends on the bytes that the connection has carried",
	"quota":     "it depends on the bytes counted so far",
	"time":      "it depends on the time of day",
	"rpfilter":  "it depends on the routes back to the source",
	"u32":       "it depends on the packet's bytes",
	"bpf":       "it depends on the packet's bytes",
	"string":    "it depends on the packet's bytes",
	"length":    "it depends on the packet's length",
	"mac":       "it depends on the sender's link-layer address",
	"socket":    "it depends on the open sockets",
	"cgroup":    "it depends on the sending process",
	"policy":    "it depends on the IPsec policies",
	"cpu":       "it depends on the processor",
	"ttl":       "it depends on the packet's TTL",
	"hl":        "it depends on the packet's hop limit",
	"dscp":      "it depends on the packet's DSCP",
	"tos":       "it depends on the packet's TOS",
	"ipvs":      "it depends on the IPVS tables",
}

func newModule(name string) module {
	m := module{name: name}
	switch name {
	case "statistic":
		m.statistic = &statistic{p: 1}
		m.end = m.statistic.end
	case "recent":
		m.recent = &recent{list: "DEFAULT", hits: 1}
		m.end = m.recent.end
	case "comment", "nfacct", "tcp", "udp", "sctp", "dccp", "udplite", "icmp", "icmp6", "icmpv6", "multiport",
		"conntrack", "state", "mark", "connmark", "addrtype", "iprange", "set", "owner", "physdev", "pkttype":
	default:
		m.foreign = true
		why, ok := undecidable[name]
		if !ok {
			why = "it is not one that the walk knows"
		}
		m.exprs = append(m.exprs, matching(netfilter.Undecidably{Because: fmt.Sprintf("match %s can't be decided: %s", name, why)}))
	}
	return m
}

func (m *module) finish() []netfilter.Expr {
	if m.end != nil {
		return m.end()
	}
	if m.limitTo != "" {
		for i, e := range m.exprs {
			m.exprs[i].Match = limitedTo(e.Match, m.limitTo)
		}
	}
	return m.exprs
}

// protoModule is the match that -p loads by itself.
func protoModule(proto uint8) string {
	switch proto {
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 132:
		return "sctp"
	case 33:
		return "dccp"
	case 136:
		return "udplite"
	case 1:
		return "icmp"
	case 58:
		return "icmp6"
	}
	return ""
}

// option reads the option if it is one of the module's.
func (m *module) option(p *ruleParser, o *option) bool {
	switch m.name {
	case "comment":
		return m.ignored(p, o, "--comment")
	case "nfacct":
		return m.ignored(p, o, "--nfacct-name")
	case "tcp", "udp", "sctp", "dccp", "udplite":
		return m.ports(p, o) || m.name == "tcp" && m.tcp(p, o) || m.ofProtocol(p, o)
	case "icmp", "icmp6", "icmpv6":
		return m.icmp(p, o)
	case "multiport":
		return m.multiport(p, o)
	case "conntrack", "state":
		return m.conntrack(p, o)
	case "mark", "connmark":
		return m.mark(p, o)
	case "addrtype":
		return m.addrtype(p, o)
	case "statistic":
		return m.statistic.option(p, o)
	case "recent":
		return m.recent.option(p, o)
	case "iprange":
		return m.iprange(p, o)
	case "set":
		return m.set(p, o)
	case "owner":
		return m.owner(p, o)
	case "physdev":
		return m.physdev(p, o)
	case "pkttype":
		return m.pkttype(p, o)
	}
	return false
}

// with reads the option's value and adds the match that parse makes of it.
func (m *module) with(p *ruleParser, o *option, parse func(string) (netfilter.Match, error)) bool {
	v, ok := p.value(o)
	if !ok {
		return true
	}
	match, err := parse(v.text)
	if err != nil {
		p.failf(v, "%s", err)
		return true
	}
	o.add(&m.exprs, match)
	return true
}

func (m *module) ignored(p *ruleParser, o *option, name string) bool {
	if o.text != name {
		return false
	}
	if p.at < len(p.args) {
		p.at++ // whatever it is: a comment may be "!"
		return true
	}
	p.failf(o.token, "option %s has no value", o.text)
	return true
}

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

var icmpTypes = map[string]uint8{
	"echo-reply": 0, "pong": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5,
	"echo-request": 8, "ping": 8, "router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11,
	"ttl-exceeded": 11, "parameter-problem": 12, "timestamp-request": 13, "timestamp-reply": 14,
	"fragmentation-needed": 3,
}

var icmpv6Types = map[string]uint8{
	"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "ttl-exceeded": 3, "parameter-problem": 4,
	"echo-request": 128, "ping": 128, "echo-reply": 129, "pong": 129, "router-solicitation": 133,
	"router-advertisement": 134, "neighbour-solicitation": 135, "neighbor-solicitation": 135,
	"neighbour-advertisement": 136, "neighbor-advertisement": 136, "redirect": 137,
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
		n, known := names[typ]
		if !known {
			if typ == "any" || typ == "255" && proto == 1 {
				return match, nil
			}
			u, err := strconv.ParseUint(typ, 10, 8)
			if err != nil {
				return nil, fmt.Errorf("ICMP type %q is not known", s)
			}
			n = uint8(u)
		}
		match.First, match.Last = n, n
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

func (m *module) addrtype(p *ruleParser, o *option) bool {
	side := netfilter.Dst
	switch o.text {
	case "--src-type":
		side = netfilter.Src
	case "--dst-type":
	case "--limit-iface-in", "--limit-iface-out":
		m.limitTo = strings.TrimPrefix(o.text, "--limit-iface-")
		return true
	default:
		return false
	}
	return m.with(p, o, func(s string) (netfilter.Match, error) {
		types := strings.Split(strings.ToUpper(s), ",")
		for _, t := range types {
			switch t {
			case "UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE":
			default:
				return nil, fmt.Errorf("address type %q is not known", t)
			}
		}
		return netfilter.AddrType{Side: side, Types: types}, nil
	})
}

func limitedTo(m netfilter.Match, iface string) netfilter.Match {
	switch m := m.(type) {
	case netfilter.AddrType:
		m.Iface = iface
		return m
	case netfilter.Not:
		return netfilter.Not{Match: limitedTo(m.Match, iface)}
	}
	return m
}

// statistic is -m statistic.
type statistic struct {
	nth  bool
	not  bool
	p    float64
	seen bool
}

func (st *statistic) option(p *ruleParser, o *option) bool {
	switch o.text {
	case "--mode", "--probability", "--every", "--packet":
	default:
		return false
	}
	v, ok := p.value(o)
	if !ok {
		return true
	}
	st.not = st.not || o.not
	var err error
	switch o.text {
	case "--mode":
		st.nth = v.text == "nth"
		if v.text != "nth" && v.text != "random" {
			err = fmt.Errorf("statistic mode %q is not known", v.text)
		}
	case "--probability":
		st.seen = true
		st.p, err = strconv.ParseFloat(v.text, 64)
		if err == nil && (math.IsNaN(st.p) || st.p < 0 || st.p > 1) {
			err = strconv.ErrRange
		}
	case "--every":
		var n uint64
		if n, err = strconv.ParseUint(v.text, 0, 32); err == nil && n == 0 {
			err = strconv.ErrRange
		}
		if err == nil {
			st.seen, st.p = true, 1/float64(n)
		}
	}
	if err != nil {
		p.failf(v, "%q is no value of %s", v.text, o.text)
		st.p = 1
	}
	return true
}

// end makes a Random of it: every Nth packet is, for one new connection of
// many, a chance of one in N.
func (st *statistic) end() []netfilter.Expr {
	if !st.seen {
		return []netfilter.Expr{matching(netfilter.Undecidably{Because: "the statistic match has no probability"})}
	}
	if st.not {
		return []netfilter.Expr{matching(netfilter.Random{P: 1 - st.p})}
	}
	return []netfilter.Expr{matching(netfilter.Random{P: st.p})}
}

// recent is -m recent.
type recent struct {
	list  string
	hits  int
	what  string // set, rcheck, update, remove
	byDst bool
	not   bool
}

func (r *recent) option(p *ruleParser, o *option) bool {
	switch o.text {
	case "--set", "--rcheck", "--update", "--remove":
		r.what, r.not = strings.TrimPrefix(o.text, "--"), o.not
	case "--rttl", "--reap", "--rsource":
	case "--rdest":
		r.byDst = true
	case "--seconds", "--mask":
		p.value(o)
	case "--name":
		if v, ok := p.value(o); ok {
			r.list = v.text
		}
	case "--hitcount":
		if v, ok := p.value(o); ok {
			n, err := strconv.Atoi(v.text)
			if err != nil {
				p.failf(v, "%q is not a number of hits", v.text)
			}
			r.hits = n
		}
	default:
		return false
	}
	return true
}

func (r *recent) end() []netfilter.Expr {
	list := r.list
	if r.byDst {
		list += " by destination"
	}
	o := option{not: r.not}
	var out []netfilter.Expr
	switch r.what {
	case "set":
		if r.not {
			return []netfilter.Expr{matching(netfilter.Never{})}
		}
		return []netfilter.Expr{doing(netfilter.Remember{List: list})}
	case "rcheck", "update", "remove":
		o.add(&out, netfilter.Recalled{List: list, Hits: r.hits})
	default:
		out = append(out, matching(netfilter.Undecidably{Because: "the recent match does not say what it asks"}))
	}
	return out
}

func (m *module) iprange(p *ruleParser, o *option) bool {
	side := netfilter.Src
	switch o.text {
	case "--dst-range":
		side = netfilter.Dst
	case "--src-range":
	default:
		return false
	}
	return m.with(p, o, func(s string) (netfilter.Match, error) {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		a, err := netip.ParseAddr(first)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address", first)
		}
		b, err := netip.ParseAddr(last)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address", last)
		}
		return netfilter.AddrRange{Side: side, First: a, Last: b}, nil
	})
}

func (m *module) set(p *ruleParser, o *option) bool {
	switch o.text {
	case "--match-set", "--set":
		name, ok := p.value(o)
		if !ok {
			return true
		}
		return m.with(p, o, func(sides string) (netfilter.Match, error) {
			return netfilter.InSet{Name: name.text, Sides: strings.Split(sides, ",")}, nil
		})
	case "--return-nomatch", "--update-counters", "--update-subcounters":
		return true
	case "--packets-eq", "--packets-lt", "--packets-gt", "--bytes-eq", "--bytes-lt", "--bytes-gt":
		return m.with(p, o, func(string) (netfilter.Match, error) {
			return netfilter.Undecidably{Because: "it depends on the set's counters"}, nil
		})
	}
	return false
}

func (m *module) owner(p *ruleParser, o *option) bool {
	switch o.text {
	case "--uid-owner", "--gid-owner", "--pid-owner", "--sid-owner", "--cmd-owner":
		return m.with(p, o, func(string) (netfilter.Match, error) {
			return netfilter.FromSocket{What: strings.TrimSuffix(strings.TrimPrefix(o.text, "--"), "-owner")}, nil
		})
	case "--socket-exists":
		o.add(&m.exprs, netfilter.FromSocket{What: "socket"})
		return true
	case "--suppl-groups":
		return true
	}
	return false
}

func (m *module) physdev(p *ruleParser, o *option) bool {
	switch o.text {
	case "--physdev-in", "--physdev-out":
		return m.with(p, o, func(string) (netfilter.Match, error) { return netfilter.Bridged{}, nil })
	case "--physdev-is-in", "--physdev-is-out", "--physdev-is-bridged":
		o.add(&m.exprs, netfilter.Bridged{})
		return true
	}
	return false
}

func (m *module) pkttype(p *ruleParser, o *option) bool {
	if o.text != "--pkt-type" {
		return false
	}
	return m.with(p, o, func(s string) (netfilter.Match, error) {
		return netfilter.PktType{Type: strings.ToLower(s)}, nil
	})
}
