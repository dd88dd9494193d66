package iptables

import (
	"fmt"
	"net/netip"
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

	reverse *reversePath

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
	"u32":       "it depends on the packet's bytes",
	"bpf":       "it depends on the packet's bytes",
	"string":    "it depends on the packet's bytes",
	"length":    "it depends on the packet's length",
	"mac":       "it depends on the sender's link-layer address",
	"socket":    "it depends on the open sockets",
	"policy":    "it depends on the IPsec policies",
	"cpu":       "it depends on the processor",
	"ttl":       "it depends on the packet's TTL",
	"hl":        "it depends on the packet's hop limit",
	"dscp":      "it depends on the packet's DSCP",
	"tos":       "it depends on the packet's TOS",
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
	case "rpfilter":
		m.reverse = &reversePath{}
		m.end = m.reverse.end
	case "comment", "nfacct", "tcp", "udp", "sctp", "dccp", "udplite", "icmp", "icmp6", "icmpv6", "multiport",
		"conntrack", "state", "mark", "connmark", "addrtype", "iprange", "set", "owner", "physdev", "pkttype", "cgroup", "ipvs":
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
	if m.name == "ipvs" && len(m.exprs) == 0 {
		// A listing's words for it are not read.
		return append(m.exprs, matching(netfilter.Undecidably{Because: "match ipvs can't be decided: what it asks was not read"}))
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
	case "rpfilter":
		return m.reverse.option(o)
	case "cgroup":
		return m.cgroup(p, o)
	case "ipvs":
		return m.ipvs(p, o)
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

// cgroup reads -m cgroup, which packets that no process of the node sent never
// match.
func (m *module) cgroup(p *ruleParser, o *option) bool {
	if o.text != "--cgroup" && o.text != "--path" {
		return false
	}
	return m.with(p, o, func(string) (netfilter.Match, error) { return netfilter.FromSocket{What: "cgroup"}, nil })
}

// reversePath is -m rpfilter.
type reversePath struct{ loose, invert bool }

func (r *reversePath) option(o *option) bool {
	switch o.text {
	case "--loose":
		r.loose = true
	case "--invert":
		r.invert = true
	case "--validmark", "--accept-local":
	default:
		return false
	}
	return true
}

func (r *reversePath) end() []netfilter.Expr {
	o := option{not: r.invert}
	var out []netfilter.Expr
	o.add(&out, netfilter.ReversePath{Loose: r.loose})
	return out
}
