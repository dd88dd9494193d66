package netfilter

import (
	"net/netip"
)

// leg is a walk from one place on, as long as there is one way to go. Where
// there are several, others are run and their results gathered; random rules
// leave a share of the probability to go on with.
type leg struct {
	*walker
	s       *State // &own
	own     State
	at      frame
	notes   []note // met since the leg began
	share   float64
	results []result
	done    bool
}

func (l *leg) step() {
	if l.work--; l.work <= 0 {
		l.finish(l.giveUp(l.s, "gave up: the ruleset branches into too many ways"))
		return
	}
	if l.at.chain == nil {
		l.stationStep()
		return
	}
	if l.at.expr == 0 {
		l.at.rule = l.at.chain.next(l.at.rule, l.s.Dst)
	}
	if l.at.rule >= l.at.chain.len() {
		l.endOfChain()
		return
	}
	l.ruleStep(l.at.chain.Body.Rule(l.at.rule))
}

func (c *ChainDef) next(i int, dst netip.Addr) int {
	if c.Body == nil {
		return 0
	}
	return c.Body.Next(i, dst)
}

// gather adds results of a part of the remaining probability.
func (l *leg) gather(rs []result, part float64) {
	l.work -= len(rs) + len(l.notes)
	for i := range rs {
		l.gatherOne(&rs[i], part)
	}
}

func (l *leg) gatherOne(r *result, part float64) {
	l.results = append(l.results, *r)
	own := &l.results[len(l.results)-1]
	own.p *= part * l.share
	own.trail = l.before(l.notes, r.trail)
}

// end gathers the last results of the leg.
func (l *leg) end(rs []result) {
	l.gather(rs, 1)
	l.done = true
}

func (l *leg) finish(r result) {
	l.work -= 1 + len(l.notes)
	l.gatherOne(&r, 1)
	l.done = true
}

// carryOn continues with what is left of the probability at the present place,
// by what is known from there already if anything is.
func (l *leg) carryOn() {
	key := memoKey{l.at, l.s.Flow}
	if rs, ok := l.memo.get(&key); ok {
		l.end(rs)
	}
}

// endOfChain returns to where the chain was jumped to from, or comes to the
// base chain's policy.
func (l *leg) endOfChain() {
	if cut := l.at.chain.Cut; cut != "" {
		l.missing(note{table: l.at.table, chain: l.at.chain, line: l.at.chain.Line, why: cut})
		return
	}
	l.ret()
}

func (l *leg) ret() {
	if l.at.ret != nil {
		l.at = *l.at.ret
		if l.depth > 1 { // other ways may come to this place
			l.end(l.run(l.at, l.s.Flow))
		}
		return
	}
	base := l.base()
	n := note{table: base.table, chain: base.chain, line: base.chain.Line, text: "policy " + base.chain.Policy}
	switch base.chain.Policy {
	case "ACCEPT":
		if base.chain.Base.Kind == Filtering {
			l.notes = append(l.notes, n)
		}
		l.nextStation()
	case "DROP":
		l.notes = append(l.notes, n)
		l.finish(l.result(l.s, Drop))
	default:
		n.text, n.why = "", "the chain's policy is not in the input"
		l.missing(n)
	}
}

// base is the base chain that the packet is in.
func (l *leg) base() station { return l.hooks.stations[l.s.Hook][l.s.station] }

func (l *leg) nextStation() {
	l.at = frame{}
	l.s.station++
}

// ruleStep evaluates the rule's matches from the present expression up to its
// next action.
func (l *leg) ruleStep(r *Rule) {
	do := l.at.expr
	holds, p, why := True, 1.0, ""
	for ; do < len(r.Exprs) && r.Exprs[do].Do == nil; do++ {
		if random, ok := r.Exprs[do].Match.(Random); ok {
			p *= random.P
			continue
		}
		switch r.Exprs[do].Match.Eval(l.s) {
		case False:
			l.nextRule()
			return
		case Unknown:
			if holds == True {
				holds, why = Unknown, r.Exprs[do].Match.Why(l.s)
			}
		}
	}
	here := l.at
	here.expr = do
	switch {
	case p <= 0, holds == Unknown && r.inertFrom(do):
		l.nextRule()
	case holds == Unknown:
		matched := l.run(here, l.s.Flow)
		l.nextRule()
		not := l.run(l.at, l.s.Flow)
		if p < 1 {
			matched = append(scaled(matched, p), scaled(not, 1-p)...)
		}
		l.work -= len(matched) + len(not)
		l.end(l.worlds(matched, not, note{table: here.table, chain: here.chain, rule: r, why: why, unknown: true}))
	case p < 1:
		l.gather(l.run(here, l.s.Flow), p)
		l.share *= 1 - p
		l.nextRule()
		l.carryOn()
	default:
		l.at = here
		l.act(r)
	}
}

func scaled(rs []result, p float64) []result {
	out := append([]result(nil), rs...)
	for i := range out {
		out[i].p *= p
	}
	return out
}

func (l *leg) nextRule() { l.at.rule, l.at.expr = l.at.rule+1, 0 }

// act carries out the rule's actions from the present expression on, up to its
// next match.
func (l *leg) act(r *Rule) {
	if !actedBefore(r, l.at.expr) && !omits(r, l.at.expr) {
		l.notes = append(l.notes, note{table: l.at.table, chain: l.at.chain, rule: r})
	}
	for l.at.expr < len(r.Exprs) {
		do := r.Exprs[l.at.expr].Do
		if do == nil {
			return // another match: go on with this rule
		}
		if !l.carryOut(do, r) {
			return
		}
		l.at.expr++
	}
	l.nextRule()
}

// omits says whether the rule stands for rules that are not in the input.
func omits(r *Rule, expr int) bool {
	if expr >= len(r.Exprs) {
		return false
	}
	_, ok := r.Exprs[expr].Do.(Omitted)
	return ok
}

func actedBefore(r *Rule, expr int) bool {
	for _, e := range r.Exprs[:expr] {
		if e.Do != nil {
			return true
		}
	}
	return false
}
