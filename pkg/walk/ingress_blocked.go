package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// ingressBlocked: the backend is isolated for ingress and no rule admits the
// client on the pod's port. Where no client was named and some are admitted,
// that others are refused is told as an info: it is what the policy is for.
var ingressBlocked = &Check{
	Code: diagnosis.IngressBlocked, Needs: needsOfPolicy, Applies: toPods,
	Run: func(p *Pass) {
		if !p.reportBlocked(netpol.Ingress) {
			p.reportRefused()
		}
	},
}

// reportBlocked raises the running check's code for the ports on which the
// direction keeps the client, or everybody, out. Those that a near miss explains
// are left to it, unless there is no other.
func (p *Pass) reportBlocked(d netpol.Direction) bool {
	var all, own []policyFault
	for _, f := range p.policyFaults() {
		if f.direction != d || f.partial {
			continue // of the partial ones VIP410 tells
		}
		all = append(all, f)
		if !p.missed(f) {
			own = append(own, f)
		}
	}
	if len(own) == 0 {
		own = all
	}
	if len(own) == 0 {
		return false
	}
	flows := allFlows(own)
	first := flows[0]
	p.Report(Finding{
		Title:    fmt.Sprintf("%s is blocked from %s%s by %s policy: %s", p.who(own), p.Service.Name, p.faultPorts(own), directionText(d), policyNames(flows, d)),
		Expected: fmt.Sprintf("a rule that admits %s to %s", first.client.label, first.backend.label()),
		Found:    fmt.Sprintf("no %s rule of %s matches", directionText(d), policyNames(flows, d)),
		Evidence: p.denialEvidence(flows, d),
		Fixes:    p.admit(flows, d),
	})
	return true
}

// reportRefused tells, where no client is named, that some are refused. Where
// VIP410 was raised it has said more.
func (p *Pass) reportRefused() {
	if p.Client.Kind != AnyPod || p.Raised(diagnosis.SomeBackendsBlocked) {
		return
	}
	var refused []*policyFlow
	var admitted []string
	for _, c := range p.policy.clients {
		r := reachOf(c.flows)
		if r.allowed > 0 {
			admitted = append(admitted, c.label)
		}
		if shut := deniedBy(c.flows, netpol.Ingress); r.allowed == 0 && len(shut) == r.all {
			refused = append(refused, shut...)
		}
	}
	if len(refused) == 0 {
		return
	}
	names := clientNames(refused)
	found := "admitted: " + join(admitted, 3)
	if len(admitted) == 0 {
		found = "admitted: none of the pods that were read"
	}
	p.Report(Finding{
		Severity: diagnosis.Info,
		Title: fmt.Sprintf("%d of %d kinds of client are refused, as policies are for: %s", len(names), len(p.policy.clients),
			policyNames(refused, netpol.Ingress)),
		Expected: "whom the policies are meant to admit is for you to say",
		Found:    found + "; refused: " + join(names, 3),
		Evidence: slices.Concat(p.policiesEvidence(refused, netpol.Ingress), p.openEvidence(p.firstOpen())),
		Fixes:    []Proposal{p.decideClients()},
	})
}

// firstOpen is a flow that is admitted, nil if none is.
func (p *Pass) firstOpen() *policyFlow {
	for _, f := range p.policy.flows {
		if f.is(netpol.Allowed) {
			return f
		}
	}
	return nil
}
