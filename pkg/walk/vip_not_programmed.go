package walk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// vipNotProgrammed: the packet passes every rule of the node as it came. It
// leaves hookMissing what that explains.
var vipNotProgrammed = &Check{
	Code: diagnosis.VIPNotProgrammed, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		for _, f := range p.faults((*probe).unprogrammed) {
			pr := f.first()
			title := "%s knows nothing of %s: the packet passes its rules untouched"
			if deadEnd(pr.untouched[0]).Line > 0 {
				title = "%s has a rule for %s, and nothing behind it rewrites the packet"
			}
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    fmt.Sprintf(title, f.view.label(), frontendText(pr.frontend, pr.dst)),
				Expected: pr.wantText(),
				Found:    "no rule rewrites " + f.affected(),
				Evidence: append(f.view.silence(pr), p.backendsEvidence(pr.expect.Backends)...),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			})
		}
	},
}

// unprogrammed says whether the packet passes untouched, and no other check has
// a better word for it: a hook, odds that leave some out, an outside address of a
// Service that is served inside.
func (pr *probe) unprogrammed() bool {
	return len(pr.untouched) > 0 && pr.hookFault() == nil && !pr.fallsThrough() && !pr.outsideOnly()
}

// silence is the evidence that rules say nothing of a packet: the chain that
// ought to name it, how many rules that has, and what rule, if any, took the
// packet out of the way.
func (v *nodeView) silence(pr *probe) []diagnosis.Evidence {
	if s := deadEnd(pr.untouched[0]); s.Line > 0 {
		return []diagnosis.Evidence{ruleEvidence(v, s)}
	}
	if v.cilium != nil {
		return []diagnosis.Evidence{v.noCiliumFrontend(pr)}
	}
	if v.inIPVS() {
		return []diagnosis.Evidence{v.noServer(proxy.VirtualServer{Frontend: pr.frontend, Addr: pr.dst})}
	}
	var out []diagnosis.Evidence
	rules := v.rules.OnlyFamily(familyOf(pr.frontend.V6))
	names := v.proxyChains()
	chain, ok := rules.Chain(names.table, names.services)
	e := diagnosis.Evidence{Source: v.rulesName(pr.frontend.V6) + " of " + v.label(), Ref: names.table + " " + names.services}
	if ok {
		e.Source, e.Line = chain.Source+" of "+v.label(), chain.Line
		e.Quote = fmt.Sprintf(":%s (%d rules, none for %s)", names.services, chain.NumRules, pr.dst)
		e.Command = showBase(v, chain)
	} else {
		e.Quote = fmt.Sprintf("no chain %s in table %s", names.services, names.table)
		e.Command = v.grepRules(names.services, pr.frontend.V6)
	}
	out = append(out, e)
	for _, o := range pr.untouched {
		// A rule that lets it pass is worth a look; the way out is not.
		if last := lastStep(o); last.Line > 0 && o.Verdict == netfilter.Accept && !isPolicy(last) && !strings.Contains(last.Chain, "POSTROUTING") {
			out = append(out, ruleEvidence(v, last))
		}
	}
	return out
}

// deadEnd is the last rule by which an untouched packet went into one of
// kube-proxy's chains for a Service, whose rules are gone; the zero Step where
// it went into none.
func deadEnd(o netfilter.Outcome) netfilter.Step {
	for _, s := range slices.Backward(o.Steps) {
		for _, chain := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-"} {
			if s.Table == "nat" && strings.Contains(s.Text, "-j "+chain) {
				return s
			}
		}
	}
	return netfilter.Step{}
}

// rulesName names the node's text of a family, for evidence of what is not in it.
func (v *nodeView) rulesName(v6 bool) string {
	for _, t := range v.rules.Tables() {
		if t.Family == familyOf(v6) && t.Source != "" {
			return t.Source
		}
	}
	if v6 {
		return "ip6tables-save"
	}
	return "iptables-save"
}

func (v *nodeView) onNodeCommand(cmd string) string {
	if v.name == "" {
		return cmd
	}
	if strings.ContainsAny(cmd, "\"$`\\!") {
		return "ssh " + sshHost(v.name) + " " + shellQuote(cmd)
	}
	return "ssh " + sshHost(v.name) + " \"" + cmd + "\""
}

// sshHost is a node's name as a word that ssh takes for a host and for nothing
// else.
func sshHost(name string) string {
	if strings.HasPrefix(name, "-") {
		return "NODE"
	}
	return shellQuote(name)
}

// isPolicy says whether a step is a chain's policy and not a rule.
func isPolicy(s netfilter.Step) bool {
	return len(s.Text) > 7 && s.Text[:7] == "policy "
}

// hookFault says what keeps an untouched packet from kube-proxy's chains where
// these know the frontend: a hook that never jumps to them, or a rule that
// takes the packet first. nil where neither is so.
func (pr *probe) hookFault() *hookFault {
	if pr.view.cilium != nil {
		return nil
	}
	hook := netfilter.Prerouting
	if pr.caller.kind == proxy.NodeClient {
		hook = netfilter.Output
	}
	c := pr.view.proxyChains()
	return pr.view.hookFault(familyOf(pr.frontend.V6), c.hooks[hook], c.services, pr.untouched)
}
