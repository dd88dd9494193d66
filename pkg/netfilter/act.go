package netfilter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// carryOut does one action; false when it went elsewhere.
func (l *leg) carryOut(a Action, r *Rule) bool {
	s := l.s
	if alter(a, s) {
		return true
	}
	switch a := a.(type) {
	case Accepted:
		s.spoken = s.spoken || l.base().chain.Base.Kind == Filtering
		l.nextStation()
	case Dropped:
		l.finish(l.result(s, Drop))
	case Rejected:
		res := l.result(s, Reject)
		res.rejectWith = cmp.Or(a.With, l.defaultReject())
		l.finish(res)
	case Returned:
		l.ret()
	case JumpTo:
		l.jump(a, r)
	case Choose:
		return l.choose(a.By, r)
	case Omitted:
		l.doubt(note{table: l.at.table, chain: l.at.chain, rule: r, why: a.Why})
		return true
	case Opaque:
		l.undecided(note{table: l.at.table, chain: l.at.chain, rule: r, why: a.Why})
	default:
		l.nat(a, r)
	}
	return false
}

// defaultReject is what REJECT sends where the rule doesn't say.
func (w *walker) defaultReject() string {
	if w.packet.Dst.Is6() {
		return "icmp6-port-unreachable"
	}
	return "icmp-port-unreachable"
}

// alter does the actions that change marks and the like; false for any other.
func alter(a Action, s *State) bool {
	switch a := a.(type) {
	case Noted:
	case SetMark:
		s.Mark = s.Mark&^a.Clear ^ a.Xor
	case SetConnMark:
		if s.Tracked() {
			s.ConnMark = s.ConnMark&^a.Clear ^ a.Xor
		}
	case SaveMark:
		if s.Tracked() {
			s.ConnMark = s.ConnMark&^a.CTMask ^ s.Mark&a.NFMask
		}
	case RestoreMark:
		if s.Tracked() {
			s.Mark = s.Mark&^a.NFMask ^ s.ConnMark&a.CTMask
		}
	case Untrack:
		if !s.tracked {
			s.untracked = true
		}
	case Remember:
		if e := recentEntry(a.List); !(Recalled{List: a.List}).holds(s) {
			s.recents += e
		}
	default:
		return false
	}
	return true
}

func (m Recalled) holds(s *State) bool { return m.Eval(s) == True }

// jump enters another chain of the table.
func (l *leg) jump(a JumpTo, r *Rule) {
	here := note{table: l.at.table, chain: l.at.chain, rule: r}
	to := l.at.table.chain(a.Chain)
	if to == nil {
		here.why = fmt.Sprintf("chain %s is not in the input", a.Chain)
		l.missing(here)
		return
	}
	switch {
	case l.entered(to):
		here.why = fmt.Sprintf("the jump to %s is a loop, which the kernel would refuse", a.Chain)
	case l.at.jumps >= mostJumps:
		here.why = fmt.Sprintf("more than %d jumps lead into each other", mostJumps)
	}
	if here.why != "" {
		l.undecided(here)
		return
	}
	next := frame{table: l.at.table, chain: to, jumps: l.at.jumps + 1}
	if a.Goto {
		next.ret, next.via = l.at.ret, l.intern(l.at)
	} else {
		back := l.at
		back.rule, back.expr = back.rule+1, 0
		next.ret = l.intern(back)
	}
	l.at = next
}

// entered says whether the packet is inside the chain already.
func (l *leg) entered(to *ChainDef) bool {
	for f := &l.at; f != nil; f = f.ret {
		for g := f; g != nil; g = g.via {
			if g.chain == to {
				return true
			}
		}
	}
	return false
}

// choose follows each of a Chooser's choices; true to go on with the rule.
func (l *leg) choose(by Chooser, r *Rule) bool {
	choices := by.Choices(l.s)
	if len(choices) == 1 && choices[0].Why == "" {
		switch c := choices[0]; {
		case c.Skip:
			l.nextRule()
			return false
		case c.Do == nil:
			return true
		default:
			return l.carryOut(c.Do, r)
		}
	}
	var all []result
	left := 1.0
	for i, c := range choices {
		if c.Maybe != "" {
			// What the choices before leave is shared by those that may be.
			rest := l.either(choices[i:], r)
			for k := range rest {
				rest[k].p *= left
			}
			all = append(all, rest...)
			break
		}
		left -= c.P
		all = append(all, l.chosen(c, c.P, r)...)
	}
	l.end(all)
	return false
}

// chosen follows one choice to its end.
func (l *leg) chosen(c Choice, share float64, r *Rule) []result {
	one := l.leg(l.at, l.s.Flow, share)
	switch {
	case c.Why != "":
		one.undecided(note{table: l.at.table, chain: l.at.chain, rule: r, why: c.Why})
	case c.Skip:
		one.nextRule()
	case c.Do == nil || one.carryOut(c.Do, r):
		one.at.expr++
	}
	if !one.done {
		one.end(l.run(one.at, one.s.Flow))
	}
	rs := l.walker.results.take(len(one.results))
	copy(rs, one.results)
	l.leave(one)
	return rs
}

// either follows choices of which it isn't known which is taken, and keeps
// what they agree on.
func (l *leg) either(choices []Choice, r *Rule) []result {
	var all []result
	for i, c := range slices.Backward(choices) {
		one := l.chosen(c, 1, r)
		if i == len(choices)-1 {
			all = one
			continue
		}
		l.work -= len(one) + len(all)
		all = l.worlds(one, all, note{table: l.at.table, chain: l.at.chain, rule: r, why: c.Maybe, unknown: true})
	}
	return all
}

// nat rewrites the packet; of several rewrites each is followed.
func (l *leg) nat(a Action, r *Rule) {
	if d, ok := a.(DestinationNAT); ok && l.natOne(d.To) {
		return
	}
	choices, why, ok := applyNAT(a, l.s, l.base().chain.Base.Kind)
	if !ok {
		why = fmt.Sprintf("what %T does is not known", a)
	}
	if why != "" {
		l.undecided(note{table: l.at.table, chain: l.at.chain, rule: r, why: why})
		return
	}
	if len(choices) == 1 {
		l.s.Flow = choices[0].flow
		l.nextStation()
		return
	}
	for _, c := range choices {
		c.flow.station++
		l.gather(l.run(frame{}, c.flow), c.p)
	}
	l.done = true
}

// missing is where rules are that were not read. In a nat chain after routing
// they can only have rewritten the source; anywhere else they may do anything.
func (l *leg) missing(n note) {
	source := l.s.Hook == Postrouting || l.s.Hook == Input
	if l.base().chain.Base.Kind != NAT || !source {
		l.undecided(n)
		return
	}
	n.unknown = true
	l.notes = append(l.notes, n)
	l.s.srcMaybe = true
	l.nextStation()
}

// doubt lists what was not read, and goes on as though it held nothing.
func (l *leg) doubt(n note) {
	n.unknown = true
	l.notes = append(l.notes, n)
	l.s.doubt = true
}

// undecided ends the leg at something that can't be told.
func (l *leg) undecided(n note) {
	n.unknown = true
	l.notes = append(l.notes, n)
	r := l.result(l.s, Undecided)
	if !l.s.dstBound {
		r.to, r.rewritten = netip.AddrPort{}, false // a NAT rule may follow
	}
	r.masq = Unknown
	l.finish(r)
}
