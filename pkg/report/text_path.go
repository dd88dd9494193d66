package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// maxBackends is how many backends of a path text lists one by one.
const maxBackends = 8

// drawing remembers which of a Service's paths are on the page.
type drawing map[*diagnosis.Path]bool

// pathFor picks the path that shows a diagnosis: one on its node, the one on
// which most is lost. Without a node only the Service's first diagnosis gets
// one.
func pathFor(s *diagnosis.Service, node string, first bool) *diagnosis.Path {
	if node == "" && !first {
		return nil
	}
	var best *diagnosis.Path
	for i := range s.Paths {
		path := &s.Paths[i]
		if node != "" && path.Node != node {
			continue
		}
		if best == nil || lost(path) > lost(best) {
			best = path
		}
	}
	return best
}

// lost is the share of a path's packets that do not reach a backend.
func lost(path *diagnosis.Path) float64 {
	var sum float64
	for _, o := range path.Outcomes {
		if o.Verdict != "dnat" && o.Verdict != "accept" {
			sum += o.Probability
		}
	}
	return sum
}

// healthyPath draws a path in one line: client > VIP > chain > backends.
func (p *printer) healthyPath(s *diagnosis.Service, drawn drawing) {
	path := pathFor(s, "", true)
	if path == nil || p.opts.ShowOK {
		return
	}
	drawn[path] = true
	const head = "  path  "
	from := Escape(path.Client) + " > " + Escape(path.Frontend)
	var chain string
	if trunk := commonChains(path.Outcomes); len(trunk) > 0 {
		chain = " > " + trunk[len(trunk)-1]
	}
	long, short := shares(path, "%d backends, %s each"), shares(path, "%d x %s")
	text := from + " > " + long // wrapped, if nothing fits
	for _, try := range []string{chain + " > " + long, chain + " > " + short, " > " + long, " > " + short} {
		if columns(from+try) <= p.width-len(head) {
			text = from + try
			break
		}
	}
	p.wrapped("  "+p.label.Sprint("path")+"  ", len(head), text)
}

// shares says in a few words where a path ends; equal is the format of a count
// of backends and the share that each of them gets.
func shares(path *diagnosis.Path, equal string) string {
	if len(path.Outcomes) == 1 {
		return ending(path.Outcomes[0])
	}
	even := len(path.Outcomes) > 0
	for _, o := range path.Outcomes {
		even = even && o.Verdict == "dnat" && percent(o.Probability) == percent(path.Outcomes[0].Probability)
	}
	if even {
		return fmt.Sprintf(equal, len(path.Outcomes), percent(path.Outcomes[0].Probability))
	}
	var parts []string
	for _, o := range path.Outcomes {
		parts = append(parts, percent(o.Probability)+" "+ending(o))
	}
	return strings.Join(parts, ", ")
}

// drawPath draws a path in full: the way that all packets share, then each
// outcome with its share.
func (p *printer) drawPath(s *diagnosis.Service, path *diagnosis.Path, drawn drawing) {
	drawn[path] = true
	parts := []string{Escape(path.Client), Escape(path.Frontend)}
	if path.Node != "" {
		parts[1] += " on " + Escape(path.Node)
	}
	parts = append(parts, commonChains(path.Outcomes)...)
	single := len(path.Outcomes) == 1
	if single {
		parts = append(parts, ending(path.Outcomes[0]))
	}
	p.row("path", strings.Join(parts, " > "))
	if single {
		p.decider(path.Outcomes[0], labelWidth+2)
	} else {
		p.branches(path.Outcomes)
	}
	if same := sameElsewhere(s, path, drawn); same != "" {
		p.row("", "the same on "+same)
	}
}

// branches lists the outcomes: what is lost first, then the backends.
func (p *printer) branches(outcomes []diagnosis.Outcome) {
	backends := 0
	for _, lostOnes := range []bool{true, false} {
		for _, o := range outcomes {
			if reachesBackend(o) == lostOnes {
				continue
			}
			if reachesBackend(o) {
				if backends++; backends > maxBackends && !p.opts.ShowOK {
					continue
				}
			}
			const indent = labelWidth + 7
			p.wrapped(fmt.Sprintf("%*s%5s  ", labelWidth, "", percent(o.Probability)), indent, ending(o))
			p.decider(o, indent)
		}
	}
	if more := backends - maxBackends; more > 0 && !p.opts.ShowOK {
		p.row("", fmt.Sprintf("       and %d more backends (--show-ok, or -o json)", more))
	}
}

func reachesBackend(o diagnosis.Outcome) bool { return o.Verdict == "dnat" || o.Verdict == "accept" }

// decider quotes the rule that ended a packet's way short of a backend, or the
// rules that could not be decided.
func (p *printer) decider(o diagnosis.Outcome, indent int) {
	quote := func(r diagnosis.Rule) {
		if r.Text != "" && r.Text != place(r) {
			p.line(strings.Repeat(" ", indent), p.quote.Sprint(Escape(r.Text)))
		}
	}
	switch o.Verdict {
	case "drop", "reject":
		if n := len(o.Rules); n > 0 {
			quote(o.Rules[n-1])
		}
	case "unknown":
		for _, u := range o.Unknowns {
			p.wrapped(strings.Repeat(" ", indent), indent, Escape(fmt.Sprintf("%s: %s", place(u.Rule), u.Why)))
			quote(u.Rule)
		}
	}
}

// ending says how a packet's way ends.
func ending(o diagnosis.Outcome) string {
	to := Escape(o.To)
	switch o.Verdict {
	case "dnat":
		if o.Endpoint != "" {
			to += " " + Escape(o.Endpoint)
		}
		if o.Masquerade {
			to += " (source rewritten)"
		}
		return to
	case "drop", "reject":
		text := strings.ToUpper(o.Verdict)
		if rewritten(o) {
			text += " after DNAT to " + to
		}
		if n := len(o.Rules); n > 0 {
			text += " by " + Escape(place(o.Rules[n-1]))
		}
		return text
	case "none":
		return "no rule takes it: passes untouched"
	case "accept":
		return strings.TrimRight("accepted as it is, to "+to, " ")
	}
	return "UNKNOWN"
}

// rewritten says whether a packet had been given another destination before it
// was lost: a rule that wrote one is among those it passed.
func rewritten(o diagnosis.Outcome) bool { return o.To != "" && slices.ContainsFunc(o.Rules, isDNAT) }

func isDNAT(r diagnosis.Rule) bool {
	return strings.Contains(r.Text, "DNAT") || strings.Contains(r.Text, "dnat to") || strings.Contains(r.Text, "dnat ip")
}

// place names a rule: KUBE-SERVICES (filter, line 41). What decides and is no
// rule (a sysctl, a route) stands in no table, and its text is its name.
func place(r diagnosis.Rule) string {
	if r.Table == "" && r.Chain == "" {
		return r.Text
	}
	at := r.Table
	if r.Line > 0 {
		at += fmt.Sprintf(", line %d", r.Line)
	}
	if r.Chain == "" {
		return at
	}
	return r.Chain + " (" + at + ")"
}

// commonChains are the chains that every outcome passes before the ways part,
// up to where the destination is rewritten. What follows DNAT concerns a packet
// only if it is lost there, and ending says so.
func commonChains(outcomes []diagnosis.Outcome) []string {
	if len(outcomes) == 0 {
		return nil
	}
	common := outcomes[0].Rules
	for _, o := range outcomes[1:] {
		n := 0
		for n < len(common) && n < len(o.Rules) && common[n] == o.Rules[n] {
			n++
		}
		common = common[:n]
	}
	if i := slices.IndexFunc(common, isDNAT); i >= 0 {
		return chains(common[:i])
	}
	// The chain in which the ways part belongs to all of them.
	if n := len(common); len(outcomes[0].Rules) > n && sameChainAt(outcomes, n) {
		common = outcomes[0].Rules[:n+1]
	}
	return chains(common)
}

func sameChainAt(outcomes []diagnosis.Outcome, n int) bool {
	for _, o := range outcomes {
		if len(o.Rules) <= n || o.Rules[n].Chain != outcomes[0].Rules[n].Chain || o.Rules[n].Table != outcomes[0].Rules[n].Table {
			return false
		}
	}
	return true
}

// chains lists the chains of some rules in order; a detour that returned to
// where it came from (a chain that only sets a mark) is left out.
func chains(rules []diagnosis.Rule) []string {
	var out []string
	for _, r := range rules {
		name := Escape(r.Chain)
		if name == "" {
			continue // the routing decision, or a sysctl
		}
		if i := slices.Index(out, name); i >= 0 {
			out = out[:i]
		}
		out = append(out, name)
	}
	return out
}

// otherPaths draws what has not been drawn yet.
func (p *printer) otherPaths(s *diagnosis.Service, drawn drawing) {
	for i := range s.Paths {
		if path := &s.Paths[i]; !drawn[path] {
			p.drawPath(s, path, drawn)
		}
	}
}

// sameElsewhere lists the other nodes that do the same with the same packet,
// and marks their paths as drawn.
func sameElsewhere(s *diagnosis.Service, path *diagnosis.Path, drawn drawing) string {
	var nodes []string
	for i := range s.Paths {
		q := &s.Paths[i]
		if q == path || drawn[q] || q.Client != path.Client || q.Frontend != path.Frontend || q.Node == path.Node || !sameOutcomes(q, path) {
			continue
		}
		drawn[q] = true
		nodes = append(nodes, Escape(q.Node))
	}
	if len(nodes) > 3 {
		return fmt.Sprintf("%s and %d other nodes", strings.Join(nodes[:2], ", "), len(nodes)-2)
	}
	return strings.Join(nodes, ", ")
}

func sameOutcomes(a, b *diagnosis.Path) bool {
	return slices.EqualFunc(a.Outcomes, b.Outcomes, func(x, y diagnosis.Outcome) bool {
		return x.Verdict == y.Verdict && x.To == y.To && x.Masquerade == y.Masquerade && percent(x.Probability) == percent(y.Probability)
	})
}

// percent is a probability as text. A small share is never shown as none.
func percent(p float64) string {
	switch v := p * 100; {
	case v <= 0:
		return "0%"
	case v < 0.1:
		return "<0.1%"
	case v < 1:
		return fmt.Sprintf("%.1f%%", v)
	default:
		return fmt.Sprintf("%.0f%%", v)
	}
}
