package walk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// insideOf walks a packet to the cluster IP of the same Service port, where the
// node left one of its outside addresses untouched. It gives the outcomes by
// which the node serves the cluster IP; nil where it does not either, and then
// there is one thing to say and not one for each address.
func (p *Pass) insideOf(pr *probe) []netfilter.Outcome {
	f := pr.frontend
	if f.Kind == proxy.ClusterIP || pr.view.cilium != nil || len(pr.untouched) == 0 || len(pr.untouched) < len(pr.outcomes) {
		return nil
	}
	for _, g := range proxy.Frontends(p.Service) {
		if g.Kind != proxy.ClusterIP || g.V6 != f.V6 || g.ServicePort != f.ServicePort || g.Protocol != f.Protocol {
			continue
		}
		dst, ok := p.destination(pr.view, g)
		if !ok {
			continue
		}
		src, ok := p.somePodAddress(pr.view, g, dst)
		if !ok {
			continue
		}
		pkt := packetTo(g, dst, src)
		pkt.In = pr.view.host.Route(src)
		out := netfilter.Walk(pr.view.rules, pr.view.host, pkt)
		if !slices.ContainsFunc(out, func(o netfilter.Outcome) bool { _, ok := balancing(o); return o.Rewritten && ok }) {
			return nil
		}
		return out
	}
	return nil
}

// outsideOnly says whether the node serves the Service's cluster IP and leaves
// this outside address of it untouched, without a hook or a rule before
// kube-proxy's that explains it.
func (pr *probe) outsideOnly() bool {
	return len(pr.inside) > 0 && len(pr.untouched) > 0 && pr.hookFault() == nil
}

// insideEvidence quotes how the node serves the cluster IP, for contrast.
func (pr *probe) insideEvidence() []diagnosis.Evidence {
	for _, o := range pr.inside {
		if o.Rewritten {
			if all := wayEvidence(pr.view, o); len(all) > 0 {
				return all[:1]
			}
		}
	}
	return nil
}

// insideText says to how many backends the cluster IP leads.
func (pr *probe) insideText() string {
	var to []string
	for _, o := range pr.inside {
		if o.Rewritten && !slices.Contains(to, o.To.String()) {
			to = append(to, o.To.String())
		}
	}
	return "the cluster IP of the same port is sent to " + listed(to)
}

// entrance quotes the chain in which kube-proxy has its rules for node ports,
// and says that none is for this one; in nftables mode the rule that looks into
// its map.
func (v *nodeView) entrance(pr *probe) []diagnosis.Evidence {
	if s := deadEnd(pr.untouched[0]); s.Line > 0 {
		return []diagnosis.Evidence{ruleEvidence(v, s)}
	}
	rules := v.rules.OnlyFamily(familyOf(pr.frontend.V6))
	names := v.proxyChains()
	services, ok := rules.Chain(names.table, names.services)
	if !ok {
		return v.silence(pr)
	}
	var out []diagnosis.Evidence
	leads := v.toNodePorts(services)
	for _, r := range leads {
		out = append(out, ruleEvidence(v, netfilter.Step{Source: services.Source, Table: services.Table, Chain: services.Name, Line: r.Line, Text: r.Text}))
	}
	if len(leads) == 0 {
		return append(out, diagnosis.Evidence{
			Source: services.Source + " of " + v.label(), Ref: services.Table + " " + services.Name, Line: services.Line,
			Quote: fmt.Sprintf(":%s (%d rules, none leads to node ports)", services.Name, services.NumRules), Command: showBase(v, services),
		})
	}
	if chain, ok := rules.Chain(names.table, "KUBE-NODEPORTS"); ok && names.table == "nat" {
		out = append(out, diagnosis.Evidence{
			Source: chain.Source + " of " + v.label(), Ref: chain.Table + " " + chain.Name, Line: chain.Line,
			Quote: fmt.Sprintf(":%s (%d rules, none for %s)", chain.Name, chain.NumRules, portText(pr.frontend)), Command: showBase(v, chain),
		})
	}
	return out
}

func portText(f proxy.Frontend) string {
	return fmt.Sprintf("%d/%s", f.Port, strings.ToUpper(string(f.Protocol)))
}
