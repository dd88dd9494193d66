package walk

import (
	"slices"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// usualJumps are the jumps that kube-proxy and kubelet keep in the kernel's own
// chains, in their order.
var usualJumps = []struct {
	table  string
	hook   netfilter.Hook
	chains []string
}{
	{"nat", netfilter.Prerouting, []string{"KUBE-SERVICES", "KUBE-PORTALS-CONTAINER", "KUBE-NODEPORTS"}},
	{"nat", netfilter.Output, []string{"KUBE-SERVICES", "KUBE-PORTALS-HOST", "KUBE-NODEPORTS"}},
	{"nat", netfilter.Postrouting, []string{"KUBE-POSTROUTING"}},
	{"filter", netfilter.Input, []string{"KUBE-FIREWALL", "KUBE-EXTERNAL-SERVICES"}},
	{"filter", netfilter.Forward, []string{"KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"}},
	{"filter", netfilter.Output, []string{"KUBE-FIREWALL", "KUBE-SERVICES"}},
}

// UsuallyHooked is a ruleset with kube-proxy's usual jumps to its chains where
// the input doesn't show the chains that they stand in: rules that grep found,
// or the listing of one chain, show none.
func UsuallyHooked(rules *netfilter.Ruleset) *netfilter.Ruleset {
	for _, j := range usualJumps {
		rules = rules.Hooked(j.table, j.hook, j.chains...)
	}
	return rules
}

// assume says what would become of a packet whose end hangs on what an excerpt
// doesn't show, were kube-proxy's usual jumps there. It is told beside the
// outcomes, and none of them: the jumps are not in the input.
func (p *Pass) assume(v *auditView, pr *probe) {
	if v.hooked == nil || len(pr.undecided) == 0 {
		return
	}
	would := *pr
	would.outcomes = netfilter.Walk(v.hooked, v.host, pr.packet())
	if !slices.ContainsFunc(would.outcomes, func(o netfilter.Outcome) bool {
		return o.Verdict == netfilter.Undecided || o.Verdict == netfilter.None
	}) {
		would.unfiltered = nil
		if p.auditOf.assumed == nil {
			p.auditOf.assumed = map[*probe]string{}
		}
		p.auditOf.assumed[pr] = "were it hooked as usual: " + would.summary()
	}
}
