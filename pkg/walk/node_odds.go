package walk

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// odds are how the chain by which kube-proxy balances one frontend shares new
// connections out, where that is not evenly.
type odds struct {
	draws []draw
	// fell is the share that the chain leaves to nobody: it sends some
	// connections to a backend, and lets these pass.
	fell float64
	// at is the rule that drew the first of draws.
	at netfilter.Step
}

// draw is one backend and its share.
type draw struct {
	to    netip.AddrPort
	share float64
	step  netfilter.Step
}

// uneven finds odds that nothing asks for; nil where they are even, or where
// that cannot be told: a rule could not be decided, a client is remembered by
// session affinity, or somebody else's rules choose too.
func (pr *probe) uneven() *odds {
	if pr.hairpin || len(pr.outcomes) < 2 || evenly(pr.outcomes) || pr.remembered() {
		return nil
	}
	var out odds
	for _, o := range pr.outcomes {
		switch {
		case o.Verdict == netfilter.Undecided:
			return nil
		case o.Rewritten:
			step, ok := balancing(o)
			if !ok {
				return nil
			}
			out.add(o, step)
		case o.Verdict == netfilter.None || o.Verdict == netfilter.Accept || nftUnknownPort(o):
			out.fell += o.Probability
		}
	}
	if len(out.draws) == 0 || out.fell < rounding && out.even() {
		return nil
	}
	slices.SortFunc(out.draws, func(a, b draw) int { return a.to.Compare(b.to) })
	out.at = out.draws[0].step
	return &out
}

// rounding is what the kernel's 31 bits and kube-proxy's ten decimals may make
// of a probability (kube-proxy wrote five decimals at first).
const rounding = 1e-5

// evenly is the usual case, told at a glance: every outcome is another backend,
// each with the same share.
func evenly(os []netfilter.Outcome) bool {
	want := 1 / float64(len(os))
	for i := range os {
		if os[i].Verdict != netfilter.DNAT || !near(os[i].Probability, want, len(os)) {
			return false
		}
		if i > 0 && os[i].To == os[i-1].To {
			return false
		}
	}
	return true
}

// near says whether a share is what it ought to be as far as n rounded
// probabilities, one after another, allow.
func near(got, want float64, n int) bool {
	return math.Abs(got-want) <= want*(0.01+float64(n)*rounding)
}

func (x *odds) add(o netfilter.Outcome, step netfilter.Step) {
	for i := range x.draws {
		if x.draws[i].to == o.To {
			x.draws[i].share += o.Probability
			return
		}
	}
	x.draws = append(x.draws, draw{o.To, o.Probability, step})
}

// even compares the backends that are drawn with each other. What drops some
// packets before or after, drops every backend's alike.
func (x *odds) even() bool {
	sum := 0.0
	for _, d := range x.draws {
		sum += d.share
	}
	mean := sum / float64(len(x.draws))
	return !slices.ContainsFunc(x.draws, func(d draw) bool { return !near(d.share, mean, len(x.draws)) })
}

// fallsThrough says whether some connections are sent to a backend and others
// are left as they came, by the same chain.
func (pr *probe) fallsThrough() bool {
	if len(pr.untouched) == 0 {
		return false
	}
	x := pr.uneven()
	return x != nil && x.fell >= rounding
}

// remembered says whether the client is in one of the sets in which kube-proxy
// in nftables mode keeps who drew which backend: its odds are none then.
func (pr *probe) remembered() bool {
	for _, o := range pr.outcomes {
		for _, s := range o.Steps {
			if s.Table == kubeProxyTable && strings.Contains(s.Text, "saddr @affinity-") {
				return true
			}
		}
	}
	return false
}

// balancing is the rule by which kube-proxy drew an outcome's backend. It
// stands in KUBE-SVC- or KUBE-SVL- (KUBE-XLB- up to 1.23), and in nftables mode
// in service- or local-.
func balancing(o netfilter.Outcome) (netfilter.Step, bool) {
	for _, s := range slices.Backward(o.Steps) {
		switch {
		case s.Table == "nat" && balances(s.Chain) && strings.Contains(s.Text, "KUBE-SEP-"):
			return s, true
		case s.Table == kubeProxyTable && balances(s.Chain) && (strings.Contains(s.Text, "dnat ") || strings.Contains(s.Text, "endpoint-")):
			return s, true
		}
	}
	return netfilter.Step{}, false
}

// balances says whether a chain bears a name of those that balance.
func balances(chain string) bool {
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-XLB-", "service-", "local-"} {
		if strings.HasPrefix(chain, prefix) {
			return true
		}
	}
	return false
}

// chainOf is the chain that a step stands in.
func (v *nodeView) chainOf(s netfilter.Step, v6 bool) (netfilter.Chain, bool) {
	for _, c := range v.rules.OnlyFamily(familyOf(v6)).Chains(s.Table, s.Chain) {
		if c.Source == s.Source {
			return c, true
		}
	}
	return netfilter.Chain{}, false
}

// evidence quotes the rules that make the odds what they are: those of the
// chain whose probability does not fit their place, or else those of the
// backends that get too much or too little.
func (x *odds) evidence(pr *probe) []diagnosis.Evidence {
	const most = 4
	var out []diagnosis.Evidence
	chain, ok := pr.view.chainOf(x.at, pr.frontend.V6)
	if ok && x.at.Table == "nat" {
		for _, r := range misplaced(chain) {
			if len(out) < most {
				out = append(out, ruleEvidence(pr.view, netfilter.Step{Source: chain.Source, Table: chain.Table, Chain: chain.Name, Line: r.Line, Text: r.Text}))
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, d := range x.extremes() {
		if e := ruleEvidence(pr.view, d.step); !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// misplaced are the rules whose probability is not one in as many as are left:
// with n rules the first has 1/n, the last none.
func misplaced(c netfilter.Chain) []netfilter.Rule {
	var drawing []netfilter.Rule
	for r := range c.Rules() {
		if strings.HasPrefix(r.Jump, "KUBE-SEP-") && !recalls(r) {
			drawing = append(drawing, r)
		}
	}
	var out []netfilter.Rule
	for i, r := range drawing {
		left := len(drawing) - i
		if want := 1 / float64(left); math.Abs(probability(r)-want) > rounding {
			out = append(out, r)
		}
	}
	return out
}

// probability is how often a rule of a balancing chain is taken.
func probability(r netfilter.Rule) float64 {
	for _, e := range r.Exprs {
		if random, ok := e.Match.(netfilter.Random); ok {
			return random.P
		}
	}
	return 1
}

// recalls says whether a rule is for clients that session affinity remembers.
func recalls(r netfilter.Rule) bool {
	return slices.ContainsFunc(r.Exprs, func(e netfilter.Expr) bool {
		_, ok := e.Match.(netfilter.Recalled)
		return ok
	})
}

// extremes are the backends with the largest and the smallest share.
func (x *odds) extremes() []draw {
	most, least := x.draws[0], x.draws[0]
	for _, d := range x.draws[1:] {
		if d.share > most.share {
			most = d
		}
		if d.share < least.share {
			least = d
		}
	}
	return []draw{most, least}
}

// text says who gets what: "10.244.1.5:8080 67%, 10.244.2.6:8080 33%".
func (x *odds) text() string {
	var out []string
	for _, d := range x.draws {
		out = append(out, d.to.String()+" "+percent(d.share))
	}
	text := listed(out)
	if x.fell >= rounding {
		text += ", nobody " + percent(x.fell)
	}
	return text
}

func percent(share float64) string {
	if share > 0 && share < 0.01 {
		return fmt.Sprintf("%.2g%%", share*100)
	}
	return fmt.Sprintf("%.0f%%", share*100)
}
