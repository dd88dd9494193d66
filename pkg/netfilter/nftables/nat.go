package nftables

import (
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// natParts is where a NAT statement rewrites to: constants, or maps.
type natParts struct {
	to      netfilter.NATRange
	addrMap *chooser // gives an address, and a port where it has two parts
	portMap *chooser
	prefix  bool
}

// nat reads dnat, snat, masquerade and redirect.
func (p *ruleParser) nat() {
	verb := p.next()
	p.rule.Target = verb.text
	family := netfilter.Family(0)
	switch {
	case p.take("ip"):
		family = netfilter.IPv4
	case p.take("ip6"):
		family = netfilter.IPv6
	}
	var n natParts
	for {
		switch {
		case p.take("prefix"):
			n.prefix = true
			continue
		case p.take("addr"), p.take("port"), p.take("interval"), p.peek().is(".") && p.take("."):
			continue
		}
		break
	}
	if p.take("to") {
		p.natTo(&n)
	} else if verb.is("dnat") || verb.is("snat") {
		p.failf(verb, "%s without an address", verb.text)
	}
	p.natFlags(&n)
	if p.err != nil {
		return
	}
	if family != 0 && p.table.family == "inet" {
		p.match(ofFamily{family})
	}
	p.natAction(verb, n)
}

func (p *ruleParser) natFlags(n *natParts) {
	for {
		switch t := p.peek(); {
		case t.is("random"), t.is("fully-random"):
			n.to.Random = true
		case t.is("persistent"), t.is(","):
		default:
			return
		}
		p.at++
	}
}

// natTo reads ADDR[-ADDR][:PORT[-PORT]], :PORT, or a map for either.
func (p *ruleParser) natTo(n *natParts) {
	t := p.peek()
	addr, port, constant := splitNAT(t.text)
	switch {
	case constant && (addr != "" || port != ""):
		p.at++
		p.natConstant(n, t, addr, port)
	case strings.Contains(t.text, ":") && !strings.Contains(t.text, "::"): // 10.0.0.1:tcp dport map {...}
		i := strings.LastIndexByte(t.text, ':')
		if addr := t.text[:i]; addr != "" {
			p.natConstant(n, t, strings.Trim(addr, "[]"), "")
		}
		p.toks[p.at] = token{text: t.text[i+1:], at: t.at + i + 1}
		n.portMap = p.dataMap([]kind{kindPort})
	default:
		n.addrMap = p.dataMap(nil)
		if next := p.peek(); p.err == nil && strings.HasPrefix(next.text, ":") && len(next.text) > 1 {
			p.at++
			p.natConstant(n, next, "", next.text[1:])
		}
	}
}

// splitNAT splits ADDR:PORT, with brackets around an IPv6 address.
func splitNAT(s string) (addr, port string, constant bool) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		in, after, closed := strings.Cut(rest, "]")
		if last, ok := strings.CutPrefix(after, "-["); ok { // a range, each end in brackets
			end, behind, closed := strings.Cut(last, "]")
			return in + "-" + end, strings.TrimPrefix(behind, ":"), closed
		}
		return in, strings.TrimPrefix(after, ":"), closed && (after == "" || after[0] == ':')
	}
	if strings.Count(s, ":") == 1 {
		addr, port, _ = strings.Cut(s, ":")
	} else {
		addr = s
	}
	_, err := parseAddrs(addr)
	_, perr := parsePattern(kindPort, token{text: port})
	return addr, port, (addr == "" || err == nil) && (port == "" || perr == nil)
}

func (p *ruleParser) natConstant(n *natParts, t token, addr, port string) {
	if addr != "" {
		a, err := parseAddrs(addr)
		if err != nil {
			p.failf(t, "%s", err)
			return
		}
		n.to.First, n.to.Last = a.first.addr, a.last.addr
	}
	if port != "" {
		r, err := parsePattern(kindPort, token{text: port})
		if err != nil || r.first.num == 0 || r.last.num > 65535 {
			p.failf(t, "%q is not a port to rewrite to", port)
			return
		}
		n.to.MinPort, n.to.MaxPort = uint16(r.first.num), uint16(r.last.num)
	}
}

// dataMap reads "KEY map MAP". data are the kinds of its values, where the
// map is written in the rule; nil is an address, or one with a port.
func (p *ruleParser) dataMap(data []kind) *chooser {
	key := p.concat()
	if p.err != nil {
		return nil
	}
	if t := p.next(); !t.is("map") {
		p.failf(t, "an address, or a map of addresses, is missing")
		return nil
	}
	kinds := make([]kind, len(key))
	for i, o := range key {
		kinds[i] = o.kind
	}
	if data == nil {
		data = []kind{kindAddr}
		if p.hasPair() {
			data = []kind{kindAddr, kindPort}
		}
	}
	return &chooser{key: key, set: p.elements(kinds, data, true)}
}

// hasPair says whether the first value of the map that follows is an address
// and a port: a dot stands between its colon and its comma.
func (p *ruleParser) hasPair() bool {
	colon := false
	for _, t := range p.toks[p.at:] {
		switch {
		case t.is(":"):
			colon = true
		case colon && t.is("."):
			return true
		case colon && (t.is(",") || t.is("}")):
			return false
		}
	}
	return false
}

// natAction makes the action, or a choice of actions where a map decides.
func (p *ruleParser) natAction(verb token, n natParts) {
	action := func(to netfilter.NATRange) netfilter.Action {
		switch verb.text {
		case "dnat":
			return netfilter.DestinationNAT{To: to}
		case "snat":
			return netfilter.SourceNAT{To: to}
		case "redirect":
			return netfilter.Redirected{To: to}
		}
		return netfilter.Masqueraded{}
	}
	switch {
	case n.prefix:
		p.do(netfilter.Opaque{Why: "NAT of whole networks is not followed"})
	case n.addrMap != nil:
		base := n.to
		n.addrMap.act = func(e *element) netfilter.Action { return natElement(e, base, action) }
		p.lookUp(n.addrMap)
	case n.portMap != nil:
		base := n.to
		n.portMap.act = func(e *element) netfilter.Action {
			if len(e.data) != 1 {
				return netfilter.Opaque{Why: "the map gives no port"}
			}
			to := base
			to.MinPort, to.MaxPort = uint16(e.data[0].first.num), uint16(e.data[0].last.num)
			return action(to)
		}
		p.lookUp(n.portMap)
	default:
		p.do(action(n.to))
	}
}

func natElement(e *element, to netfilter.NATRange, action func(netfilter.NATRange) netfilter.Action) netfilter.Action {
	if len(e.data) == 0 || !e.data[0].first.addr.IsValid() {
		return netfilter.Opaque{Why: "the map gives no address"}
	}
	to.First, to.Last = e.data[0].first.addr, e.data[0].last.addr
	if len(e.data) > 1 {
		to.MinPort, to.MaxPort = uint16(e.data[1].first.num), uint16(e.data[1].last.num)
	}
	return action(to)
}
