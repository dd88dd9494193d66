package walk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// kubeProxyTable is the table of kube-proxy's nftables mode, in the families ip
// and ip6 (k8s.io/kubernetes pkg/proxy/nftables).
const kubeProxyTable = "kube-proxy"

// nftTexts are the tables that nft listed.
type nftTexts struct {
	rules *netfilter.Ruleset
	// whole: the texts are all that nf_tables holds.
	whole bool
}

// parseNft reads every text of nft's. One that can't be read is a lack where
// nothing else tells how the node programs Services.
func (v *nodeView) parseNft() *nftTexts {
	out := &nftTexts{rules: netfilter.New(nil)}
	v.nftSources = map[string]bool{}
	var parts []*netfilter.Ruleset
	var names []string
	for _, t := range v.state.All(snapshot.NftRuleset) {
		if t.Status != snapshot.Done {
			v.nftLack = append(v.nftLack, diagnosis.Missing{What: "nft tables of " + v.label(), Why: t.Why, Supply: t.Supply})
			continue
		}
		if strings.TrimSpace(t.Content) == "" {
			continue // no table that iptables-save does not show
		}
		name := textName(t)
		whole := strings.Contains(t.Ref, "list ruleset") || nftables.LooksWhole(t.Content)
		part, problems, err := nftables.Parse(t.Content, nftables.Options{Source: name, Whole: whole})
		if err != nil {
			v.nftLack = append(v.nftLack, diagnosis.Missing{What: "nft tables of " + v.label(), Why: fmt.Sprintf("%s: %v", name, err), Supply: v.supply()})
			continue
		}
		v.nftSources[name] = true
		names = append(names, name)
		for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
			if len(part.OnlyFamily(fam).Partial()) > 0 {
				v.lackRules(fam, nftPartialWhy(t, problems), "sudo nft -j list ruleset")
			}
		}
		out.whole = out.whole || whole
		parts = append(parts, part)
	}
	out.rules = netfilter.Merge(parts...)
	v.listTables(names, parts)
	return out
}

// listedTables is a list of nf_tables' tables, the newest last.
type listedTables struct {
	list   []nftables.Listed
	source string
}

// listTables finds what tells in which order the tables were made: nft's own
// list of them, the last that was read, or else what it printed of them.
func (v *nodeView) listTables(names []string, parts []*netfilter.Ruleset) {
	for _, t := range v.state.All(snapshot.NftTables) {
		if list, ok := nftables.ReadTables(t.Content); t.Status == snapshot.Done && ok && len(list) > 0 {
			v.nftTables = listedTables{list, textName(t)}
		}
	}
	if len(v.nftTables.list) == 0 && len(parts) > 0 {
		v.nftTables = listedTables{nftables.TablesOf(parts...), names[0]}
	}
	slices.SortStableFunc(v.nftTables.list, func(a, b nftables.Listed) int { return cmp.Compare(a.Handle, b.Handle) })
}

func nftPartialWhy(t snapshot.Text, problems []nftables.Problem) string {
	for _, p := range problems {
		if p.Kind == nftables.Truncated {
			return fmt.Sprintf("%s is not whole (line %d: %s)", textName(t), p.Line, p.Message)
		}
	}
	return textName(t) + " is not whole"
}

// shows says whether what iptables-nft-save would have shown is in nft's own
// listing.
func (n *nftTexts) shows(kind snapshot.TextKind, fam netfilter.Family) bool {
	if kind != snapshot.IptablesSave && kind != snapshot.Ip6tablesSave {
		return false
	}
	for _, t := range n.rules.Tables() {
		if t.Family == fam && (t.Compat || n.whole) {
			return true
		}
	}
	return false
}

// withoutView leaves out nft's view of the tables that iptables-save shows
// whole, so that they are not walked twice.
func (n *nftTexts) withoutView(saved *netfilter.Ruleset, fam netfilter.Family) {
	for _, t := range saved.Tables() {
		if t.Backend == netfilter.Legacy {
			return
		}
	}
	n.rules = n.rules.Only(func(t netfilter.TableInfo) bool { return !t.Compat || t.Family != fam })
}

// covers says whether nft's texts stand in for iptables-save's of a family
// that were not read. Where they are of single tables, what others do to a
// packet was not seen.
func (n *nftTexts) covers(v *nodeView, fam netfilter.Family) bool {
	names := n.rules.TablesRead(fam)
	switch {
	case n.whole:
		return true
	case len(names) == 0:
		return false
	case len(v.rulesLack[fam]) == 0:
		v.rulesLack[fam] = append(v.rulesLack[fam], diagnosis.Missing{
			What: "other tables than " + strings.Join(names, ", ") + " of " + v.label(),
			Why:  "they are not in the input, so what drops a packet there was not seen", Supply: "sudo nft -j list ruleset > FILE   (then: --node-state FILE)",
		})
	}
	return true
}

// nftFamily is the family that nft has for a table that it listed: ip, ip6 or
// inet; "" for a table of iptables-save.
func (v *nodeView) nftFamily(table string) string {
	for _, t := range v.rules.Tables() {
		if t.Name == table {
			return t.Listed
		}
	}
	return ""
}

// proxyChains are the names of what packets pass of kube-proxy's rules.
type proxyChains struct {
	table string
	// services looks for the Service, postrouting masquerades.
	services, postrouting string
	// hooks are the base chains that lead there, by the kernel's hook.
	hooks map[netfilter.Hook]string
}

// proxyChains are those of the mode that kube-proxy is in on the node.
func (v *nodeView) proxyChains() proxyChains {
	if v.seen.mode() == "nftables" {
		return proxyChains{
			table: kubeProxyTable, services: "services", postrouting: "masquerading",
			hooks: map[netfilter.Hook]string{netfilter.Prerouting: "nat-prerouting", netfilter.Output: "nat-output", netfilter.Postrouting: "nat-postrouting"},
		}
	}
	return proxyChains{
		table: "nat", services: "KUBE-SERVICES", postrouting: "KUBE-POSTROUTING",
		hooks: map[netfilter.Hook]string{netfilter.Prerouting: "PREROUTING", netfilter.Output: "OUTPUT", netfilter.Postrouting: "POSTROUTING"},
	}
}

// nftSaysEmpty recognises the rules of kube-proxy's nftables mode for a
// Service that has no endpoints, or none here: its maps no-endpoint-services
// and no-endpoint-nodeports lead to reject-chain, or drop.
func nftSaysEmpty(o netfilter.Outcome) bool {
	last := lastStep(o)
	if last.Table != kubeProxyTable {
		return false
	}
	return last.Chain == "reject-chain" || strings.Contains(last.Text, "@no-endpoint-")
}

// nftUnknownPort recognises the rule of kube-proxy's nftables mode that
// rejects what its maps do not name: a port of a cluster IP that has none.
func nftUnknownPort(o netfilter.Outcome) bool {
	last := lastStep(o)
	return last.Table == kubeProxyTable && last.Chain == "cluster-ips-check"
}
