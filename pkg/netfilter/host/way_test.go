package host

import (
	"net/netip"
	"testing"
)

const allTables = `default via 172.31.250.1 dev eth0
10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1
10.244.2.0/24 via 172.31.250.12 dev eth0
blackhole 10.244.3.0/26 proto bird
10.244.3.9 dev cali1 scope link
10.244.4.0/24 via 172.31.250.14 dev eth1 dead linkdown
10.244.5.0/24 dev br5 proto kernel scope link linkdown
10.244.6.0/24 proto static
	nexthop via 172.31.250.2 dev eth1 weight 1 dead linkdown
	nexthop via 172.31.250.3 dev eth0 weight 1
10.244.7.0/24 proto static
	nexthop via 172.31.250.2 dev eth1 weight 1 dead linkdown
	nexthop via 172.31.250.3 dev eth2 weight 1 dead
throw 10.244.8.0/24 table 100
10.244.2.0/24 dev tun0 table 100
unreachable default table 200 metric 4294967295
local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1
`

const policyRules = "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n"

func TestWays(t *testing.T) {
	const noDefault = "10.244.1.0/24 dev cni0 scope link\nlocal 127.0.0.0/8 dev lo table local scope host\n"
	tests := []struct {
		name, routes, rules, dst, src string
		want                          string // the ways, "|" between; "?" where it cannot be told
	}{
		{"a remote pod", allTables, policyRules, "10.244.2.9", "", "10.244.2.0/24 eth0"},
		{"a local pod", allTables, policyRules, "10.244.1.9", "", "10.244.1.0/24 cni0"},
		{"a block of the CNI's without the pod's own route", allTables, policyRules, "10.244.3.8", "", "10.244.3.0/26 blackhole"},
		{"and with it", allTables, policyRules, "10.244.3.9", "", "10.244.3.9/32 cali1"},
		{"a dead route is passed over", allTables, policyRules, "10.244.4.9", "", "0.0.0.0/0 eth0"},
		{"a route without carrier is taken", allTables, policyRules, "10.244.5.9", "", "10.244.5.0/24 br5"},
		{"one of two ways is dead", allTables, policyRules, "10.244.6.9", "", "10.244.6.0/24 eth0"},
		{"both are", allTables, policyRules, "10.244.7.9", "", "0.0.0.0/0 eth0"},
		{"no route", noDefault, policyRules, "10.244.2.9", "", "none"},
		{"no route, and the rules were not read", noDefault, "", "10.244.2.9", "", "none"},
		{"no route in table main, and the others were not read", "10.244.1.0/24 dev cni0\n", "", "10.244.2.9", "", "?"},
		{"another table may be asked, the rules were not read", allTables, "", "10.244.2.9", "", "10.244.2.0/24 tun0|0.0.0.0/0 unreachable|10.244.2.0/24 eth0"},
		{"a mark may lead elsewhere", allTables, "0:\tfrom all lookup local\n100: from all fwmark 0x80/0x80 lookup 100\n32766: from all lookup main\n", "10.244.2.9", "", "10.244.2.0/24 tun0|10.244.2.0/24 eth0"},
		{"throw goes back to the rules", allTables, "100: from all lookup 100\n32766: from all lookup main\n", "10.244.8.9", "", "0.0.0.0/0 eth0"},
		{"by its source", allTables, "100: from 10.244.1.0/24 lookup 200\n32766: from all lookup main\n", "10.244.2.9", "10.244.1.5", "0.0.0.0/0 unreachable"},
		{"not by its source", allTables, "100: not from 10.244.1.0/24 lookup 200\n32766: from all lookup main\n", "10.244.2.9", "10.244.1.5", "10.244.2.0/24 eth0"},
		{"by its destination", allTables, "100: from all to 10.244.2.0/24 prohibit\n32766: from all lookup main\n", "10.244.2.9", "", "rule"},
		{"suppressed", allTables, "100: from all lookup main suppress_prefixlength 0\n200: from all unreachable\n", "192.0.2.1", "", "rule"},
		{"a goto", allTables, "100: from all goto 300\n200: from all blackhole\n300: from all lookup main\n", "10.244.1.9", "", "10.244.1.0/24 cni0"},
		{"IPv6 was not read", allTables, policyRules, "fd00::1", "", "?"},
		{"IPv6", "unreachable default dev lo metric 4294967295 error -101 pref medium\nfd00:1::/64 dev cni0 proto kernel metric 256 pref medium\n", "", "fd00:2::1", "", "::/0 unreachable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := &Host{}
			h.ParseRoute(tt.routes)
			h.ParseRule(tt.rules, false)
			q := Query{Dst: netip.MustParseAddr(tt.dst)}
			if tt.src != "" {
				q.Src = netip.MustParseAddr(tt.src)
			}
			ways, ok := h.Ways(q)
			got := "?"
			if ok {
				got = ""
				for i, w := range ways {
					if i > 0 {
						got += "|"
					}
					switch {
					case w.Rule != nil:
						got += "rule"
					case w.None():
						got += "none"
					case w.Refused():
						got += w.Route.Prefix.String() + " " + w.Route.Type
					default:
						got += w.Route.Prefix.String() + " " + w.Route.Dev
					}
				}
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRuleFamily(t *testing.T) {
	for text, want := range map[string][2]bool{
		policyRules: {false, true},
		"0:\tfrom all lookup local\n32766:\tfrom all lookup main\n":                          {false, false},
		"0:\tfrom all lookup local\n9: from fd00::/8 lookup 7\n":                             {true, true},
		"0:\tfrom all lookup local\n9: from all to 10.0.0.0/8 lookup 7\n":                    {false, true},
		"9:\tnot from all fwmark 0x1 lookup 5\n32767: from all lookup default\nand so on:\n": {false, true},
	} {
		if v6, known := RuleFamily(text); v6 != want[0] || known != want[1] {
			t.Errorf("%q: got %v %v", text, v6, known)
		}
	}
}

func FuzzRule(f *testing.F) {
	f.Add(policyRules+"1: from all to 10.0.0.0/8 iif eth0 fwmark 0x1 lookup 9\n2: from all goto 3\n3: [detached] from all iif x lookup y\n", allTables)
	f.Fuzz(func(t *testing.T, rules, routes string) {
		h := &Host{}
		h.ParseRoute(routes)
		h.ParseRule(rules, false)
		h.ParseRule(rules, true)
		RuleFamily(rules)
		for _, dst := range []string{"10.0.0.1", "fd00::1"} {
			ways, ok := h.Ways(Query{Dst: netip.MustParseAddr(dst), Src: netip.MustParseAddr("10.244.1.1")})
			if ok && len(ways) == 0 {
				t.Error("decided on no way at all")
			}
		}
	})
}
