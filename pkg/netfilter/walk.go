package netfilter

import (
	"cmp"
	"fmt"
	"net/netip"
)

// Bounds of one walk. The kernel refuses rulesets that loop; a text may hold
// one all the same.
const (
	// mostWork bounds the rules evaluated, and the results handled; a way that
	// is run by itself counts for as much as runWork rules.
	mostWork = 8 << 20
	runWork  = 64
	// mostNested bounds undecided and random rules that are met inside each
	// other.
	mostNested = 20000
	// mostJumps bounds jumps inside each other, with the gotos between them.
	mostJumps = 512
)

// Walk carries the packet through the ruleset as the kernel does, and gives
// every way in which it may end. The probabilities sum to 1; likelier
// outcomes come first, then by destination, then by verdict.
//
// The packet is the first of a new connection, of a client that has no
// history (no entry of -m recent), with mark 0.
//
// Verdicts. DNAT: its destination was rewritten and it got through. Drop and
// Reject: by a rule or a policy, To telling what the destination was by then.
// Accept: it got through with its destination as it was, and a rule accepted
// it in a filter chain or rewrote its source. None: it got through and no rule
// spoke of it.
//
// An undecidable match is followed both ways. Where both ways end alike the
// outcome stands, and the rule is only listed in Unknowns; where they differ
// in nothing but the rewriting of the source, Masquerade is Unknown; else the
// outcome is Undecided.
//
// A table that was not in the input is not taken for empty. Without a nat
// table every outcome that hangs on the destination is Undecided. Without a
// filter table a DNAT stands, with an Undecidable of Table "filter" in its
// Unknowns; a packet that merely passes is Undecided.
func Walk(rs *Ruleset, host Host, p Packet) []Outcome {
	p.Src, p.Dst = p.Src.Unmap().WithZone(""), p.Dst.Unmap().WithZone("")
	proto, ok := p.Protocol.Number()
	w := &walker{rs: rs, sets: rs.sets, host: host, packet: p, memo: map[memoKey][]result{}, frames: map[frame]*frame{}, work: mostWork}
	switch {
	case !p.Dst.IsValid() || p.Src.IsValid() && p.Src.Is4() != p.Dst.Is4():
		return outcomes([]result{w.giveUp(&State{}, fmt.Sprintf("the packet from %s to %s is of no one address family", p.Src, p.Dst))})
	case !ok:
		return outcomes([]result{w.giveUp(&State{}, fmt.Sprintf("protocol %q is not known", p.Protocol))})
	}
	w.hooks = rs.hookTable(FamilyOf(p.Dst))
	s := w.state(Flow{
		Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, DstPort: p.DstPort, Protocol: proto,
		Hook: Prerouting, In: p.In,
	})
	if p.LocalProcess {
		s.Hook, s.In = Output, ""
		s.Out = s.routeTo()
	}
	return outcomes(w.run(frame{}, s.Flow))
}

type walker struct {
	rs     *Ruleset
	sets   Sets
	hooks  *hookTable
	host   Host
	packet Packet
	memo   map[memoKey][]result
	frames map[frame]*frame
	depth  int
	work   int
}

// frame is a place in the rules: before expression expr of a rule. A frame
// without a chain is between base chains.
type frame struct {
	table *Table
	chain *ChainDef
	rule  int
	expr  int
	// ret is where a RETURN goes; nil is the policy of the base chain. Equal
	// frames that are returned to are the same pointer.
	ret *frame
	// via is where a goto came from, nil after a jump.
	via   *frame
	jumps int // jumps and gotos that led here
}

type memoKey struct {
	frame
	Flow
}

func (w *walker) state(f Flow) *State {
	return &State{Flow: f, Packet: w.packet, Host: w.host, Sets: w.sets}
}

// intern gives the one pointer to a frame.
func (w *walker) intern(f frame) *frame {
	if p, ok := w.frames[f]; ok {
		return p
	}
	w.frames[f] = &f
	return &f
}

// run walks from a place to the end and gives all results from there; their
// probabilities sum to 1.
func (w *walker) run(at frame, f Flow) []result {
	key := memoKey{at, f}
	if rs, ok := w.memo[key]; ok {
		return rs
	}
	s := w.state(f)
	if w.depth >= mostNested {
		return []result{w.giveUp(s, "too many undecided rules inside each other")}
	}
	w.work -= runWork
	w.depth++
	l := leg{walker: w, s: s, at: at, share: 1}
	for !l.done {
		l.step()
	}
	w.depth--
	rs := merge(l.results)
	w.memo[key] = rs
	return rs
}

// leg is a walk from one place on, as long as there is one way to go. Where
// there are several, others are run and their results gathered; random rules
// leave a share of the probability to go on with.
type leg struct {
	*walker
	s       *State
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
	for _, r := range rs {
		r.p *= part * l.share
		r.trail = before(l.notes, r.trail)
		l.results = append(l.results, r)
	}
}

// end gathers the last results of the leg.
func (l *leg) end(rs []result) {
	l.gather(rs, 1)
	l.done = true
}

func (l *leg) finish(r result) { l.end([]result{r}) }

// carryOn continues with what is left of the probability at the present place,
// by what is known from there already if anything is.
func (l *leg) carryOn() {
	if rs, ok := l.memo[memoKey{l.at, l.s.Flow}]; ok {
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
		l.end(worlds(matched, not, note{table: here.table, chain: here.chain, rule: r, why: why, unknown: true}))
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
	if !actedBefore(r, l.at.expr) {
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

func actedBefore(r *Rule, expr int) bool {
	for _, e := range r.Exprs[:expr] {
		if e.Do != nil {
			return true
		}
	}
	return false
}

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
	for _, c := range choices {
		one := leg{walker: l.walker, s: l.state(l.s.Flow), at: l.at, share: c.P}
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
		all = append(all, one.results...)
	}
	l.end(all)
	return false
}

// nat rewrites the packet; of several rewrites each is followed.
func (l *leg) nat(a Action, r *Rule) {
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

func (w *walker) giveUp(s *State, why string) result {
	return result{p: 1, verdict: Undecided, hook: s.Hook, mark: s.Mark, trail: &trail{note: note{why: why, unknown: true}}}
}

// result is the packet's end as it is now.
func (w *walker) result(s *State, v Verdict) result {
	r := result{p: 1, verdict: v, rewritten: s.dnat, masq: s.Masquerade(), mark: s.Mark, hook: s.Hook}
	if v == Drop || v == Reject {
		r.masq = False // it does not leave
	}
	if !s.DstPortUnknown {
		r.to = netip.AddrPortFrom(s.Dst, s.DstPort)
	}
	return r
}
