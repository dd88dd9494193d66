package walk

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// droppedAfterDNAT: kube-proxy did its part, and another rule drops or rejects
// the packet, after the rewriting or before it: a FORWARD policy of DROP,
// docker's or firewalld's chains, a CNI's.
var droppedAfterDNAT = &Check{
	Code: diagnosis.DroppedAfterDNAT, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		for _, f := range byDrop(p.faults(func(pr *probe) bool { return len(pr.blocked) > 0 && !forwardingFault(pr.blocked) }), func(pr *probe) []netfilter.Outcome { return pr.blocked }) {
			pr := f.first()
			o := pr.blocked[0]
			last := lastStep(o)
			jump := f.view.forwardJump(pr)
			if len(jump) > 0 {
				o.Steps = o.Steps[:len(o.Steps)-1] // it quotes the policy too
			}
			when := "after kube-proxy rewrote it to " + listTo(pr.blocked)
			if !o.Rewritten {
				when = "before kube-proxy could rewrite it"
			}
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    fmt.Sprintf("%s %ss %s in %s%s, %s", f.view.label(), o.Verdict, share(pr.blocked), strings.TrimSpace(last.Table+" "+last.Chain), atLine(last), when),
				Expected: pr.wantText(),
				Found:    fmt.Sprintf("%s: %s; for %s", strings.TrimSpace(last.Table+" "+last.Chain), last.Text, f.affected()),
				Evidence: append(wayEvidence(f.view, o), jump...),
				Fixes:    p.unblock(f.view, pr, last),
			})
		}
	},
}

func atLine(s netfilter.Step) string {
	if s.Line == 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d)", s.Line)
}

// forwardJump is the evidence that FORWARD does not lead to KUBE-FORWARD, where
// a policy of FORWARD ended the packet: kube-proxy's rules there would let
// marked and established packets through.
func (v *nodeView) forwardJump(pr *probe) []diagnosis.Evidence {
	last := lastStep(pr.blocked[0])
	if last.Chain != "FORWARD" || !isPolicy(last) {
		return nil
	}
	rules := v.rules.OnlyFamily(familyOf(pr.frontend.V6))
	base, ok := rules.Chain("filter", "FORWARD")
	if !ok || !base.Known {
		return nil
	}
	if _, ok := base.Reach("KUBE-FORWARD"); ok {
		return nil
	}
	return []diagnosis.Evidence{{
		Source: base.Source + " of " + v.label(), Ref: "filter FORWARD", Line: base.Line,
		Quote:   fmt.Sprintf(":FORWARD %s, and none of its %d rules leads to KUBE-FORWARD", base.Policy, base.NumRules),
		Command: showBase(v, base),
	}}
}

// forwardingFault says whether the packets died because the node does not
// forward, which is forwardingOff's to tell.
func forwardingFault(os []netfilter.Outcome) bool {
	for _, o := range os {
		if last := lastStep(o); last.Table == "" {
			return true
		}
	}
	return false
}
