package cli

import (
	"fmt"

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

// noteExcerpt tells what an excerpt would do, were kube-proxy's usual jumps to
// it there: rules that grep found, or the listing of one chain, show none. It
// is a note and no outcome, as the jumps are not in the input.
func (a *app) noteExcerpt(rules *netfilter.Ruleset, h netfilter.Host, p netfilter.Packet) {
	hooked := rules
	for _, j := range usualJumps {
		hooked = hooked.Hooked(j.table, j.hook, j.chains...)
	}
	for _, o := range netfilter.Walk(hooked, h, p) {
		if o.Verdict == netfilter.Undecided || o.Verdict == netfilter.None {
			continue
		}
		by := ""
		for _, s := range o.Steps {
			if s.Line > 0 {
				by = fmt.Sprintf(", by line %d of %s", s.Line, s.Source)
			}
		}
		a.note("the rules are an excerpt. With kube-proxy's usual jumps to its chains, which are not in it: %s %s, %.0f%%%s", o.Verdict, o.To, 100*o.Probability, by)
	}
}
