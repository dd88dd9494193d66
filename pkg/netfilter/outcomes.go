package netfilter

import (
	"cmp"
	"net/netip"
	"slices"
)

// outcomes turns results into Outcomes, in their order.
func (w *walker) outcomes(rs []result) []Outcome {
	rs = w.merge(slices.Clone(rs))
	sum := 0.0
	for i := range rs {
		sum += rs[i].p
	}
	out := make([]Outcome, 0, len(rs))
	for i := range rs {
		out = append(out, rs[i].outcome(sum))
	}
	slices.SortStableFunc(out, func(a, b Outcome) int {
		return cmp.Or(
			cmp.Compare(b.Probability, a.Probability),
			compareTo(a.To, b.To),
			cmp.Compare(a.Verdict, b.Verdict),
			cmp.Compare(a.RejectWith, b.RejectWith),
			cmp.Compare(a.Masquerade, b.Masquerade),
			cmp.Compare(a.Hook, b.Hook),
		)
	})
	return out
}

func compareTo(a, b netip.AddrPort) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Port(), b.Port()))
}

// outcome rounds off the error that the many products of probabilities leave.
func (r *result) outcome(sum float64) Outcome {
	o := Outcome{
		Verdict: r.verdict, To: r.to, Rewritten: r.rewritten, Probability: r.p / sum,
		Masquerade: r.masq, Mark: r.mark, RejectWith: r.rejectWith, Hook: r.hook,
	}
	steps, unknowns := 0, 0
	for t := r.trail; t != nil; t = t.next {
		if t.unknown {
			unknowns++
		} else {
			steps++
		}
	}
	if steps > 0 {
		o.Steps = make([]Step, 0, steps)
	}
	var seen map[note]bool
	if unknowns > 0 {
		seen = make(map[note]bool, unknowns)
	}
	for t := r.trail; t != nil; t = t.next {
		switch {
		case !t.unknown:
			o.Steps = append(o.Steps, t.step())
		case !seen[t.note]:
			seen[t.note] = true
			o.Unknowns = append(o.Unknowns, Undecidable{Step: t.step(), Why: t.why})
		}
	}
	return o
}
