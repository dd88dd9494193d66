package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// sosReportOf is a made sosreport of a host.
func sosReportOf(host string) map[string]string {
	const commands = "sos_commands/"
	return map[string]string{
		"etc/hostname":   host + "\n",
		"etc/passwd":     "root:x:0:0\n",
		"proc/modules":   "nf_tables 1 0 - Live 0x0\n",
		"proc/net/ip_vs": procIPVS,
		commands + "firewall_tables/iptables_-t_nat_-nvL": "Chain PREROUTING (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination\n" +
			"    1    60 KUBE-SERVICES  0    --  *      *       0.0.0.0/0            0.0.0.0/0            /* kubernetes service portals */\n\n" +
			"Chain KUBE-SERVICES (1 references)\n pkts bytes target     prot opt in     out     source               destination\n",
		commands + "firewall_tables/iptables_-t_filter_-nvL": "Chain FORWARD (policy DROP 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination\n",
		commands + "firewall_tables/iptables_-vnxL":          "Chain FORWARD (policy DROP 0 packets, 0 bytes)\n pkts bytes target     prot opt in     out     source               destination\n",
		commands + "firewall_tables/ip6tables_-vnxL":         "",
		commands + "firewall_tables/nft_list_ruleset":        "table inet firewalld {\n\tchain c {\n\t}\n}\n",
		commands + "networking/ip_-d_address":                "2: eth0: <BROADCAST,UP> mtu 1500 qdisc mq state UP\n    inet 10.0.0.1/24 scope global eth0\n",
		commands + "networking/ip_-o_addr":                   "2: eth0    inet 10.0.0.1/24 scope global eth0\n",
		commands + "networking/ip_route_show_table_all":      "default via 10.0.0.254 dev eth0\n",
		commands + "networking/ip_-6_route_show_table_all":   "fe80::/64 dev eth0 proto kernel metric 256 pref medium\n",
		commands + "networking/ip_-4_rule_list":              "0:\tfrom all lookup local\n",
		commands + "networking/netstat_-s":                   "Ip:\n    1 total packets received\n",
		commands + "kernel/sysctl_-a":                        "net.ipv4.ip_forward = 1\n",
		commands + "kernel/lsmod":                            "Module Size Used\n",
	}
}

func writeFiles(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSosReport(t *testing.T) {
	root := t.TempDir()
	report := filepath.Join(root, "sosreport-worker-1-2026-11-30-abcdefg")
	writeFiles(t, report, sosReportOf("worker-1"))
	for name, spec := range map[string]string{"itself": report, "the folder that it is in": root, "named": "w9=" + report} {
		t.Run(name, func(t *testing.T) {
			states, inputs, err := ReadFiles([]string{spec}, FileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := "worker-1"
			if name == "named" {
				want = "w9"
			}
			if len(states) != 1 || states[0].Name != want {
				t.Fatalf("%d states, the first of %q", len(states), states[0].Name)
			}
			kinds := map[snapshot.TextKind]int{}
			for _, x := range states[0].Texts {
				kinds[x.Kind]++
			}
			if diff := cmp.Diff(map[snapshot.TextKind]int{
				snapshot.IptablesSave: 2, snapshot.NftRuleset: 1, snapshot.ProcIPVS: 1, snapshot.IPAddr: 1, snapshot.IPRoute: 1,
				snapshot.IPRule: 1, snapshot.Sysctl: 1, snapshot.ProcModules: 1, snapshot.Hostname: 1,
			}, kinds); diff != "" {
				t.Error(diff)
			}
			for _, in := range inputs {
				if in.Error != "" || strings.Contains(in.Ref, "passwd") {
					t.Errorf("%+v", in)
				}
			}
		})
	}
}

func TestSosReportsOfManyNodes(t *testing.T) {
	root := t.TempDir()
	for _, host := range []string{"worker-1", "worker-2"} {
		writeFiles(t, filepath.Join(root, "sosreport-"+host), sosReportOf(host))
	}
	states, _, err := ReadFiles([]string{root}, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range states {
		names = append(names, s.Name)
	}
	if !slices.Equal(names, []string{"worker-1", "worker-2"}) {
		t.Errorf("got %v", names)
	}
	if _, _, err := ReadFiles([]string{"w=" + root}, FileOptions{}); err == nil || !strings.Contains(err.Error(), "holds 2 sosreports") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"nodes.json", "namespaces/shop/core/pods.yaml", "image/cluster-scoped-resources/core/nodes/w1.yaml"} {
		objects := t.TempDir()
		writeFiles(t, objects, map[string]string{name: "{}"})
		if _, _, err := ReadFiles([]string{objects}, FileOptions{}); err == nil || !strings.Contains(err.Error(), "give it with --objects") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	empty := t.TempDir()
	writeFiles(t, empty, map[string]string{"sos_commands/networking/netstat_-s": "Ip:\n"})
	if _, _, err := ReadFiles([]string{empty}, FileOptions{}); err == nil || !strings.Contains(err.Error(), "none of the files") {
		t.Errorf("got %v", err)
	}
}
