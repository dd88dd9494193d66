//go:build linux

package netfilter_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
)

// rivalRules send one address to a backend, and refuse another of which the
// rival says that it is served.
func rivalRules(backend, refused string) string {
	return "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n" +
		"-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A KUBE-SERVICES -d 10.91.96.30/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\n" +
		"-A KUBE-SVC-A -p tcp -j DNAT --to-destination " + backend + "\nCOMMIT\n" +
		"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A FORWARD -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n" +
		"-A KUBE-SERVICES -d " + refused + "/32 -p tcp -m tcp --dport 8080 -j REJECT\nCOMMIT\n"
}

// TestKernelRivals: the rules of both backends hold at once. What one of them
// refuses is refused, whatever the other says; the destination is rewritten by
// the one that the kernel asks first, and Walk with the tables of that one
// ahead says where it ends. Without them, it is the other's way.
func TestKernelRivals(t *testing.T) {
	for _, order := range [][]string{{"legacy", "nft"}, {"nft", "legacy"}} {
		t.Run(strings.Join(order, " then "), func(t *testing.T) {
			b := newBench(t) // where neither has a chain yet
			first := b.loadText(t, order[0], rivalRules("10.91.2.2:8080", "10.91.2.4"))
			second := b.loadText(t, order[1], rivalRules("10.91.2.3:8080", "10.91.2.5"))
			both := netfilter.Merge(first, second)
			s, err := b.connect(kernelFlow{to: "10.91.96.30:80"})
			if err != nil {
				t.Fatal(err)
			}
			asked := netfilter.Legacy
			for _, backend := range []netfilter.Backend{netfilter.Legacy, netfilter.NFT} {
				is := func(ti netfilter.TableInfo) bool { return ti.Backend == backend }
				ahead := b.walk(both.Ahead(is), kernelFlow{to: "10.91.96.30:80"})
				alone := b.walk(both.Unhooked(func(c netfilter.Chain, r netfilter.Rule) bool {
					return c.Backend != backend && r.Jump == "KUBE-SERVICES"
				}), kernelFlow{to: "10.91.96.30:80"})
				if len(ahead) != 1 || len(alone) != 1 || ahead[0].To != alone[0].To {
					t.Errorf("%s ahead ends at %v, alone at %v", backend, ahead, alone)
					continue
				}
				if ahead[0].To.String() == s.server {
					asked = backend
				}
			}
			t.Logf("loaded %s; the kernel asks %s first", strings.Join(order, ", then "), asked)
			if s.verdict != netfilter.DNAT || s.server != "10.91.2.2:8080" && s.server != "10.91.2.3:8080" {
				t.Errorf("the connection ended as %+v", s)
			}
			for _, f := range []kernelFlow{{to: "10.91.2.4:8080"}, {to: "10.91.2.5:8080"}} {
				s, err := b.connect(f)
				if err != nil {
					t.Fatal(err)
				}
				for _, rs := range []*netfilter.Ruleset{both, both.Ahead(func(ti netfilter.TableInfo) bool { return ti.Backend == netfilter.Legacy })} {
					if o := b.walk(rs, f); len(o) != 1 || o[0].Verdict != netfilter.Reject || s.verdict != netfilter.Reject {
						t.Errorf("%s: the kernel does %+v, the walk says %v", f.to, s, o)
					}
				}
			}
		})
	}
}

// loadText loads rules of one backend, and reads them back.
func (b *bench) loadText(t *testing.T, backend, rules string) *netfilter.Ruleset {
	t.Helper()
	b.command(t, strings.NewReader(rules), "ip", "netns", "exec", b.node, "iptables-"+backend+"-restore")
	text := b.command(t, nil, "ip", "netns", "exec", b.node, "iptables-"+backend+"-save")
	rs, _, err := iptables.Parse(text, iptables.Options{Source: backend, Backend: netfilter.Backend(backend), Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// TestUnhooked: base chains lose the rules that are picked, and nothing else
// changes.
func TestUnhooked(t *testing.T) {
	rs := parse(t, queried, iptables.Options{Source: "node-1", Family: netfilter.IPv4})
	out := rs.Unhooked(func(_ netfilter.Chain, r netfilter.Rule) bool { return r.Jump == "KUBE-SERVICES" })
	pre, ok := out.Chain("nat", "PREROUTING")
	if !ok || pre.NumRules != 0 || pre.Policy != "ACCEPT" {
		t.Errorf("PREROUTING is %+v", pre)
	}
	if c, _ := out.Chain("nat", "LONELY"); c.NumRules != 1 {
		t.Errorf("LONELY is no base chain, and has %d rules", c.NumRules)
	}
	if pre, _ := rs.Chain("nat", "PREROUTING"); pre.NumRules != 1 {
		t.Error("the ruleset itself was changed")
	}
	if same := rs.Unhooked(func(netfilter.Chain, netfilter.Rule) bool { return false }); len(same.Tables()) != len(rs.Tables()) {
		t.Error("tables went")
	}
}

// TestKernelOrder: of two tables that send one address to two backends at one
// priority, the kernel asks the one that was made last, and so says the walk of
// what the kernel then has, by what nft lists of its tables.
func TestKernelOrder(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft on this machine")
	}
	nftTable := func(name, backend string) string {
		return "table ip " + name + " {\n\tchain pre {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tip daddr 10.91.96.30 tcp dport 80 dnat to " + backend + "\n\t}\n}\n"
	}
	const one, two = "10.91.2.2:8080", "10.91.2.3:8080"
	for _, c := range []struct {
		name string
		load [][2]string // tool and rules
		want string
	}{
		{"two of nft", [][2]string{{"nft", nftTable("a", one)}, {"nft", nftTable("b", two)}}, two},
		{"two of nft, the other way", [][2]string{{"nft", nftTable("b", two)}, {"nft", nftTable("a", one)}}, one},
		{"one made anew", [][2]string{{"nft", nftTable("a", one)}, {"nft", nftTable("b", two)}, {"nft", "delete table ip a\n" + nftTable("a", one)}}, one},
		{"one loaded again", [][2]string{{"nft", nftTable("a", one)}, {"nft", nftTable("b", two)}, {"nft", "flush table ip a\n" + nftTable("a", one)}}, two},
		{"iptables-nft, then nft", [][2]string{{"iptables-nft", rivalRules(one, "10.91.2.4")}, {"nft", nftTable("kube-proxy", two)}}, two},
		{"nft, then iptables-nft", [][2]string{{"nft", nftTable("kube-proxy", two)}, {"iptables-nft", rivalRules(one, "10.91.2.4")}}, one},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			for _, l := range c.load {
				argv := []string{"netns", "exec", b.node, l[0] + "-restore"}
				if l[0] == "nft" {
					argv = []string{"netns", "exec", b.node, "nft", "-f", "-"}
				}
				b.command(t, strings.NewReader(l[1]), "ip", argv...)
			}
			s, err := b.connect(kernelFlow{to: "10.91.96.30:80"})
			if err != nil || s.server != c.want {
				t.Fatalf("the kernel sends to %+v (%v), want %s", s, err, c.want)
			}
			for _, flags := range []string{"-j", "-a", ""} {
				rs := b.readBoth(t, flags)
				if out := b.walk(rs, kernelFlow{to: "10.91.96.30:80"}); len(out) != 1 || out[0].To.String() != c.want {
					t.Errorf("nft %s: the kernel sends to %s, the walk says\n%s", flags, c.want, describe(out))
				}
			}
		})
	}
}

// readBoth reads the tables of iptables-nft and, each by itself, those of nft,
// and ranks them by nft's list.
func (b *bench) readBoth(t *testing.T, flags string) *netfilter.Ruleset {
	t.Helper()
	nft := func(args ...string) string {
		return b.command(t, nil, "ip", slices.Concat([]string{"netns", "exec", b.node, "nft"}, strings.Fields(flags), args)...)
	}
	tables, ok := nftables.ReadTables(nft("list", "tables"))
	if !ok || len(tables) == 0 {
		t.Fatalf("nft %s list tables: %v", flags, tables)
	}
	saved, _, err := iptables.Parse(b.command(t, nil, "ip", "netns", "exec", b.node, "iptables-nft-save"), iptables.Options{Source: "iptables-nft-save", Backend: netfilter.NFT, Whole: true})
	if err != nil {
		saved = netfilter.New([]netfilter.Contents{{Whole: true, Family: netfilter.IPv4}}) // no table of it
	}
	parts := []*netfilter.Ruleset{saved}
	for _, table := range tables {
		if table.Name == "nat" || table.Name == "filter" {
			continue
		}
		rs, _, err := nftables.Parse(nft("list", "table", table.Family, table.Name), nftables.Options{Source: "nft list table " + table.Name})
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, rs)
	}
	return nftables.Rank(netfilter.Merge(parts...), tables)
}
