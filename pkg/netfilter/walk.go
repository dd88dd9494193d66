package netfilter

import (
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
	mostNested = 10000
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
	w := rs.walker(host, p)
	defer rs.walkers.Put(w)
	switch {
	case !p.Dst.IsValid() || p.Src.IsValid() && p.Src.Is4() != p.Dst.Is4():
		return w.outcomes([]result{w.giveUp(&State{}, fmt.Sprintf("the packet from %s to %s is of no one address family", p.Src, p.Dst))})
	case !ok:
		return w.outcomes([]result{w.giveUp(&State{}, fmt.Sprintf("protocol %q is not known", p.Protocol))})
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
	return w.outcomes(w.run(frame{}, s.Flow))
}

// walker makes one, or takes one that has walked before.
func (rs *Ruleset) walker(host Host, p Packet) *walker {
	w, ok := rs.walkers.Get().(*walker)
	if !ok {
		w = &walker{}
	}
	w.rs, w.sets, w.host, w.packet, w.hooks = rs, rs.sets, host, p, nil
	w.depth, w.work = 0, mostWork
	w.memo.reset()
	w.trails.reset()
	w.results.reset()
	w.frameSlab.reset()
	if w.frames == nil || len(w.frames) > 1024 {
		w.frames = map[frame]*frame{}
	} else {
		clear(w.frames)
	}
	return w
}

type walker struct {
	rs     *Ruleset
	sets   Sets
	hooks  *hookTable
	host   Host
	packet Packet
	memo   memo
	frames map[frame]*frame
	depth  int
	work   int

	idle      []*leg // that may be used again
	trails    slab[trail]
	results   slab[result]
	frameSlab slab[frame]
	same      map[sameResult]int // of merge
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
	return &State{Flow: f, Packet: w.packet, Host: w.host, Sets: w.sets, Virtual: w.rs.virtual}
}

// intern gives the one pointer to a frame.
func (w *walker) intern(f frame) *frame {
	if p, ok := w.frames[f]; ok {
		return p
	}
	kept := &w.frameSlab.take(1)[0]
	*kept = f
	w.frames[f] = kept
	return kept
}

// run walks from a place to the end and gives all results from there; their
// probabilities sum to 1.
func (w *walker) run(at frame, f Flow) []result {
	key := memoKey{at, f}
	if rs, ok := w.memo.get(&key); ok {
		return rs
	}
	if w.depth >= mostNested {
		return []result{w.giveUp(w.state(f), "too many undecided rules inside each other")}
	}
	w.work -= runWork
	w.depth++
	l := w.leg(at, f, 1)
	for !l.done {
		l.step()
	}
	w.depth--
	l.results = w.merge(l.results)
	rs := w.results.take(len(l.results))
	copy(rs, l.results)
	w.leave(l)
	w.memo.put(&key, rs)
	return rs
}

// leg begins a leg of the walk, with what an earlier one left.
func (w *walker) leg(at frame, f Flow, share float64) *leg {
	var l *leg
	if n := len(w.idle); n > 0 {
		l, w.idle = w.idle[n-1], w.idle[:n-1]
	} else {
		l = &leg{walker: w}
	}
	l.own = State{Flow: f, Packet: w.packet, Host: w.host, Sets: w.sets, Virtual: w.rs.virtual}
	l.s, l.at, l.share, l.done = &l.own, at, share, false
	l.notes, l.results = l.notes[:0], l.results[:0]
	return l
}

// leave is the end of a leg whose results have been taken.
func (w *walker) leave(l *leg) { w.idle = append(w.idle, l) }

func (w *walker) giveUp(s *State, why string) result {
	return result{p: 1, verdict: Undecided, hook: s.Hook, mark: s.Mark, trail: w.before1(note{why: why, unknown: true}, nil)}
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
