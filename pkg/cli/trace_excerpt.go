package cli

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// noteExcerpt tells what an excerpt would do, were kube-proxy's usual jumps to
// it there: rules that grep found, or the listing of one chain, show none. It
// is a note and no outcome, as the jumps are not in the input.
func (a *app) noteExcerpt(rules *netfilter.Ruleset, h netfilter.Host, p netfilter.Packet) {
	for _, o := range netfilter.Walk(walk.UsuallyHooked(rules), h, p) {
		if o.Verdict == netfilter.Undecided || o.Verdict == netfilter.None {
			continue
		}
		by := ""
		for _, s := range o.Steps {
			if s.Line > 0 {
				by = fmt.Sprintf(", by line %d of %s", s.Line, s.Source)
			}
		}
		a.note("the rules are an excerpt. With kube-proxy's usual jumps to its chains, which are not in it: %s %s, %.0f%%%s", o.Verdict, o.To, 100*o.Probability, by)
	}
}
