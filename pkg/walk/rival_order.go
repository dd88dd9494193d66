package walk

import (
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// hookedTable names a table whose base chains lead into a dataplane.
type hookedTable struct {
	source, name string
	family       netfilter.Family
	backend      netfilter.Backend
}

// hooking picks the tables from whose base chains a rule leads into the
// dataplane.
func (v *nodeView) hooking(d *dataplane) func(netfilter.TableInfo) bool {
	if d.hooking == nil {
		d.hooking = map[hookedTable]bool{}
		for _, hook := range []netfilter.Hook{netfilter.Prerouting, netfilter.Input, netfilter.Forward, netfilter.Output, netfilter.Postrouting} {
			for _, c := range v.rules.BaseChains(hook) {
				for r := range c.Rules() {
					if d.leads(c, r) {
						d.hooking[hookedTable{c.Source, c.Table, c.Family, c.Backend}] = true
						break
					}
				}
			}
		}
	}
	return func(t netfilter.TableInfo) bool { return d.hooking[hookedTable{t.Source, t.Name, t.Family, t.Backend}] }
}

// order tells whether the kernel asks the leftover first (OrderFirst), or what
// the running mode wrote.
func (v *nodeView) order(l *leftover, fam netfilter.Family) netfilter.Order {
	if l.leads == nil {
		return netfilter.OrderApart
	}
	running := v.ofMode(l.running)
	if running == nil {
		return netfilter.OrderApart
	}
	return v.rules.OrderOf(fam, v.hooking(l.dataplane), v.hooking(running))
}

// ofMode is what leads packets into the rules of a mode; nil for IPVS, whose
// virtual servers no chain leads to.
func (v *nodeView) ofMode(mode string) *dataplane {
	switch mode {
	case "nftables":
		return &dataplane{leads: func(c netfilter.Chain, _ netfilter.Rule) bool { return c.Table == kubeProxyTable }}
	case "iptables":
		return &dataplane{leads: func(_ netfilter.Chain, r netfilter.Rule) bool { return slices.Contains(proxyJumps, r.Jump) }}
	}
	return nil
}

// orderText says in a few words which of the two is asked first, and why; "" if
// that is not known, or they never meet.
func (l *leftover) orderText(o netfilter.Order) string {
	newer := map[string]string{"nftables": "the table kube-proxy is newer, so it is asked first", "iptables": "the tables of iptables are newer, so they are asked first"}
	switch o {
	case netfilter.OrderFirst:
		return newer[l.mode]
	case netfilter.OrderSecond:
		return newer[l.running]
	case netfilter.OrderMixed:
		return "some of their tables are newer, so these are asked first"
	}
	return ""
}

// orderEvidence quotes what tells the order of nf_tables' tables.
func (v *nodeView) orderEvidence(o netfilter.Order) []diagnosis.Evidence {
	if !o.Known() || o == netfilter.OrderApart || len(v.nftTables.list) == 0 {
		return nil
	}
	var tables []string
	for _, t := range v.nftTables.list {
		if s := t.Family + " " + t.Name; t.Name == kubeProxyTable || slices.Contains(iptablesTables, t.Name) {
			tables = append(tables, s)
		}
	}
	return []diagnosis.Evidence{{
		Source: v.nftTables.source + " of " + v.label(), Ref: "order of tables, the newest last", Quote: strings.Join(tables, ", "),
		Command: v.onNodeCommand("sudo nft list tables"),
	}}
}

// spoilt is a packet on which a leftover decides, or may decide, wrongly.
type spoilt struct {
	// with is how the node treats it, and quote what it does that it would not
	// without the leftover; without is what it would do.
	with    *probe
	quote   netfilter.Outcome
	without string
	// order says which of the two is asked first; it matters where unsettled.
	order     netfilter.Order
	unsettled bool
}

// spoils says whether the leftover spoils a packet; nil where it does not.
func (p *Pass) spoils(pr *probe, l *leftover) *spoilt {
	v := pr.view
	without := p.under(pr, v.unhooked(l.dataplane))
	out := &spoilt{without: without.whereTo(), order: v.order(l, familyOf(pr.frontend.V6))}
	ways := []*probe{p.under(pr, v.rules)}
	if !out.order.Known() {
		ways = []*probe{p.under(pr, v.aheadOf(l.dataplane)), p.under(pr, v.behindOf(l.dataplane))}
		out.unsettled = ways[0].whereTo() != ways[1].whereTo()
	}
	for _, with := range ways {
		wrong := with.bad() && !without.bad()
		if p.Service == nil {
			wrong = with.whereTo() != without.whereTo()
		}
		if wrong {
			out.with, out.quote = with, with.unlike(without)
			return out
		}
	}
	return nil
}

// caughtUp says whether kube-proxy has followed a change already, and it is
// another dataplane beside its own that spoils the packet: what the objects ask
// for is then in the rules, and no patience mends it. Where it is not known
// which of the two kube-proxy keeps, only backends are a sign: that nothing is
// sent anywhere may be so since long ago.
func (p *Pass) caughtUp(pr *probe) bool {
	v := pr.view
	for _, l := range v.leftovers() {
		if l.leads != nil && (l.known || pr.expect.Action == proxy.Forward) && !p.under(pr, v.unhooked(l.dataplane)).bad() {
			return true
		}
	}
	nft, legacy := v.backends()
	if nft == nil || legacy == nil || pr.expect.Action != proxy.Forward {
		return false
	}
	return !p.under(pr, v.unhooked(legacy)).bad() || !p.under(pr, v.unhooked(nft)).bad()
}
