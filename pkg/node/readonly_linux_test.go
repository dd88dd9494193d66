package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// The tests in this file read real kernels' rules: each in a network namespace
// of its own, in which the test's own binary runs again to call Local.

const (
	helperOut  = "VIPWALK_TEST_STATE_OUT"
	helperList = "VIPWALK_TEST_LIST"
)

// TestHelper is not a test: it is what the others run inside a namespace.
func TestHelper(t *testing.T) {
	out := os.Getenv(helperOut)
	if out == "" {
		return // not run by another test
	}
	var content string
	if program := os.Getenv(helperList); program != "" {
		list, err := ListRules(context.Background(), program, strings.Contains(program, "ip6"))
		if err != nil {
			t.Fatal(err)
		}
		content = list
	} else {
		state, err := Local(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		content = stateText(t, state)
	}
	if err := os.WriteFile(out, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// namespace is a network namespace that ends with the test.
type namespace struct {
	t    *testing.T
	name string
}

func newNamespace(t *testing.T, programs ...string) namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	for _, p := range append([]string{"ip"}, programs...) {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs the program %s", p)
		}
	}
	n := namespace{t, fmt.Sprintf("vipwalk-%d-%d", os.Getpid(), len(t.Name()))}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("no network namespace can be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.name).Run() })
	return n
}

func (n namespace) run(stdin string, argv ...string) string {
	n.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", n.name}, argv...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("%q: %v: %v", argv, err, err.(*exec.ExitError).Stderr)
	}
	return string(out)
}

// again runs TestHelper inside, and returns what it wrote.
func (n namespace) again(env ...string) string {
	n.t.Helper()
	out := filepath.Join(n.t.TempDir(), "out")
	cmd := exec.Command("ip", "netns", "exec", n.name, os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), append(env, helperOut+"="+out)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

// kernelState is all that a read could have changed. Looking at it is in an
// order that changes nothing either: the names of the legacy tables first.
func (n namespace) kernelState() map[string]string {
	out := map[string]string{"modules": ""}
	if b, err := os.ReadFile("/proc/modules"); err == nil {
		out["modules"] = string(b)
	}
	out["names"] = n.run("", "cat", "/proc/net/ip_tables_names")
	out["names6"] = n.run("", "cat", "/proc/net/ip6_tables_names")
	out["nft"] = n.run("", "nft", "-a", "list", "ruleset")
	if _, err := exec.LookPath("ipset"); err == nil {
		out["sets"] = n.run("", "ipset", "save")
	}
	out["rule"], out["rule6"] = n.run("", "ip", "rule"), n.run("", "ip", "-6", "rule")
	for _, p := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		out[p] = withoutDates(n.run("", p, "-c"))
	}
	if b, err := os.ReadFile("/run/xtables.lock"); err == nil {
		out["lock"] = string(b)
	}
	return out
}

// withoutDates leaves out the comments that hold the time of day.
func withoutDates(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestLocalChangesNothing(t *testing.T) {
	rules := func(name string) string { return testdata(t, name) }
	tests := []struct {
		name  string
		setup func(namespace)
		check func(*testing.T, *snapshot.NodeState, map[string]string)
	}{
		{"empty", func(namespace) {}, func(t *testing.T, s *snapshot.NodeState, before map[string]string) {
			if before["names"]+before["names6"]+before["nft"] != "" {
				t.Errorf("a new namespace is not empty: %v", before)
			}
			for _, k := range []snapshot.TextKind{snapshot.IptablesSave, snapshot.Ip6tablesSave} {
				if x := s.Text(k); x.Status != snapshot.Done || withoutDates(x.Content) != "" {
					t.Errorf("%s: %s %q %s", k, x.Status, x.Content, x.Why)
				}
			}
		}},
		{"nft rules", func(n namespace) {
			n.run(rules("iptables-nft-save.txt"), "iptables-nft-restore")
			n.run(rules("ip6tables-nft-save.txt"), "ip6tables-nft-restore")
		}, func(t *testing.T, s *snapshot.NodeState, before map[string]string) {
			same(t, s, snapshot.IptablesSave, before["iptables-nft-save"])
			same(t, s, snapshot.Ip6tablesSave, before["ip6tables-nft-save"])
			if x := s.Text(snapshot.Conntrack); x.Status != snapshot.Done && !strings.Contains(x.Why, "no such file") {
				t.Errorf("connections: %s %s", x.Status, x.Why)
			}
			none(t, s, snapshot.IptablesLegacySave)
		}},
		{"nft tables", func(n namespace) {
			n.run(rules("iptables-nft-save.txt"), "iptables-nft-restore")
			n.run("table ip kube-proxy {\n chain nat-prerouting { type nat hook prerouting priority -100; ip daddr 10.96.0.1 dnat to 10.0.0.1; }\n}\ntable inet fw {\n set s { type ipv4_addr; flags dynamic; }\n}\n", "nft", "-f", "-")
		}, func(t *testing.T, s *snapshot.NodeState, before map[string]string) {
			same(t, s, snapshot.IptablesSave, before["iptables-nft-save"])
			texts := s.All(snapshot.NftRuleset)
			if len(texts) != 2 {
				t.Fatalf("%d nft texts: %+v", len(texts), texts)
			}
			for i, name := range []string{"kube-proxy", "fw"} {
				if x := texts[i]; x.Status != snapshot.Done || !strings.Contains(x.Content, `"name": "`+name+`"`) {
					t.Errorf("%s: %s %q %s", x.Ref, x.Status, x.Content, x.Why)
				}
			}
		}},
		{"sets", func(n namespace) {
			if _, err := exec.LookPath("ipset"); err != nil {
				n.t.Skip("needs the program ipset")
			}
			n.run("create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\nadd KUBE-CLUSTER-IP 10.96.0.1,tcp:443\n", "ipset", "restore")
		}, func(t *testing.T, s *snapshot.NodeState, before map[string]string) {
			if !strings.Contains(before["sets"], "add KUBE-CLUSTER-IP 10.96.0.1,tcp:443") {
				t.Errorf("no set was made: %q", before["sets"])
			}
			same(t, s, snapshot.IpsetSave, before["sets"])
		}},
		{"legacy rules", func(n namespace) {
			n.run(rules("iptables-legacy-save-c.txt"), "iptables-legacy-restore", "-c")
			n.run(rules("ip6tables-legacy-save.txt"), "ip6tables-legacy-restore")
		}, func(t *testing.T, s *snapshot.NodeState, before map[string]string) {
			if before["names"] == "" {
				t.Error("no legacy tables were made")
			}
			same(t, s, snapshot.IptablesLegacySave, before["iptables-legacy-save"])
			same(t, s, snapshot.Ip6tablesLegacySave, before["ip6tables-legacy-save"])
			same(t, s, snapshot.IptablesSave, "")
		}},
		{"both", func(n namespace) {
			n.run(rules("iptables-nft-save.txt"), "iptables-nft-restore")
			n.run(rules("iptables-legacy-save-c.txt"), "iptables-legacy-restore", "-c")
		}, func(t *testing.T, s *snapshot.NodeState, before map[string]string) {
			same(t, s, snapshot.IptablesSave, before["iptables-nft-save"])
			same(t, s, snapshot.IptablesLegacySave, before["iptables-legacy-save"])
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNamespace(t, "nft", "iptables-nft-restore", "iptables-legacy-restore")
			n.run("", "ip", "link", "set", "lo", "up")
			tt.setup(n)
			before := n.kernelState()
			state, err := ParseState(strings.NewReader(n.again()))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, n.kernelState()); diff != "" {
				t.Errorf("reading changed the kernel's state:\n%s", diff)
			}
			tt.check(t, state, before)
			if x := state.Text(snapshot.IPAddr); !strings.Contains(x.Content, "inet 127.0.0.1/8") {
				t.Errorf("ip addr: %s %q %s", x.Status, x.Content, x.Why)
			}
			if x := state.Text(snapshot.IPRoute); !strings.Contains(x.Content, "local 127.0.0.1 dev lo") {
				t.Errorf("ip route: %s %q %s", x.Status, x.Content, x.Why)
			}
			if x := state.Text(snapshot.IPRule); !strings.Contains(x.Content, "lookup main") {
				t.Errorf("ip rule: %s %q %s", x.Status, x.Content, x.Why)
			}
			if x := state.Text(snapshot.ProxyMode); x.Status != snapshot.Failed {
				t.Errorf("proxy mode: %s %q", x.Status, x.Content)
			}
			if x := state.Text(snapshot.Sysctl); !strings.Contains(x.Content, "net.ipv4.ip_forward = ") {
				t.Errorf("sysctl: %s %q %s", x.Status, x.Content, x.Why)
			}
		})
	}
}

func same(t *testing.T, s *snapshot.NodeState, kind snapshot.TextKind, want string) {
	t.Helper()
	x := s.Text(kind)
	if x.Status != snapshot.Done {
		t.Errorf("%s: %s %s", kind, x.Status, x.Why)
	}
	if diff := cmp.Diff(want, withoutDates(x.Content)); diff != "" {
		t.Errorf("%s: %s", kind, diff)
	}
}

func none(t *testing.T, s *snapshot.NodeState, kind snapshot.TextKind) {
	t.Helper()
	if x := s.Text(kind); x.Status != snapshot.NotRead {
		t.Errorf("%s: %s %q", kind, x.Status, x.Content)
	}
}

// TestListRules holds the listing to what iptables-save says of the same
// kernel, and to changing nothing, also where no table exists yet.
func TestListRules(t *testing.T) {
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		t.Run(program, func(t *testing.T) {
			n := newNamespace(t, "nft", program)
			full, err := exec.LookPath(program)
			if err != nil {
				t.Fatal(err)
			}
			empty := n.kernelState()
			n.again(helperList + "=" + full)
			if diff := cmp.Diff(empty, n.kernelState()); diff != "" {
				t.Errorf("listing an empty ruleset changed the kernel's state:\n%s", diff)
			}
			n.run(testdata(t, program+"-save.txt"), program+"-restore")
			before := n.kernelState()
			list := n.again(helperList + "=" + full)
			if diff := cmp.Diff(before, n.kernelState()); diff != "" {
				t.Errorf("listing changed the kernel's state:\n%s", diff)
			}
			for line := range strings.Lines(withoutDates(n.run("", program+"-save"))) {
				if !strings.HasPrefix(line, ":") && !strings.Contains(list, line) {
					t.Errorf("not listed: %s", line)
				}
				if chain, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(line, ":") && !strings.Contains(list, chain+" ") {
					t.Errorf("chain not listed: %s", chain)
				}
			}
		})
	}
}

// TestListRulesRuns records what the library runs.
func TestListRulesRuns(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "iptables-nft")
	script := `#!/bin/sh
echo "$@" >> "` + dir + `/log"
case "$*" in
--version) echo "iptables v$(cat "` + dir + `/version") (nf_tables)" ;;
"-t nat -S --wait 5") echo "-P PREROUTING ACCEPT"; echo "-N KUBE" ;;
"-t nat -S KUBE --wait 5") echo "-N KUBE"; echo "-A KUBE -j ACCEPT" ;;
"-t nat -S PREROUTING --wait 5") echo "-P PREROUTING ACCEPT"; echo "-A PREROUTING -j KUBE" ;;
esac
`
	for name, content := range map[string]string{"iptables-nft": script, "version": "1.8.9"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ListRules(context.Background(), program, false)
	if err != nil {
		t.Fatal(err)
	}
	want := "*raw\nCOMMIT\n*mangle\nCOMMIT\n" +
		"*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE - [0:0]\n-A PREROUTING -j KUBE\n-A KUBE -j ACCEPT\nCOMMIT\n" +
		"*filter\nCOMMIT\n*security\nCOMMIT\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	ran := "--version\n-t raw -S --wait 5\n-t mangle -S --wait 5\n-t nat -S --wait 5\n-t nat -S PREROUTING --wait 5\n-t nat -S KUBE --wait 5\n-t filter -S --wait 5\n-t security -S --wait 5\n"
	if diff := cmp.Diff(ran, string(log)); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(filepath.Join(dir, "version"), []byte("1.8.4"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListRules(context.Background(), program, false); err == nil || !strings.Contains(err.Error(), "may create chains") {
		t.Errorf("iptables 1.8.4: got %v", err)
	}
}
