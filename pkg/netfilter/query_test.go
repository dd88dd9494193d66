package netfilter_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
)

const queried = `*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:EMPTY - [0:0]
:LONELY - [0:0]
-A PREROUTING -p tcp -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -j KUBE-SVC-A
-A KUBE-SERVICES -j GONE
-A KUBE-SVC-A -g EMPTY
-A LONELY -j KUBE-SERVICES
COMMIT
`

func TestQueries(t *testing.T) {
	rs := parse(t, queried, iptables.Options{Source: "node-1", Family: netfilter.IPv4})
	if !rs.HasChain("nat", "KUBE-SERVICES") || rs.HasChain("filter", "KUBE-SERVICES") || rs.HasChain("nat", "GONE") {
		t.Error("HasChain is wrong")
	}
	services, ok := rs.Chain("nat", "KUBE-SERVICES")
	if !ok || services.NumRules != 2 || services.Line != 4 || !services.Known || !services.Declared || services.Source != "node-1" {
		t.Errorf("KUBE-SERVICES is %+v", services)
	}
	empty, ok := rs.Chain("nat", "EMPTY")
	if !ok || empty.NumRules != 0 || !empty.Known {
		t.Errorf("EMPTY is %+v", empty)
	}
	if _, ok := rs.Chain("nat", "GONE"); ok {
		t.Error("GONE is in the input")
	}
	pre, _ := rs.Chain("nat", "PREROUTING")
	path, ok := pre.Reach("EMPTY")
	var lines []int
	for _, p := range path {
		lines = append(lines, p.Rule.Line)
	}
	if !ok || !slices.Equal(lines, []int{8, 9, 11}) {
		t.Errorf("PREROUTING reaches EMPTY by lines %v", lines)
	}
	if path[0].Rule.Unconditional || !path[2].Rule.Unconditional || !path[2].Rule.Goto {
		t.Errorf("which jumps are unconditional: %+v", path)
	}
	if _, ok := pre.Reach("LONELY"); ok {
		t.Error("PREROUTING reaches LONELY")
	}
	out, _ := rs.Chain("nat", "OUTPUT")
	if _, ok := out.Reach("KUBE-SERVICES"); ok {
		t.Error("OUTPUT reaches KUBE-SERVICES")
	}
	if jumps := pre.JumpsTo("KUBE-SERVICES"); len(jumps) != 1 || jumps[0].Line != 8 {
		t.Errorf("PREROUTING jumps by %+v", jumps)
	}
	if diff := cmp.Diff([]string{"nat"}, rs.TablesRead(netfilter.IPv4)); diff != "" {
		t.Errorf("tables of IPv4: %s", diff)
	}
	if rs.TablesRead(netfilter.IPv6) != nil || rs.HasTable(netfilter.IPv6, "nat") {
		t.Error("there are tables of IPv6")
	}
}

func TestBaseChains(t *testing.T) {
	all := table("filter") + table("nat") + table("mangle") + table("raw")
	rs := netfilter.Merge(
		parse(t, all, iptables.Options{Source: "legacy", Family: netfilter.IPv4, Backend: netfilter.Legacy}),
		parse(t, table("filter")+table("nat"), iptables.Options{Source: "nft", Family: netfilter.IPv4, Backend: netfilter.NFT}),
	)
	for hook, want := range map[netfilter.Hook][]string{
		netfilter.Prerouting:  {"legacy raw", "legacy mangle", "legacy nat", "nft nat"},
		netfilter.Input:       {"legacy mangle", "legacy filter", "nft filter", "legacy nat", "nft nat"},
		netfilter.Forward:     {"legacy mangle", "legacy filter", "nft filter"},
		netfilter.Output:      {"legacy raw", "legacy mangle", "legacy nat", "nft nat", "legacy filter", "nft filter"},
		netfilter.Postrouting: {"legacy mangle", "legacy nat", "nft nat"},
	} {
		var got []string
		for _, c := range rs.BaseChains(hook) {
			got = append(got, c.Source+" "+c.Table)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", hook, diff)
		}
	}
}

func TestTwoBackends(t *testing.T) {
	nat := func(to string) string {
		return table("nat", "-A PREROUTING -d 10.96.0.10/32 -p tcp -j DNAT --to-destination "+to)
	}
	for _, c := range []struct {
		name, legacy, nft string
		want              []string
	}{
		{"accepted by one, dropped by the other", table("filter", "-A FORWARD -j ACCEPT") + nat("10.244.1.1:80"), table("filter", ":FORWARD DROP [0:0]"), []string{"drop 10.244.1.1:80 at FORWARD"}},
		{"the first binding wins", table("filter") + nat("10.244.1.1:80"), nat("10.244.1.2:80"), []string{"dnat 10.244.1.1:80"}},
		{"a nat accept does not bind", table("filter") + table("nat", "-A PREROUTING -j ACCEPT"), nat("10.244.1.2:80"), []string{"dnat 10.244.1.2:80"}},
		{"marks are of the packet", table("filter") + table("nat", "-A PREROUTING -j MARK --set-xmark 0x1/0x1"), table("filter", "-A FORWARD -m mark --mark 0x1/0x1 -j DROP"), []string{"drop 10.96.0.10:80 at FORWARD"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs := netfilter.Merge(
				parse(t, c.legacy, iptables.Options{Source: "legacy", Family: netfilter.IPv4, Backend: netfilter.Legacy}),
				parse(t, c.nft, iptables.Options{Source: "nft", Family: netfilter.IPv4, Backend: netfilter.NFT}),
			)
			got := netfilter.Walk(rs, testHost(), forwarded())
			if diff := cmp.Diff(c.want, short(got)); diff != "" {
				t.Errorf("(-want +got)\n%s%s", diff, describe(got))
			}
		})
	}
}

func TestLegacyTablesNotRead(t *testing.T) {
	const warning = "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n"
	nft := parse(t, warning+table("filter")+table("nat"), iptables.Options{Family: netfilter.IPv4})
	if !nft.LegacyUnread(netfilter.IPv4) {
		t.Error("the warning is lost")
	}
	want := []string{"none 10.96.0.10:80; the legacy tables are not in the input"}
	if diff := cmp.Diff(want, short(netfilter.Walk(nft, testHost(), forwarded()))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	legacy := parse(t, table("filter")+table("nat"), iptables.Options{Family: netfilter.IPv4, Backend: netfilter.Legacy})
	want = []string{"none 10.96.0.10:80"}
	if diff := cmp.Diff(want, short(netfilter.Walk(netfilter.Merge(nft, legacy), testHost(), forwarded()))); diff != "" {
		t.Errorf("with the legacy tables (-want +got)\n%s", diff)
	}
}

// TestSteps: what the outcome quotes is what the packet met, in order, with
// lines, without counters.
func TestSteps(t *testing.T) {
	text := `*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SVC - [0:0]
[7:420] -A PREROUTING -m comment --comment "service portals" -j SVC
[0:0] -A SVC -d 10.96.0.99/32 -j DROP
[7:420] -A SVC -p tcp -j DNAT --to-destination 10.244.1.1:8080
COMMIT
*filter
:FORWARD DROP [3:180]
COMMIT
`
	got := netfilter.Walk(parse(t, text, iptables.Options{Source: "node-1"}), testHost(), forwarded())
	want := []netfilter.Outcome{{
		Verdict: netfilter.Drop, To: netip.MustParseAddrPort("10.244.1.1:8080"), Rewritten: true, Probability: 1,
		Masquerade: netfilter.False, Hook: netfilter.Forward,
		Steps: []netfilter.Step{
			{Source: "node-1", Table: "nat", Chain: "PREROUTING", Line: 5, Text: `-A PREROUTING -m comment --comment "service portals" -j SVC`},
			{Source: "node-1", Table: "nat", Chain: "SVC", Line: 7, Text: "-A SVC -p tcp -j DNAT --to-destination 10.244.1.1:8080"},
			{Source: "node-1", Table: "filter", Chain: "FORWARD", Line: 10, Text: "policy DROP"},
		},
	}}
	same := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// oneSet is a Sets of a single set of source addresses.
type oneSet map[netip.Addr]bool

func (o oneSet) Contains(set string, sides []string, s *netfilter.State) (netfilter.Tri, string) {
	if set != "blocked" || !slices.Equal(sides, []string{"src"}) {
		return netfilter.Unknown, "there is no such set"
	}
	return netfilter.Of(o[s.Src]), ""
}

func TestSets(t *testing.T) {
	text := table("filter", "-A FORWARD -m set --match-set blocked src -j DROP") + table("nat")
	for src, want := range map[string]string{"10.244.0.9": "drop 10.96.0.10:80 at FORWARD", "10.244.0.8": "none 10.96.0.10:80"} {
		rs := parse(t, text, iptables.Options{}).WithSets(oneSet{netip.MustParseAddr(src): true})
		if got := short(netfilter.Walk(rs, testHost(), forwarded())); !slices.Equal(got, []string{want}) {
			t.Errorf("with %s in the set: %v, want %s", src, got, want)
		}
	}
}

// TestBranching: rulesets made to explode come to an end, soon and honestly.
func TestBranching(t *testing.T) {
	random := []string{":LOGGED - [0:0]", "-A LOGGED -j RETURN"}
	unknown := slices.Clone(random)
	marks := slices.Clone(random)
	for i := range 64 {
		random = append(random, "-A FORWARD -m statistic --mode random --probability 0.5 -j LOGGED")
		unknown = append(unknown, "-A FORWARD -m set --match-set x src -j LOGGED")
		marks = append(marks, "-A FORWARD -m set --match-set x src -j MARK --set-xmark "+[]string{"0x1/0x0", "0x2/0x0", "0x4/0x0", "0x8/0x0"}[i%4])
	}
	host, p := testHost(), forwarded()
	if got := short(netfilter.Walk(parse(t, table("filter", random...)+table("nat"), iptables.Options{}), host, p)); !slices.Equal(got, []string{"none 10.96.0.10:80"}) {
		t.Errorf("2^64 random ways: %v", got)
	}
	for _, rules := range [][]string{unknown, marks} {
		got := netfilter.Walk(parse(t, table("filter", rules...)+table("nat"), iptables.Options{}), host, p)
		if len(got) != 1 || got[0].Verdict != netfilter.None || len(got[0].Unknowns) == 0 {
			t.Errorf("2^64 unknown ways: %v", short(got))
		}
	}
	var distinct []string
	for i := range 32 {
		distinct = append(distinct, "-A FORWARD -m set --match-set x src -j MARK --set-xmark "+[]string{"0x1", "0x2", "0x4", "0x8"}[i%4]+zeros(i/4)+"/0x0")
	}
	distinct = append(distinct, "-A FORWARD -m mark --mark 0x1234567 -j DROP")
	got := netfilter.Walk(parse(t, table("filter", distinct...)+table("nat"), iptables.Options{}), host, p)
	if len(got) != 1 || got[0].Verdict != netfilter.Undecided {
		t.Errorf("2^32 marks: %v", short(got))
	}
}

// TestDeep: long chains of unknown rules and ladders of jumps end too.
func TestDeep(t *testing.T) {
	host, p := testHost(), forwarded()
	var unknown, ladder []string
	for i := range 12000 {
		unknown = append(unknown, fmt.Sprintf("-A FORWARD -m set --match-set s%d src -j DROP", i))
	}
	got := netfilter.Walk(parse(t, table("filter", unknown...)+table("nat"), iptables.Options{}), host, p)
	if len(got) != 1 || got[0].Verdict != netfilter.Undecided || len(got[0].Unknowns) == 0 || len(got[0].Unknowns) > 100 {
		t.Errorf("12000 unknown rules: %v", short(got))
	}
	ladder = append(ladder, "-A FORWARD -j C0")
	for i := range 3000 {
		ladder = append(ladder, fmt.Sprintf(":C%d - [0:0]", i), fmt.Sprintf("-A C%d -j C%d", i, i+1))
	}
	got = netfilter.Walk(parse(t, table("filter", ladder...)+table("nat"), iptables.Options{}), host, p)
	want := []string{"unknown 10.96.0.10:80; more than 512 jumps lead into each other"}
	if diff := cmp.Diff(want, short(got)); diff != "" {
		t.Errorf("3000 jumps (-want +got)\n%s", diff)
	}
}

func zeros(n int) string { return "00000000"[:n] }
