package cli

import (
	"cmp"
	"net/netip"
	"strings"
	"sync"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/ipset"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// ruleKinds are the texts that hold rules of a family.
func ruleKinds(f netfilter.Family) []snapshot.TextKind {
	if f == netfilter.IPv6 {
		return []snapshot.TextKind{snapshot.Ip6tablesSave, snapshot.Ip6tablesLegacySave}
	}
	return []snapshot.TextKind{snapshot.IptablesSave, snapshot.IptablesLegacySave}
}

// ruleset parses the rules of one family in a node's state. What is not
// understood is noted on stderr; the walk follows it both ways.
func (a *app) ruleset(state *snapshot.NodeState, f netfilter.Family) (*netfilter.Ruleset, error) {
	var parts []*netfilter.Ruleset
	saved := false
	for _, t := range state.All(ruleKinds(f)...) {
		switch {
		case t.Status != snapshot.Done:
			a.note("%s was not read: %s", t.Kind, t.Why)
			continue
		case strings.TrimSpace(t.Content) == "":
			// Read and empty: no table exists.
			parts = append(parts, netfilter.New([]netfilter.Contents{{Whole: true, Family: f}}))
			continue
		}
		source := t.Ref
		if source == "" {
			source = string(t.Kind)
		}
		saved = saved || t.Kind == snapshot.IptablesSave || t.Kind == snapshot.Ip6tablesSave
		part, problems, err := iptables.Parse(t.Content, iptables.Options{Source: source, Family: f, Saved: true, Skim: skimmed(t)})
		if err != nil {
			return nil, usageErrorf("%w", err)
		}
		for _, p := range problems {
			a.note("%s: %s", source, p)
		}
		parts = append(parts, part)
	}
	nft, tables, err := a.nftRuleset(state, f, saved)
	if err != nil {
		return nil, err
	}
	parts = append(parts, nft...)
	if len(parts) == 0 {
		tool := "iptables-save"
		if f == netfilter.IPv6 {
			tool = "ip6tables-save"
		}
		return nil, usageErrorf("the node's state has no rules of the packet's address family").hint("give the output of %s, of nft -j list ruleset, or of `vipwalk node-state`", tool)
	}
	rules := nftables.Rank(netfilter.Merge(parts...), tables)
	sets, err := a.sets(state)
	if err != nil {
		return nil, err
	}
	if sets != nil {
		rules = rules.WithSets(sets)
	}
	return a.virtualServers(rules, state)
}

// skimmed is the text's index, where who read it made one.
func skimmed(t snapshot.Text) *iptables.Skim {
	s, _ := t.Skimmed.(*iptables.Skim)
	return s
}

// sets parses the contents of the node's sets; nil where none was read.
func (a *app) sets(state *snapshot.NodeState) (netfilter.Sets, error) {
	var parts []*ipset.Sets
	for _, t := range state.All(snapshot.IpsetSave) {
		if t.Status != snapshot.Done {
			a.note("%s was not read: %s", t.Kind, t.Why)
			continue
		}
		if strings.TrimSpace(t.Content) == "" {
			continue // read and empty: no rule can name a set
		}
		source := cmp.Or(t.Ref, string(t.Kind))
		s, problems, err := ipset.Parse(t.Content, source)
		if err != nil {
			return nil, usageErrorf("%w", err)
		}
		for _, p := range problems {
			a.note("%s: %s", source, p)
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return ipset.Merge(parts...), nil
}

// nftRuleset parses what nft listed, of one family. saved: iptables-save shows
// the tables of iptables-nft, so nft's view of them is left out. tables are all
// that there are, if the order in which they were made is known.
func (a *app) nftRuleset(state *snapshot.NodeState, f netfilter.Family, saved bool) (parts []*netfilter.Ruleset, tables []nftables.Listed, err error) {
	var all []*netfilter.Ruleset
	for _, t := range state.All(snapshot.NftRuleset) {
		switch {
		case t.Status != snapshot.Done:
			a.note("%s was not read: %s", t.Kind, t.Why)
			continue
		case strings.TrimSpace(t.Content) == "":
			continue
		}
		source := t.Ref
		if source == "" {
			source = string(t.Kind)
		}
		part, problems, err := nftables.Parse(t.Content, nftables.Options{Source: source, Whole: strings.Contains(t.Ref, "list ruleset") || nftables.LooksWhole(t.Content)})
		if err != nil {
			return nil, nil, usageErrorf("%w", err)
		}
		all = append(all, part)
		for _, p := range problems {
			if p.Kind == nftables.OtherFamily || saved && p.Kind == nftables.IptablesView {
				continue
			}
			a.note("%s: %s", source, p)
		}
		part = part.Only(func(t netfilter.TableInfo) bool { return t.Family == f && !(saved && t.Compat) })
		if len(part.Tables()) > 0 || part.Whole(f) {
			parts = append(parts, part)
		}
	}
	for _, t := range state.All(snapshot.NftTables) {
		if listed, ok := nftables.ReadTables(t.Content); t.Status == snapshot.Done && ok {
			tables = listed
		}
	}
	if len(tables) == 0 {
		tables = nftables.TablesOf(all...)
	}
	return parts, tables, nil
}

// notLocal answers for addresses when the node's own were not read. A cluster
// IP is no node's: kube-proxy's chain KUBE-SERVICES names those, or its set
// cluster-ips, as opposed to external and load balancer addresses, which may
// be. Nothing is known of any other address.
func notLocal(rules *netfilter.Ruleset, state *snapshot.NodeState) func(netip.Addr) netfilter.Tri {
	sets := sync.OnceValue(func() map[netip.Addr]bool {
		out := map[netip.Addr]bool{}
		for _, t := range state.All(snapshot.NftRuleset) {
			for _, a := range nftables.Addresses(t.Content, "kube-proxy", "cluster-ips") {
				out[a] = true
			}
		}
		return out
	})
	return func(a netip.Addr) netfilter.Tri {
		if isClusterIP(rules, a) || sets()[a] {
			return netfilter.False
		}
		return netfilter.Unknown
	}
}

// clusterIPComment ends the comments of kube-proxy's rules for a cluster IP.
// In its chain for other addresses, KUBE-EXTERNAL-SERVICES, the same endings
// mean external ones.
var clusterIPComment = lazyregexp.New(` (cluster IP|has no endpoints|has no local endpoints)"`)

// clusterIP is the address of a rule that kube-proxy wrote for a cluster IP.
func clusterIP(line string) (netip.Addr, bool) {
	i := strings.Index(line, "-A KUBE-SERVICES ") // counters may come first
	if i < 0 || !clusterIPComment.MatchString(line) {
		return netip.Addr{}, false
	}
	fields := strings.Fields(line[i:])
	for j := range fields[:len(fields)-1] {
		if fields[j] == "-d" && fields[j-1] != "!" {
			p, err := netip.ParsePrefix(fields[j+1])
			return p.Addr(), err == nil && p.IsSingleIP()
		}
	}
	return netip.Addr{}, false
}

// isClusterIP says whether kube-proxy wrote a rule for the address as a cluster
// IP.
func isClusterIP(rules *netfilter.Ruleset, a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	for _, table := range []string{"nat", "filter"} {
		for _, c := range rules.Chains(table, "KUBE-SERVICES") {
			for r := range c.RulesTo(a) {
				if is, ok := clusterIP(r.Text); ok && is == a || listsClusterIP(r.Text, a) {
					return true
				}
			}
		}
	}
	return false
}

// listsClusterIP says whether the rule is one of iptables -L for a cluster IP.
func listsClusterIP(row string, a netip.Addr) bool {
	return strings.Contains(row, " "+a.String()+" ") && (strings.Contains(row, " cluster IP */") || strings.Contains(row, " endpoints */"))
}
