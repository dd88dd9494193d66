package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// consequence says what clients see, where something fails: by the outcomes on
// the examined nodes, or else by the policies, or by what kube-proxy does for
// such a Service. "" where none of these tells.
func (p *Pass) consequence(ds []diagnosis.Diagnosis) string {
	failing := false
	for _, d := range ds {
		// Without objects it is no fault of the node's, and clients see it all the same.
		failing = failing || !d.Ignored && (d.Severity == diagnosis.Error || p.Service == nil && d.Code == diagnosis.RejectedAsEmpty)
	}
	if !failing {
		return ""
	}
	if s, walked := p.consequenceByNodes(); s != "" {
		return s
	} else if s := p.consequenceByPolicy(ds); s != "" {
		return s
	} else if !walked {
		return p.consequenceByObjects()
	}
	return ""
}

// consequenceByNodes names the fate of every client that does not get through,
// or of all alike. walked is false where no packet was.
func (p *Pass) consequenceByNodes() (text string, walked bool) {
	who := map[string][]string{} // by fate and share, the clients
	var order []string
	whole := map[string]int{}
	n := 0
	for _, pr := range p.node.probes {
		if pr.hairpin || len(pr.outcomes) == 0 {
			continue
		}
		n++
		odds := map[string]float64{}
		for _, o := range pr.outcomes {
			odds[pr.fate(o)] += o.Probability
		}
		for _, fate := range fates {
			text := fate
			switch odds := odds[fate]; {
			case odds > 0.9999:
				whole[fate]++
			case odds > 0.0001:
				text = fmt.Sprintf("%s for %.0f%% of connections", fate, odds*100)
			default:
				continue
			}
			if c := p.probeClient(pr); !slices.Contains(who[text], c) {
				who[text] = append(who[text], c)
			}
			if !slices.Contains(order, text) {
				order = append(order, text)
			}
		}
	}
	for _, fate := range fates {
		if n > 0 && whole[fate] == n {
			if p.Client.Kind != AnyPod {
				return fate + " for " + p.Client.String(), true
			}
			return fate + " for every client", true
		}
	}
	var parts []string
	for _, text := range order {
		parts = append(parts, text+" from "+join(who[text], 3))
	}
	return join(parts, 2), n > 0
}

// fates are the ends that are worth telling, the gravest first.
var fates = []string{"refused", "times out", "goes unanswered", "reaches something else", "cannot be told"}

// probeClient names a probe's client, and the node where that does not say it.
func (p *Pass) probeClient(pr *probe) string {
	if pr.caller.kind == proxy.NodeClient || len(p.node.views) == 1 && len(p.snap.Objects.Nodes) <= 1 || pr.view.name == "" {
		return pr.caller.label
	}
	return pr.caller.label + " on " + pr.view.name
}

// fate is what the client of a probe sees of one outcome.
func (pr *probe) fate(o netfilter.Outcome) string {
	if slices.ContainsFunc(pr.captured, func(c netfilter.Outcome) bool { return c.To == o.To && c.Verdict == o.Verdict }) && o.Verdict != netfilter.Drop && o.Verdict != netfilter.Reject {
		return "reaches something else"
	}
	switch o.Verdict {
	case netfilter.Reject:
		return "refused"
	case netfilter.Drop:
		return "times out"
	case netfilter.Undecided:
		return "cannot be told"
	case netfilter.None, netfilter.Accept:
		return "goes unanswered"
	}
	sentTo := func(to netfilter.Outcome) bool { return to.To == o.To }
	switch {
	case slices.ContainsFunc(pr.stale, sentTo), slices.ContainsFunc(pr.stuck, sentTo), slices.ContainsFunc(pr.unmasked, sentTo):
		return "times out"
	case slices.ContainsFunc(pr.wrongPort, sentTo):
		return "refused"
	}
	return "answered"
}

// consequenceByPolicy: a packet that a policy refuses is dropped by the plugins
// that are known to enforce one, so that the client waits.
func (p *Pass) consequenceByPolicy(ds []diagnosis.Diagnosis) string {
	for _, d := range ds {
		if d.Severity != diagnosis.Error || d.Ignored {
			continue
		}
		switch {
		case d.Code == diagnosis.SomeBackendsBlocked:
			return "times out at some backends for " + p.Client.String()
		case d.Code != diagnosis.IngressBlocked && d.Code != diagnosis.EgressBlocked:
		case p.Client.Kind == AnyPod:
			return "times out for every client that was read"
		default:
			return "times out for " + p.Client.String()
		}
	}
	return ""
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
