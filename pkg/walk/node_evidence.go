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

// ruleEvidence quotes a rule of a node.
func ruleEvidence(v *nodeView, s netfilter.Step) diagnosis.Evidence {
	quote := s.Text
	if isPolicy(s) && v.nftSources[s.Source] {
		quote = strings.ToLower(s.Text)
	} else if isPolicy(s) {
		// As iptables-save prints it: ":FORWARD DROP".
		quote = ":" + s.Chain + strings.TrimPrefix(s.Text, "policy")
	}
	return diagnosis.Evidence{
		Source: s.Source + " of " + v.label(), Ref: strings.TrimSpace(s.Table + " " + s.Chain), Line: s.Line,
		Quote: quote, Command: showChain(v, s),
	}
}

// showChain is the command that prints a chain again; the chain exists, so
// listing it creates nothing.
func showChain(v *nodeView, s netfilter.Step) string {
	if s.Table == "" || s.Chain == "" {
		return ""
	}
	if s.Table == ciliumTable {
		return v.seen.replacedBy.command(nil)
	}
	if s.Table == ipvsTable {
		return v.showServer(s.Chain)
	}
	if family := v.nftFamily(s.Table); family != "" {
		return v.onNodeCommand(fmt.Sprintf("sudo nft list chain %s %s %s", family, shellQuote(s.Table), shellQuote(s.Chain)))
	}
	return v.onNodeCommand(fmt.Sprintf("sudo %s -t %s | grep -e %s -e %s", v.saveTool(s.Source), shellQuote(s.Table), shellQuote("-A "+s.Chain+" "), shellQuote(":"+s.Chain+" ")))
}

// saveTool is the command that prints a text of rules again.
func (v *nodeView) saveTool(source string) string {
	for _, t := range v.state.Texts {
		switch t.Kind {
		case snapshot.IptablesSave, snapshot.Ip6tablesSave, snapshot.IptablesLegacySave, snapshot.Ip6tablesLegacySave:
			if textName(t) == source {
				return string(t.Kind)
			}
		}
	}
	return string(snapshot.IptablesSave)
}

// showBase is showChain for a chain that was looked up.
func showBase(v *nodeView, c netfilter.Chain) string {
	return showChain(v, netfilter.Step{Source: c.Source, Table: c.Table, Chain: c.Name})
}

// grepRules is the command that looks for a chain of kube-proxy's.
func (v *nodeView) grepRules(chain string, v6 bool) string {
	switch {
	case v.seen.mode() == "nftables" && v6:
		return v.onNodeCommand("sudo nft list table ip6 " + kubeProxyTable + " | grep " + chain)
	case v.seen.mode() == "nftables":
		return v.onNodeCommand("sudo nft list table ip " + kubeProxyTable + " | grep " + chain)
	}
	return v.onNodeCommand("sudo " + v.saveTool(v.rulesName(v6)) + " | grep " + chain)
}

// wayEvidence quotes the rules that matter of an outcome's way: where it
// entered kube-proxy's chains, where it was rewritten, and where it ended.
func wayEvidence(v *nodeView, o netfilter.Outcome) []diagnosis.Evidence {
	var keep []netfilter.Step
	for i, s := range o.Steps {
		switch {
		case s.Table == "":
			// Not a rule: a switch of the node, which its own check quotes.
		case i == len(o.Steps)-1 && o.Verdict != netfilter.DNAT,
			strings.Contains(s.Text, "DNAT"), s.Table == ipvsTable, s.Table == ciliumTable,
			s.Table == kubeProxyTable && (strings.Contains(s.Text, "dnat ") || strings.Contains(s.Text, " vmap @service-")),
			s.Chain == "KUBE-SERVICES" && !strings.Contains(s.Text, "KUBE-MARK-MASQ"):
			if !slices.Contains(keep, s) {
				keep = append(keep, s)
			}
		}
	}
	var out []diagnosis.Evidence
	for _, s := range keep {
		out = append(out, ruleEvidence(v, s))
	}
	return out
}

// backendsEvidence quotes the EndpointSlice entries of backends; nothing where
// there are none.
func (p *Pass) backendsEvidence(bs []proxy.Backend) []diagnosis.Evidence {
	if len(bs) == 0 {
		return nil
	}
	var names []string
	quotes := map[string][]string{} // by EndpointSlice
	for _, b := range bs {
		q := fmt.Sprintf("%s ready=%t", b.Addr, b.Ready)
		if b.TargetRef != "" {
			q += " " + b.TargetRef
		}
		if b.Node != "" {
			q += " on " + b.Node
		}
		if quotes[b.Slice] == nil {
			names = append(names, b.Slice)
		}
		quotes[b.Slice] = append(quotes[b.Slice], q)
	}
	var out []diagnosis.Evidence
	for _, name := range names {
		out = append(out, diagnosis.Evidence{
			Source: "endpointslice/" + name, Ref: "EndpointSlice/" + p.Service.Namespace + "/" + name,
			Quote: strings.Join(quotes[name], "; "), Command: p.showSlices(),
		})
	}
	return out
}

// endpointsEvidence quotes all endpoints of the Service, for what is not among
// them.
func (p *Pass) endpointsEvidence() diagnosis.Evidence {
	var quotes []string
	for _, e := range p.Endpoints() {
		if e.Addr.IsValid() {
			quotes = append(quotes, fmt.Sprintf("%s ready=%t", e.Addr, e.Ready))
		}
	}
	slices.Sort(quotes)
	quote := strings.Join(slices.Compact(quotes), "; ")
	if quote == "" {
		quote = "no endpoints"
	}
	return diagnosis.Evidence{
		Source: "endpointslices of service/" + p.Service.Name, Ref: "EndpointSlice/" + p.Service.Namespace,
		Quote: quote, Command: p.showSlices(),
	}
}

func (p *Pass) showSlices() string {
	return kubectl("get", "endpointslices", "-n", p.Service.Namespace, "-l", "kubernetes.io/service-name="+p.Service.Name, "-o", "yaml")
}

// listBackends joins backends' addresses for a sentence.
func listBackends(bs []proxy.Backend) string {
	var out []string
	for _, b := range bs {
		out = append(out, b.Addr.String())
	}
	return listed(out)
}

func listTo(os []netfilter.Outcome) string {
	var out []string
	for _, o := range os {
		out = append(out, o.To.String())
	}
	slices.Sort(out)
	return listed(slices.Compact(out))
}

// listed joins the first of many with commas.
func listed(words []string) string {
	const most = 5
	if len(words) > most+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	return strings.Join(words, ", ")
}

// share sums the odds of outcomes, as a reader says it: "1 in 3", "33%".
func share(os []netfilter.Outcome) string {
	sum := 0.0
	for _, o := range os {
		sum += o.Probability
	}
	switch {
	case sum > 0.9999:
		return "every connection"
	case sum < 0.01:
		return fmt.Sprintf("%.2g%% of connections", sum*100)
	}
	return fmt.Sprintf("%.0f%% of connections", sum*100)
}
