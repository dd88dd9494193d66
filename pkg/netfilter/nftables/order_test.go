package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
)

// sendsTo is a table that sends one address to a backend; handle is what nft -a
// prints behind the brace.
func sendsTo(family, name, handle, backend string) string {
	return fmt.Sprintf("table %s %s {%s\n\tchain pre {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tip daddr 10.96.0.1 tcp dport 80 dnat ip to %s:80\n\t}\n}\n", family, name, handle, backend)
}

func sendsToJSON(name, handle, backend string) string {
	return fmt.Sprintf(`{"table": {"family": "ip", "name": %q%s}}, {"chain": {"family": "ip", "table": %[1]q, "name": "pre", "handle": 1, "type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"}}, `+
		`{"rule": {"family": "ip", "table": %[1]q, "chain": "pre", "handle": 2, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "10.96.0.1"}}, {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}}, {"dnat": {"addr": %[3]q, "port": 80}}]}}`, name, handle, backend)
}

func ends(t *testing.T, rs *netfilter.Ruleset) string {
	t.Helper()
	out := netfilter.Walk(rs, &netfilter.StaticHost{Complete: true, Forward4: netfilter.True}, netfilter.Packet{
		Src: netip.MustParseAddr("10.244.1.9"), Dst: netip.MustParseAddr("10.96.0.1"), DstPort: 80, Protocol: netfilter.TCP, In: "eth0",
	})
	if len(out) != 1 {
		t.Fatalf("%d outcomes", len(out))
	}
	return out[0].To.Addr().String()
}

// TestNewestFirst: of base chains of one priority the kernel asks the newest
// first, which is the last that nft lists, or the one of the greatest handle.
func TestNewestFirst(t *testing.T) {
	two := "table ip x {\n\tchain a {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tip daddr 10.96.0.1 tcp dport 80 dnat to 10.0.0.1:80\n\t}\n" +
		"\tchain b {\n\t\ttype nat hook prerouting priority %s; policy accept;\n\t\tip daddr 10.96.0.1 tcp dport 80 dnat to 10.0.0.2:80\n\t}\n}\n"
	for _, c := range []struct{ name, text, want string }{
		{"two tables", sendsTo("ip", "a", "", "10.0.0.1") + sendsTo("ip", "b", "", "10.0.0.2"), "10.0.0.2"},
		{"ip and inet", sendsTo("inet", "a", "", "10.0.0.1") + sendsTo("ip", "b", "", "10.0.0.2"), "10.0.0.2"},
		{"handles", sendsTo("ip", "a", " # handle 7", "10.0.0.1") + sendsTo("ip", "b", " # handle 5", "10.0.0.2"), "10.0.0.1"},
		{"JSON", `{"nftables": [` + sendsToJSON("a", "", "10.0.0.1") + ", " + sendsToJSON("b", "", "10.0.0.2") + "]}", "10.0.0.2"},
		{"JSON with handles", `{"nftables": [` + sendsToJSON("a", `, "handle": 7`, "10.0.0.1") + ", " + sendsToJSON("b", `, "handle": 5`, "10.0.0.2") + "]}", "10.0.0.1"},
		{"two chains of a table", fmt.Sprintf(two, "dstnat"), "10.0.0.2"},
		{"a priority of its own", fmt.Sprintf(two, "dstnat + 1"), "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs, problems, err := Parse(c.text, Options{Source: "nft", Whole: true, Strict: true})
			if err != nil || len(problems) > 0 {
				t.Fatal(err, problems)
			}
			if got := ends(t, rs); got != c.want {
				t.Errorf("sent to %s, want %s", got, c.want)
			}
			first := func(ti netfilter.TableInfo) bool { return ti.Name != "b" }
			if got := ends(t, rs.Ahead(first)); len(rs.TablesRead(netfilter.IPv4)) == 2 && got != "10.0.0.1" {
				t.Errorf("with a ahead sent to %s", got)
			}
		})
	}
}

const savedNAT = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n"

// TestRank orders tables of several texts by a list of the node's.
func TestRank(t *testing.T) {
	const numbered = `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "nat", "handle": %d}}, {"table": {"family": "ip", "name": "kube-proxy", "handle": %d}}, {"table": {"family": "bridge", "name": "b", "handle": 9}}]}`
	const older, newer = "table ip kube-proxy\ntable ip nat\n", "table ip nat\ntable ip kube-proxy\n"
	for _, c := range []struct {
		name, list string
		backend    netfilter.Backend
		text       string
		want       string
		order      netfilter.Order
	}{
		{"no list", "", netfilter.NFT, sendsTo("ip", "kube-proxy", "", "10.0.0.2"), "10.0.0.1", netfilter.OrderUnknown},
		{"kube-proxy's is newer", newer, netfilter.NFT, sendsTo("ip", "kube-proxy", "", "10.0.0.2"), "10.0.0.2", netfilter.OrderFirst},
		{"iptables' is newer", older, netfilter.NFT, sendsTo("ip", "kube-proxy", "", "10.0.0.2"), "10.0.0.1", netfilter.OrderSecond},
		{"by handles", fmt.Sprintf(numbered, 3, 4), netfilter.NFT, sendsTo("ip", "kube-proxy", " # handle 4", "10.0.0.2"), "10.0.0.2", netfilter.OrderFirst},
		{"by handles, the other way", fmt.Sprintf(numbered, 5, 4), netfilter.NFT, sendsTo("ip", "kube-proxy", " # handle 4", "10.0.0.2"), "10.0.0.1", netfilter.OrderSecond},
		{"a list without the table", "table ip nat\n", netfilter.NFT, sendsTo("ip", "kube-proxy", " # handle 4", "10.0.0.2"), "10.0.0.1", netfilter.OrderUnknown},
		{"legacy", newer, netfilter.Legacy, sendsTo("ip", "kube-proxy", "", "10.0.0.2"), "10.0.0.1", netfilter.OrderUnknown},
		{"not known which backend", newer, netfilter.AnyBackend, sendsTo("ip", "kube-proxy", "", "10.0.0.2"), "10.0.0.1", netfilter.OrderUnknown},
		{"another priority", "", netfilter.NFT, strings.ReplaceAll(sendsTo("ip", "kube-proxy", "", "10.0.0.2"), "dstnat", "-101"), "10.0.0.2", netfilter.OrderApart},
	} {
		t.Run(c.name, func(t *testing.T) {
			saved, _, err := iptables.Parse(savedNAT, iptables.Options{Source: "iptables-save", Family: netfilter.IPv4, Backend: c.backend})
			if err != nil {
				t.Fatal(err)
			}
			listed, _, err := Parse(c.text, Options{Source: "nft"})
			if err != nil {
				t.Fatal(err)
			}
			tables, ok := ReadTables(c.list)
			if !ok {
				t.Fatal("no list of tables")
			}
			rs := Rank(netfilter.Merge(saved, listed), tables)
			if got := ends(t, rs); got != c.want {
				t.Errorf("sent to %s, want %s", got, c.want)
			}
			kp := func(ti netfilter.TableInfo) bool { return ti.Name == "kube-proxy" }
			nat := func(ti netfilter.TableInfo) bool { return ti.Name == "nat" }
			if got := rs.OrderOf(netfilter.IPv4, kp, nat); got != c.order {
				t.Errorf("order %d, want %d", got, c.order)
			}
		})
	}
}

// TestRankMixed: tables whose order is not known keep their places, and those
// of which it is share out the others.
func TestRankMixed(t *testing.T) {
	legacy, _, err := iptables.Parse(strings.ReplaceAll(savedNAT, "10.0.0.1", "10.0.0.3"), iptables.Options{Source: "legacy", Family: netfilter.IPv4, Backend: netfilter.Legacy})
	if err != nil {
		t.Fatal(err)
	}
	saved, _, _ := iptables.Parse(savedNAT, iptables.Options{Source: "nft-save", Family: netfilter.IPv4, Backend: netfilter.NFT})
	listed, _, _ := Parse(sendsTo("ip", "kube-proxy", "", "10.0.0.2")+sendsTo("ip", "other", "", "10.0.0.4"), Options{Source: "nft"})
	tables, _ := ReadTables("table ip kube-proxy\ntable ip nat\ntable ip other\n")
	rs := Rank(netfilter.Merge(saved, legacy, listed), tables)
	var got []string
	for _, c := range rs.BaseChains(netfilter.Prerouting) {
		got = append(got, c.Source+" "+c.Table)
	}
	if diff := cmp.Diff([]string{"nft other", "legacy nat", "nft-save nat", "nft kube-proxy"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReadTables(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Listed
		ok         bool
	}{
		{"text", "table ip nat\n\ntable inet fw\n", []Listed{{"ip", "nat", 0}, {"inet", "fw", 0}}, true},
		{"text with handles", "table ip nat # handle 12\n", []Listed{{"ip", "nat", 12}}, true},
		{"none", "", nil, true},
		{"JSON", `{"nftables": [{"metainfo": {}}, {"table": {"family": "ip6", "name": "a\u0062", "handle": 3}}]}`, []Listed{{"ip6", "ab", 3}}, true},
		{"JSON, none", `{"nftables": [{"metainfo": {}}]}`, nil, true},
		{"JSON, an odd handle", `{"nftables": [{"table": {"family": "ip", "name": "a", "handle": -3}}]}`, []Listed{{"ip", "a", 0}}, true},
		{"JSON, cut", `{"nftables": [{"metainfo": {}}, {"table": {"family": "ip6"`, nil, false},
		{"a ruleset", "table ip nat {\n}\n", nil, false},
		{"a ruleset without a name", "table nat {\n}\n", nil, false},
		{"a ruleset in JSON", `{"nftables": [{"table": {"family": "ip", "name": "a"}}, {"chain": {"family": "ip", "table": "a", "name": "c"}}]}`, nil, false},
		{"something else", "nothing\n", nil, false},
	} {
		got, ok := ReadTables(c.text)
		if ok != c.ok {
			t.Errorf("%s: %t", c.name, ok)
		}
		if diff := cmp.Diff(c.want, got); c.ok && diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
	}
}

// TestTablesOf: handles hold between texts, places within one.
func TestTablesOf(t *testing.T) {
	parsed := func(text string) *netfilter.Ruleset {
		rs, _, err := Parse(text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	one, two := parsed(sendsTo("ip", "a", "", "10.0.0.1")+sendsTo("inet", "b", "", "10.0.0.2")), parsed(sendsTo("ip", "c", "", "10.0.0.3"))
	six, five := parsed(sendsTo("ip", "a", " # handle 6", "10.0.0.1")), parsed(sendsTo("inet", "b", " # handle 5", "10.0.0.2"))
	for name, c := range map[string]struct{ got, want []Listed }{
		"one text": {TablesOf(one), []Listed{{"ip", "a", 0}, {"inet", "b", 0}}},
		"two":      {TablesOf(one, two), nil},
		"handles":  {TablesOf(six, five), []Listed{{"inet", "b", 5}, {"ip", "a", 6}}},
		"mixed":    {TablesOf(six, one), nil},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
