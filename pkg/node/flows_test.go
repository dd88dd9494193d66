package node

import (
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

func flow(dst, dport string) string {
	return "ipv4     2 udp      17 29 src=10.244.1.9 dst=" + dst + " sport=43145 dport=" + dport + " [UNREPLIED] src=10.244.2.6 dst=10.244.1.9 sport=53 dport=43145 mark=0 zone=0 use=2\n"
}

// TestFlowsOfServicesAlone holds the collector to what is kept of a node's
// connections.
func TestFlowsOfServicesAlone(t *testing.T) {
	const jsonMap = `{"nftables": [{"map": {"family": "ip", "name": "service-ips", "table": "kube-proxy", "elem": [[{"concat": ["10.96.0.10", "udp", 53]}, {"goto": {"target": "x"}}]]}}, {"map": {"elem": [[{"concat": ["tcp", 30080]}, null]]}}]}`
	const textMap = "table ip kube-proxy {\n map service-ips {\n  elements = { 10.96.0.10 . udp . 53 comment \"x\" : goto y }\n }\n map service-nodeports {\n  elements = { tcp . 30080 : goto z }\n }\n}\n"
	const save = "*nat\n-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/kube-dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-X\n-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-X\n-A DOCKER -d 172.31.250.11/32 -p tcp --dport 9999 -j DNAT --to-destination 172.17.0.2:80\nCOMMIT\n"
	addrs := snapshot.Text{Kind: snapshot.IPAddr, Content: "2: eth0: <UP> mtu 1500\n    inet 172.31.250.11/24 scope global eth0\n"}
	table := flow("10.96.0.10", "53") + flow("10.96.0.10", "54") + flow("198.51.100.7", "53") + flow("172.31.250.11", "30080") + flow("198.51.100.7", "30080") + flow("172.31.250.11", "9999") + "garbage dst=x dport=53\n"
	kept := flow("10.96.0.10", "53") + flow("172.31.250.11", "30080")
	for _, tt := range []struct {
		name  string
		texts []snapshot.Text
		ipvs  string
		want  string
	}{
		{"iptables", []snapshot.Text{{Kind: snapshot.IptablesSave, Content: save}, addrs}, "", kept},
		{"nft, JSON", []snapshot.Text{{Kind: snapshot.NftRuleset, Content: jsonMap}, addrs}, "", kept},
		{"nft, text", []snapshot.Text{{Kind: snapshot.NftRuleset, Content: textMap}, addrs}, "", kept},
		{"IPVS", nil, "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\nUDP  0A60000A:0035 rr \nTCP  AC1FFA0B:7580 rr \n", kept},
		{"another's table", []snapshot.Text{{Kind: snapshot.NftRuleset, Content: strings.ReplaceAll(textMap, "kube-proxy", "fw")}, {Kind: snapshot.IptablesSave, Content: save[:strings.Index(save, "-A KUBE-NODE")]}}, "", flow("10.96.0.10", "53")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.files["proc/net/nf_conntrack"] = file(table)
			if tt.ipvs != "" {
				f.files["proc/net/ip_vs"] = file(tt.ipvs)
			}
			got := f.flows(tt.texts)[0]
			if got.Status != snapshot.Done || got.Content != tt.want {
				t.Errorf("got %s %q (%s), want %q", got.Status, got.Content, got.Why, tt.want)
			}
		})
	}
	if got := newFake().flows(nil)[0]; got.Status != snapshot.Failed || !strings.Contains(got.Why, "no rules of kube-proxy") {
		t.Errorf("without rules: %+v", got)
	}
	if got := newFake().flows([]snapshot.Text{{Kind: snapshot.IptablesSave, Content: save}})[0]; got.Status != snapshot.Failed || !strings.Contains(got.Supply, "conntrack -L") {
		t.Errorf("without the file: %+v", got)
	}
}
