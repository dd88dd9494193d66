package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       error
		says       string
	}{
		{"empty", "", ErrEmpty, "read node-1: the input is empty"},
		{"blank", " \n\t\r\n", ErrEmpty, ""},
		{"no table", "Error: syntax error\n", ErrNoTable, ""},
		{"another tool's", "*nat\n:PREROUTING ACCEPT\nCOMMIT\n", ErrNoTable, ""},
		{"binary", "table ip x {\n\x00", ErrBinary, "line 2, column 1: a zero byte"},
		{"JSON of another kind", `{"apiVersion": "v1", "kind": "Pod"}`, ErrJSON, ""},
		{"JSON list of another kind", `[1, 2]`, ErrJSON, ""},
		{"JSON cut at once", `{"nftables": [`, ErrNoTable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs, _, err := Parse(c.text, Options{Source: "node-1"})
			if !errors.Is(err, c.want) || rs != nil {
				t.Fatalf("%v, %v; want the error %v", rs, err, c.want)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
	if rs, problems, err := Parse(`{"nftables": [{"metainfo": {"version": "1.0.6"}}]}`, Options{Whole: true}); err != nil || len(problems) > 0 || !rs.Whole(netfilter.IPv4) {
		t.Errorf("a ruleset without tables: %v %v", problems, err)
	}
}

func TestProblems(t *testing.T) {
	const rule = `{"nftables": [{"table": {"family": "ip", "name": "x"}}, {"chain": {"family": "ip", "table": "x", "name": "c"}}, {"rule": {"family": "ip", "table": "x", "chain": "c", "expr": [%s]}}]}`
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"none", "table ip x { # handle 1\n\tchain c { # handle 1\n\t\taccept # handle 2\n\t}\n}\n", nil},
		{"on one line", "table ip x { chain c { type filter hook input priority 0; policy drop; tcp dport { 22, 80 } accept; drop; }; set s { type ipv4_addr; elements = { 1.2.3.4 } } }\n", nil},
		{"a rule on several lines", "table ip x {\n\tchain c {\n\t\ttcp dport {\n\t\t\t22,\n\t\t\t80\n\t\t} accept\n\t\tdrop\n\t}\n}\n", nil},
		{"a statement", "table ip x {\n\tchain c {\n\t\tip saddr 1.2.3.4 frobnicate\n\t}\n}\n", []string{"3:20 unknown-rule"}},
		{"an address", "table ip x {\n\tchain c {\n\t\tip saddr 1.2.3.400 drop\n\t}\n}\n", []string{"3:12 unknown-rule"}},
		{"a quote", "table ip x {\n\tchain c {\n\t\tdrop comment \"x\n\t}\n}\n", []string{"3:16 unknown-rule"}},
		{"what nft has no words for", "table ip x {\n\tchain c {\n\t\tip saddr 1.2.3.4 # recent: CHECK counter drop\n\t}\n}\n", []string{"3:19 unknown-rule"}},
		{"a set that is not there", "table ip x {\n\tset s {\n\t\ttype ipv4_addr\n\t\telements = { 1.2.3.4, nonsense }\n\t}\n}\n", []string{"4:15 unknown-elements"}},
		{"cut in a chain", "table ip x {\n\tchain c {\n\t\taccept\n", []string{"3:8 truncated"}},
		{"cut in elements", "table ip x {\n\tset s {\n\t\ttype ipv4_addr\n\t\telements = { 1.2.3.4,\n", []string{"4:23 truncated", "4:15 unknown-elements"}},
		{"a stray line", "$ nft list ruleset\ntable ip x {\n}\n", []string{"1:1 unknown-line"}},
		{"a chain twice", "table ip x {\n\tchain c {\n\t}\n\tchain c {\n\t}\n}\n", []string{"4:2 duplicate"}},
		{"another family", "table bridge x {\n\tchain c {\n\t}\n}\n", []string{"1:1 other-family"}},
		{"a flowtable", "table ip x {\n\tflowtable f {\n\t\thook ingress priority filter\n\t\tdevices = { eth0 }\n\t}\n}\n", []string{"2:2 flowtable"}},
		{"iptables' table", "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n", []string{"1:1 iptables-view"}},
		{"warned of", "# Warning: table ip filter is managed by iptables-nft, do not touch!\ntable ip filter {\n\tchain X {\n\t}\n}\n", []string{"2:1 iptables-view"}},
		{"an unknown hook", "table ip x {\n\tchain c {\n\t\ttype filter hook nowhere priority 0; policy accept;\n\t}\n}\n", []string{"3:3 unknown-chain"}},
		{"terse", "table ip kube-proxy {\n\tmap service-ips {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n\t}\n\tchain service-AAAA-ns/x/tcp/p {\n\t}\n}\n", []string{"1:1 unknown-elements", "2:2 unknown-elements"}},
		{"JSON", fmt.Sprintf(rule, `{"accept": null}`), nil},
		{"a JSON statement", fmt.Sprintf(rule, `{"frobnicate": null}`), []string{"1:113 unknown-rule"}},
		{"JSON with lines", strings.ReplaceAll(fmt.Sprintf(rule, `{"frobnicate": null}`), "{\"rule", "\n {\"rule"), []string{"2:2 unknown-rule"}},
		{"JSON cut", fmt.Sprintf(rule, `{"accept": null}`)[:140], []string{"1:113 truncated"}},
		{"JSON list alone", `[{"table": {"family": "ip", "name": "x"}}]`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems, err := Parse(c.text, Options{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Kind))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s%v", diff, problems)
			}
		})
	}
}

// statementHost knows one address of its own, and one route.
var statementHost = &netfilter.StaticHost{
	Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Complete: true, Forward4: netfilter.True, Forward6: netfilter.True,
	Routes: []netfilter.StaticRoute{{To: netip.MustParsePrefix("10.2.0.0/16"), Iface: "cali123"}},
}

// TestStatements walks a packet from 10.1.0.5 port 40000, in by eth0, to
// 10.2.0.7 port 80, TCP, through one rule in FORWARD behind which everything
// is accepted.
func TestStatements(t *testing.T) {
	const sets = `
	set s { type ipv4_addr; flags interval; elements = { 10.1.0.0/16, 11.0.0.1-11.0.0.5 } }
	set pair { type ipv4_addr . inet_service; flags interval; elements = { 10.2.0.0/24 . 80-90 } }
	set dyn { type ipv4_addr; flags dynamic,timeout; timeout 1h; elements = { 10.1.0.9 expires 5m, 10.1.0.5 timeout 2h expires 1h59m } }
	set ifs { type ifname; flags interval; elements = { "lo", "cali*" } }
	set of { typeof ip saddr . tcp dport; elements = { 10.1.0.5 . 80 comment "a, b" counter packets 0 bytes 0 } }
	map m { type ipv4_addr : verdict; flags interval; elements = { 10.2.0.0/16 comment "x" : drop, 10.3.0.0/16 : accept } }
	chain sub { return; }
	chain drops { drop; }`
	for rule, want := range map[string]string{
		"drop":                           "drop",
		"counter packets 1 bytes 2 drop": "drop",
		"ip saddr 10.1.0.5 drop":         "drop",
		"ip saddr 10.1.0.0/16 ip daddr 10.2.0.1-10.2.0.9 drop": "drop",
		"ip saddr != 10.1.0.0/16 drop":                         "accept",
		"ip saddr { 10.1.0.4, 10.1.0.5 } drop":                 "drop",
		"ip saddr != { 10.1.0.4, 10.1.0.5 } drop":              "accept",
		"ip6 saddr != fd00::/8 drop":                           "accept",
		"ip saddr @s drop":                                     "drop",
		"ip daddr @s drop":                                     "accept",
		"ip daddr . tcp dport @pair drop":                      "drop",
		"ip daddr . tcp sport @pair drop":                      "accept",
		"ip saddr @dyn drop":                                   "drop",
		"ip daddr @dyn drop":                                   "accept",
		"ip saddr . tcp dport @of drop":                        "drop",
		"ip saddr @nowhere drop":                               "unknown: set nowhere is not in the input",
		"iifname @ifs drop":                                    "accept",
		"oifname @ifs drop":                                    "drop",
		"iifname \"eth0\" oifname \"cali*\" drop":              "drop",
		"iifname { \"eth1\", \"lo\" } drop":                    "accept",
		"iif \"lo\" drop":                                      "accept",
		"ip daddr vmap @m":                                     "drop",
		"ip saddr vmap @m":                                     "accept",
		"ip daddr vmap { 10.2.0.7 : jump drops, * : accept }":  "drop",
		"tcp dport vmap { 22 : drop, 79-81 : goto sub } drop":  "accept",
		"meta l4proto vmap { tcp : continue } drop":            "drop",
		"tcp dport 80 drop":                                    "drop",
		"tcp dport http drop":                                  "drop",
		"tcp dport { 22, 80-90, 443 } drop":                    "drop",
		"tcp dport != 80 drop":                                 "accept",
		"tcp dport > 79 tcp dport <= 80 drop":                  "drop",
		"tcp dport < 80 drop":                                  "accept",
		"udp dport != 80 drop":                                 "accept",
		"th dport 80 drop":                                     "drop",
		"tcp sport 40000 drop":                                 "drop",
		"meta l4proto tcp drop":                                "drop",
		"meta l4proto { 17, 132 } drop":                        "accept",
		"ip protocol 6 drop":                                   "drop",
		"meta nfproto ipv4 drop":                               "drop",
		"meta protocol ip6 drop":                               "accept",
		"tcp flags syn / fin,syn,rst,ack drop":                 "drop",
		"tcp flags & (fin | syn | rst | ack) == syn drop":      "drop",
		"tcp flags & (fin|syn) != 0x2 drop":                    "accept",
		"tcp flags ack drop":                                   "accept",
		"icmp type echo-request drop":                          "accept",
		"ct state new drop":                                    "drop",
		"ct state established,related drop":                    "accept",
		"ct state { new, untracked } drop":                     "drop",
		"ct state != new drop":                                 "accept",
		"ct state 0x8 drop":                                    "drop",
		"ct state vmap { established : accept, new : drop }":   "drop",
		"ct status dnat drop":                                  "accept",
		"ct status & dnat != 0 drop":                           "accept",
		"ct direction original drop":                           "drop",
		"ct original ip daddr 10.2.0.7 drop":                   "drop",
		"ct original proto-dst 81 drop":                        "accept",
		"ct reply ip saddr 10.2.0.7 drop":                      "drop",
		"meta mark 0x0 drop":                                   "drop",
		"meta mark set 0x5 meta mark & 0x4 == 0x4 drop":        "drop",
		"meta mark set meta mark | 0x00004000 meta mark & 0x00004000 != 0x00000000 drop":                                         "drop",
		"meta mark set mark or 0x1 meta mark set meta mark xor 0x1 meta mark 0x1 drop":                                           "accept",
		"meta mark set meta mark & 0xffff01ff | 0x100 ct mark set meta mark & 0xff00 meta mark set ct mark meta mark 0x100 drop": "drop",
		"meta mark set 0x2 ct mark set mark ct mark & 0x2 == 2 drop":                                                             "drop",
		"fib daddr type local drop":                                   "accept",
		"fib daddr type != local drop":                                "drop",
		"fib saddr type { local, broadcast } drop":                    "accept",
		"fib saddr . iif oif missing drop":                            "unknown: by which interface 10.1.0.5 is reached is not known",
		"fib daddr oif \"eth0\" drop":                                 "unknown: it depends on the node's routes",
		"meta skuid 0 drop":                                           "accept",
		"meta pkttype { broadcast, multicast } drop":                  "accept",
		"numgen random mod 10 < 0 drop":                               "accept",
		"numgen random mod 2 0 drop":                                  "drop 0.50 accept 0.50",
		"numgen inc mod 4 vmap { 0 : drop, 1-2 : accept }":            "accept 0.50 drop 0.25 accept 0.25",
		"meta random & 2147483647 < 536870912 drop":                   "accept 0.75 drop 0.25",
		"jhash ip saddr mod 2 vmap { 0 : drop, 1 : jump drops }":      "drop",
		"jhash ip saddr mod 2 seed 0x1 vmap { 0 : drop, 1 : accept }": "unknown: it depends on a hash that only the kernel knows",
		"symhash mod 1 vmap { 0 : drop }":                             "drop",
		"limit rate 3/second burst 5 packets drop":                    "unknown: whether the rate limit is exceeded is not known",
		"limit rate over 10 mbytes/second drop":                       "unknown: whether the rate limit is exceeded is not known",
		"limit rate 3/second accept":                                  "accept",
		"quota over 25 mbytes drop":                                   "unknown: whether the quota is used up is not known",
		"ct count over 10 drop":                                       "unknown: how many connections there are is not known",
		"ip ttl < 5 drop":                                             "unknown: the packet's ttl is not known",
		"meta hour \"10:00\"-\"11:00\" drop":                          "unknown: the packet's hour is not known",
		"socket transparent 1 drop":                                   "unknown: the packet's socket transparent is not known",
		"ether saddr 00:11:22:33:44:55 drop":                          "unknown: the packet's ether saddr is not known",
		"@th,0,16 0x50 drop":                                          "unknown: what the packet has at @th is not known",
		"queue num 3 bypass":                                          "unknown: the packet is queued to a program, which decides",
		"queue flags bypass to 1-4":                                   "unknown: the packet is queued to a program, which decides",
		"update @dyn { ip saddr timeout 3h } drop":                    "drop",
		"add @dyn { ip saddr limit rate 10/second } drop":             "unknown: whether the rate limit of this packet's element is exceeded is not known",
		"meter m size 128 { ip saddr limit rate 1/second } drop":      "unknown: whether the rate limit of this meter is exceeded is not known",
		"log prefix \"a drop\" level info flags tcp sequence,options flags ip options drop": "drop",
		"log group 2 snaplen 64 drop":            "drop",
		"ip dscp set cs1 drop":                   "unknown: what a packet becomes whose headers are rewritten without NAT is not followed",
		"tcp option maxseg size set rt mtu drop": "drop",
		"meta nftrace set 1 drop":                "drop",
		"meta priority set 1:2 drop":             "drop",
		"ct helper set \"ftp\" drop":             "drop",
		"ct zone set 5 drop":                     "drop",
		"flow add @f drop":                       "drop",
		"notrack drop":                           "drop",
		"reject":                                 "reject icmp-port-unreachable",
		"reject with tcp reset":                  "reject tcp-reset",
		"reject with icmpx admin-prohibited":     "reject icmpx-admin-prohibited",
		"reject with icmp type host-unreachable": "reject icmp-host-unreachable",
		"reject with icmp 13":                    "reject icmp-admin-prohibited",
		"reject with icmpv6 no-route":            "accept",
		"xt match \"comment\" drop":              "drop",
		"xt match recent drop":                   "unknown: nft does not show what iptables' match recent asks; iptables-save does",
		"xt target \"REJECT\"":                   "reject icmp-port-unreachable",
		"jump sub":                               "accept",
		"goto drops":                             "drop",
		"return":                                 "accept",
		"jump nowhere":                           "unknown: chain nowhere is not in the input",
		"last used never drop":                   "drop",
		"tproxy to :80 accept":                   "unknown: what tproxy does is not followed",
	} {
		t.Run(rule, func(t *testing.T) {
			text := "table inet x {\n" + sets + "\n\tchain c {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\t" + rule + "\n\t}\n}\n"
			rs, _, err := Parse(text, Options{Whole: true})
			if err != nil {
				t.Fatal(err)
			}
			got := inShort(netfilter.Walk(rs, statementHost, netfilter.Packet{
				Src: netip.MustParseAddr("10.1.0.5"), SrcPort: 40000, In: "eth0",
				Dst: netip.MustParseAddr("10.2.0.7"), DstPort: 80, Protocol: netfilter.TCP,
			}))
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// inShort is each outcome's verdict, with its odds where there are several.
func inShort(outcomes []netfilter.Outcome) string {
	var out []string
	for _, o := range outcomes {
		s := string(o.Verdict)
		switch {
		case o.Verdict == netfilter.None:
			s = "accept"
		case o.Verdict == netfilter.DNAT:
			s += " " + o.To.String()
		case o.Verdict == netfilter.Reject:
			s += " " + o.RejectWith
		case o.Verdict == netfilter.Undecided:
			s += ": " + o.Unknowns[0].Why
		}
		if o.Probability < 0.999 {
			s += fmt.Sprintf(" %.2f", o.Probability)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// TestNAT walks the same packet through one rule of a nat chain.
func TestNAT(t *testing.T) {
	for rule, want := range map[string]string{
		"dnat ip to 10.9.0.1":                "dnat 10.9.0.1:80",
		"dnat ip to 10.9.0.1:8080":           "dnat 10.9.0.1:8080",
		"dnat to 10.9.0.1:8080 fully-random": "dnat 10.9.0.1:8080",
		"dnat ip6 to [fd00::1]:8080":         "accept",
		"dnat ip to 10.9.0.1-10.9.0.2:8080":  "dnat 10.9.0.1:8080 0.50 dnat 10.9.0.2:8080 0.50",
		"dnat to :8080":                      "dnat 10.2.0.7:8080",
		"redirect to :8080":                  "dnat invalid AddrPort",
		"dnat ip to numgen random mod 2 map { 0 : 10.9.0.1 . 8080, 1 : 10.9.0.2 . 8081 }": "dnat 10.9.0.1:8080 0.50 dnat 10.9.0.2:8081 0.50",
		"dnat ip addr . port to numgen random mod 4 map { 0-2 : 10.9.0.1 . 8080 }":        "dnat 10.9.0.1:8080 0.75 accept 0.25",
		"dnat ip to ip saddr map { 10.1.0.0/16 : 10.9.0.1 }":                              "dnat 10.9.0.1:80",
		"dnat ip to ip daddr . tcp dport map { 10.2.0.7 . 80 : 10.9.0.1 . 8080 }":         "dnat 10.9.0.1:8080",
		"dnat ip to ip daddr . tcp dport map { 10.2.0.8 . 80 : 10.9.0.1 . 8080 }":         "accept",
		"meta l4proto tcp dnat ip to 10.9.0.1:tcp dport map { 80 : 8087 }":                "dnat 10.9.0.1:8087",
		"dnat ip to ip daddr map @targets":                                                "dnat 10.9.0.3:80",
		"dnat ip to jhash ip saddr mod 2 map { 0 : 10.9.0.1, 1 : 10.9.0.2 }":              "unknown: it depends on a hash that only the kernel knows",
		"dnat ip prefix to 10.9.0.0/24":                                                   "unknown: NAT of whole networks is not followed",
		"snat to 10.9.0.1":                                                                "unknown: the kernel refuses SNAT in this chain",
	} {
		t.Run(rule, func(t *testing.T) {
			text := "table inet x {\n\tmap targets { type ipv4_addr : ipv4_addr; elements = { 10.2.0.7 : 10.9.0.3 } }\n\tchain c {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\t" + rule + "\n\t}\n}\n"
			rs, _, err := Parse(text, Options{Whole: true})
			if err != nil {
				t.Fatal(err)
			}
			got := inShort(netfilter.Walk(rs, statementHost, netfilter.Packet{
				Src: netip.MustParseAddr("10.1.0.5"), SrcPort: 40000, In: "eth0",
				Dst: netip.MustParseAddr("10.2.0.7"), DstPort: 80, Protocol: netfilter.TCP,
			}))
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestUnknownBothWays: where the interface isn't known, a verdict map on it is
// followed each way, and what they agree on stands.
func TestUnknownBothWays(t *testing.T) {
	for elements, want := range map[string]string{
		`"a" : drop, "b" : drop`:           "unknown: the incoming interface is not known",
		`"a" : drop, "b" : drop, * : drop`: "drop",
		`"a" : accept, "b" : jump returns`: "accept",
		`"a" : accept, "b" : drop`:         "unknown: the incoming interface is not known",
		`"lo" : drop`:                      "accept",
	} {
		text := "table ip x {\n\tchain returns { return; }\n\tchain c {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\tiifname vmap { " + elements + " }\n\t}\n}\n"
		rs, _, err := Parse(text, Options{Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		got := inShort(netfilter.Walk(rs, statementHost, netfilter.Packet{
			Src: netip.MustParseAddr("10.1.0.5"), Dst: netip.MustParseAddr("10.2.0.7"), DstPort: 80, Protocol: netfilter.TCP,
		}))
		if got != want {
			t.Errorf("%s: got %q, want %q", elements, got, want)
		}
	}
}

// TestCases walks what was posted in public.
func TestCases(t *testing.T) {
	read := func(name string) *netfilter.Ruleset {
		rs, problems, err := Parse(oracletest.ReadFile(t, oracletest.Shared(t, "cases", name)), Options{Strict: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range problems {
			t.Logf("%s: %s", name, p)
		}
		return rs
	}
	host := &netfilter.StaticHost{Addresses: []netip.Addr{netip.MustParseAddr("10.34.4.246"), netip.MustParseAddr("10.34.4.247")}, Complete: true, Forward4: netfilter.True}
	walk := func(rs *netfilter.Ruleset, to string) []netfilter.Outcome {
		dst := netip.MustParseAddrPort(to)
		return netfilter.Walk(rs, host, netfilter.Packet{Src: netip.MustParseAddr("10.42.1.9"), Dst: dst.Addr(), DstPort: dst.Port(), Protocol: netfilter.TCP})
	}
	rs := read("069-nftables-no-endpoints/nft.txt")
	for to, want := range map[string]string{
		"10.43.21.102:4317": "reject icmp-port-unreachable",
		"10.43.21.102:4318": "reject icmp-port-unreachable",
		"10.43.34.64:3001":  "dnat 10.42.0.174:3001",
		"10.43.34.64:3002":  "reject icmp-port-unreachable", // no Service has that port
		"10.43.99.99:80":    "drop",                         // no Service has that address
		"10.34.4.247:30000": "accept",                       // node ports are served on one address alone
	} {
		if got := inShort(walk(rs, to)); got != want {
			t.Errorf("069: to %s got %q, want %q", to, got, want)
		}
	}
	if got := walk(rs, "10.34.4.246:30000"); len(got) != 9 || got[0].Verdict != netfilter.DNAT {
		t.Errorf("069: the node port has %d ways, want 9: %s", len(got), inShort(got))
	}
	// Chains of iptables mode, posted without their table: nothing can be said.
	for _, name := range []string{"nft-calico8025.txt", "nft-two-nodes.txt"} {
		rs := read("071-nft-view-of-iptables-nft/" + name)
		if rs.HasTable(netfilter.IPv4, "kube-proxy") || !rs.Tables()[0].Compat {
			t.Errorf("071: %s is taken for nftables mode", name)
		}
		if got := inShort(walk(rs, "10.43.0.10:53")); !strings.HasPrefix(got, "unknown") {
			t.Errorf("071: %s: got %q, want unknown", name, got)
		}
	}
}
