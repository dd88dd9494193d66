package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// someBackendsBlocked: the client gets to some backends and not to others, so
// that it fails now and then: the hardest of these to see from outside.
var someBackendsBlocked = &Check{
	Code: diagnosis.SomeBackendsBlocked, Needs: needsOfPolicy, Applies: toPods,
	Explains: []diagnosis.Code{diagnosis.IngressBlocked, diagnosis.EgressBlocked},
	Run: func(p *Pass) {
		for _, c := range p.clientsOfFlows() {
			open, shut := p.splitFlows(c)
			if len(open) == 0 || len(shut) == 0 {
				continue
			}
			d := netpol.Ingress
			if !shut[0].denied(d) {
				d = netpol.Egress
			}
			f := policyFault{flows: shut, named: p.Client.Kind != AnyPod}
			severity := diagnosis.Warning
			if f.named {
				severity = diagnosis.Error
			}
			p.Report(Finding{
				Severity: severity,
				Title:    fmt.Sprintf("%s may reach %d of %d backends: it fails now and then", c.label, len(open), len(open)+len(shut)),
				Expected: "the client admitted by every backend, or by none",
				Found:    fmt.Sprintf("refused by %s, admitted by %s", backendLabels(shut), backendLabels(open)),
				Evidence: p.denialEvidence(f, d),
				Fixes:    p.admit(f, d),
			})
			return
		}
	},
}

// clientsOfFlows are the clients that were judged, in order.
func (p *Pass) clientsOfFlows() []policyClient {
	p.policyFlows()
	return p.policy.clients
}

// splitFlows sorts a client's flows on the first port on which they differ.
func (p *Pass) splitFlows(c policyClient) (open, shut []policyFlow) {
	for _, port := range p.policyPorts() {
		open, shut = nil, nil
		for _, f := range p.policyFlows() {
			if f.client.label != c.label || f.backend.servicePort != port.port || f.backend.protocol != port.protocol {
				continue
			}
			switch f.decision.Verdict {
			case netpol.Allowed:
				open = append(open, f)
			case netpol.Denied:
				shut = append(shut, f)
			}
		}
		if len(open) > 0 && len(shut) > 0 {
			return open, shut
		}
	}
	return nil, nil
}

func backendLabels(fs []policyFlow) string {
	var names []string
	for _, f := range fs {
		names = append(names, f.backend.label())
	}
	return join(names, 3)
}
