package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nftTable is one table of nf_tables.
type nftTable struct{ Family, Name string }

// ofIptables are the names of the tables that iptables-nft keeps.
var ofIptables = []string{"raw", "mangle", "nat", "filter", "security"}

// nft reads the tables of nf_tables that iptables-nft-save does not show: each
// by itself, because nft ends at the first one that a newer nft made. tables
// are what was read of iptables' rules before; where that shows iptables-nft's
// tables they are not read twice, and where it was not read for want of
// nft_compat it is corrected once nft shows that there are none. The list of
// the tables is kept, for the order in which they were made.
func (m Machine) nft(ctx context.Context, k kernel, rules ...[]snapshot.Text) []snapshot.Text {
	t := snapshot.Text{Kind: snapshot.NftRuleset, Ref: "nft -j list tables", Status: snapshot.Failed}
	program := m.installed("nft")
	switch {
	case k.nfTables == absent:
		t.Ref, t.Status, t.Why = "/proc/modules", snapshot.Done, "the kernel has no nf_tables loaded, so it holds no table of nft"
		return []snapshot.Text{t}
	case k.nfTables == unknown && k.loadable:
		t.Why, t.Supply = "not run: it cannot be told whether nf_tables is in the kernel, and running nft would load it if it is not", "sudo nft list ruleset"
		return []snapshot.Text{t}
	case program == "":
		t.Why, t.Supply = "the kernel has nf_tables, and no nft is installed to list its tables", "install the nftables package, then: "+rerun
		return []snapshot.Text{t}
	}
	tables, listed := m.nftTables(ctx, program)
	if listed.Status != snapshot.Done {
		if !k.loadable && strings.Contains(listed.Why, "not supported") {
			listed.Status, listed.Why, listed.Supply = snapshot.Done, "the kernel has no nf_tables, so it holds no table of nft", ""
		}
		return []snapshot.Text{listed}
	}
	var out []snapshot.Text
	for _, table := range tables {
		if !slices.Contains([]string{"ip", "ip6", "inet"}, table.Family) || table.shownBy(slices.Concat(rules...)) {
			continue
		}
		out = append(out, m.nftTable(ctx, program, table))
	}
	for _, texts := range rules {
		noneOfIptables(tables, texts)
	}
	if len(out) == 0 {
		t.Ref, t.Status, t.Why = listed.Ref, snapshot.Done, "iptables-save shows every table that nf_tables has"
		if len(tables) == 0 {
			t.Why = "nf_tables has no table"
			return []snapshot.Text{t}
		}
		out = append(out, t)
	}
	return append(out, listed)
}

// installed finds a program by its name in the system folders; "" where it is
// in none.
func (m Machine) installed(name string) string {
	for _, dir := range programDirs {
		if p := dir + "/" + name; m.resolve(p) != "" {
			return p
		}
	}
	return ""
}

// nftTables lists the tables. The text is of kind NftTables where that
// succeeded.
func (m Machine) nftTables(ctx context.Context, program string) ([]nftTable, snapshot.Text) {
	t := m.command(ctx, snapshot.NftRuleset, program, "-j", "list", "tables")
	listed, ok := nftables.ReadTables(t.Content)
	if t.Status != snapshot.Done || !ok { // an nft without JSON
		t = m.command(ctx, snapshot.NftRuleset, program, "list", "tables")
		listed, ok = nftables.ReadTables(t.Content)
	}
	switch {
	case t.Status != snapshot.Done:
		return nil, t
	case !ok:
		return nil, snapshot.Text{Kind: snapshot.NftRuleset, Ref: t.Ref, Status: snapshot.Failed, Why: "what it printed is no list of tables", Supply: "sudo nft list ruleset"}
	}
	t.Kind = snapshot.NftTables
	out := make([]nftTable, 0, len(listed))
	for _, l := range listed {
		out = append(out, nftTable{l.Family, l.Name})
	}
	return out, t
}

// nftName matches the names of tables that are handed to nft: what nft itself
// takes as a name, which no option looks like.
var nftName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_./\\-]{0,254}$`)

// nftTable lists one table, as JSON or, where that fails, as text.
func (m Machine) nftTable(ctx context.Context, program string, table nftTable) snapshot.Text {
	if !nftName.MatchString(table.Name) {
		return snapshot.Text{Kind: snapshot.NftRuleset, Ref: "nft list tables", Status: snapshot.Failed,
			Why: fmt.Sprintf("table %s %q has a name that is not handed to nft", table.Family, table.Name), Supply: "sudo nft list ruleset"}
	}
	t := m.command(ctx, snapshot.NftRuleset, program, "-j", "list", "table", table.Family, table.Name)
	if t.Status == snapshot.Done {
		return t
	}
	return m.command(ctx, snapshot.NftRuleset, program, "list", "table", table.Family, table.Name)
}

// saveKind is the kind of text in which iptables-save shows the table; "" for
// a table that is none of iptables'.
func (table nftTable) saveKind() snapshot.TextKind {
	switch {
	case !slices.Contains(ofIptables, table.Name):
		return ""
	case table.Family == "ip":
		return snapshot.IptablesSave
	case table.Family == "ip6":
		return snapshot.Ip6tablesSave
	}
	return ""
}

// shownBy says whether iptables-nft-save shows the table. Of one that nft made
// under a name of iptables' it only says that it is incompatible.
func (table nftTable) shownBy(rules []snapshot.Text) bool {
	for _, t := range rules {
		if t.Kind == table.saveKind() && t.Status == snapshot.Done && strings.Contains(t.Ref, "nft") &&
			!strings.Contains(t.Content, "is incompatible, use 'nft' tool") {
			return true
		}
	}
	return false
}

// noneOfIptables corrects what is said of iptables-nft's rules where its
// program was not run, and nf_tables has no table of it.
func noneOfIptables(tables []nftTable, rules []snapshot.Text) {
	for i := range rules {
		t := &rules[i]
		if t.Status != snapshot.Failed || !strings.Contains(t.Ref, "-nft-save") {
			continue
		}
		if slices.ContainsFunc(tables, func(table nftTable) bool { return table.saveKind() == t.Kind }) {
			continue
		}
		t.Status, t.Why, t.Supply = snapshot.Done, "nf_tables has no table of iptables-nft", ""
	}
}
