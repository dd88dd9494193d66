package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// consequence says what clients see, where something fails: by the outcomes on
// the examined nodes, or else by what kube-proxy does for such a Service. ""
// where neither tells.
func (p *Pass) consequence(ds []diagnosis.Diagnosis) string {
	failing := false
	for _, d := range ds {
		failing = failing || (d.Severity == diagnosis.Error && !d.Ignored)
	}
	if !failing {
		return ""
	}
	odds := map[string]float64{}
	n := 0.0
	for _, pr := range p.node.probes {
		if pr.hairpin || len(pr.outcomes) == 0 {
			continue
		}
		n++
		for _, o := range pr.outcomes {
			odds[pr.fate(o)] += o.Probability
		}
	}
	if n == 0 {
		return p.consequenceByObjects()
	}
	for _, fate := range []string{"refused", "times out", "passes unanswered", "cannot be told"} {
		switch part := odds[fate] / n; {
		case part > 0.9999:
			return fate + " for every client"
		case part > 0:
			return fmt.Sprintf("%s for %.0f%% of connections", fate, part*100)
		}
	}
	return ""
}

// fate is what the client of a probe sees of one outcome.
func (pr *probe) fate(o netfilter.Outcome) string {
	switch o.Verdict {
	case netfilter.Reject:
		return "refused"
	case netfilter.Drop:
		return "times out"
	case netfilter.Undecided:
		return "cannot be told"
	case netfilter.None, netfilter.Accept:
		return "passes unanswered"
	}
	for _, list := range [][]netfilter.Outcome{pr.stale, pr.unmasked} {
		for _, s := range list {
			if s.To == o.To {
				return "times out"
			}
		}
	}
	for _, s := range pr.wrongPort {
		if s.To == o.To {
			return "refused"
		}
	}
	return "answered"
}

// consequenceByObjects: kube-proxy rejects what has no usable endpoint.
func (p *Pass) consequenceByObjects() string {
	if p.Service == nil {
		return ""
	}
	fs := p.Frontends()
	if len(fs) == 0 {
		return ""
	}
	for _, f := range fs {
		if f.Kind == proxy.ClusterIP && proxy.Expect(p.Service, p.Slices(), proxy.Node{}, proxy.PodClient, f).Action != proxy.Reject {
			return ""
		}
	}
	return "refused for every client"
}
