package iptables

import (
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

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
