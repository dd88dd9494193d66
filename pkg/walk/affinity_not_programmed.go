package walk

import (
	"fmt"
	"time"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// affinityNotProgrammed: the Service asks to keep a client at the backend that
// it drew, and the node's rules do not, or not for as long; or they do, and
// nobody asks.
var affinityNotProgrammed = &Check{
	Code: diagnosis.AffinityNotProgrammed, Needs: []snapshot.Resource{snapshot.EndpointSlices}, Applies: onNodes,
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return p.affinityFault(pr) != nil }) {
			if p.justChanged(f.view) {
				continue // kube-proxy may be about to follow
			}
			finding := p.affinityFault(f.first())
			finding.Subject = p.onNode(f.view)
			finding.Found += ", for " + f.affected()
			finding.Evidence = append(finding.Evidence, f.view.frozenProxy()...)
			finding.Fixes = []Proposal{p.restartProxy(f.view)}
			p.Report(*finding)
		}
	},
}

// affinityFault compares what the Service asks with what the rules do; nil where
// they agree, or where that cannot be told.
func (p *Pass) affinityFault(pr *probe) *Finding {
	a, ok := pr.affinity()
	if !ok {
		return nil
	}
	want, front := wantedAffinity(p.Service), frontendText(pr.frontend, pr.dst)
	field := p.serviceField(".spec.sessionAffinity", string(p.Service.Spec.SessionAffinity))
	expected := fmt.Sprintf("a client kept at the backend that it drew, for %s", lengthText(want))
	node := pr.view.label()
	switch {
	case want == 0 && len(a.kept) > 0:
		if field.Quote == "" {
			field.Quote = "None"
		}
		return &Finding{
			Title:    fmt.Sprintf("%s keeps clients of %s at one backend for %s, and sessionAffinity is None", node, front, lengthText(a.kept[0].timeout)),
			Expected: "every new connection drawn anew",
			Found:    fmt.Sprintf("rules that remember clients of %d of %s", len(a.kept), count(len(a.drawn), "backend")),
			Evidence: append(stepsEvidence(pr.view, a.keepingRules(func(keeping) bool { return true })), field),
		}
	case want == 0:
		return nil
	case len(a.kept) == 0:
		return &Finding{
			Title:    fmt.Sprintf("%s does not keep clients of %s at their backend, and sessionAffinity ClientIP asks for it", node, front),
			Expected: expected,
			Found:    "no rule that remembers a client and sends it back",
			Evidence: append(stepsEvidence(pr.view, a.forgetful()), field),
		}
	case len(a.kept) < len(a.drawn):
		return &Finding{
			Title:    fmt.Sprintf("%s keeps clients of %s at %d of %d backends only", node, front, len(a.kept), len(a.drawn)),
			Expected: expected,
			Found:    fmt.Sprintf("rules that remember clients of %d of %s", len(a.kept), count(len(a.drawn), "backend")),
			Evidence: append(stepsEvidence(pr.view, a.forgetful()), field),
		}
	}
	other := a.keepingRules(func(k keeping) bool { return k.timeout != want })
	if len(other) == 0 {
		return nil
	}
	got := time.Duration(0)
	for _, k := range a.kept {
		if k.timeout != want {
			got = k.timeout
		}
	}
	return &Finding{
		Title:    fmt.Sprintf("%s keeps clients of %s at their backend for %s, where the Service asks for %s", node, front, lengthText(got), lengthText(want)),
		Expected: expected,
		Found:    fmt.Sprintf("%s in the rules of %d of %s", lengthText(got), len(other), count(len(a.drawn), "backend")),
		Evidence: append(stepsEvidence(pr.view, other), p.serviceField(".spec.sessionAffinityConfig.clientIP.timeoutSeconds", fmt.Sprint(int(want/time.Second)))),
	}
}

// keepingRules are the rules that ask for the clients of such backends.
func (a *affinity) keepingRules(which func(keeping) bool) []netfilter.Step {
	var out []netfilter.Step
	for _, k := range a.kept {
		if which(k) {
			out = append(out, k.ask)
		}
	}
	return out
}

// forgetful are the rules that draw the backends whose clients are not kept.
func (a *affinity) forgetful() []netfilter.Step {
	var out []netfilter.Step
	for _, d := range a.drawn {
		kept := false
		for _, k := range a.kept {
			kept = kept || k.to == d.to
		}
		if !kept {
			out = append(out, d.step)
		}
	}
	return out
}

// stepsEvidence quotes the first few of rules, each once.
func stepsEvidence(v *nodeView, steps []netfilter.Step) []diagnosis.Evidence {
	const most = 3
	var out []diagnosis.Evidence
	seen := map[netfilter.Step]bool{}
	for _, s := range steps {
		if !seen[s] && len(out) < most {
			seen[s] = true
			out = append(out, ruleEvidence(v, s))
		}
	}
	return out
}

// lengthText is a time as the Service's field has it: seconds.
func lengthText(d time.Duration) string {
	if d == 0 {
		return "ever"
	}
	return fmt.Sprintf("%d seconds", int(d/time.Second))
}
