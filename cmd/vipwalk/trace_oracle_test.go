package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/cli"
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// differences are the flows of which `vipwalk trace` rightly says something
// else than the oracle, by file and flow, with the reason. The oracle's
// README lists its simplifications: it enters at PREROUTING whoever sends, runs
// every filter chain on the destination after DNAT, and knows of no hook. None
// of these changes an end in these files; a difference that comes up has to be
// named here or mended.
var differences = map[string]string{}

// TestTraceReproducesKubeProxysOwnFlows types `vipwalk trace` for every packet
// flow of kube-proxy's own unit tests in iptables mode, over the rules as a real
// kernel gave them back in both backends.
func TestTraceReproducesKubeProxysOwnFlows(t *testing.T) {
	oracle := filepath.Join("..", "..", "..", "shared", "oracles", "kube-proxy")
	files, _ := filepath.Glob(filepath.Join(oracle, "v1.37.2", "iptables-flow-*.json"))
	if len(files) == 0 {
		t.Skip("the oracle's files are not beside the repository (../shared/oracles/kube-proxy)")
	}
	traced, named := 0, 0
	for _, file := range files {
		var in struct {
			NodeIPs []string
			Flows   []struct {
				Name, SourceIP, Protocol, DestIP, Output string
				DestPort                                 int
				Masq                                     bool
			}
		}
		readOracle(t, file, &in)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		var saves map[string]any
		readOracle(t, filepath.Join(oracle, "v1.37.2-kernel", name+".real.json"), &saves)
		for _, form := range []string{"legacySave", "nftSave"} {
			dir := t.TempDir()
			writeState(t, dir, "rules.txt", saves[form].(string))
			writeState(t, dir, "ip-addr.txt", addrText(in.NodeIPs))
			for _, f := range in.Flows {
				traced++
				want := strings.Split(f.Output, ", ")
				slices.Sort(want)
				args := []string{
					"vipwalk", "trace", "--node-state", dir, "--from", f.SourceIP, "--proto", f.Protocol,
					"--to", hostPort(f.DestIP, f.DestPort), "-o", "json",
				}
				got, masq := traceEnds(t, args)
				if slices.Equal(got, want) && masq == f.Masq {
					continue
				}
				key := name + ": " + f.Name
				if why := differences[key]; why != "" {
					named++
					continue
				}
				t.Errorf("%s (%s)\n %s\n got  %q masquerade %t\n want %q masquerade %t", key, form, strings.Join(args[1:], " "), got, masq, want, f.Masq)
			}
		}
	}
	if traced != 492 {
		t.Errorf("traced %d flows, want 492: 246 through each backend's text", traced)
	}
	if named != 2*len(differences) {
		t.Errorf("%d of %d named differences came up; take out those that are gone", named/2, len(differences))
	}
	t.Logf("%d flows traced, %d of them differ for a reason that is named", traced, named)
}

// traceEnds runs the command and says how the packet ends, in the oracle's
// terms.
func traceEnds(t *testing.T, args []string) (ends []string, masquerade bool) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, func(string) string { return "" }); code != 0 {
		t.Fatalf("%s: exit %d\n%s", strings.Join(args, " "), code, errs.String())
	}
	var r diagnosis.TraceReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Outcomes {
		masquerade = masquerade || o.Masquerade
		switch o.Verdict {
		case "dnat":
			ends = append(ends, o.To)
		case "none":
			ends = append(ends, "")
		default:
			ends = append(ends, strings.ToUpper(o.Verdict))
		}
	}
	slices.Sort(ends)
	return ends, masquerade
}

func readOracle(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func writeState(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// addrText is `ip addr` of a node with these addresses.
func addrText(ips []string) string {
	var b strings.Builder
	b.WriteString("1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000\n    inet 127.0.0.1/8 scope host lo\n    inet6 ::1/128 scope host\n2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default\n")
	for _, ip := range ips {
		if strings.Contains(ip, ":") {
			fmt.Fprintf(&b, "    inet6 %s/64 scope global\n", ip)
		} else {
			fmt.Fprintf(&b, "    inet %s/24 scope global eth0\n", ip)
		}
	}
	return b.String()
}

func hostPort(ip string, port int) string {
	if strings.Contains(ip, ":") {
		return fmt.Sprintf("[%s]:%d", ip, port)
	}
	return fmt.Sprintf("%s:%d", ip, port)
}
