package walk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// hookMissing: kube-proxy's chains are there, but the kernel never gets to
// them. Chains that look perfect make this the easiest to overlook by hand.
var hookMissing = &Check{
	Code: diagnosis.HookMissing, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Explains: []diagnosis.Code{diagnosis.VIPNotProgrammed, diagnosis.MasqueradeMissing},
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return pr.anyHookFault() != nil }) {
			hf := f.first().anyHookFault()
			found := fmt.Sprintf("%s is there with %d rules, and no rule of %s leads to it", hf.chain.Name, hf.chain.NumRules, hf.hook)
			title := fmt.Sprintf("%s never jumps to %s on %s: the rules are there, and no packet reaches them", hf.hook, hf.chain.Name, f.view.label())
			if hf.captor != nil {
				found = fmt.Sprintf("%s line %d takes the packet before the jump to %s", hf.captor.Chain, hf.captor.Line, hf.chain.Name)
				title = fmt.Sprintf("a rule of %s takes the packet on %s before it reaches %s", hf.captor.Chain, f.view.label(), hf.chain.Name)
			}
			p.Report(Finding{
				Subject:  p.onNode(f.view),
				Title:    title,
				Expected: hf.jumpText(),
				Found:    found + f.otherHooks(hf) + "; concerns " + f.affected(),
				Evidence: f.hookEvidence(),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			})
		}
	},
}

// hookFaults are the faults of all probes, each hook's once.
func (f nodeFault) hookFaults() []*hookFault {
	var out []*hookFault
	for _, pr := range f.probes {
		hf := pr.anyHookFault()
		if !slices.ContainsFunc(out, func(o *hookFault) bool { return o.hook == hf.hook && o.base.Family == hf.base.Family }) {
			out = append(out, hf)
		}
	}
	return out
}

// otherHooks names the hooks besides the first that have a fault.
func (f nodeFault) otherHooks(first *hookFault) string {
	text := ""
	for _, hf := range f.hookFaults() {
		if hf.hook != first.hook {
			text += fmt.Sprintf("; nor does %s lead to %s", hf.hook, hf.chain.Name)
		}
	}
	return text
}

func (f nodeFault) hookEvidence() []diagnosis.Evidence {
	var out []diagnosis.Evidence
	for _, hf := range f.hookFaults() {
		for _, e := range hf.evidence(f.view) {
			if !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return out
}

// hookFault is a base chain that does not lead packets to one of
// kube-proxy's chains.
type hookFault struct {
	hook  string
	chain netfilter.Chain
	base  netfilter.Chain
	// captor is the rule that ends the base chain before the jump; nil where
	// there is no jump at all.
	captor *netfilter.Step
}

// jumpText is the rule that ought to be there.
func (hf *hookFault) jumpText() string {
	if hf.chain.Table == kubeProxyTable {
		return fmt.Sprintf("jump %s in chain %s of table %s", hf.chain.Name, hf.hook, hf.chain.Table)
	}
	return fmt.Sprintf("-A %s -j %s in table %s", hf.hook, hf.chain.Name, hf.chain.Table)
}

// anyHookFault looks at the way in, and, for a packet that ought to be
// masqueraded and is not, at the way out.
func (pr *probe) anyHookFault() *hookFault {
	// A Service without endpoints is refused in the filter table, whether or not
	// nat leads to kube-proxy's chains; once it has some, that will matter.
	empty := pr.expect.Action == proxy.Reject || pr.expect.Action == proxy.Drop
	if len(pr.untouched) > 0 || empty && !pr.hairpin {
		if hf := pr.hookFault(); hf != nil {
			return hf
		}
	}
	if len(pr.unmasked) > 0 {
		if hf := pr.marksHookFault(); hf != nil {
			return hf
		}
		c := pr.view.proxyChains()
		return pr.view.hookFault(familyOf(pr.frontend.V6), c.hooks[netfilter.Postrouting], c.postrouting, pr.unmasked)
	}
	return nil
}

func (v *nodeView) hookFault(fam netfilter.Family, hook, chain string, outcomes []netfilter.Outcome) *hookFault {
	rules := v.rules.OnlyFamily(fam)
	reached := false
	var fault *hookFault
	table := v.proxyChains().table
	for _, target := range rules.Chains(table, chain) {
		if !target.Known || target.NumRules == 0 {
			continue // an empty chain explains nothing: the VIP is not in it
		}
		same := rules.Only(func(t netfilter.TableInfo) bool { return t.Source == target.Source && t.Backend == target.Backend })
		base, ok := same.Chain(table, hook)
		if !ok || !base.Known {
			return nil
		}
		if _, ok := base.Reach(chain); !ok {
			fault = &hookFault{hook: hook, chain: target, base: base}
			continue
		}
		reached = true
		if s := captor(outcomes, base, chain); s != nil {
			return &hookFault{hook: hook, chain: target, base: base, captor: s}
		}
	}
	if reached {
		return nil
	}
	return fault
}

// captor is the rule of a base chain that ended it for the packet, where the
// packet never entered the chain that it ought to reach.
func captor(outcomes []netfilter.Outcome, base netfilter.Chain, chain string) *netfilter.Step {
	for _, o := range outcomes {
		var ended *netfilter.Step
		entered := false
		for i, s := range o.Steps {
			if s.Table != base.Table || s.Source != base.Source {
				continue
			}
			if s.Chain == chain || strings.HasSuffix(s.Text, " "+chain) {
				entered = true
			}
			if s.Chain == base.Name && !isPolicy(s) {
				ended = &o.Steps[i]
			}
		}
		if !entered && ended != nil {
			return ended
		}
	}
	return nil
}

func (hf *hookFault) evidence(v *nodeView) []diagnosis.Evidence {
	out := []diagnosis.Evidence{{
		Source: hf.chain.Source + " of " + v.label(), Ref: hf.chain.Table + " " + hf.chain.Name, Line: hf.chain.Line,
		Quote:   fmt.Sprintf(":%s (%d rules)", hf.chain.Name, hf.chain.NumRules),
		Command: showBase(v, hf.chain),
	}}
	if hf.captor != nil {
		return append(out, ruleEvidence(v, *hf.captor))
	}
	quote := fmt.Sprintf(":%s %s (no rule)", hf.base.Name, hf.base.Policy)
	n := 0
	for r := range hf.base.Rules() {
		if n++; n == 1 {
			quote = fmt.Sprintf(":%s %s, its rules:", hf.base.Name, hf.base.Policy)
		}
		quote += " " + r.Text + ";"
	}
	return append(out, diagnosis.Evidence{
		Source: hf.base.Source + " of " + v.label(), Ref: hf.base.Table + " " + hf.base.Name, Line: hf.base.Line,
		Quote: strings.TrimSuffix(quote, ";"), Command: showBase(v, hf.base),
	})
}
