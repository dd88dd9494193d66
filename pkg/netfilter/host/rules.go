package host

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Rule is one line of `ip rule`: which routing table a packet is looked up in.
type Rule struct {
	Priority int
	Not      bool
	From, To netip.Prefix // the zero Prefix is all
	Iif, Oif string
	// Table is looked up; "" where Action is none of lookup.
	Table string
	// Action is lookup, blackhole, unreachable, prohibit, goto, nop, or another
	// word that is not understood.
	Action string
	Goto   int
	// Suppress is the longest prefix that is not good enough, -1 for none.
	Suppress int
	// Other: it asks for more than addresses and interfaces: a mark, a port, a
	// user.
	Other bool
	Line  int
	Text  string
}

// standardRules are what every kernel begins with.
var standardRules = []Rule{
	{Priority: 0, Table: "local", Action: "lookup", Suppress: -1},
	{Priority: 32766, Table: "main", Action: "lookup", Suppress: -1},
	{Priority: 32767, Table: "default", Action: "lookup", Suppress: -1},
}

// RuleFamily tells which family a text of `ip rule` is of: only IPv4 has a
// table default of itself. known is false where nothing tells.
func RuleFamily(text string) (v6, known bool) {
	for line := range strings.Lines(text) {
		r, ok := parseRule(strings.Fields(line))
		switch {
		case !ok:
		case r.Priority == 32767 && r.Table == "default":
			return false, true
		case r.From.IsValid():
			return r.From.Addr().Is6(), true
		case r.To.IsValid():
			return r.To.Addr().Is6(), true
		}
	}
	return false, false
}

// ParseRule reads the output of `ip rule`, or of `ip -6 rule`. Lines that are no
// rules are passed over; a text without any leaves the rules unknown.
func (h *Host) ParseRule(text string, v6 bool) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if r, ok := parseRule(strings.Fields(line)); ok {
			r.Line, r.Text = n, strings.Join(strings.Fields(line), " ")
			h.rules[index(v6)] = append(h.rules[index(v6)], r)
		}
	}
	slices.SortStableFunc(h.rules[index(v6)], func(a, b Rule) int { return a.Priority - b.Priority })
}

func index(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// parseRule reads "512: not from all fwmark 0x200/0xf00 lookup 2004".
func parseRule(f []string) (Rule, bool) {
	r := Rule{Suppress: -1}
	if len(f) < 2 || !strings.HasSuffix(f[0], ":") {
		return r, false
	}
	prio, err := strconv.Atoi(strings.TrimSuffix(f[0], ":"))
	if err != nil || prio < 0 {
		return r, false
	}
	r.Priority = prio
	if f = f[1:]; f[0] == "not" {
		r.Not, f = true, f[1:]
	}
	if len(f) < 2 || f[0] != "from" {
		return r, false
	}
	for i := 0; i < len(f); i++ {
		value := ""
		if i+1 < len(f) {
			value = f[i+1]
		}
		switch f[i] {
		case "from":
			r.From, r.Other, i = rulePrefix(value), r.Other || !knownPrefix(value), i+1
		case "to":
			r.To, r.Other, i = rulePrefix(value), r.Other || !knownPrefix(value), i+1
		case "iif":
			r.Iif, i = value, i+1
		case "oif":
			r.Oif, i = value, i+1
		case "lookup", "table":
			r.Action, r.Table, i = "lookup", value, i+1
		case "suppress_prefixlength":
			if r.Suppress, err = strconv.Atoi(value); err != nil {
				r.Other, r.Suppress = true, -1
			}
			i++
		case "goto":
			r.Action = "goto"
			if r.Goto, err = strconv.Atoi(value); err != nil {
				r.Action = "goto nowhere"
			}
			i++
		case "blackhole", "unreachable", "prohibit", "nop":
			r.Action = f[i]
		case "proto", "protocol", "realms":
			i++ // who made it, or how it is counted
		case "[detached]":
			r.Not, r.Iif, r.Oif = false, "", ""
			r.Action = "nop"
			return r, true
		case "suppress_ifgroup", "fwmark", "tos", "dsfield", "uidrange", "ipproto", "sport", "dport", "tun_id", "dscp", "flowlabel":
			r.Other, i = true, i+1
		default:
			r.Other = true
		}
	}
	return r, r.Action != ""
}

func knownPrefix(s string) bool {
	_, err := netip.ParsePrefix(s)
	if err != nil {
		_, err = netip.ParseAddr(s)
	}
	return s == "all" || err == nil
}

func rulePrefix(s string) netip.Prefix {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked()
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	return netip.Prefix{}
}

// match says whether a packet is looked up by the rule.
func (r *Rule) match(q Query) netfilter.Tri {
	t := netfilter.True
	if r.From.IsValid() {
		t = t.And(inPrefix(r.From, q.Src))
	}
	if r.To.IsValid() {
		t = t.And(inPrefix(r.To, q.Dst))
	}
	if r.Iif != "" {
		t = t.And(q.entersBy(r.Iif))
	}
	if r.Oif != "" || r.Other {
		t = t.And(netfilter.Unknown)
	}
	if r.Not {
		return t.Not()
	}
	return t
}

func inPrefix(p netip.Prefix, a netip.Addr) netfilter.Tri {
	if !a.IsValid() {
		return netfilter.Unknown
	}
	return netfilter.Of(p.Contains(a))
}

func (q Query) entersBy(iface string) netfilter.Tri {
	switch {
	case q.LocalProcess:
		return netfilter.Of(iface == "lo")
	case iface == "lo":
		return netfilter.False
	case q.In == "":
		return netfilter.Unknown
	}
	return netfilter.Of(q.In == iface)
}
