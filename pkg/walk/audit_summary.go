package walk

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// status is how a probe of an audit came out.
func (pr *probe) status() diagnosis.Status {
	switch {
	case pr.fault():
		return diagnosis.Fail
	case len(pr.undecided) > 0 || len(pr.unfiltered) > 0:
		return diagnosis.Unknown
	case pr.uneven() != nil:
		return diagnosis.Warn
	}
	return diagnosis.OK
}

// summary says in a few words where a packet goes: "10 backends, 10% each".
func (pr *probe) summary() string {
	var backends []netfilter.Outcome
	var parts []string
	for _, o := range pr.outcomes {
		if o.Verdict == netfilter.DNAT {
			backends = append(backends, o)
		}
	}
	for _, e := range pr.ends() {
		parts = append(parts, e.text+shareOf(e.share))
	}
	if len(backends) > 0 {
		parts = append(parts, backendsText(backends))
	}
	if len(pr.unfiltered) > 0 {
		parts = append(parts, "table filter not read")
	}
	return strings.Join(parts, ", ")
}

// shareOf is a share as it stands behind a word; nothing for all.
func shareOf(p float64) string {
	if p > 1-rounding {
		return ""
	}
	return " " + percent(p)
}

// backendsText counts backends, with what each of them gets.
func backendsText(os []netfilter.Outcome) string {
	least, most := 1.0, 0.0
	for _, o := range os {
		least, most = min(least, o.Probability), max(most, o.Probability)
	}
	switch {
	case len(os) == 1 && most > 1-rounding:
		return "1 backend"
	case len(os) == 1:
		return "1 backend " + percent(most)
	case near(least, most, len(os)) || math.Round(least*100) == math.Round(most*100):
		return fmt.Sprintf("%d backends, %s each", len(os), percent(most))
	}
	return fmt.Sprintf("%d backends, %s to %s each", len(os), percent(least), percent(most))
}

// ending is one way, other than to a backend, in which packets end.
type ending struct {
	text  string
	share float64
}

// ends are the ways in which packets do not come to a backend, with the share
// of each, in the order of the outcomes.
func (pr *probe) ends() []ending {
	var out []ending
	for _, o := range pr.outcomes {
		if o.Verdict == netfilter.DNAT {
			continue
		}
		text := pr.end(o)
		i := slices.IndexFunc(out, func(e ending) bool { return e.text == text })
		if i < 0 {
			out = append(out, ending{text: text})
			i = len(out) - 1
		}
		out[i].share += o.Probability
	}
	return out
}

func (pr *probe) end(o netfilter.Outcome) string {
	word := strings.ToUpper(string(o.Verdict))
	switch {
	case o.Verdict == netfilter.Undecided:
		return "unknown: " + undecidedWhy(o)
	case o.Verdict == netfilter.None || o.Verdict == netfilter.Accept || nftUnknownPort(o):
		if deadEnd(o).Line > 0 || len(pr.outcomes) > 1 {
			return "falls through"
		}
		return "no rule for it"
	case saysEmpty(o):
		if o.Verdict == netfilter.Drop {
			return word + " no local endpoints"
		}
		return word + " no endpoints"
	case forSourcesOnly(o):
		return word + " outside its source ranges"
	}
	last := lastStep(o)
	return strings.TrimSpace(word + " " + strings.TrimSpace(last.Table+" "+last.Chain))
}

func undecidedWhy(o netfilter.Outcome) string {
	if len(o.Unknowns) == 0 {
		return "not every rule could be decided"
	}
	u := o.Unknowns[0]
	if u.Chain != "" && !strings.Contains(u.Why, u.Chain) && !strings.HasPrefix(u.Why, "chain ") {
		return u.Chain + ": " + u.Why
	}
	return u.Why
}
