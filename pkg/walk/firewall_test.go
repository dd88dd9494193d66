package walk

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// ranged is shop/web behind a load balancer that admits these ranges alone, as
// kube-proxy from 1.25 on programs it.
func ranged(ranges ...string) change {
	return func(s *snapshot.Snapshot) {
		svc := &s.Objects.Services[0]
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.9"}}
		svc.Spec.LoadBalancerSourceRanges = ranges
		fw := ""
		for _, r := range ranges {
			fw += "-A KUBE-FW-WEB -s " + r + " -m comment --comment \"shop/web loadbalancer IP\" -j KUBE-EXT-WEB\n"
		}
		rules(webVIP, fw+"-A KUBE-FW-WEB -m comment --comment \"other traffic to shop/web will be dropped by KUBE-PROXY-FIREWALL\"\n"+webVIP+
			"-A KUBE-SERVICES -d 198.51.100.9/32 -p tcp -m comment --comment \"shop/web loadbalancer IP\" -m tcp --dport 80 -j KUBE-FW-WEB\n")(s)
		rules(":KUBE-EXT-WEB - [0:0]\n", ":KUBE-EXT-WEB - [0:0]\n:KUBE-FW-WEB - [0:0]\n")(s)
		rules(invalid, invalid+"-A KUBE-PROXY-FIREWALL -d 198.51.100.9/32 -p tcp -m comment --comment \"shop/web traffic not accepted by KUBE-FW-WEB\" -m tcp --dport 80 -j DROP\n")(s)
	}
}

// markDrop is the form up to 1.24: a mark in nat, and KUBE-FIREWALL drops it.
func markDrop(s *snapshot.Snapshot) {
	rules("-A KUBE-FW-WEB -m comment --comment \"other traffic to shop/web will be dropped by KUBE-PROXY-FIREWALL\"\n", "-A KUBE-FW-WEB -m comment --comment \"shop/web loadbalancer IP\" -j KUBE-MARK-DROP\n-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000\n")(s)
	rules(":KUBE-EXT-WEB - [0:0]\n", ":KUBE-EXT-WEB - [0:0]\n:KUBE-MARK-DROP - [0:0]\n")(s)
	rules("-A KUBE-PROXY-FIREWALL -d 198.51.100.9/32 -p tcp -m comment --comment \"shop/web traffic not accepted by KUBE-FW-WEB\" -m tcp --dport 80 -j DROP\n", "")(s)
	rules(martian, markedDrop+martian)(s)
	rules(routerJump, "-A FORWARD -j KUBE-FIREWALL\n"+routerJump)(s) // as kubelets of that time did not, for forwarded packets; the chain is what is tested
}

const (
	invalid    = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"
	martian    = "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n"
	markedDrop = "-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" -m mark --mark 0x8000/0x8000 -j DROP\n"
)

// nftRanged is the same in nftables mode.
func nftRanged(inRules string, ranges ...string) *snapshot.Snapshot {
	s := nftNode("elements = { 10.96.0.50 . tcp . 80 : goto service-42NFTM6N-shop/web/tcp/ }",
		"elements = { 10.96.0.50 . tcp . 80 : goto service-42NFTM6N-shop/web/tcp/, 198.51.100.9 . tcp . 80 : goto external-42NFTM6N-shop/web/tcp/ }",
		"\tchain reject-chain {", "\tmap firewall-ips {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n\t\telements = { 198.51.100.9 . tcp . 80 : goto firewall-42NFTM6N-shop/web/tcp/ }\n\t}\n\n"+
			"\tchain filter-prerouting-pre-dnat {\n\t\ttype filter hook prerouting priority dstnat - 10; policy accept;\n\t\tct state new jump firewall-check\n\t}\n\n"+
			"\tchain firewall-check {\n\t\tip daddr . meta l4proto . th dport vmap @firewall-ips\n\t}\n\n"+
			"\tchain firewall-42NFTM6N-shop/web/tcp/ {\n\t\tip saddr != { "+inRules+" } drop\n\t}\n\n\tchain reject-chain {")
	svc := &s.Objects.Services[0]
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.9"}}
	svc.Spec.LoadBalancerSourceRanges = ranges
	return s
}

// now are the Service's ranges of today; the node's rules have those of before.
func now(ranges ...string) change {
	return func(s *snapshot.Snapshot) { s.Objects.Services[0].Spec.LoadBalancerSourceRanges = ranges }
}

func TestFirewallChainDrops(t *testing.T) {
	for _, in := range []nodeIncident{
		{name: "not VIP311: source ranges, and nobody was asked about", change: []change{ranged("192.0.2.0/24")}},
		{name: "not VIP311: the client is in the ranges", change: []change{ranged("192.0.2.0/24", "203.0.113.0/28")}, opts: calledFrom("203.0.113.9")},
		{name: "not VIP311: any client outside", change: []change{ranged("192.0.2.0/24")}, opts: calledFrom("external")},
		{name: "not VIP311: a pod, which has the cluster IP", change: []change{ranged("192.0.2.0/24")}, opts: calledFrom("client")},
		{name: "the ranges leave the asked client out", change: []change{ranged("192.0.2.0/24")}, opts: calledFrom("203.0.113.9"), roots: []string{"VIP311 error"}, status: fail,
			says: []string{"loadBalancerSourceRanges leave 203.0.113.9 out", "they are 192.0.2.0/24", "KUBE-FW-WEB\" -m tcp --dport 80 -j DROP", `{"spec":{"loadBalancerSourceRanges":["192.0.2.0/24","203.0.113.9/32"]}}`, "confirmed"}},
		{name: "a pod that was asked about at that address", change: []change{ranged("192.0.2.0/24")}, opts: func(o *Options) { calledFrom("client")(o); aimedAt("198.51.100.9:80")(o) }, roots: []string{"VIP311 error"}, status: fail},
		{name: "the node's ranges are not the Service's", change: []change{ranged("192.0.2.0/24"), now("203.0.113.0/24")}, roots: []string{"VIP311 error"}, status: fail,
			says: []string{"worker-1 drops every connection to 198.51.100.9:80/TCP in KUBE-PROXY-FIREWALL", "they admit 192.0.2.0/24", "the Service's own ranges are 203.0.113.0/24", "restart kube-proxy"}},
		{name: "the node has ranges that the Service has not", change: []change{ranged("192.0.2.0/24"), now()}, roots: []string{"VIP311 error"}, status: fail, says: []string{"the Service's own ranges are [] (none)"}},
		{name: "those that are to be let in are not", change: []change{ranged("192.0.2.0/24"), now("198.18.0.0/24")}, roots: []string{"VIP311 error"}, status: fail, says: []string{"for clients outside in 198.18.0.0/24"}},
		{name: "up to 1.24: ranges and the mark to drop", change: []change{ranged("192.0.2.0/24"), markDrop, now()}, roots: []string{"VIP311 error"}, status: fail,
			says: []string{"the source ranges in its rules leave this client out", "they admit 192.0.2.0/24"}},
		{name: "not VIP311: up to 1.24, no endpoint behind the ranges", change: []change{ranged("203.0.113.0/24"), markDrop, rules(webOne, ""), rules(webTwo, "")}, opts: calledFrom("203.0.113.9"), roots: []string{"VIP301 error", "VIP304 error"}, status: fail},
		{name: "KUBE-FIREWALL has lost its match", change: []change{rules(martian, martian+"-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" -j DROP\n")}, roots: []string{"VIP311 error"}, status: fail,
			says: []string{"the rule has lost its match, and drops everything", "kubernetes#112477", "for node worker-1", "iptables --version"}},
		{name: "KUBE-FIREWALL has lost its match, and the client is a pod", change: []change{rules(martian, martian+"-A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" -j DROP\n"), noNodePort}, opts: calledFrom("client"), roots: []string{"VIP311 error"}, status: fail,
			says: []string{"worker-1 drops all that it receives and sends itself, in KUBE-FIREWALL", "-A INPUT -j KUBE-FIREWALL"}},
		{name: "not VIP311: KUBE-FIREWALL drops what is marked", change: []change{rules(martian, markedDrop+martian)}},
		{name: "something sets the mark to drop", change: []change{rules(martian, markedDrop+martian), inNAT(webOut, "-A OUTPUT -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x8000/0x8000\n"+webOut)}, roots: []string{"VIP311 error"}, status: fail,
			says: []string{"it carries the mark to drop", "--dport 80 -j MARK --set-xmark 0x8000/0x8000", "its mark is 0xc000"}},
		{name: "KUBE-FORWARD drops everything", change: []change{rules(invalid, "-A KUBE-FORWARD -j DROP\n")}, roots: []string{"VIP311 error"}, status: fail, says: []string{"conntrack calls the packet invalid"}},
		{name: "not VIP311: somebody else's rule drops", change: []change{rules(routerJump, "-A FORWARD -p tcp -m tcp --dport 8080 -j DROP\n"+routerJump)}, roots: []string{"VIP310 error"}, status: fail},
		{name: "nft: the ranges leave the asked client out", s: nftRanged("192.0.2.0/24", "192.0.2.0/24"), opts: calledFrom("203.0.113.9"), roots: []string{"VIP311 error"}, status: fail,
			says: []string{"loadBalancerSourceRanges leave 203.0.113.9 out", "sudo nft list chain ip kube-proxy firewall-42NFTM6N-shop/web/tcp/"}},
		{name: "not VIP311: nft, nobody was asked about", s: nftRanged("192.0.2.0/24", "192.0.2.0/24")},
		{name: "nft: the node's ranges are not the Service's", s: nftRanged("192.0.2.0/24, 198.18.0.0/15"), roots: []string{"VIP311 error"}, status: fail, says: []string{"they admit 192.0.2.0/24, 198.18.0.0/15"}},
	} {
		t.Run(in.name, in.run)
	}
}

// TestFirewallAlone: without objects, ranges leave out whom they are to, as far
// as is known, unless a client is named.
func TestFirewallAlone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change change
		ask    string
		from   string
		want   string
		status diagnosis.Status
		text   string
	}{
		{"ranges", ranged("192.0.2.0/24"), "198.51.100.9:80", "", "", diagnosis.OK, "its source ranges leave this client out"},
		{"ranges, and a client that they leave out", ranged("192.0.2.0/24"), "198.51.100.9:80", "203.0.113.9", "VIP311", fail, ""},
		{"ranges, and a client that they admit", ranged("192.0.2.0/24"), "198.51.100.9:80", "192.0.2.9", "", diagnosis.OK, "sends to all 2 backends"},
		{"a lost match", rules(martian, martian+"-A KUBE-FIREWALL -j DROP\n"), "172.31.250.11:9999", "node/worker-1", "VIP311", fail, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			full := nodeFixture()
			tt.change(full)
			s := &snapshot.Snapshot{TakenAt: takenAt, Nodes: full.Nodes}
			o := Options{}
			aimedAt(tt.ask)(&o)
			if tt.from != "" {
				calledFrom(tt.from)(&o)
			}
			svc := Walk(s, o).Services[0]
			if got := nodeRoots(svc); got != tt.want || svc.Layers[2].Status != tt.status || !strings.Contains(svc.Layers[2].Summary, tt.text) {
				t.Errorf("got %q, layer %s (%s); want %q, %s\n%s", got, svc.Layers[2].Status, svc.Layers[2].Summary, tt.want, tt.status, describe(svc))
			}
		})
	}
}
