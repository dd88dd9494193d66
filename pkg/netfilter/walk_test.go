package netfilter_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
)

const node = "10.0.0.1"

func testHost() *netfilter.StaticHost {
	return &netfilter.StaticHost{
		Links: []netfilter.Link{
			{Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("fd00::1/64")}},
			{Name: "cni0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
		},
		Complete: true, Forward4: netfilter.True, Forward6: netfilter.True,
	}
}

// table wraps rules into a whole save of one table.
func table(name string, lines ...string) string {
	chains := map[string]string{
		"raw":    ":PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
		"mangle": ":PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n",
		"nat":    ":PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n",
		"filter": ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
	}
	text := "*" + name + "\n"
	for _, c := range strings.SplitAfter(chains[name], "\n") {
		declared := false
		for _, l := range lines {
			declared = declared || c != "" && strings.HasPrefix(l, strings.Fields(c)[0]+" ")
		}
		if !declared {
			text += c
		}
	}
	return text + strings.Join(lines, "\n") + "\nCOMMIT\n"
}

func parse(t *testing.T, text string, opt iptables.Options) *netfilter.Ruleset {
	t.Helper()
	opt.Strict = true
	rs, _, err := iptables.Parse(text, opt)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return rs
}

// short writes outcomes in few words: verdict, destination, probability, and
// what else is not as usual.
func short(outcomes []netfilter.Outcome) []string {
	var out []string
	for _, o := range outcomes {
		s := string(o.Verdict)
		if o.To.IsValid() {
			s += " " + o.To.String()
		}
		if o.Probability != 1 {
			s += fmt.Sprintf(" p=%.3f", o.Probability)
		}
		if o.Masquerade == netfilter.True || o.Masquerade == netfilter.Unknown && o.Verdict != netfilter.Undecided {
			s += " masq=" + o.Masquerade.String()
		}
		if o.Verdict == netfilter.Reject {
			s += " " + o.RejectWith
		}
		if o.Verdict == netfilter.Drop || o.Verdict == netfilter.Reject {
			s += " at " + string(o.Hook)
		}
		for _, u := range o.Unknowns {
			s += "; " + u.Why
		}
		out = append(out, s)
	}
	return out
}

func forwarded() netfilter.Packet {
	return netfilter.Packet{
		Src: netip.MustParseAddr("10.244.0.9"), Dst: netip.MustParseAddr("10.96.0.10"),
		Protocol: netfilter.TCP, DstPort: 80, In: "cni0",
	}
}

func toNode() netfilter.Packet {
	p := forwarded()
	p.Src, p.Dst, p.In = netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr(node), "eth0"
	return p
}

func fromNode(dst string) netfilter.Packet {
	p := forwarded()
	p.Src, p.Dst, p.In, p.LocalProcess = netip.MustParseAddr(node), netip.MustParseAddr(dst), "", true
	return p
}

// TestMatches puts one match ahead of a DROP and asks whether it matched: the
// packet is dropped, passes, or it isn't known.
func TestMatches(t *testing.T) {
	udp := forwarded()
	udp.Protocol = netfilter.UDP
	icmp := forwarded()
	icmp.Protocol, icmp.DstPort = netfilter.ICMP, 0
	withPort := forwarded()
	withPort.SrcPort = 40000
	noIface := forwarded()
	noIface.In = ""
	gre := forwarded()
	gre.Protocol = "47"
	multicast := forwarded()
	multicast.Dst = netip.MustParseAddr("224.0.0.1")
	broadcast := forwarded()
	broadcast.Dst = netip.MustParseAddr("10.244.0.255")

	const drop, pass, unknown = "drop", "none", "unknown"
	for _, c := range []struct {
		match  string
		packet netfilter.Packet
		want   string
	}{
		{"", forwarded(), drop},
		{"-s 10.244.0.9", forwarded(), drop},
		{"-s 10.244.0.9/32", forwarded(), drop},
		{"-s 10.244.0.77/16", forwarded(), drop}, // host bits are masked off
		{"-s 10.244.0.0/255.255.0.0", forwarded(), drop},
		{"-s 10.0.0.9/255.0.0.255", forwarded(), drop},
		{"-s 10.0.0.8/255.0.0.255", forwarded(), pass},
		{"! -s 10.244.0.0/16", forwarded(), pass},
		{"-s ! 10.244.0.0/16", forwarded(), pass}, // as old versions wrote it
		{"! -s 10.245.0.0/16", forwarded(), drop},
		{"-s 0.0.0.0/0", forwarded(), drop},
		{"-d 10.96.0.10/32", forwarded(), drop},
		{"! -d 10.96.0.10/32", forwarded(), pass},
		{"--source 10.244.0.0/16 --destination 10.96.0.0/12 --protocol tcp --in-interface cni0 --out-interface eth+", forwarded(), unknown},
		{"-i cni0", forwarded(), drop},
		{"-i cni+", forwarded(), drop},
		{"-i +", noIface, drop},
		{"-i eth0", forwarded(), pass},
		{"! -i eth0", forwarded(), drop},
		{"-i eth0", noIface, unknown},
		{"-i lo", noIface, pass},
		{"! -i lo", noIface, drop},
		{"-o eth0", forwarded(), unknown}, // no route to the VIP is known
		{"-o lo", forwarded(), pass},
		{"-o eth0", toNode(), pass}, // there is no outgoing interface in INPUT
		{"! -o eth0", toNode(), drop},
		{"-i eth0", fromNode("10.96.0.10"), pass},
		{"-p tcp", forwarded(), drop},
		{"-p 6", forwarded(), drop},
		{"-p TCP", forwarded(), drop},
		{"-p all", forwarded(), drop},
		{"-p 0", forwarded(), drop},
		{"! -p all", forwarded(), pass},
		{"! -p tcp", forwarded(), pass},
		{"-p udp", forwarded(), pass},
		{"-p gre", gre, drop},
		{"-p 47", gre, drop},
		{"-p tcp --dport 80", forwarded(), drop},
		{"-p tcp --dport http", forwarded(), drop},
		{"-p tcp -m tcp --dport 79:81", forwarded(), drop},
		{"-p tcp -m tcp --dport :79", forwarded(), pass},
		{"-p tcp -m tcp --dport 80:", forwarded(), drop},
		{"-p tcp -m tcp ! --dport 80", forwarded(), pass},
		{"-p tcp -m tcp --dport ! 80", forwarded(), pass},
		{"-p tcp --destination-port=80", forwarded(), drop},
		{"-p udp -m udp --dport 80", udp, drop},
		{"-p udp -m udp --dport 80", forwarded(), pass},
		{"-p tcp -m tcp --sport 40000", withPort, drop},
		{"-p tcp -m tcp --sport 40000", forwarded(), unknown},
		{"-p tcp -m tcp --sport 1:65535", forwarded(), drop},
		{"-p tcp -m tcp --dport 80", gre, pass},
		{"-p tcp -m tcp --syn", forwarded(), drop},
		{"-p tcp -m tcp ! --syn", forwarded(), pass},
		{"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", forwarded(), drop},
		{"-p tcp -m tcp --tcp-flags SYN,ACK ACK", forwarded(), pass},
		{"-p tcp -m tcp --tcp-flags ALL NONE", forwarded(), pass},
		{"-p tcp -m tcp --tcp-option 2", forwarded(), unknown},
		{"-p icmp -m icmp --icmp-type 8", icmp, drop},
		{"-p icmp -m icmp --icmp-type echo-request", icmp, drop},
		{"-p icmp -m icmp --icmp-type 3/4", icmp, pass},
		{"-p icmp -m icmp ! --icmp-type any", icmp, pass},
		{"-p tcp -m multiport --dports 79,80,1000:2000", forwarded(), drop},
		{"-p tcp -m multiport --dports 79,1000:2000", forwarded(), pass},
		{"-p tcp -m multiport ! --dports 79,1000:2000", forwarded(), drop},
		{"-p tcp -m multiport --sports 40000", withPort, drop},
		{"-p tcp -m multiport --ports 40000", withPort, drop},
		{"-p tcp -m multiport --ports 80", forwarded(), drop},
		{"-p tcp -m multiport --ports 81", forwarded(), unknown},
		{"-m conntrack --ctstate NEW", forwarded(), drop},
		{"-m conntrack --ctstate NEW,ESTABLISHED", forwarded(), drop},
		{"-m conntrack --ctstate RELATED,ESTABLISHED", forwarded(), pass},
		{"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", forwarded(), drop},
		{"-m conntrack --ctstate INVALID", forwarded(), pass},
		{"-m conntrack --ctstate DNAT", forwarded(), pass},
		{"-m state --state NEW", forwarded(), drop},
		{"-m state ! --state NEW", forwarded(), pass},
		{"-m conntrack --ctorigdst 10.96.0.0/12", forwarded(), drop},
		{"-m conntrack --ctorigdstport 80", forwarded(), drop},
		{"-m conntrack --ctorigsrc 10.96.0.0/12", forwarded(), pass},
		{"-m conntrack --ctreplsrc 10.96.0.10", forwarded(), drop},
		{"-m conntrack --ctproto 6", forwarded(), drop},
		{"-m conntrack --ctdir ORIGINAL", forwarded(), drop},
		{"-m conntrack --ctdir REPLY", forwarded(), pass},
		{"-m conntrack --ctstatus CONFIRMED", forwarded(), pass},
		{"-m mark --mark 0x0", forwarded(), drop},
		{"-m mark --mark 0x4000/0x4000", forwarded(), pass},
		{"-m mark ! --mark 0x4000/0x4000", forwarded(), drop},
		{"-m connmark --mark 1", forwarded(), pass},
		{"-m addrtype --dst-type LOCAL", forwarded(), pass},
		{"-m addrtype --dst-type LOCAL", toNode(), drop},
		{"-m addrtype ! --dst-type LOCAL", forwarded(), drop},
		{"-m addrtype --src-type LOCAL", fromNode("10.96.0.10"), drop},
		{"-m addrtype --dst-type UNICAST", forwarded(), drop},
		{"-m addrtype --dst-type MULTICAST,BROADCAST", forwarded(), pass},
		{"-m addrtype --dst-type MULTICAST", multicast, drop},
		{"-m addrtype --dst-type BROADCAST", broadcast, drop},
		{"-m addrtype --dst-type LOCAL --limit-iface-in", toNode(), unknown},
		{"-m addrtype --limit-iface-in --dst-type LOCAL", forwarded(), pass},
		{"-m addrtype --dst-type BLACKHOLE", forwarded(), unknown},
		{"-m recent --rcheck --seconds 10800 --reap --name X --mask 255.255.255.255 --rsource", forwarded(), pass},
		{"-m recent --update --seconds 60 --name X", forwarded(), pass},
		{"-m recent ! --rcheck --name X", forwarded(), drop},
		{"-m recent --set --name X", forwarded(), drop},
		{"-m recent ! --set --name X", forwarded(), pass},
		{`-m comment --comment "say \"-j ACCEPT\" ! \\"`, forwarded(), drop},
		{"-m comment --comment !", forwarded(), drop},
		{"-m comment --comment -j", forwarded(), drop},
		{"-m nfacct --nfacct-name  x", forwarded(), drop},
		{"-m physdev ! --physdev-is-in", forwarded(), unknown},
		{"-m physdev ! --physdev-is-in", fromNode("10.96.0.10"), drop},
		{"-m limit --limit 5/min --limit-burst 7", forwarded(), unknown},
		{"-m hashlimit --hashlimit-upto 1/sec --hashlimit-name x", forwarded(), unknown},
		{"-m connlimit --connlimit-above 10 --connlimit-mask 32 --connlimit-saddr", forwarded(), unknown},
		{"-m iprange --src-range 10.244.0.1-10.244.0.9", forwarded(), drop},
		{"-m iprange --src-range 10.244.0.1-10.244.0.8", forwarded(), pass},
		{"-m iprange ! --dst-range 10.96.0.10-10.96.0.10", forwarded(), pass},
		{"-m owner --uid-owner 0", forwarded(), pass},
		{"-m owner ! --uid-owner 0", forwarded(), drop},
		{"-m owner --uid-owner 0", fromNode("10.96.0.10"), unknown},
		{"-m set --match-set X src,dst", forwarded(), unknown},
		{"-m set ! --match-set X src", forwarded(), unknown},
		{"-m pkttype --pkt-type broadcast", forwarded(), pass},
		{"-m u32 --u32 0&0xFF=1", forwarded(), unknown},
		{"-m nonesuch --with 1 ! --without -2 --flag", forwarded(), unknown},
		{"-m rpfilter --validmark --invert", forwarded(), pass},
		{"-m rpfilter --loose", forwarded(), drop},
		{"-m cgroup --cgroup 5", forwarded(), pass},
		{"-m socket --transparent", forwarded(), unknown},
		{"-m u32 --u32 0&0xFF=1", forwarded(), unknown},
		{"-m string --algo bm --string x -p udp", forwarded(), pass}, // false beats unknown
		{"--nonesuch 1", forwarded(), unknown},
		{"-f", forwarded(), pass},
		{"! -f", forwarded(), drop},
		{"-m statistic --mode random --probability 0.25000000000", forwarded(), "none p=0.750 drop p=0.250"},
		{"-m statistic --mode random ! --probability 0.25000000000", forwarded(), "drop p=0.750 none p=0.250"},
		{"-m statistic --mode nth --every 4 --packet 0", forwarded(), "none p=0.750 drop p=0.250"},
		{"-m statistic --mode nth --every 1 --packet 0", forwarded(), drop},
		{"-m statistic --mode random --probability 0", forwarded(), pass},
	} {
		t.Run(c.match+" "+string(c.packet.Protocol), func(t *testing.T) {
			var rules []string
			for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
				rules = append(rules, "-A "+chain+" "+c.match+" -j DROP")
			}
			rs := parse(t, table("filter", rules...)+table("nat"), iptables.Options{})
			var got []string
			for _, o := range netfilter.Walk(rs, testHost(), c.packet) {
				s := string(o.Verdict)
				if o.Probability != 1 {
					s += fmt.Sprintf(" p=%.3f", o.Probability)
				}
				got = append(got, s)
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%s: %s, want %s", c.match, s, c.want)
			}
		})
	}
}

// TestWalk is everything that takes more than one rule.
func TestWalk(t *testing.T) {
	v6 := forwarded()
	v6.Src, v6.Dst = netip.MustParseAddr("fd00:1::9"), netip.MustParseAddr("fd00:96::a")
	noForward := testHost()
	noForward.Forward4 = netfilter.False
	unknownForward := testHost()
	unknownForward.Forward4 = netfilter.Unknown
	incomplete := testHost()
	incomplete.Complete = false

	for _, c := range []struct {
		name   string
		text   string
		packet netfilter.Packet
		host   *netfilter.StaticHost
		opt    iptables.Options
		want   []string
	}{
		{name: "nothing speaks of it", text: table("filter") + table("nat"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},
		{name: "accepted by a rule", text: table("filter", "-A FORWARD -s 10.244.0.0/16 -j ACCEPT") + table("nat"), packet: forwarded(), want: []string{"accept 10.96.0.10:80"}},
		{name: "an accept in mangle speaks of nothing", text: table("filter") + table("nat") + table("mangle", "-A FORWARD -j ACCEPT"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},
		{name: "masqueraded", text: table("filter") + table("nat", "-A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE"), packet: forwarded(), want: []string{"accept 10.96.0.10:80 masq=true"}},
		{name: "whether masqueraded hangs on the interface", text: table("filter") + table("nat", "-A POSTROUTING -s 10.244.0.0/16 -o eth0 -j MASQUERADE"), packet: forwarded(),
			want: []string{"none 10.96.0.10:80 masq=unknown; the outgoing interface is not known"}},
		{name: "SNAT to another address", text: table("filter") + table("nat", "-A POSTROUTING -j SNAT --to-source 192.0.2.1"), packet: forwarded(), want: []string{"accept 10.96.0.10:80 masq=true"}},
		{name: "SNAT to its own address", text: table("filter") + table("nat", "-A POSTROUTING -j SNAT --to-source 10.244.0.9"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},

		{name: "reject", text: table("filter", "-A FORWARD -j REJECT --reject-with tcp-reset") + table("nat"), packet: forwarded(), want: []string{"reject 10.96.0.10:80 tcp-reset at FORWARD"}},
		{name: "reject by default", text: table("filter", "-A FORWARD -j REJECT") + table("nat"), packet: forwarded(), want: []string{"reject 10.96.0.10:80 icmp-port-unreachable at FORWARD"}},
		{name: "reject by default, IPv6", text: table("filter", "-A FORWARD -j REJECT") + table("nat"), packet: v6, opt: iptables.Options{Family: netfilter.IPv6},
			want: []string{"reject [fd00:96::a]:80 icmp6-port-unreachable at FORWARD"}},
		{name: "policy", text: table("filter", ":FORWARD DROP [0:0]") + table("nat"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "policy of INPUT", text: table("filter", ":INPUT DROP [0:0]") + table("nat"), packet: toNode(), want: []string{"drop 10.0.0.1:80 at INPUT"}},
		{name: "policy after DNAT", text: table("filter", ":FORWARD DROP [0:0]") + table("nat", "-A PREROUTING -d 10.96.0.10 -j DNAT --to-destination 10.244.1.5"), packet: forwarded(),
			want: []string{"drop 10.244.1.5:80 at FORWARD"}},
		{name: "the node doesn't forward", text: table("filter") + table("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.5"), packet: forwarded(), host: noForward,
			want: []string{"drop 10.244.1.5:80 at FORWARD"}},
		{name: "whether it forwards is not known", text: table("filter") + table("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.5"), packet: forwarded(), host: unknownForward,
			want: []string{"dnat 10.244.1.5:80; whether this node forwards is not known; taken as yes"}},
		{name: "not forwarded, to the node", text: table("filter") + table("nat"), packet: toNode(), host: noForward, want: []string{"none 10.0.0.1:80"}},

		{name: "return to the caller", text: table("filter", ":A - [0:0]", "-A FORWARD -j A", "-A FORWARD -j DROP", "-A A -j RETURN", "-A A -j ACCEPT") + table("nat"), packet: forwarded(),
			want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "return in a base chain", text: table("filter", ":FORWARD DROP [0:0]", "-A FORWARD -j RETURN", "-A FORWARD -j ACCEPT") + table("nat"), packet: forwarded(),
			want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "return after goto passes the caller by", text: table("filter", ":A - [0:0]", ":B - [0:0]", "-A FORWARD -j A", "-A FORWARD -j REJECT", "-A A -g B", "-A A -j DROP", "-A B -j RETURN") + table("nat"), packet: forwarded(),
			want: []string{"reject 10.96.0.10:80 icmp-port-unreachable at FORWARD"}},
		{name: "goto from a base chain ends in the policy", text: table("filter", ":FORWARD DROP [0:0]", ":B - [0:0]", "-A FORWARD -g B", "-A FORWARD -j ACCEPT") + table("nat"), packet: forwarded(),
			want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "a chain that is declared and empty", text: table("filter", ":A - [0:0]", "-A FORWARD -j A") + table("nat"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},
		{name: "a chain that is not in the input", text: table("filter", "-A FORWARD -j A") + table("nat"), packet: forwarded(), want: []string{"unknown 10.96.0.10:80; chain A is not in the input"}},
		{name: "a chain named like a target of old", text: table("filter", ":BALANCE - [0:0]", "-A FORWARD -j BALANCE", "-A BALANCE -j DROP") + table("nat"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "jumps in a loop", text: table("filter", ":A - [0:0]", ":B - [0:0]", "-A FORWARD -j A", "-A A -j B", "-A B -j A") + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; the jump to A is a loop, which the kernel would refuse"}},
		{name: "gotos in a loop", text: table("filter", ":A - [0:0]", ":B - [0:0]", "-A FORWARD -j A", "-A A -g B", "-A B -g A") + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; the jump to A is a loop, which the kernel would refuse"}},
		{name: "a jump to itself", text: table("filter", ":A - [0:0]", "-A FORWARD -j A", "-A A -j A") + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; the jump to A is a loop, which the kernel would refuse"}},

		{name: "random backends", text: table("filter") + table("nat", ":S - [0:0]", "-A PREROUTING -d 10.96.0.10 -j S",
			"-A S -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.244.1.1:8080",
			"-A S -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.1.2:8080",
			"-A S -p tcp -j DNAT --to-destination 10.244.1.3:8080"), packet: forwarded(),
			want: []string{"dnat 10.244.1.1:8080 p=0.333", "dnat 10.244.1.2:8080 p=0.333", "dnat 10.244.1.3:8080 p=0.333"}},
		{name: "equal outcomes are one", text: table("filter") + table("nat", "-A PREROUTING -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.244.1.1:8080", "-A PREROUTING -j DNAT --to-destination 10.244.1.1:8080"), packet: forwarded(),
			want: []string{"dnat 10.244.1.1:8080"}},
		{name: "affinity remembered within the packet", text: table("filter", "-A FORWARD -m recent --set --name X", "-A FORWARD -m recent --rcheck --name X -j DROP") + table("nat"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "hitcount above what one packet makes", text: table("filter", "-A FORWARD -m recent --set --name X", "-A FORWARD -m recent --update --seconds 60 --hitcount 4 --name X -j DROP") + table("nat"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},

		{name: "unknown that matters", text: table("filter", "-A FORWARD -m set --match-set blocked src -j DROP") + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; the contents of set blocked are not in the input"}},
		{name: "unknown that doesn't matter", text: table("filter", "-A FORWARD -m set --match-set blocked src -j DROP", "-A FORWARD -j DROP") + table("nat"), packet: forwarded(),
			want: []string{"drop 10.96.0.10:80 at FORWARD; the contents of set blocked are not in the input"}},
		{name: "unknown whether accepted or passed", text: table("filter", "-A FORWARD -m set --match-set good src -j ACCEPT") + table("nat"), packet: forwarded(),
			want: []string{"none 10.96.0.10:80; the contents of set good are not in the input"}},
		{name: "unknown that only logs", text: table("filter", `-A FORWARD -m limit --limit 5/min -j LOG --log-prefix "gone: " --log-level 4`) + table("nat"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},
		{name: "unknown marks, one world dropped", text: table("filter", "-A FORWARD -m set --match-set a src -j MARK --set-xmark 0x10/0x10", "-A FORWARD -m mark --mark 0x10/0x10 -j DROP") + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; the contents of set a are not in the input"}},
		{name: "unknown marks that nothing asks for", text: table("filter", "-A FORWARD -m set --match-set a src -j MARK --set-xmark 0x10/0x10") + table("nat"), packet: forwarded(),
			want: []string{"none 10.96.0.10:80; the contents of set a are not in the input"}},
		{name: "unknown in half of the ways", text: table("filter", "-A FORWARD -d 10.244.1.1 -m set --match-set a src -j DROP") + table("nat", "-A PREROUTING -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.244.1.1", "-A PREROUTING -j DNAT --to-destination 10.244.1.2"), packet: forwarded(),
			want: []string{"unknown 10.244.1.1:80 p=0.500; the contents of set a are not in the input", "dnat 10.244.1.2:80 p=0.500"}},
		{name: "unknown and random in one rule", text: table("filter", "-A FORWARD -m set --match-set a src -m statistic --mode random --probability 0.25 -j DROP") + table("nat"), packet: forwarded(),
			want: []string{"none 10.96.0.10:80 p=0.750; the contents of set a are not in the input", "unknown 10.96.0.10:80 p=0.250; the contents of set a are not in the input"}},
		{name: "unknown DNAT", text: table("filter") + table("nat", "-A PREROUTING -m set --match-set a src -j DNAT --to-destination 10.244.1.1"), packet: forwarded(),
			want: []string{"unknown; the contents of set a are not in the input"}},
		{name: "queued to a program", text: table("filter", "-A FORWARD -j NFQUEUE --queue-num 1 --queue-bypass") + table("nat"), packet: forwarded(), want: []string{"unknown 10.96.0.10:80; a program decides (NFQUEUE)"}},
		{name: "queued before NAT", text: table("filter") + table("nat") + table("raw", "-A PREROUTING -j NFQUEUE"), packet: forwarded(), want: []string{"unknown; a program decides (NFQUEUE)"}},

		{name: "marks", text: table("mangle", "-A PREROUTING -j MARK --set-mark 0xf0", "-A PREROUTING -j MARK --or-mark 0x1", "-A PREROUTING -j MARK --and-mark 0xf1", "-A PREROUTING -j MARK --xor-mark 0x10", "-A PREROUTING -j MARK --set-xmark 0x2/0x1") +
			table("filter", "-A FORWARD -m mark --mark 0xe2 -j DROP") + table("nat"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "connection marks", text: table("mangle", "-A PREROUTING -j MARK --set-mark 0xff", "-A PREROUTING -j CONNMARK --save-mark --nfmask 0xf --ctmask 0xf", "-A PREROUTING -j MARK --set-mark 0x0", "-A FORWARD -j CONNMARK --restore-mark") +
			table("filter", "-A FORWARD -m mark --mark 0xf -m connmark --mark 0xf/0xf -j DROP") + table("nat"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},

		{name: "nat ends at its accept, others go on", text: table("nat", "-A PREROUTING -j ACCEPT", "-A PREROUTING -j DNAT --to-destination 10.244.1.1") + table("filter", "-A FORWARD -j DROP"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "the filter sees DNAT in the state", text: table("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.1:8080") + table("filter", "-A FORWARD -m conntrack --ctstate DNAT -m conntrack --ctorigdstport 80 -p tcp --dport 8080 -j REJECT"), packet: forwarded(),
			want: []string{"reject 10.244.1.1:8080 icmp-port-unreachable at FORWARD"}},
		{name: "a DNAT to what it was is none", text: table("nat", "-A PREROUTING -j DNAT --to-destination 10.96.0.10") + table("filter"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},
		{name: "untracked packets see no nat", text: table("raw", "-A PREROUTING -j CT --notrack") + table("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.1") + table("filter", "-A FORWARD -m conntrack --ctstate UNTRACKED -j DROP"), packet: forwarded(),
			want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "raw is ahead of conntrack", text: table("raw", "-A PREROUTING -m conntrack --ctstate NEW -j DROP") + table("nat") + table("filter"), packet: forwarded(), want: []string{"none 10.96.0.10:80"}},
		{name: "DNAT in the wrong chain", text: table("nat", "-A POSTROUTING -j DNAT --to-destination 10.244.1.1") + table("filter"), packet: forwarded(), want: []string{"unknown 10.96.0.10:80; the kernel refuses DNAT in this chain"}},
		{name: "a range of addresses", text: table("nat", "-A PREROUTING -j DNAT --to-destination 10.244.1.1-10.244.1.2:8080") + table("filter"), packet: forwarded(), want: []string{"dnat 10.244.1.1:8080 p=0.500", "dnat 10.244.1.2:8080 p=0.500"}},
		{name: "a range of ports that holds the port", text: table("nat", "-A PREROUTING -p tcp -j DNAT --to-destination 10.244.1.1:80-90") + table("filter"), packet: forwarded(), want: []string{"dnat 10.244.1.1:80"}},
		{name: "a range of ports that is shifted into", text: table("nat", "-A PREROUTING -p tcp -j DNAT --to-destination 10.244.1.1:8000-8010/75") + table("filter"), packet: forwarded(), want: []string{"dnat 10.244.1.1:8005"}},
		{name: "a large range", text: table("nat", "-A PREROUTING -p tcp -j DNAT --to-destination 10.244.1.1:1000-60000 --random") + table("filter"), packet: forwarded(), want: []string{"unknown; one of the ports 1000 to 60000 is picked"}},
		{name: "DNAT to IPv6", text: table("nat", "-A PREROUTING -d fd00:96::a/128 -p tcp -j DNAT --to-destination [fd00:1::5]:8080") + table("filter"), packet: v6, want: []string{"dnat [fd00:1::5]:8080"}},
		{name: "redirect on a link with an address", text: table("nat", "-A PREROUTING -p tcp -j REDIRECT --to-ports 9090") + table("filter", "-A INPUT -p tcp --dport 9090 -j ACCEPT", "-A FORWARD -j DROP"), packet: forwarded(), want: []string{"dnat 10.244.0.1:9090"}},
		{name: "redirect from the node", text: table("nat", "-A OUTPUT -p tcp -j REDIRECT --to-ports 9090") + table("filter"), packet: fromNode("10.96.0.10"), want: []string{"dnat 127.0.0.1:9090"}},
		{name: "netmap", text: table("nat", "-A PREROUTING -d 10.96.0.0/20 -j NETMAP --to 10.200.16.0/20") + table("filter"), packet: forwarded(), want: []string{"dnat 10.200.16.10:80"}},
		{name: "several destinations, which no kernel has", text: table("nat", "-A PREROUTING -p tcp -j DNAT --to-destination 10.0.0.2:80 --to-destination 10.0.0.3:80") + table("filter"), packet: forwarded(),
			want: []string{"unknown; target DNAT has several addresses, which kernels since 2.6.11 don't have"}},

		{name: "the node's own packets leave through OUTPUT", text: table("nat", "-A OUTPUT -d 10.96.0.10 -j DNAT --to-destination 10.244.0.5:8080 -p tcp", "-A PREROUTING -j DNAT --to-destination 10.9.9.9") + table("filter", "-A OUTPUT -d 10.244.0.5 -o cni0 -j REJECT", "-A INPUT -j DROP", "-A FORWARD -j DROP"), packet: fromNode("10.96.0.10"),
			want: []string{"unknown 10.244.0.5:8080; the outgoing interface is not known"}},
		{name: "POSTROUTING sees the new route", text: table("nat", "-A OUTPUT -d 10.96.0.10 -p tcp -j DNAT --to-destination 10.244.0.5:8080", "-A POSTROUTING -o cni0 -j MASQUERADE") + table("filter"), packet: fromNode("10.96.0.10"),
			want: []string{"dnat 10.244.0.5:8080 masq=true"}},
		{name: "the node to itself comes back in through lo", text: table("nat", "-A OUTPUT -d 10.96.0.10 -p tcp -j DNAT --to-destination 10.0.0.1:6443", "-A PREROUTING -p tcp -j DNAT --to-destination 10.9.9.9") + table("filter", "-A INPUT -i lo -p tcp --dport 6443 -j REJECT"), packet: fromNode("10.96.0.10"),
			want: []string{"reject 10.0.0.1:6443 icmp-port-unreachable at INPUT"}},
		{name: "NAT in INPUT", text: table("nat", "-A INPUT -j SNAT --to-source 192.0.2.99") + table("filter"), packet: toNode(), want: []string{"accept 10.0.0.1:80 masq=true"}},

		{name: "whether it is the node's address is not known", text: table("nat") + table("filter", "-A FORWARD -j DROP"), packet: forwarded(), host: incomplete,
			want: []string{"unknown 10.96.0.10:80; whether 10.96.0.10 is an address of this node is not known"}},
		{name: "and doesn't matter", text: table("nat") + table("filter"), packet: forwarded(), host: incomplete,
			want: []string{"none 10.96.0.10:80; whether 10.96.0.10 is an address of this node is not known"}},

		{name: "nat alone: a DNAT stands, the filter is in doubt", text: table("nat", "-A PREROUTING -d 10.96.0.10 -p tcp -j DNAT --to-destination 10.244.1.1:8080"), packet: forwarded(), want: []string{"dnat 10.244.1.1:8080; table filter is not in the input"}},
		{name: "nat alone: what passes is not known to pass", text: table("nat"), packet: forwarded(), want: []string{"unknown 10.96.0.10:80; table filter is not in the input"}},
		{name: "nat alone, and it is all there is", text: table("nat"), packet: forwarded(), opt: iptables.Options{Whole: true}, want: []string{"none 10.96.0.10:80"}},
		{name: "filter alone: a DNAT may have come before", text: table("filter", "-A FORWARD -d 10.96.0.10 -j REJECT"), packet: forwarded(), want: []string{"unknown; table nat is not in the input; whether the destination is an address of this node is not known; the address after NAT is not known"}},
		{name: "filter alone: dropped, whatever it is", text: table("filter", "-A FORWARD -j DROP", "-A INPUT -j DROP"), packet: forwarded(), want: []string{"drop at FORWARD; table nat is not in the input"}},
		{name: "other family only", text: table("filter", "-A FORWARD -j DROP") + table("nat"), packet: v6, opt: iptables.Options{Family: netfilter.IPv4},
			want: []string{"unknown; table nat is not in the input; table filter is not in the input"}},

		{name: "cut off after the chain", text: "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n-A PREROUTING -d 10.96.0.10/32 -j A\n-A A -p tcp -j DNAT --to-destination 10.244.1.1:80\n-A B -j RETURN\n", packet: forwarded(),
			want: []string{"dnat 10.244.1.1:80 masq=unknown; the input breaks off on line 8, before COMMIT: rules of this chain may be missing; table filter is not in the input"}},
		{name: "cut off in the chain", text: "*nat\n:PREROUTING ACCEPT [0:0]\n:A - [0:0]\n-A PREROUTING -d 10.96.0.10/32 -j A\n-A A -p udp -j DNAT --to-destination 10.244.1.1:80\n", packet: forwarded(),
			want: []string{"unknown; the input breaks off on line 5, before COMMIT: rules of this chain may be missing"}},
		{name: "cut off in the rule", text: "*nat\n:PREROUTING ACCEPT [0:0]\n:A - [0:0]\n-A PREROUTING -d 10.96.0.10/32 -j A\n-A A -p tcp -j DNAT --to-destination 10.244.1.1", packet: forwarded(),
			want: []string{"unknown; the input breaks off in this line; the input breaks off on line 5, before COMMIT: rules of this chain may be missing"}},
		{name: "a chain without its declaration", text: "*filter\n-A FORWARD -s 10.1.0.0/16 -j ACCEPT\nCOMMIT\n" + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; the chain is not declared in the input, so rules of it may be missing"}},
		{name: "but a rule that decides, decides", text: "*filter\n-A FORWARD -s 10.244.0.0/16 -j DROP\nCOMMIT\n" + table("nat"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},
		{name: "a line that isn't understood", text: table("filter", `-A FORWARD -m comment --comment "open -j DROP`) + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; the quote is not closed"}},
		{name: "a rule that isn't understood, and drops", text: table("filter", `-A FORWARD --what -j DROP`) + table("nat"), packet: forwarded(),
			want: []string{"unknown 10.96.0.10:80; option --what is not understood"}},
		{name: "CRLF and indentation", text: strings.ReplaceAll("\t"+strings.ReplaceAll(table("filter", "[12:34] -A FORWARD -d 10.96.0.10/32 -j DROP")+table("nat"), "\n", "\n\t"), "\n", "\r\n"), packet: forwarded(), want: []string{"drop 10.96.0.10:80 at FORWARD"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := c.host
			if host == nil {
				host = testHost()
			}
			got := netfilter.Walk(parse(t, c.text, c.opt), host, c.packet)
			if diff := cmp.Diff(c.want, short(got)); diff != "" {
				t.Errorf("(-want +got)\n%s%s", diff, describe(got))
			}
		})
	}
}
