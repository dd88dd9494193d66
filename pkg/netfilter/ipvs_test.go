package netfilter_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/netfilter/ipset"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/netfilter/ipvs"
)

const virtualHeader = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n"

func virtual(t *testing.T, list string) *netfilter.VirtualServers {
	t.Helper()
	v, problems, err := ipvs.Parse(virtualHeader+list, "ipvsadm -Ln")
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	return v
}

// ipvsHost is testHost with the addresses of Services.
func ipvsHost(vips ...string) *netfilter.StaticHost {
	h := testHost()
	for _, v := range vips {
		h.Addresses = append(h.Addresses, netip.MustParseAddr(v))
	}
	h.Sysctls = map[string]string{"net.ipv4.vs.conntrack": "1"}
	return h
}

func TestVirtualServers(t *testing.T) {
	const (
		vip = "10.96.0.10"
		two = "TCP  10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq 1 0 0\n  -> 10.244.0.6:8080 Masq 1 0 0\n"
	)
	mark := table("nat", "-A PREROUTING -j MARK --set-xmark 0x4000/0x4000", "-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE")
	tests := []struct {
		name, rules, list string
		src, dst          string
		local             bool
		host              *netfilter.StaticHost
		want              []string
	}{
		{name: "drawn in turn", list: two, want: []string{"dnat 10.244.0.5:8080 p=0.500", "dnat 10.244.0.6:8080 p=0.500"}},
		{name: "from the node", list: two, src: node, local: true, want: []string{"dnat 10.244.0.5:8080 p=0.500", "dnat 10.244.0.6:8080 p=0.500"}},
		{name: "marked before, masqueraded after", rules: mark, list: two, want: []string{"dnat 10.244.0.5:8080 p=0.500 masq=true", "dnat 10.244.0.6:8080 p=0.500 masq=true"}},
		{name: "no virtual server: a process of the node may answer", list: "TCP 10.96.0.11:80 rr\n", want: []string{"none 10.96.0.10:80"}},
		{name: "no real server", list: "TCP 10.96.0.10:80 rr\n", want: []string{"reject 10.96.0.10:80 icmp-port-unreachable at INPUT"}},
		{name: "no real server, from the node", list: "TCP 10.96.0.10:80 rr\n", local: true, src: node, want: []string{"reject 10.96.0.10:80 icmp-port-unreachable at OUTPUT"}},
		{name: "all quiesced", list: "TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq 0 0 0\n", want: []string{"reject 10.96.0.10:80 icmp-port-unreachable at INPUT"}},
		{name: "one quiesced", list: "TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq 0 0 0\n  -> 10.244.0.6:8080 Masq 1 0 0\n", want: []string{"dnat 10.244.0.6:8080"}},
		{name: "by weight", list: "TCP 10.96.0.10:80 wrr\n  -> 10.244.0.5:8080 Masq 3 0 0\n  -> 10.244.0.6:8080 Masq 1 0 0\n", want: []string{"dnat 10.244.0.5:8080 p=0.750", "dnat 10.244.0.6:8080 p=0.250"}},
		{name: "rr takes no notice of weights", list: "TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq 3 0 0\n  -> 10.244.0.6:8080 Masq 1 0 0\n", want: []string{"dnat 10.244.0.5:8080 p=0.500", "dnat 10.244.0.6:8080 p=0.500"}},
		{
			name: "by a hash", list: "TCP 10.96.0.10:80 sh\n  -> 10.244.0.5:8080 Masq 1 0 0\n  -> 10.244.0.6:8080 Masq 1 0 0\n",
			want: []string{"dnat 10.244.0.5:8080 p=0.500; scheduler sh chooses by a hash of the client's address: a client always draws the same one", "dnat 10.244.0.6:8080 p=0.500; scheduler sh chooses by a hash of the client's address: a client always draws the same one"},
		},
		{name: "the fullest", list: "TCP 10.96.0.10:80 fo\n  -> 10.244.0.5:8080 Masq 1 0 0\n  -> 10.244.0.6:8080 Masq 9 0 0\n", want: []string{"dnat 10.244.0.6:8080"}},
		{
			name: "a hash that hits a quiesced one", list: "TCP 10.96.0.10:80 sh\n  -> 10.244.0.5:8080 Masq 1 0 0\n  -> 10.244.0.6:8080 Masq 0 0 0\n",
			want: []string{
				"reject 10.96.0.10:80 p=0.500 icmp-port-unreachable at INPUT; scheduler sh chooses by a hash of the client's address: a client always draws the same one",
				"dnat 10.244.0.5:8080 p=0.500; scheduler sh chooses by a hash of the client's address: a client always draws the same one",
			},
		},
		{
			name: "by connections", list: "TCP 10.96.0.10:80 lc\n  -> 10.244.0.5:8080 Masq 1 9 0\n  -> 10.244.0.6:8080 Masq 1 0 0\n",
			want: []string{"dnat 10.244.0.5:8080 p=0.500; scheduler lc chooses by the connections that there are, which no listing tells of a new one", "dnat 10.244.0.6:8080 p=0.500; scheduler lc chooses by the connections that there are, which no listing tells of a new one"},
		},
		{name: "filtered before", rules: table("filter", "-A INPUT -d 10.96.0.10 -j DROP"), list: two, want: []string{"drop 10.96.0.10:80 at INPUT"}},
		{name: "the filter of OUTPUT after", rules: table("filter", "-A OUTPUT -d 10.244.0.5 -j DROP"), list: two, want: []string{"drop 10.244.0.5:8080 p=0.500 at OUTPUT", "dnat 10.244.0.6:8080 p=0.500"}},
		{name: "FORWARD is not passed", rules: table("filter", ":FORWARD DROP [0:0]"), list: two, want: []string{"dnat 10.244.0.5:8080 p=0.500", "dnat 10.244.0.6:8080 p=0.500"}},
		{
			name: "forwarding is not asked", list: two, host: func() *netfilter.StaticHost { h := ipvsHost(vip); h.Forward4 = netfilter.False; return h }(),
			want: []string{"dnat 10.244.0.5:8080 p=0.500", "dnat 10.244.0.6:8080 p=0.500"},
		},
		{name: "the address is not the node's", list: two, host: ipvsHost(), want: []string{"none 10.96.0.10:80"}},
		{name: "which the node's own packets don't ask", list: two, host: ipvsHost(), local: true, src: node, want: []string{"dnat 10.244.0.5:8080 p=0.500", "dnat 10.244.0.6:8080 p=0.500"}},
		{
			name: "NAT comes first", rules: table("nat", "-A PREROUTING -d 10.96.0.10 -p tcp --dport 80 -j DNAT --to-destination 10.96.0.11:81"),
			list: "TCP 10.96.0.11:81 rr\n  -> 10.244.0.9:1 Masq 1 0 0\n", host: ipvsHost(vip, "10.96.0.11"), want: []string{"dnat 10.244.0.9:1"},
		},
		{
			name: "untracked where vs.conntrack is off", rules: mark, list: "TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq 1 0 0\n",
			host: func() *netfilter.StaticHost {
				h := ipvsHost(vip)
				h.Sysctls["net.ipv4.vs.conntrack"] = "0"
				return h
			}(), want: []string{"dnat 10.244.0.5:8080"},
		},
		{
			name: "not known whether tracked", rules: mark, list: "TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq 1 0 0\n",
			host: func() *netfilter.StaticHost { h := ipvsHost(vip); h.Sysctls = nil; return h }(),
			want: []string{"dnat 10.244.0.5:8080 masq=unknown; whether connection tracking sees what IPVS sends is not known"},
		},
		{name: "the node is the real server", list: "TCP 10.96.0.10:80 rr\n  -> 10.0.0.1:6443 Masq 1 0 0\n", want: []string{"dnat 10.0.0.1:6443"}},
		{name: "the node is the real server, from itself", list: "TCP 10.96.0.10:80 rr\n  -> 10.0.0.1:6443 Masq 1 0 0\n", local: true, src: node, want: []string{"dnat 10.0.0.1:6443"}},
		{name: "delivered here as it is", list: "TCP 10.96.0.10:80 rr\n  -> 10.0.0.1:80 Local 1 0 0\n", want: []string{"accept 10.96.0.10:80"}},
		{
			name: "direct routing", list: "TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:80 Route 1 0 0\n",
			want: []string{"unknown 10.96.0.10:80; by method Route the packet goes to 10.244.0.5 with its destination as it was (10.96.0.10:80): whether that takes it is not the node's to tell"},
		},
		{name: "by mark", rules: table("mangle", "-A PREROUTING -d 10.96.0.10 -j MARK --set-xmark 0x5/0xffffffff"), list: "FWM  5 rr\n  -> 10.244.0.5:0 Masq 1 0 0\n", want: []string{"dnat 10.244.0.5:80"}},
		{name: "every port, without persistence", list: "TCP 10.96.0.10:0 rr\n  -> 10.244.0.5:0 Masq 1 0 0\n", want: []string{"reject 10.96.0.10:80 icmp-port-unreachable at INPUT"}},
		{name: "every port", list: "TCP 10.96.0.10:0 rr persistent 60\n  -> 10.244.0.5:0 Masq 1 0 0\n", want: []string{"dnat 10.244.0.5:80"}},
		{name: "from loopback to another host", list: two, src: "127.0.0.1", local: true, want: []string{"drop 10.244.0.5:8080 p=0.500 at OUTPUT", "drop 10.244.0.6:8080 p=0.500 at OUTPUT"}},
		{
			name: "-m ipvs", rules: table("filter", "-A OUTPUT -m ipvs --vaddr 10.96.0.10/32 --vport 80 --vproto 6 --vmethod MASQ --vdir ORIGINAL -d 10.244.0.5 -j DROP", "-A OUTPUT -m ipvs ! --vaddr 10.96.0.10/32 -j DROP", "-A OUTPUT -m ipvs ! --ipvs -j DROP", "-A OUTPUT -m ipvs --vdir REPLY -j DROP"),
			list: two, want: []string{"drop 10.244.0.5:8080 p=0.500 at OUTPUT", "dnat 10.244.0.6:8080 p=0.500"},
		},
		{name: "-m ipvs of a packet that it did not handle", rules: table("filter", "-A OUTPUT -m ipvs ! --vaddr 10.9.9.9/32 -j DROP", "-A OUTPUT -m ipvs ! --ipvs -j REJECT"), list: two, src: node, local: true, dst: "10.96.0.77:80", host: ipvsHost("10.96.0.77"), want: []string{"reject 10.96.0.77:80 icmp-port-unreachable at OUTPUT"}},
		{name: "ctstate DNAT is NAT's alone", rules: table("filter", "-A OUTPUT -m conntrack --ctstate DNAT -j DROP"), list: "TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq 1 0 0\n", want: []string{"dnat 10.244.0.5:8080"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules := tt.rules
			for _, name := range []string{"nat", "filter"} {
				if !strings.Contains(rules, "*"+name) {
					rules += table(name)
				}
			}
			rs := parse(t, rules, iptables.Options{Source: "iptables-save", Family: netfilter.IPv4, Whole: true}).WithVirtualServers(virtual(t, tt.list))
			p := netfilter.Packet{Src: netip.MustParseAddr("10.244.0.9"), Dst: netip.MustParseAddr(vip), DstPort: 80, Protocol: netfilter.TCP, LocalProcess: tt.local}
			if tt.src != "" {
				p.Src = netip.MustParseAddr(tt.src)
			}
			if tt.dst != "" {
				to := netip.MustParseAddrPort(tt.dst)
				p.Dst, p.DstPort = to.Addr(), to.Port()
			}
			h := tt.host
			if h == nil {
				h = ipvsHost(vip)
			}
			if d := cmp.Diff(tt.want, short(netfilter.Walk(rs, h, p))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestVirtualServersUnread: without what IPVS holds nothing is concluded, where
// IPVS may take a packet; with a part of it, neither.
func TestVirtualServersUnread(t *testing.T) {
	rs := parse(t, table("nat")+table("filter"), iptables.Options{Source: "iptables-save", Family: netfilter.IPv4, Whole: true})
	h := ipvsHost("10.96.0.10")
	packet := netfilter.Packet{Src: netip.MustParseAddr("10.244.0.9"), Dst: netip.MustParseAddr("10.96.0.10"), DstPort: 80, Protocol: netfilter.TCP}
	elsewhere := packet
	elsewhere.Dst = netip.MustParseAddr("10.244.0.7")
	cut, _, err := ipvs.Parse(virtualHeader+"TCP 10.96.0.10:80 rr\n  -> 10.244.0.5:8080 Masq", "x")
	if err != nil {
		t.Fatal(err)
	}
	excerpt, _, err := ipvs.Parse("TCP 10.96.0.11:80 rr\n", "a paste")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		rs   *netfilter.Ruleset
		p    netfilter.Packet
		want string
	}{
		{"not read", rs.WithoutVirtualServers("ipvsadm -Ln was not read"), packet, "unknown; ipvsadm -Ln was not read"},
		{"an excerpt", rs.WithVirtualServers(excerpt), packet, "unknown; a paste has no header, so that it may be an excerpt"},
		{"what never gets there", rs.WithoutVirtualServers("not read"), elsewhere, "none 10.244.0.7:80"},
		{"known to be none", rs.WithVirtualServers(netfilter.NewVirtualServers(nil, "")), packet, "none 10.96.0.10:80"},
		{"cut in its real servers", rs.WithVirtualServers(cut), packet, "unknown; x is not whole at line 5, where real servers of it may be missing"},
		{"merged", netfilter.Merge(rs.WithoutVirtualServers("not read"), rs), packet, "unknown; not read"},
	} {
		if got := short(netfilter.Walk(tt.rs, h, tt.p)); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestVirtualServerSteps: a walk quotes the virtual and the real server by line.
func TestVirtualServerSteps(t *testing.T) {
	rs := parse(t, table("nat")+table("filter"), iptables.Options{Source: "iptables-save", Family: netfilter.IPv4, Whole: true}).
		WithVirtualServers(virtual(t, "TCP  10.96.0.10:80 rr\n  -> 10.244.0.5:8080              Masq    1      0          0\n"))
	p := netfilter.Packet{Src: netip.MustParseAddr("10.244.0.9"), Dst: netip.MustParseAddr("10.96.0.10"), DstPort: 80, Protocol: netfilter.TCP}
	outcomes := netfilter.Walk(rs, ipvsHost("10.96.0.10"), p)
	var got []netfilter.Step
	for _, s := range outcomes[0].Steps {
		if s.Table == "ipvs" {
			got = append(got, s)
		}
	}
	want := []netfilter.Step{
		{Source: "ipvsadm -Ln", Table: "ipvs", Chain: "virtual server 10.96.0.10:80/tcp", Line: 4, Text: "TCP  10.96.0.10:80 rr"},
		{Source: "ipvsadm -Ln", Table: "ipvs", Chain: "virtual server 10.96.0.10:80/tcp", Line: 5, Text: "-> 10.244.0.5:8080              Masq    1      0          0"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// ipvsCaptures holds the state of a real node in IPVS mode, healthy and under
// faults, with the traffic that was measured.
const ipvsCaptures = "../../../shared/rig/ipvs/captures"

// ipvsNode reads one of them.
func ipvsNode(t *testing.T, dir string) (*netfilter.Ruleset, *host.Host) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(ipvsCaptures, dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rs := parse(t, read("iptables-save.txt"), iptables.Options{Source: "iptables-save", Family: netfilter.IPv4, Whole: true})
	sets, _, err := ipset.Parse(read("ipset-save.txt"), "ipset save")
	if err != nil {
		t.Fatal(err)
	}
	servers, _, err := ipvs.Parse(read("ipvsadm-Ln.txt"), "ipvsadm -Ln")
	if err != nil {
		t.Fatal(err)
	}
	h := &host.Host{}
	h.ParseAddr(read("ip-addr.txt"))
	h.ParseRoute(read("ip-route.txt"))
	h.ParseSysctl(read("sysctl-misc.txt"))
	h.ParseSysctl(read("sysctl-vs.txt"))
	return rs.WithSets(sets).WithVirtualServers(servers), h
}

// TestIPVSCaptures walks a pod's packet and the node's own through a real node's
// state, and compares with what connections met there.
func TestIPVSCaptures(t *testing.T) {
	if _, err := os.Stat(ipvsCaptures); err != nil {
		t.Skipf("the captures of a node in IPVS mode are not here: %v", err)
	}
	const (
		both    = "10.244.3.5:8080 10.244.3.6:8080"
		refused = "refused"
		lost    = "lost" // times out
	)
	masq := func(s string) string { return strings.ReplaceAll(s, ":8080", ":8080+masq") }
	for dir, want := range map[string]struct{ pod, node string }{
		"healthy":             {both, masq(both)},
		"fault-backend-down":  {both, masq(both)}, // the pod's own link: no rule tells, half of the connections time out
		"fault-del-dest":      {"10.244.3.6:8080", masq("10.244.3.6:8080")},
		"fault-del-service":   {"local", "local"}, // no process of the node listens: refused
		"fault-dummy-gone":    {lost, masq(both)},
		"fault-ip-forward0":   {both, masq(both)},
		"fault-ipset-missing": {refused, both},
		"fault-nat-flushed":   {both, both},
		"fault-no-dests":      {refused, refused},
		"fault-sched-sh":      {both, masq(both)},
		"fault-stale-dest":    {both + " 10.244.3.77:8080", masq(both + " 10.244.3.77:8080")},
		"fault-vip-unbound":   {lost, masq(both)},
		"fault-vs-conntrack0": {both, both},
		"fault-weight0-all":   {refused, refused},
		"fault-weight0-one":   {"10.244.3.6:8080", masq("10.244.3.6:8080")},
		"fault-wrong-mode-dr": {"unknown", "unknown"},
	} {
		t.Run(dir, func(t *testing.T) {
			rs, h := ipvsNode(t, dir)
			vip := netip.MustParseAddr("10.96.120.50")
			pod := netfilter.Packet{Src: netip.MustParseAddr("10.244.3.9"), Dst: vip, DstPort: 8080, Protocol: netfilter.TCP, In: "cni0"}
			own := netfilter.Packet{Src: netip.MustParseAddr("172.31.250.13"), Dst: vip, DstPort: 8080, Protocol: netfilter.TCP, LocalProcess: true}
			if h.Local(vip) == netfilter.True {
				own.Src = vip // the source that the node gives its packets to its own addresses
			}
			for who, c := range map[string]struct {
				p    netfilter.Packet
				want string
			}{"pod": {pod, want.pod}, "node": {own, want.node}} {
				if got := ends(netfilter.Walk(rs, h, c.p), h); got != c.want {
					t.Errorf("%s: %s, want %s", who, got, c.want)
				}
			}
		})
	}
}

// ends says in a word or two where a packet ends.
func ends(outcomes []netfilter.Outcome, h *host.Host) string {
	var to []string
	for _, o := range outcomes {
		word := string(o.Verdict)
		switch o.Verdict {
		case netfilter.DNAT:
			word = o.To.String()
			if o.Masquerade == netfilter.True {
				word += "+masq"
			} else if o.Masquerade == netfilter.Unknown {
				word += "+masq?"
			}
		case netfilter.Reject:
			word = "refused"
		case netfilter.None, netfilter.Accept:
			word = "lost"
			if h.Local(o.To.Addr()) == netfilter.True {
				word = "local"
			}
		}
		if !slices.Contains(to, word) {
			to = append(to, word)
		}
	}
	slices.Sort(to)
	return strings.Join(to, " ")
}

// TestHostileVirtualServers: many real servers, and virtual servers that lead to
// each other, end.
func TestHostileVirtualServers(t *testing.T) {
	var list strings.Builder
	list.WriteString("TCP  10.96.0.10:80 rr\n")
	for i := range 5000 {
		fmt.Fprintf(&list, "  -> 10.%d.%d.1:8080 Masq 1 0 0\n", 100+i/250, i%250)
	}
	list.WriteString("TCP  10.96.0.11:80 rr\n  -> 10.96.0.11:80 Masq 1 0 0\n")
	rs := parse(t, table("nat")+table("filter"), iptables.Options{Source: "iptables-save", Family: netfilter.IPv4, Whole: true}).WithVirtualServers(virtual(t, list.String()))
	h := ipvsHost("10.96.0.10", "10.96.0.11")
	p := netfilter.Packet{Src: netip.MustParseAddr("10.244.0.9"), Dst: netip.MustParseAddr("10.96.0.10"), DstPort: 80, Protocol: netfilter.TCP}
	if got := netfilter.Walk(rs, h, p); len(got) != 5000 {
		t.Errorf("%d outcomes", len(got))
	}
	p.Dst = netip.MustParseAddr("10.96.0.11")
	if got := short(netfilter.Walk(rs, h, p)); !slices.Equal(got, []string{"accept 10.96.0.11:80"}) {
		t.Errorf("a virtual server that is its own real server: %v", got)
	}
}
