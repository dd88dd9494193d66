package netfilter

import (
	"net/netip"
	"slices"
)

// result is an outcome in the making.
type result struct {
	p          float64
	verdict    Verdict
	to         netip.AddrPort
	rewritten  bool
	masq       Tri
	mark       uint32
	rejectWith string
	hook       Hook
	trail      *trail
}

// tiny is a probability below which a difference is one of rounding.
const tiny = 1e-12

// sameness is how alike two results must be to count as the same outcome.
type sameness uint8

const (
	// alike: verdict, destination, masquerade.
	alike sameness = iota
	// exceptSource: all but whether the source is rewritten.
	exceptSource
	// sameEnd: both dropped, or both rejected in the same way, whatever their
	// destination had become by then.
	sameEnd
)

type likeness struct {
	verdict    Verdict
	to         netip.AddrPort
	masq       Tri
	rejectWith string
}

// like is what two results have in common when they are as alike as s asks.
// A packet that passes passes, whether a rule accepted it or none spoke of it.
func (r *result) like(s sameness) (likeness, bool) {
	l := likeness{r.verdict, r.to, r.masq, r.rejectWith}
	if l.verdict == None {
		l.verdict = Accept
	}
	if s >= exceptSource {
		l.masq = Unknown
	}
	if s == sameEnd {
		l.to, l.masq = netip.AddrPort{}, False
		return l, r.verdict == Drop || r.verdict == Reject
	}
	return l, r.verdict != Undecided
}

// worlds compares what happens if an undecidable rule matches with what
// happens if it doesn't. What both agree on is certain, with the probability
// that it has at least; the rest is one Undecided result. u says what could
// not be decided.
func (w *walker) worlds(matched, not []result, u note) []result {
	a, b := append([]result(nil), matched...), append([]result(nil), not...)
	var out []result
	for _, s := range []sameness{alike, exceptSource, sameEnd} {
		out = append(out, w.agreed(a, b, s, u)...)
	}
	if rest, ok := w.disagreed(slices.Concat(a, b), u); ok {
		out = append(out, rest)
	}
	return out
}

// agreed takes out of a and b the probability that they share, and gives the
// results that are certain for it.
func (w *walker) agreed(a, b []result, s sameness, u note) []result {
	places := make(map[likeness][]int, len(b))
	for i := range b {
		if l, ok := b[i].like(s); ok && b[i].p > tiny {
			places[l] = append(places[l], i)
		}
	}
	var out []result
	for i := range a {
		l, ok := a[i].like(s)
		if !ok {
			continue
		}
		for _, j := range places[l] {
			p := min(a[i].p, b[j].p)
			if p <= tiny {
				continue
			}
			r := b[j]
			r.p, r.to, r.masq = p, l.to, l.masq
			r.rewritten = a[i].rewritten && b[j].rewritten
			if a[i].verdict == None {
				r.verdict = None
			}
			r.trail = w.before1(u, r.trail)
			out = append(out, r)
			a[i].p, b[j].p = a[i].p-p, b[j].p-p
		}
	}
	return out
}

// disagreed makes one Undecided result of what is left of both worlds.
func (w *walker) disagreed(left []result, u note) (result, bool) {
	out := result{verdict: Undecided}
	first := true
	reasons := []note{u}
	for i := range left {
		r := &left[i]
		if r.p <= tiny {
			continue
		}
		out.p += r.p / 2 // each world has the same probability left
		if first {
			out.to, out.masq, out.mark, out.hook, out.rewritten = r.to, r.masq, r.mark, r.hook, r.rewritten
			first = false
		}
		if r.to != out.to {
			out.to, out.rewritten = netip.AddrPort{}, false
		}
		if r.masq != out.masq {
			out.masq = Unknown
		}
		if r.verdict == Undecided {
			reasons = addReasons(reasons, r.trail)
		}
	}
	out.trail = w.before(reasons, nil)
	return out, !first
}

// mostReasons bounds the undecidable rules that one outcome lists.
const mostReasons = 32

func addReasons(reasons []note, t *trail) []note {
	for ; t != nil && len(reasons) < mostReasons; t = t.next {
		if !t.unknown {
			continue
		}
		dup := false
		for _, r := range reasons {
			dup = dup || r == t.note
		}
		if !dup {
			reasons = append(reasons, t.note)
		}
	}
	return reasons
}

// sameResult is what equal results have in common.
type sameResult struct {
	likeness
	verdict Verdict
	hook    Hook
}

func (r *result) same() sameResult {
	l, _ := r.like(alike)
	k := sameResult{l, r.verdict, r.hook}
	if r.verdict == Undecided {
		k.hook = ""
	}
	return k
}

// fewResults is a number up to which each is compared with all others.
const fewResults = 12

// merge adds up equal results, in place.
func (w *walker) merge(rs []result) []result {
	if len(rs) < 2 {
		return rs
	}
	many := len(rs) > fewResults
	if many && (w.same == nil || len(w.same) > 1024) {
		w.same = make(map[sameResult]int, len(rs))
	} else if many {
		clear(w.same)
	}
	out := rs[:0]
	for j := range rs {
		r := rs[j]
		i, ok := 0, false
		if many {
			k := r.same()
			if i, ok = w.same[k]; !ok {
				w.same[k] = len(out)
			}
		} else {
			i, ok = find(out, &r)
		}
		if !ok {
			out = append(out, r)
			continue
		}
		p := out[i].p + r.p
		if r.p > out[i].p {
			r.trail, out[i] = w.union(r.trail, out[i].trail), r
		} else {
			out[i].trail = w.union(out[i].trail, r.trail)
		}
		out[i].p = p
	}
	return out
}

func find(rs []result, r *result) (int, bool) {
	for i := range rs {
		if o := &rs[i]; o.to == r.to && o.verdict == r.verdict && o.same() == r.same() {
			return i, true
		}
	}
	return 0, false
}
