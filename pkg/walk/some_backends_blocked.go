package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// someBackendsBlocked: the client gets to some backends and not to others, so
// that it fails now and then: the hardest of these to see from outside. Where
// no client is named it is a warning, because nobody may ever be such a client.
var someBackendsBlocked = &Check{
	Code: diagnosis.SomeBackendsBlocked, Needs: needsOfPolicy, Applies: toPods,
	Run: func(p *Pass) {
		splits := p.splits()
		if len(splits) == 0 {
			return
		}
		s := splits[0]
		f := Finding{
			Severity: diagnosis.Warning,
			Title:    fmt.Sprintf("%s may reach %d of %d backends%s: it fails now and then", s.client.label, len(s.open), len(s.open)+len(s.shut), s.portText(p)),
			Expected: "the client admitted by every backend, or by none",
			Found:    fmt.Sprintf("refused by %s, admitted by %s", join(backendNames(s.shut), 3), join(backendNames(s.open), 3)),
			Fixes:    p.admit(s.shut, directions...),
		}
		if n := splitClients(splits); n > 1 {
			f.Found = fmt.Sprintf("%s; so it is for %d kinds of client", f.Found, n)
		}
		if p.Client.Kind != AnyPod {
			f.Severity = diagnosis.Error
			f.Fixes = p.admit(allShut(splits), directions...)
		}
		for _, d := range directions {
			if shut := deniedBy(s.shut, d); len(shut) > 0 {
				f.Evidence = append(f.Evidence, p.denialEvidence(shut, d)...)
			}
		}
		f.Evidence = append(f.Evidence, p.openEvidence(s.open[0])...)
		p.Report(f)
	},
}

// split is a client that gets to some backends of a port and not to others.
type split struct {
	client     *policyClient
	port       policyPort
	open, shut []*policyFlow
}

func (s split) portText(p *Pass) string { return p.faultPorts([]policyFault{{port: s.port}}) }

func (p *Pass) splits() []split {
	p.policyFlows()
	var out []split
	for _, c := range p.policy.clients {
		if r := reachOf(c.flows); r.allowed == 0 || r.denied == 0 {
			continue
		}
		for _, port := range p.policyPorts() {
			flows := onPort(c.flows, port)
			s := split{c, port, withVerdict(flows, netpol.Allowed), withVerdict(flows, netpol.Denied)}
			if len(s.open) > 0 && len(s.shut) > 0 {
				out = append(out, s)
			}
		}
	}
	return out
}

func splitClients(ss []split) int {
	seen := map[*policyClient]bool{}
	for _, s := range ss {
		seen[s.client] = true
	}
	return len(seen)
}

func allShut(ss []split) []*policyFlow {
	var out []*policyFlow
	for _, s := range ss {
		out = append(out, s.shut...)
	}
	return out
}
