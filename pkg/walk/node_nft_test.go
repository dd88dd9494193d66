package walk

import (
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nftRules is what kube-proxy 1.37 in nftables mode writes on worker-1 for
// shop/web, as nft lists it.
const nftRules = `table ip kube-proxy {
	comment "rules for kube-proxy"
	set cluster-ips {
		type ipv4_addr
		comment "Active ClusterIPs"
		elements = { 10.96.0.50 }
	}

	set nodeport-ips {
		type ipv4_addr
		comment "IPs that accept NodePort traffic"
		elements = { 172.31.250.11 }
	}

	set hairpin-connections {
		type ipv4_addr . ipv4_addr . inet_proto . inet_service
		comment "service hairpin connections"
		elements = { 10.244.1.5 . 10.244.1.5 . tcp . 8080 }
	}

	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "vmap to drop or reject packets to services with no endpoints"
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"
		elements = { 10.96.0.50 . tcp . 80 : goto service-42NFTM6N-shop/web/tcp/ }
	}

	map service-nodeports {
		type inet_proto . inet_service : verdict
		comment "NodePort traffic"
		elements = { tcp . 30080 : goto external-42NFTM6N-shop/web/tcp/ }
	}

	chain filter-forward {
		type filter hook forward priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}

	chain filter-output {
		type filter hook output priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}

	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain nat-output {
		type nat hook output priority -100; policy accept;
		jump services
	}

	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}

	chain services {
		ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000 comment "masquerade clusterIP traffic from outside cluster"
		ip daddr . meta l4proto . th dport vmap @service-ips
		ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
	}

	chain service-endpoints-check {
		ip daddr . meta l4proto . th dport vmap @no-endpoint-services
	}

	chain cluster-ips-check {
		ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
	}

	chain masquerading {
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
	}

	chain reject-chain {
		reject
	}

	chain external-42NFTM6N-shop/web/tcp/ {
		meta mark set meta mark | 0x00004000 comment "masquerade"
		goto service-42NFTM6N-shop/web/tcp/
	}

	chain service-42NFTM6N-shop/web/tcp/ {
		meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 8080, 1 : 10.244.2.6 . 8080 }
	}
}
`

// nftNode turns the fixture's node to nftables mode, with changes to its rules:
// pairs of what is replaced and by what.
func nftNode(changes ...string) *snapshot.Snapshot {
	s := nodeFixture()
	dropText(s, snapshot.IptablesSave)
	dropText(s, snapshot.Ip6tablesSave)
	dropText(s, snapshot.ProxyMode)
	s.Objects.ConfigMaps[0].Data["config.conf"] = "kind: KubeProxyConfiguration\nmode: nftables\n"
	n := s.Nodes[0]
	n.Texts = append(n.Texts,
		text(snapshot.NftRuleset, strings.NewReplacer(changes...).Replace(nftRules)), text(snapshot.ProxyMode, "nftables"),
		text(snapshot.IptablesSave, ""), text(snapshot.Ip6tablesSave, ""))
	return s
}

// withLeftovers keeps what iptables mode wrote, without the jumps to it.
func withLeftovers(s *snapshot.Snapshot) *snapshot.Snapshot {
	setText(s, snapshot.IptablesSave, func(string) string {
		var b strings.Builder
		for line := range strings.Lines(nodeRules) {
			if !strings.HasPrefix(line, "-A PREROUTING") && !strings.HasPrefix(line, "-A OUTPUT") && !strings.HasPrefix(line, "-A POSTROUTING") {
				b.WriteString(line)
			}
		}
		return b.String()
	})
	return s
}

// withoutTable is a node on which nft lists no table at all.
func withoutTable(s *snapshot.Snapshot) *snapshot.Snapshot {
	setText(s, snapshot.NftRuleset, func(string) string { return "" })
	return s
}

func TestNodeLayerNft(t *testing.T) {
	const firewall = "table inet fw {\n\tchain forward {\n\t\ttype filter hook forward priority 10; policy drop;\n\t\tct state established,related accept\n\t}\n}\n"
	for _, c := range []struct {
		name     string
		s        *snapshot.Snapshot
		want     string // codes of layer 3
		says     string
		evidence string // a command that it gives
	}{
		{"healthy", nftNode(), "", "", ""},
		{"an element of the map is gone", nftNode("elements = { 10.96.0.50 . tcp . 80 : goto service-42NFTM6N-shop/web/tcp/ }\n", ""),
			string(diagnosis.VIPNotProgrammed), "knows nothing of", "sudo nft list chain ip kube-proxy services"},
		{"nat-prerouting does not jump", nftNode("priority dstnat; policy accept;\n\t\tjump services", "priority dstnat; policy accept;"),
			string(diagnosis.HookMissing), "nat-prerouting never jumps to services", "sudo nft list chain ip kube-proxy nat-prerouting"},
		{"another table drops", nftNode("table ip kube-proxy {", firewall+"table ip kube-proxy {"),
			string(diagnosis.DroppedAfterDNAT), "fw forward", "sudo nft list chain inet fw forward"},
		{"said to have no endpoints", nftNode("with no endpoints\"\n", "with no endpoints\"\n\t\telements = { 10.96.0.50 . tcp . 80 comment \"shop/web\" : goto reject-chain }\n",
			"elements = { 10.96.0.50 . tcp . 80 : goto service-42NFTM6N-shop/web/tcp/ }\n", ""),
			string(diagnosis.RejectedAsEmpty), "", "sudo nft list chain ip kube-proxy"},
		{"a backend that is none", nftNode("10.244.2.6 . 8080", "10.244.2.9 . 8080"),
			string(diagnosis.StaleBackend) + " " + string(diagnosis.BackendMissing), "10.244.2.9", "sudo nft list chain ip kube-proxy"},
		{"nothing masquerades", nftNode("chain nat-postrouting {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t\tjump masquerading", "chain nat-postrouting {\n\t\ttype nat hook postrouting priority srcnat; policy accept;"),
			string(diagnosis.HookMissing) + " " + string(diagnosis.MasqueradeMissing), "nat-postrouting never jumps to masquerading", ""},
		{"iptables mode was before", withLeftovers(nftNode()), "", "", ""},
		{"its table is not there", withoutTable(nftNode()), string(diagnosis.VIPNotProgrammed), "knows nothing of", "sudo nft list table ip kube-proxy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Walk(c.s, Options{All: true, Client: Client{}})
			var codes, titles, commands []string
			for _, svc := range r.Services {
				for _, d := range svc.Diagnoses {
					if d.Layer != diagnosis.LayerNode {
						continue
					}
					codes = append(codes, string(d.Code))
					titles = append(titles, d.Title)
					for _, e := range d.Evidence {
						commands = append(commands, e.Command)
					}
				}
			}
			if got := strings.Join(codes, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if !strings.Contains(strings.Join(titles, "\n"), c.says) {
				t.Errorf("no title says %q: %q", c.says, titles)
			}
			if !strings.Contains(strings.Join(commands, "\n"), c.evidence) {
				t.Errorf("no command is %q: %q", c.evidence, commands)
			}
			if t.Failed() {
				for _, svc := range r.Services {
					t.Log(describe(svc))
				}
			}
		})
	}
}
