package walk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// vsConntrack is the switch without which iptables does not see what IPVS sends.
const vsConntrack = "net.ipv4.vs.conntrack"

// reportUnmaskedInIPVS is masqueradeMissing for a node in IPVS mode: packets are
// marked by set in nat KUBE-SERVICES, and masqueraded in KUBE-POSTROUTING if
// connection tracking sees what IPVS sends.
func (p *Pass) reportUnmaskedInIPVS(f nodeFault) {
	v, pr := f.view, f.first()
	finding := Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s does not masquerade packets of %s: answers may not come back through it", v.label(), outsiders(pr.caller.label)),
		Expected: "source rewritten to the node's address (marked in nat KUBE-SERVICES, rewritten in KUBE-POSTROUTING)",
		Found:    "source stays " + pr.caller.addr.String() + " on the way to " + listTo(pr.unmasked) + ", for " + f.affected(),
		Evidence: wayEvidence(v, pr.unmasked[0]),
		Fixes:    []Proposal{p.restartProxy(v)},
	}
	if value, read := v.host.Sysctl(vsConntrack); read && value == "0" {
		finding.Title = fmt.Sprintf("%s does not masquerade what IPVS sends, because %s is 0: answers to %s do not come back through it", v.label(), vsConntrack, outsiders(pr.caller.label))
		finding.Expected = vsConntrack + " = 1, as kube-proxy sets it"
		finding.Found = vsConntrack + " = 0, so that iptables never sees the connection; " + finding.Found
		finding.Evidence = append([]diagnosis.Evidence{v.sysctlEvidence(vsConntrack)}, finding.Evidence...)
		finding.Fixes = []Proposal{p.setSysctl(v, vsConntrack, "1", "0"), p.restartProxy(v)}
		p.Report(finding)
		return
	}
	finding.Evidence = append(finding.Evidence, v.markingRules(pr)...)
	finding.Evidence = append(finding.Evidence, v.masqueradeRules(pr)...)
	p.Report(finding)
}

// marksHookFault says what keeps a packet from the rules that mark it, in IPVS
// mode, where it finds its backend all the same; nil in other modes.
func (pr *probe) marksHookFault() *hookFault {
	if !pr.view.inIPVS() {
		return nil
	}
	hook, c := netfilter.Prerouting, pr.view.proxyChains()
	if pr.caller.kind == proxy.NodeClient {
		hook = netfilter.Output
	}
	return pr.view.hookFault(familyOf(pr.frontend.V6), c.hooks[hook], c.services, pr.unmasked)
}

// judgeMarks finds packets that are not masqueraded though they ought to be,
// where the configuration that tells was not read: they were marked for it, or
// nothing is left of the chain that marks.
func (pr *probe) judgeMarks() {
	if pr.expect.Action != proxy.Forward || pr.expect.Masquerade != proxy.MasqMaybe || pr.caller.kind == proxy.PodClient {
		return
	}
	chain, ok := pr.view.rules.OnlyFamily(familyOf(pr.frontend.V6)).Chain("nat", "KUBE-SERVICES")
	empty := ok && chain.Known && chain.NumRules == 0
	for _, o := range pr.outcomes {
		marked := slices.ContainsFunc(o.Steps, func(s netfilter.Step) bool { return s.Chain == "KUBE-MARK-MASQ" })
		if (empty || marked) && o.Verdict == netfilter.DNAT && o.Masquerade == netfilter.False && pr.view.host.Local(o.To.Addr()) != netfilter.True &&
			slices.ContainsFunc(pr.expect.Backends, func(b proxy.Backend) bool { return b.Addr == o.To }) {
			pr.unmasked = append(pr.unmasked, o)
		}
	}
}

// sysctlEvidence quotes a setting by its line.
func (v *nodeView) sysctlEvidence(name string) diagnosis.Evidence {
	value, _ := v.host.Sysctl(name)
	e := diagnosis.Evidence{Source: "sysctl of " + v.label(), Ref: name, Quote: name + " = " + value, Command: v.onNodeCommand("sysctl " + name)}
	for _, t := range v.state.All(snapshot.Sysctl) {
		n := 0
		for line := range strings.Lines(t.Content) {
			n++
			if key, _, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == name {
				e.Source, e.Line, e.Quote = textName(t)+" of "+v.label(), n, strings.TrimSpace(line)
				return e
			}
		}
	}
	return e
}

// setSysctl proposes to set a node's switch.
func (p *Pass) setSysctl(v *nodeView, name, to, from string) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "set " + name + " to " + to,
			Commands:    []string{v.onNodeCommand("sudo sysctl -w " + name + "=" + to)},
			BlastRadius: "every Service on " + v.label() + "; new connections only; until it starts anew, so find what set it, in /etc/sysctl.d/ or elsewhere",
			Undo:        []string{v.onNodeCommand("sudo sysctl -w " + name + "=" + from)},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// markingRules quotes the rules of nat KUBE-SERVICES that mark packets, or says
// that there are none.
func (v *nodeView) markingRules(pr *probe) []diagnosis.Evidence {
	chain, ok := v.rules.OnlyFamily(familyOf(pr.frontend.V6)).Chain("nat", "KUBE-SERVICES")
	if !ok {
		return []diagnosis.Evidence{{
			Source: v.rulesName(pr.frontend.V6) + " of " + v.label(), Ref: "nat KUBE-SERVICES", Quote: "no chain KUBE-SERVICES in table nat",
			Command: v.grepRules("KUBE-SERVICES", pr.frontend.V6),
		}}
	}
	var out []diagnosis.Evidence
	for r := range chain.Rules() {
		if r.Jump == "KUBE-MARK-MASQ" {
			out = append(out, ruleEvidence(v, netfilter.Step{Source: chain.Source, Table: chain.Table, Chain: chain.Name, Line: r.Line, Text: r.Text}))
		}
	}
	if len(out) == 0 {
		out = []diagnosis.Evidence{{
			Source: chain.Source + " of " + v.label(), Ref: "nat KUBE-SERVICES", Line: chain.Line,
			Quote: fmt.Sprintf(":KUBE-SERVICES (%d rules, none of which marks)", chain.NumRules), Command: showBase(v, chain),
		}}
	}
	return slices.Compact(out)
}
