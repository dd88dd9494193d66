package iptables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// eraHooks are the jumps from the kernel's chains, of kube-proxy up to 1.24
// and of its kubelet.
const eraHooks = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
:KUBE-MARK-DROP - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE
`

const eraSEPs = `:KUBE-SEP-A - [0:0]
:KUBE-SEP-B - [0:0]
:KUBE-SVC-X - [0:0]
-A KUBE-SEP-A -s 10.244.1.5/32 -m comment --comment "ns/web:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-A -p tcp -m comment --comment "ns/web:http" -m tcp -j DNAT --to-destination 10.244.1.5:8080
-A KUBE-SEP-B -s 10.244.2.5/32 -m comment --comment "ns/web:http" -j KUBE-MARK-MASQ
-A KUBE-SEP-B -p tcp -m comment --comment "ns/web:http" -m tcp -j DNAT --to-destination 10.244.2.5:8080
-A KUBE-SVC-X -m comment --comment "ns/web:http" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A
-A KUBE-SVC-X -m comment --comment "ns/web:http" -j KUBE-SEP-B
`

const eraFilter = `COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -m comment --comment "kubernetes firewall for dropping marked packets" -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
`

// TestEras walks the shapes of rules that kube-proxy wrote before 1.24. The
// rulesets are small and written by hand, by what the version matrix of the
// project's facts says.
func TestEras(t *testing.T) {
	const (
		pod    = "10.244.3.3 cni0"
		client = "192.0.2.7 eth0"
		self   = "10.0.0.1 "
	)
	even := []string{"dnat 10.244.1.5:8080 0.50", "dnat 10.244.2.5:8080 0.50"}
	masked := []string{"dnat 10.244.1.5:8080 0.50 masq", "dnat 10.244.2.5:8080 0.50 masq"}
	type walk struct {
		name, from, to string
		want           []string
	}
	for _, c := range []struct {
		name, text string
		walks      []walk
	}{
		{
			name: "up to 1.21: masquerade pairs, node port, balancing rule by load balancer",
			text: eraHooks + eraSEPs + `:KUBE-FW-X - [0:0]
-A KUBE-SERVICES ! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-X
-A KUBE-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment "ns/web:http loadbalancer IP" -m tcp --dport 80 -j KUBE-FW-X
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http" -m tcp --dport 31080 -j KUBE-MARK-MASQ
-A KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http" -m tcp --dport 31080 -j KUBE-SVC-X
-A KUBE-FW-X -m comment --comment "ns/web:http loadbalancer IP" -j KUBE-MARK-MASQ
-A KUBE-FW-X -m comment --comment "ns/web:http loadbalancer IP" -j KUBE-SVC-X
-A KUBE-FW-X -m comment --comment "ns/web:http loadbalancer IP" -j KUBE-MARK-DROP
` + eraFilter,
			walks: []walk{
				{"a pod", pod, "10.96.0.10:80", even},
				{"a client", client, "10.96.0.10:80", masked},
				{"the node", self, "10.96.0.10:80", masked},
				{"the node port", client, "10.0.0.1:31080", masked},
				{"the load balancer", client, "203.0.113.9:80", masked},
				{"another port", client, "10.0.0.1:31081", []string{"none 10.0.0.1:31081 1.00"}},
				{"hairpin", "10.244.1.5 cni0", "10.96.0.10:80", []string{"dnat 10.244.1.5:8080 0.50 masq", "dnat 10.244.2.5:8080 0.50"}},
			},
		},
		{
			name: "up to 1.23: source ranges end in KUBE-MARK-DROP",
			text: eraHooks + eraSEPs + `:KUBE-FW-X - [0:0]
-A KUBE-SERVICES -d 10.0.0.1/32 -p tcp -m comment --comment "ns/web:http loadbalancer IP" -m tcp --dport 80 -j KUBE-FW-X
-A KUBE-FW-X -m comment --comment "ns/web:http loadbalancer IP" -j KUBE-MARK-MASQ
-A KUBE-FW-X -s 198.51.100.0/24 -m comment --comment "ns/web:http loadbalancer IP" -j KUBE-SVC-X
-A KUBE-FW-X -m comment --comment "ns/web:http loadbalancer IP" -j KUBE-MARK-DROP
` + eraFilter,
			walks: []walk{
				{"in the range", "198.51.100.7 eth0", "10.0.0.1:80", masked},
				{"out of it", client, "10.0.0.1:80", []string{"drop 10.0.0.1:80 1.00"}},
			},
		},
		{
			name: "up to 1.23: KUBE-XLB with a local endpoint",
			text: eraHooks + eraSEPs + `:KUBE-XLB-X - [0:0]
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -s 127.0.0.0/8 -p tcp -m comment --comment "ns/web:http" -m tcp --dport 31080 -j KUBE-MARK-MASQ
-A KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http" -m tcp --dport 31080 -j KUBE-XLB-X
-A KUBE-XLB-X -s 10.244.0.0/16 -m comment --comment "Redirect pods trying to reach external loadbalancer VIP to clusterIP" -j KUBE-SVC-X
-A KUBE-XLB-X -m comment --comment "masquerade LOCAL traffic for ns/web:http LB IP" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ
-A KUBE-XLB-X -m comment --comment "route LOCAL traffic for ns/web:http LB IP to service chain" -m addrtype --src-type LOCAL -j KUBE-SVC-X
-A KUBE-XLB-X -m comment --comment "Balancing rule 0 for ns/web:http" -j KUBE-SEP-A
` + eraFilter,
			walks: []walk{
				{"a client", client, "10.0.0.1:31080", []string{"dnat 10.244.1.5:8080 1.00"}},
				{"a pod", pod, "10.0.0.1:31080", even},
				{"the node", self, "10.0.0.1:31080", masked},
			},
		},
		{
			name: "up to 1.23: KUBE-XLB without a local endpoint",
			text: eraHooks + eraSEPs + `:KUBE-XLB-X - [0:0]
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m comment --comment "ns/web:http" -m tcp --dport 31080 -j KUBE-XLB-X
-A KUBE-XLB-X -m comment --comment "ns/web:http has no local endpoints" -j KUBE-MARK-DROP
` + eraFilter,
			walks: []walk{{"a client", client, "10.0.0.1:31080", []string{"drop 10.0.0.1:31080 1.00"}}},
		},
		{
			name: "up to 1.20: external IP by physdev",
			text: eraHooks + eraSEPs + `-A KUBE-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment "ns/web:http external IP" -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment "ns/web:http external IP" -m tcp --dport 80 -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j KUBE-SVC-X
-A KUBE-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment "ns/web:http external IP" -m tcp --dport 80 -m addrtype --dst-type LOCAL -j KUBE-SVC-X
` + eraFilter,
			walks: []walk{
				{"a client, by no bridge", client, "203.0.113.9:80", masked},
				{"a pod, perhaps by a bridge", pod, "203.0.113.9:80", []string{"unknown: whether the packet crosses a bridge is not known"}},
				{"the node", self, "203.0.113.9:80", []string{"accept 203.0.113.9:80 1.00 masq"}},
			},
		},
		{
			name: "more than 1000 endpoints: no comments",
			text: eraHooks + `:KUBE-SEP-A - [0:0]
:KUBE-SEP-B - [0:0]
:KUBE-SVC-X - [0:0]
-A KUBE-SEP-A -s 10.244.1.5/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.5:8080
-A KUBE-SEP-B -s 10.244.2.5/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-B -p tcp -m tcp -j DNAT --to-destination 10.244.2.5:8080
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-X
-A KUBE-SVC-X ! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-X -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A
-A KUBE-SVC-X -j KUBE-SEP-B
` + eraFilter,
			walks: []walk{{"a pod", pod, "10.96.0.10:80", even}, {"a client", client, "10.96.0.10:80", masked}},
		},
		{
			name: "1.1: marks inline, no KUBE-MARK-MASQ",
			text: `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-SEP-B - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A KUBE-SEP-A -s 10.244.1.5/32 -m comment --comment "ns/web:" -j MARK --set-xmark 0x00004000/0x00004000
-A KUBE-SEP-A -p tcp -m comment --comment "ns/web:" -m tcp -j DNAT --to-destination 10.244.1.5:8080
-A KUBE-SEP-B -s 10.244.2.5/32 -m comment --comment "ns/web:" -j MARK --set-xmark 0x00004000/0x00004000
-A KUBE-SEP-B -p tcp -m comment --comment "ns/web:" -m tcp -j DNAT --to-destination 10.244.2.5:8080
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web: cluster IP" -m tcp --dport 80 -j KUBE-SVC-X
-A KUBE-SVC-X -m comment --comment "ns/web:" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A
-A KUBE-SVC-X -m comment --comment "ns/web:" -j KUBE-SEP-B
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
`,
			walks: []walk{
				{"a pod", pod, "10.96.0.10:80", even},
				{"hairpin", "10.244.2.5 cni0", "10.96.0.10:80", []string{"dnat 10.244.1.5:8080 0.50", "dnat 10.244.2.5:8080 0.50 masq"}},
			},
		},
		{
			name: "userspace: portals to the proxy's own port",
			text: `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-NODEPORT-CONTAINER - [0:0]
:KUBE-NODEPORT-HOST - [0:0]
:KUBE-PORTALS-CONTAINER - [0:0]
:KUBE-PORTALS-HOST - [0:0]
-A PREROUTING -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER
-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-CONTAINER
-A OUTPUT -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST
-A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-HOST
-A KUBE-NODEPORT-CONTAINER -p tcp -m comment --comment "ns/web:http" -m tcp --dport 31080 -j REDIRECT --to-ports 41234
-A KUBE-NODEPORT-HOST -p tcp -m comment --comment "ns/web:http" -m tcp --dport 31080 -j DNAT --to-destination 10.0.0.1:41234
-A KUBE-PORTALS-CONTAINER -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web:http" -m tcp --dport 80 -j REDIRECT --to-ports 41234
-A KUBE-PORTALS-HOST -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web:http" -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:41234
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-NODEPORT-NON-LOCAL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL
COMMIT
`,
			walks: []walk{
				{"a pod", pod, "10.96.0.10:80", []string{"dnat 10.244.0.1:41234 1.00"}},
				{"the node", self, "10.96.0.10:80", []string{"dnat 10.0.0.1:41234 1.00"}},
				{"the node port", client, "10.0.0.1:31080", []string{"dnat 10.0.0.1:41234 1.00"}},
			},
		},
	} {
		rs, problems, err := Parse(c.text, Options{Whole: true, Strict: true, Family: netfilter.IPv4})
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", c.name, err, problems)
			continue
		}
		for _, w := range c.walks {
			if diff := cmp.Diff(w.want, ends(rs, w.from, w.to)); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s", c.name, w.name, diff)
			}
		}
	}
}

// eraHost is a node with a bridge, whose interface to the outside is no bridge.
type eraHost struct{ *netfilter.StaticHost }

func (eraHost) Bridge(iface string) netfilter.Tri {
	if iface == "eth0" {
		return netfilter.False
	}
	return netfilter.Unknown
}

// ends are the ways in which a packet ends; from is an address and the
// interface that it comes in by, or the node's own.
func ends(rs *netfilter.Ruleset, from, to string) []string {
	host := eraHost{&netfilter.StaticHost{
		Links: []netfilter.Link{
			{Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}},
			{Name: "cni0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}},
		},
		Routes:   []netfilter.StaticRoute{{To: netip.MustParsePrefix("0.0.0.0/0"), Iface: "eth0"}},
		Complete: true, Forward4: netfilter.True,
	}}
	var src, in string
	fmt.Sscan(from, &src, &in)
	dst := netip.MustParseAddrPort(to)
	var out []string
	for _, o := range netfilter.Walk(rs, host, netfilter.Packet{
		Src: netip.MustParseAddr(src), In: in, LocalProcess: in == "", Dst: dst.Addr(), DstPort: dst.Port(), Protocol: netfilter.TCP,
	}) {
		s := fmt.Sprintf("%s %s %.2f", o.Verdict, o.To, o.Probability)
		if o.Masquerade == netfilter.True {
			s += " masq"
		}
		if o.Verdict == netfilter.Undecided && len(o.Unknowns) > 0 {
			s = "unknown: " + o.Unknowns[0].Why
		}
		out = append(out, s)
	}
	return out
}
