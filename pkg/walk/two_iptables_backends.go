package walk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// twoIptablesBackends: kube-proxy's rules stand in iptables-legacy and in
// iptables-nft alike, and the kernel runs both. One kube-proxy keeps one of
// them; the other is of before.
var twoIptablesBackends = &Check{
	Code: diagnosis.TwoIptablesBackends, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		p.probes()
		p.noteLegacyUnread()
		for _, v := range p.node.views {
			nft, legacy := v.backends()
			if nft == nil || legacy == nil {
				continue
			}
			p.reportBackends(v, nft, legacy)
		}
	},
}

func (p *Pass) reportBackends(v *nodeView, nft, legacy *dataplane) {
	found := fmt.Sprintf("KUBE-SERVICES with rules for Services in both, and the kernel runs both: %s", v.hintText())
	f := Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("kube-proxy's rules are in iptables-legacy and in iptables-nft on %s", v.label()),
		Expected: "kube-proxy's rules in one of them",
		Evidence: slices.Concat(nft.evidence, legacy.evidence, v.hints()),
		Fixes:    []Proposal{p.tellBackend(v), p.drainAndReboot(v)},
	}
	harm := p.contested(v, nft, legacy)
	if len(harm) == 0 {
		f.Title += "; for now they do no harm to this one"
		f.Found = found + "; what was asked about comes out right by either"
		p.Report(f)
		return
	}
	c := harm[0]
	f.Severity = diagnosis.Error
	f.Title += fmt.Sprintf(", and they disagree on %s", frontendText(c.pr.frontend, c.pr.dst))
	f.Found = found + "; " + c.text(nft, legacy)
	f.Evidence = append(f.Evidence, c.way(p)...)
	f.Explains = decidedByRules
	if p.Service != nil {
		f.Expected += "; " + c.pr.wantText()
	}
	switch {
	case p.Service != nil && !c.first.bad() && c.second.bad():
		f.Fixes = append(f.Fixes, p.filterOut(v, v.toolOf("legacy", c.pr.frontend.V6), "the rules of iptables-legacy, which are the wrong ones,"))
	case p.Service != nil && c.first.bad() && !c.second.bad():
		f.Fixes = append(f.Fixes, p.filterOut(v, v.toolOf("nft", c.pr.frontend.V6), "the rules of iptables-nft, which are the wrong ones,"))
	}
	p.Report(f)
}

// toolOf is the iptables of a backend and family.
func (v *nodeView) toolOf(backend string, v6 bool) string {
	if v6 {
		return "ip6tables-" + backend
	}
	return "iptables-" + backend
}

// backends are the two that hold kube-proxy's rules for Services, of one
// address family; nil for one that does not.
func (v *nodeView) backends() (nft, legacy *dataplane) {
	if !v.rivals.backendsDone {
		v.rivals.backendsDone = true
		for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
			l := v.backend("iptables-legacy", fam, func(t netfilter.TableInfo) bool { return t.Backend == netfilter.Legacy })
			n := v.backend("iptables-nft", fam, func(t netfilter.TableInfo) bool { return t.Backend != netfilter.Legacy })
			if l != nil && n != nil {
				v.rivals.legacy, v.rivals.nft = l, n
				break
			}
		}
	}
	return v.rivals.nft, v.rivals.legacy
}

// rivals are what a node has beside one dataplane in order, once looked for.
type rivals struct {
	backendsDone  bool
	nft, legacy   *dataplane
	leftoversDone bool
	leftovers     []*leftover
	lostDone      bool
	lostJumps     []netfilter.Step
	lostDrop      netfilter.Step
}

// backend is kube-proxy's part of one backend, nil where it has none. Chains
// that nothing leads to count too: they are what is found by name.
func (v *nodeView) backend(name string, fam netfilter.Family, is func(netfilter.TableInfo) bool) *dataplane {
	rules := v.rules.Only(func(t netfilter.TableInfo) bool { return t.Family == fam && is(t) })
	var evidence []diagnosis.Evidence
	for _, table := range []string{"nat", "filter"} {
		for _, c := range rules.Chains(table, "KUBE-SERVICES") {
			if hasServices(c) && len(evidence) == 0 {
				e := chainEvidence(v, c)
				// The text may be of both: the tool goes by the backend.
				tool := strings.Replace(name, "iptables", map[bool]string{true: "ip6tables", false: "iptables"}[fam == netfilter.IPv6], 1)
				e.Command = v.onNodeCommand(fmt.Sprintf("sudo %s-save -t %s | grep -e '-A KUBE-SERVICES ' -e ':KUBE-SERVICES '", tool, table))
				evidence = append(evidence, e)
			}
		}
	}
	if len(evidence) == 0 {
		return nil
	}
	return &dataplane{
		name: name, holds: is, evidence: evidence,
		leads: func(c netfilter.Chain, r netfilter.Rule) bool {
			return is(netfilter.TableInfo{Backend: c.Backend}) && slices.Contains(proxyJumps, r.Jump)
		},
	}
}

// hints are the chains by which the kubelet tells which backend the host uses:
// KUBE-IPTABLES-HINT (1.24), and before it the canary.
func (v *nodeView) hints() []diagnosis.Evidence {
	var out []diagnosis.Evidence
	for _, c := range v.hintChains() {
		out = append(out, chainEvidence(v, c))
	}
	return out
}

func (v *nodeView) hintChains() []netfilter.Chain {
	for _, name := range []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"} {
		if all := v.rules.Chains("mangle", name); len(all) > 0 {
			return all
		}
	}
	return nil
}

func (v *nodeView) hintText() string {
	var in []string
	for _, c := range v.hintChains() {
		name := "iptables-nft"
		if c.Backend == netfilter.Legacy {
			name = "iptables-legacy"
		}
		if !slices.Contains(in, name) {
			in = append(in, name)
		}
	}
	if len(in) == 0 {
		return "which of them kube-proxy keeps up to date does not show in them"
	}
	return "the kubelet writes to " + strings.Join(in, " and ")
}

// tellBackend looks which of the two kube-proxy writes.
func (p *Pass) tellBackend(v *nodeView) Proposal {
	commands := []string{
		v.onNodeCommand("sudo iptables-legacy-save -c | grep -c KUBE-"), v.onNodeCommand("sudo iptables-nft-save -c | grep -c KUBE-"), v.onNodeCommand("iptables --version"),
	}
	if v.seen.pod != nil {
		commands = append(commands, kubectl("exec", "-n", v.seen.pod.Namespace, v.seen.pod.Name, "--", "iptables", "--version"))
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "see which of the two kube-proxy writes: its image's iptables tells, and the counters that grow",
			Commands:    commands,
			BlastRadius: "these commands only look",
			Undo:        []string{"nothing to undo: these only look"},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// noteLegacyUnread: iptables-nft-save said that there are legacy tables, and
// they are not in the input. What drops or rewrites a packet there was not seen.
func (p *Pass) noteLegacyUnread() {
	for _, pr := range p.node.probes {
		v := pr.view
		if !v.rules.LegacyUnread(familyOf(pr.frontend.V6)) {
			continue
		}
		tool := v.toolOf("legacy", pr.frontend.V6) + "-save"
		p.Missing(diagnosis.LayerNode, diagnosis.Missing{
			What: "legacy tables of " + v.label(), Why: "iptables-nft-save says that there are some, and they are not in the input: the kernel runs both",
			Supply: v.onNodeCommand("sudo "+tool+" -c") + " > legacy.txt   (then: --node-state legacy.txt beside the other)",
		})
	}
}
