package walk

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// path is a probe as the report shows it.
func (p *Pass) path(pr *probe) diagnosis.Path {
	out := diagnosis.Path{
		Node: pr.view.name, Client: pr.caller.label, Frontend: frontendText(pr.frontend, pr.dst),
		Outcomes: []diagnosis.Outcome{},
	}
	for _, o := range pr.outcomes {
		out.Outcomes = append(out.Outcomes, p.outcome(o))
	}
	return out
}

func (p *Pass) outcome(o netfilter.Outcome) diagnosis.Outcome {
	d := ReportOutcome(o)
	if o.To.IsValid() && o.Rewritten {
		d.Endpoint = p.endpointName(o.To.Addr())
	}
	return d
}

// ReportOutcome is an outcome of a packet's walk as reports have it.
func ReportOutcome(o netfilter.Outcome) diagnosis.Outcome {
	d := diagnosis.Outcome{
		Verdict: string(o.Verdict), Probability: o.Probability,
		Masquerade: o.Masquerade == netfilter.True, Rules: []diagnosis.Rule{},
		MasqueradeUnknown: o.Verdict == netfilter.DNAT && o.Masquerade == netfilter.Unknown,
	}
	if o.To.IsValid() {
		d.To = o.To.String()
	}
	for _, s := range o.Steps {
		d.Rules = append(d.Rules, reportRule(s))
	}
	for _, u := range o.Unknowns {
		d.Unknowns = append(d.Unknowns, diagnosis.UnknownRule{Rule: reportRule(u.Step), Why: u.Why})
	}
	return d
}

func reportRule(s netfilter.Step) diagnosis.Rule {
	return diagnosis.Rule{Source: s.Source, Table: s.Table, Chain: s.Chain, Line: s.Line, Text: s.Text}
}

// endpointName is pod/NAMESPACE/NAME of what has the address; "" where nothing
// that was read has it, or several do.
func (p *Pass) endpointName(a netip.Addr) string {
	for _, e := range p.serviceEndpoints() {
		if e.Addr == a && e.Pod != nil {
			return "pod/" + e.Pod.Namespace + "/" + e.Pod.Name
		}
	}
	if pods := p.podsByIP[a]; len(pods) == 1 {
		return "pod/" + pods[0].Namespace + "/" + pods[0].Name
	}
	return ""
}

// frontendText is how a report names a frontend: 10.96.0.10:53/UDP.
func frontendText(f proxy.Frontend, dst netip.AddrPort) string {
	if f.Kind == proxy.NodePort && (!dst.IsValid() || dst.Addr() == nodeStandIn4 || dst.Addr() == nodeStandIn6) {
		return fmt.Sprintf(":%d/%s", f.Port, f.Protocol)
	}
	return fmt.Sprintf("%s/%s", dst, strings.ToUpper(string(f.Protocol)))
}
