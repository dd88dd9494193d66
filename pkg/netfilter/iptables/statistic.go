package iptables

import (
	"fmt"
	"math"
	"strconv"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

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
