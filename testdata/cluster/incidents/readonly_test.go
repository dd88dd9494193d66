package incidents_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// What a walk of one Service may ask of the API server.
const (
	maxRequests = 12
	maxRounds   = 3
)

// checkRequests holds walks to get and list, by the API server's own audit
// log, and a walk of one Service to its number of requests and of rounds.
func checkRequests(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	one := walkAudited(ctx, t, c, "orders", "-n", "production")
	if len(one) > maxRequests {
		t.Errorf("a walk of one Service made %d requests, want at most %d: %v", len(one), maxRequests, one)
	}
	walkAudited(ctx, t, c, "-A")

	rounds, kubeconfig, err := c.NewRounds(cluster.Reader)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.RunVipwalkWith(ctx, kubeconfig, "orders", "-n", "production", "-o", "json")
	made := rounds.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Report(); err != nil {
		t.Error(err)
	}
	t.Logf("a walk of one Service: %d requests in %d rounds; %v", len(one), len(made), made)
	if len(made) == 0 || len(made) > maxRounds {
		t.Errorf("a walk of one Service asked in %d rounds, want 1 to %d: %v", len(made), maxRounds, made)
	}
}

// walkAudited walks and returns the requests that the audit log has of it.
func walkAudited(ctx context.Context, t *testing.T, c *cluster.Cluster, args ...string) []string {
	t.Helper()
	_, from, err := c.Audit(ctx, cluster.Reader, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.RunVipwalk(ctx, cluster.Reader, append(args, "-o", "json")...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Report(); err != nil {
		t.Fatal(err)
	}
	requests, _, err := c.Audit(ctx, cluster.Reader, from)
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) == 0 {
		t.Errorf("the audit log has no request of vipwalk %v", args)
	}
	var all []string
	for _, r := range requests {
		if r.Verb != "get" && r.Verb != "list" {
			t.Errorf("vipwalk %v asked to %s %s, want get and list only", args, r.Verb, r.RequestURI)
		}
		if r.ResponseStatus.Code >= 400 {
			t.Errorf("vipwalk %v was answered %d on %s: docs/rbac.yaml does not allow what it reads, or it does not exist", args, r.ResponseStatus.Code, r.RequestURI)
		}
		all = append(all, r.Verb+" "+r.RequestURI)
	}
	return all
}

// checkUnchanged holds runs on a node, as root, to changing neither rules nor
// modules nor the list of legacy tables.
func checkUnchanged(ctx context.Context, t *testing.T, n *cluster.Node) {
	before := kernelState(ctx, t, n)
	marks := []string{"-A PREROUTING", "table ip nat"}
	if n.Mode == "nftables" {
		marks = []string{"table ip kube-proxy"}
	}
	if slices.ContainsFunc(marks, func(m string) bool { return !strings.Contains(before, m) }) {
		t.Fatalf("the node's rules were not read:\n%s", before)
	}
	for _, args := range [][]string{{"node-state"}, {"orders", "-n", "production", "-o", "json"}, {"orders", "-n", "production", "--local=true"}} {
		out, err := n.RunVipwalk(ctx, cluster.Reader, args...)
		if err != nil {
			t.Fatal(err)
		}
		if out.ExitCode > 1 {
			t.Errorf("vipwalk %v on %s: exit code %d: %s", args, n.Name, out.ExitCode, out.Stderr)
		}
	}
	if after := kernelState(ctx, t, n); after != before {
		t.Errorf("before vipwalk ran on %s:\n%s\nand after:\n%s", n.Name, before, after)
	}
}

// Counters move with every packet, and iptables-save prints the time. nft -s
// prints neither, and is compared byte for byte.
var (
	counters = regexp.MustCompile(`packets \d+ bytes \d+|\[\d+:\d+\]`)
	comments = regexp.MustCompile(`(?m)^#.*\n`)
)

func kernelState(ctx context.Context, t *testing.T, n *cluster.Node) string {
	t.Helper()
	var all strings.Builder
	for _, argv := range [][]string{
		{"iptables-save"}, {"ip6tables-save"}, {"nft", "list", "ruleset"}, {"nft", "-s", "list", "ruleset"},
		{"cat", "/proc/net/ip_tables_names"}, {"cat", "/proc/net/ip6_tables_names"},
	} {
		out, err := n.Exec(ctx, argv...)
		if err != nil && argv[0] != "cat" { // a kernel without legacy tables has no list of them
			t.Fatal(err)
		}
		if !slices.Contains(argv, "-s") {
			out = comments.ReplaceAllString(counters.ReplaceAllString(out, "counter"), "")
		}
		fmt.Fprintf(&all, "== %v\n%s", argv, out)
	}
	fmt.Fprintf(&all, "== modules\n%s\n", strings.Join(moduleNames(ctx, t, n), "\n"))
	return all.String()
}

// moduleNames leaves out the numbers of users, which other work on the machine changes.
func moduleNames(ctx context.Context, t *testing.T, n *cluster.Node) []string {
	t.Helper()
	text, err := n.ReadFile(ctx, "/proc/modules")
	if err != nil {
		return nil // a kernel without modules has no such file
	}
	var names []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
