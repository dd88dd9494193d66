package incidents_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vipwalk/vipwalk/testdata/cluster"
	"github.com/vipwalk/vipwalk/testdata/cluster/incidents"
)

var (
	update  = flag.Bool("update", false, "write docs/truth.md")
	traffic = flag.Bool("traffic", false, "make the faults and measure traffic, without vipwalk")
	rbac    = flag.String("rbac", filepath.Join(root, "docs", "rbac.yaml"), "the ClusterRole that vipwalk runs with")
)

// root of the main module, seen from this package's directory.
const root = "../../.."

// TestTruth makes every incident on one cluster, measures what real
// connections do, and holds vipwalk's verdict to it.
func TestTruth(t *testing.T) {
	t.Parallel()
	ctx, scene := newScene(t, "iptables")
	rows := runAll(ctx, t, scene, incidents.All(), "truth.md")
	if *traffic {
		return
	}
	t.Run("requests", func(t *testing.T) { checkRequests(ctx, t, scene.Cluster) })
	t.Run("unchanged", func(t *testing.T) { checkUnchanged(ctx, t, scene.Worker1) })
	t.Run("truth.md", func(t *testing.T) { checkTruth(t, "truth.md", scene.Cluster.Binaries.Version, "iptables", rows) })
}

// TestTruthNftables does the same with the nodes in nftables mode, on a cluster
// of its own at the same time: both wait more than they work.
func TestTruthNftables(t *testing.T) {
	t.Parallel()
	ctx, scene := newScene(t, "nftables")
	rows := runAll(ctx, t, scene, incidents.Nftables(), "truth-nftables.md")
	if *traffic {
		return
	}
	t.Run("unchanged", func(t *testing.T) { checkUnchanged(ctx, t, scene.Worker1) })
	t.Run("truth-nftables.md", func(t *testing.T) {
		checkTruth(t, "truth-nftables.md", scene.Cluster.Binaries.Version, "nftables", rows)
	})
}

// newScene starts a cluster that ends with the test, with vipwalk built and
// allowed to read, unless traffic alone is measured.
func newScene(t *testing.T, mode string) (context.Context, *incidents.Scene) {
	if why := cluster.Missing(); why != "" {
		t.Skip(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Minute) // the first run builds the control plane
	t.Cleanup(cancel)
	scene, err := incidents.NewSceneIn(ctx, cluster.Options{}, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := scene.Cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if *traffic {
		return ctx, scene
	}
	if _, err := scene.Cluster.Vipwalk(ctx); err != nil {
		t.Fatal(err)
	}
	if err := scene.Cluster.GrantReader(ctx, *rbac); err != nil {
		t.Fatal(err)
	}
	return ctx, scene
}

// runAll returns the rows of a page of docs. Of an incident that this machine
// can't have, the row is the page's.
func runAll(ctx context.Context, t *testing.T, s *incidents.Scene, all []incidents.Incident, page string) (rows []string) {
	for _, i := range all {
		t.Run(i.Name, func(t *testing.T) {
			if i.Missing != nil && i.Missing() != "" {
				rows = append(rows, committedRow(t, page, i))
				t.Skip(i.Missing())
			}
			rows = append(rows, runIncident(ctx, t, s, i))
		})
	}
	return rows
}

func committedRow(t *testing.T, page string, i incidents.Incident) string {
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| "+i.Fault+" |") {
			return line
		}
	}
	return ""
}

// runIncident makes an incident, judges traffic and verdict, heals it, and
// returns its row of docs/truth.md.
func runIncident(ctx context.Context, t *testing.T, s *incidents.Scene, i incidents.Incident) string {
	if err := s.Break(ctx, i); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Heal(ctx, i); err != nil {
			t.Error(err)
		}
	}()
	var seen []string
	for _, p := range i.Traffic {
		got := s.Measure(ctx, p)
		if got != p.Want {
			t.Errorf("%s to the %s: %s, want %s", p.From, p.To, got, p.Want)
		}
		p.Want = got
		seen = append(seen, p.String())
	}
	if *traffic {
		return ""
	}
	said, exit := judge(ctx, t, s, i)
	return fmt.Sprintf("| %s | %s | %s | %d |\n", i.Fault, strings.Join(seen, "; "), said, exit)
}

// judge walks the incident's target with the state of both nodes and returns
// what vipwalk said.
func judge(ctx context.Context, t *testing.T, s *incidents.Scene, i incidents.Incident) (said string, exit int) {
	flags, err := s.NodeStateFlags(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Cluster.RunVipwalk(ctx, cluster.Reader, append(append([]string{"-o", "json"}, i.Target...), flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	report, err := out.Report()
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Services) != 1 {
		t.Fatalf("the report has %d services, want 1:\n%s", len(report.Services), out.Stdout)
	}
	service := report.Services[0]
	wantVerdict, wantExit := wanted(i)
	roots := rootsOf(service)
	switch {
	case service.Verdict != wantVerdict, out.ExitCode != wantExit:
		t.Errorf("verdict %s, exit code %d; want %s, %d", service.Verdict, out.ExitCode, wantVerdict, wantExit)
	case i.Code == "" && len(service.Diagnoses) != 0:
		t.Errorf("%d diagnoses of a healthy Service, want none", len(service.Diagnoses))
	case i.Code != "" && (len(roots) != 1 || roots[0].Code != i.Code || service.Diagnoses[0].Code != i.Code):
		t.Errorf("the roots are %v, want %s alone, and first", roots, i.Code)
	}
	for _, d := range service.Diagnoses {
		if len(d.Evidence) == 0 {
			t.Errorf("%s has no evidence", d.Code)
		}
	}
	if t.Failed() {
		t.Logf("vipwalk %v said:\n%s\n%s", out.Args, out.Stdout, out.Stderr)
	}
	return sentence(service, roots), out.ExitCode
}

func wanted(i incidents.Incident) (verdict string, exit int) {
	switch {
	case i.Code == "":
		return "ok", 0
	case i.Warns:
		return "warn", 0
	}
	return "fail", 1
}

// rootsOf are the diagnoses that no other one explains.
func rootsOf(s cluster.Service) []cluster.Diagnosis {
	var roots []cluster.Diagnosis
	for _, d := range s.Diagnoses {
		if len(d.CausedBy) == 0 {
			roots = append(roots, d)
		}
	}
	return roots
}

func sentence(s cluster.Service, roots []cluster.Diagnosis) string {
	words := s.Verdict
	for _, d := range roots {
		words += fmt.Sprintf(", [%s](codes/%s.md) %s", d.Code, d.Code, d.Name)
	}
	return words
}

const truthHead = `# What traffic did, and what vipwalk said

Each fault was made on a real cluster (kube-apiserver, kube-controller-manager and kube-proxy %s in %s mode,
two workers), real connections were made while it lasted, and vipwalk walked the Service with the state of both workers.
"No answer" is a time-out or an ICMP unreachable within two seconds. The test that does it writes this page:
` + "`cd testdata/cluster && go test ./incidents -run TestTruth -update`" + `.

| fault | what traffic did | what vipwalk said | exit code |
|---|---|---|---|
`

func checkTruth(t *testing.T, file, version, mode string, rows []string) {
	path := filepath.Join(root, "docs", file)
	got := fmt.Sprintf(truthHead, version, mode) + strings.Join(rows, "")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("docs/%s is not what this run gave (write it with -update):\n%s", file, got)
	}
}
