package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/docs"
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/walk"
	"github.com/vipwalk/vipwalk/testdata/incidents"
)

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func runWith(ctx context.Context, in io.Reader, out io.Writer, args ...string) (code int, stderr string) {
	var errs bytes.Buffer
	code = Run(ctx, append([]string{"vipwalk"}, args...), Streams{In: in, Out: out, Err: &errs}, env(nil))
	return code, errs.String()
}

// report makes a report of Services that each have one layer 1 of that status
// and a diagnosis of each severity given.
func reportOf(services ...diagnosis.Service) *diagnosis.Report {
	return &diagnosis.Report{Inputs: []diagnosis.Input{{Kind: "api", Ref: "https://192.0.2.1"}}, Services: services}
}

func serviceOf(status diagnosis.Status, ds ...diagnosis.Diagnosis) diagnosis.Service {
	s := diagnosis.Service{Namespace: "n", Name: "s", Type: "ClusterIP", Verdict: status, Diagnoses: ds}
	for _, l := range diagnosis.Layers {
		s.Layers = append(s.Layers, diagnosis.LayerResult{Layer: l, Name: l.Name(), Status: diagnosis.OK})
	}
	s.Layers[2].Status = status
	return s
}

func TestExitCodes(t *testing.T) {
	diag := func(s diagnosis.Severity, ignored bool) diagnosis.Diagnosis {
		return diagnosis.Diagnosis{Code: "VIP202", Severity: s, Ignored: ignored}
	}
	onError := criteria{failOn: diagnosis.Error}
	forbidden := func(r *diagnosis.Report) *diagnosis.Report {
		r.Inputs = append(r.Inputs, diagnosis.Input{Kind: "api", Ref: "pods", Error: "forbidden: no"})
		return r
	}
	withMissing := func(s diagnosis.Service, why string) diagnosis.Service {
		s.Layers[2].Missing = []diagnosis.Missing{{What: "pods", Why: why}}
		return s
	}
	fromFiles := forbidden(reportOf(withMissing(serviceOf(diagnosis.Unknown), "forbidden: no")))
	fromFiles.Inputs[0] = diagnosis.Input{Kind: "objects", Ref: "all.yaml"}
	for name, tc := range map[string]struct {
		criteria criteria
		report   *diagnosis.Report
		want     int
	}{
		"healthy":                       {onError, reportOf(serviceOf(diagnosis.OK)), 0},
		"nothing walked":                {onError, reportOf(), 0},
		"an error":                      {onError, reportOf(serviceOf(diagnosis.Fail, diag(diagnosis.Error, false))), 1},
		"an ignored error":              {onError, reportOf(serviceOf(diagnosis.OK, diag(diagnosis.Error, true))), 0},
		"a warning":                     {onError, reportOf(serviceOf(diagnosis.Warn, diag(diagnosis.Warning, false))), 0},
		"a warning, fail-on warning":    {criteria{failOn: diagnosis.Warning}, reportOf(serviceOf(diagnosis.Warn, diag(diagnosis.Warning, false))), 1},
		"an error, fail-on warning":     {criteria{failOn: diagnosis.Warning}, reportOf(serviceOf(diagnosis.Fail, diag(diagnosis.Error, false))), 1},
		"an info, fail-on info":         {criteria{failOn: diagnosis.Info}, reportOf(serviceOf(diagnosis.OK, diag(diagnosis.Info, false))), 1},
		"an error, fail-on never":       {criteria{}, reportOf(serviceOf(diagnosis.Fail, diag(diagnosis.Error, false))), 0},
		"unknown, not required":         {onError, reportOf(serviceOf(diagnosis.Unknown)), 0},
		"unknown, required":             {criteria{failOn: diagnosis.Error, require: []diagnosis.Layer{3}}, reportOf(serviceOf(diagnosis.Unknown)), 3},
		"unknown, another required":     {criteria{failOn: diagnosis.Error, require: []diagnosis.Layer{1, 2}}, reportOf(serviceOf(diagnosis.Unknown)), 0},
		"an error beats unknown":        {criteria{failOn: diagnosis.Error, require: []diagnosis.Layer{3}}, reportOf(serviceOf(diagnosis.Unknown, diag(diagnosis.Error, false))), 1},
		"forbidden":                     {onError, forbidden(reportOf(withMissing(serviceOf(diagnosis.Unknown), "forbidden: no"))), 3},
		"forbidden, not missed":         {onError, forbidden(reportOf(serviceOf(diagnosis.OK))), 0},
		"forbidden, nothing walked":     {onError, forbidden(reportOf()), 3},
		"not in the files":              {onError, fromFiles, 0},
		"unknown whether it exists":     {onError, reportOf(diagnosis.Service{Name: "x", Verdict: diagnosis.Unknown}), 3},
		"an address that no API knows":  {onError, reportOf(diagnosis.Service{Name: "10.0.0.1:80", Verdict: diagnosis.Unknown, Paths: []diagnosis.Path{{}}}), 0},
		"forbidden, and an error found": {onError, forbidden(reportOf(withMissing(serviceOf(diagnosis.Unknown, diag(diagnosis.Error, false)), "forbidden: no"))), 1},
	} {
		if got := tc.criteria.code(tc.report); got != tc.want {
			t.Errorf("%s: exit code %d, want %d", name, got, tc.want)
		}
	}
}

// waiting is a stdin on which nothing ever comes.
type waiting struct{ started chan struct{} }

func (w waiting) Read([]byte) (int, error) {
	close(w.started)
	select {}
}

func TestInterruptWhileStdinWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in := waiting{make(chan struct{})}
	go func() {
		<-in.started
		cancel()
	}()
	code, stderr := runWith(ctx, in, io.Discard, "10.96.0.1:443", "--node-state", "-", "--local=false")
	if code != exitInterrupted || !strings.HasPrefix(stderr, "error: interrupted") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, fmt.Errorf("write: %w", syscall.EPIPE) }

// A reader that went away changes nothing: no message, and the walk's code.
func TestBrokenPipeIsQuiet(t *testing.T) {
	if code, stderr := runWith(t.Context(), nil, gone{}, "explain"); code != exitOK || stderr != "" {
		t.Errorf("explain: exit code %d, stderr %q", code, stderr)
	}
}

func TestErrorsHaveTheirForm(t *testing.T) {
	for _, args := range [][]string{{}, {"--nope"}, {"a", "-o", "xml"}, {"explain", "x\x1b[2J\n"}, {"trace"}, {"capture"}} {
		code, stderr := runWith(t.Context(), nil, io.Discard, args...)
		if code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if !strings.HasPrefix(lines[0], "error: ") || !strings.HasPrefix(lines[len(lines)-1], "hint: ") {
			t.Errorf("%q: stderr %q", args, stderr)
		}
		if strings.ContainsRune(stderr, 0x1b) {
			t.Errorf("%q: an escape sequence on stderr", args)
		}
	}
}

func TestProgramName(t *testing.T) {
	for arg0, want := range map[string]string{
		"/usr/bin/vipwalk":              "vipwalk",
		"kubectl-vipwalk":               "kubectl vipwalk",
		"/x/kubectl-vipwalk.exe":        "kubectl vipwalk",
		"/x/kubectl_complete-vipwalk":   "kubectl vipwalk",
		"/tmp/some-test-binary/cli.exe": "vipwalk",
	} {
		if got := programName([]string{arg0}); got != want {
			t.Errorf("%s is called %q, want %q", arg0, got, want)
		}
	}
	if diff := cmp.Diff([]string{"__complete", "orders", ""}, arguments([]string{"kubectl_complete-vipwalk", "orders", ""})); diff != "" {
		t.Error(diff)
	}
	if got := arguments(nil); got == nil || len(got) != 0 {
		t.Errorf("no arguments at all are %#v; cobra would take the test's own for nil", got)
	}
}

func TestColorPrecedence(t *testing.T) {
	for _, tc := range []struct {
		mode string
		env  map[string]string
		want bool
	}{
		{"always", map[string]string{"NO_COLOR": "1", "TERM": "dumb"}, true},
		{"never", nil, false},
		{"auto", nil, false}, // a buffer is no terminal
		{"auto", map[string]string{"NO_COLOR": "1"}, false},
		{"auto", map[string]string{"TERM": "dumb"}, false},
	} {
		a := &app{getenv: env(tc.env)}
		if got := a.colorFor(&bytes.Buffer{}, tc.mode); got != tc.want {
			t.Errorf("--color %s with %v: %t", tc.mode, tc.env, got)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"explain", "demo"}
	for word, want := range map[string]string{"explian": "explain", "EXPLAIN": "explain", "dmeo": "demo", "zzzzzz": ""} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestPlainMarkdown(t *testing.T) {
	in := "# VIP1 Name\n\nA sentence that goes on for longer than the width.\n\n- an item that goes on for longer too\n\n```\na command that is never wrapped however long\n```\n\n| a | table that is never wrapped either |\n"
	want := "VIP1 Name\n\nA sentence that goes on for\nlonger than the width.\n\n- an item that goes on for\n  longer too\n\n    a command that is never wrapped however long\n\n| a | table that is never wrapped either |\n"
	if diff := cmp.Diff(want, plainMarkdown(in, 30)); diff != "" {
		t.Error(diff)
	}
}

func TestVersionOf(t *testing.T) {
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	for _, tc := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{info("v1.2.3"), "v1.2.3"},
		{info("(devel)"), "devel"},
		{info("(devel)", debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"}), "devel-0123456789ab"},
		{info("", debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), "devel-0123456789ab-modified"},
	} {
		if got := versionOf(tc.info); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// Every built-in incident can be walked with the arguments of its entry, has a
// title of one line, and finds the Service that it is about.
func TestIncidents(t *testing.T) {
	all, err := readIncidents(incidents.FS)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{program: pluginName}
	for _, i := range all {
		r, err := a.walkIncident(incidents.FS, i)
		switch {
		case err != nil:
			t.Errorf("%v", err)
		case len(r.Services) == 0:
			t.Errorf("incident %s walks nothing", i.Name)
		case i.Title == "" || strings.Contains(i.Title, "\n") || len(i.Title) > 76-len(i.Name):
			t.Errorf("incident %s: a title of one line, not %q", i.Name, i.Title)
		}
	}
}

func TestIncidentErrors(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"no index":       {},
		"a broken index": {"index.json": {Data: []byte("[")}},
		"an empty index": {"index.json": {Data: []byte("[]")}},
		"no bundle":      {"index.json": {Data: []byte(`[{"name": "x", "title": "y"}]`)}},
	} {
		a := &app{Streams: Streams{Out: io.Discard, Err: io.Discard}, getenv: env(nil)}
		if err := a.demo(files, &outputFlags{format: "text", color: "auto"}, nil); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

func TestScopeOf(t *testing.T) {
	target := func(text string) walk.Target {
		tg, err := walk.ParseTarget(text, "default")
		if err != nil {
			t.Fatal(err)
		}
		return tg
	}
	for text, want := range map[string]string{
		"orders":             "services 1, resolve false, addresses 0, node ports 0",
		"10.96.0.10:53":      "services 0, resolve true, addresses 1, node ports 1",
		"10.96.0.10":         "services 0, resolve true, addresses 1, node ports 0",
		":30021":             "services 0, resolve true, addresses 0, node ports 1",
		"worker-1:30021":     "services 1, resolve true, addresses 0, node ports 1",
		"orders.shop:8080":   "services 1, resolve false, addresses 0, node ports 0",
		"http://orders.shop": "services 1, resolve false, addresses 0, node ports 0",
	} {
		s := scopeOf(walk.Options{Targets: []walk.Target{target(text)}})
		got := fmt.Sprintf("services %d, resolve %t, addresses %d, node ports %d", len(s.Services), s.ResolveAddress, len(s.Addresses), len(s.NodePorts))
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if !scopeOf(walk.Options{All: true}).All || scopeOf(walk.Options{All: true, Namespaces: []string{"a"}}).All {
		t.Error("all of a namespace is not all of the cluster")
	}
}

func TestClusterIPOfRule(t *testing.T) {
	for line, want := range map[string]string{
		`-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment "kube-system/kube-dns:dns cluster IP" -m udp --dport 53 -j KUBE-SVC-X`: "10.96.0.10",
		`[3:180] -A KUBE-SERVICES -d fd00::a/128 -m comment --comment "a/b has no endpoints" -j REJECT`:                                       "fd00::a",
		`-A KUBE-SERVICES -d 192.0.2.9/32 -m comment --comment "a/b external IP" -j KUBE-EXT-X`:                                               "invalid IP",
		`-A KUBE-SERVICES ! -d 10.96.0.10/32 -m comment --comment "a/b cluster IP" -j KUBE-SVC-X`:                                             "invalid IP",
		`-A KUBE-SERVICES -d 10.96.0.0/12 -m comment --comment "a/b cluster IP" -j KUBE-SVC-X`:                                                "invalid IP",
		`-A KUBE-SERVICES  cluster IP" -d`: "invalid IP",
		`-A KUBE-SERVICES `:                "invalid IP",
	} {
		a, ok := clusterIP(line)
		if got := a.String(); ok && got != want || !ok && want != "invalid IP" {
			t.Errorf("%s: %s, %t; want %s", line, got, ok, want)
		}
	}
}

// `explain` has a page for every code that can be raised, and its first line
// names the code as the catalogue does.
func TestEveryCodeHasAPage(t *testing.T) {
	for _, e := range diagnosis.Catalogue {
		page, err := fs.ReadFile(docs.FS, "codes/"+string(e.Code)+".md")
		if err != nil {
			t.Errorf("%s has no page: %v", e.Code, err)
			continue
		}
		if want := "# " + string(e.Code) + " " + e.Name + "\n"; !strings.HasPrefix(string(page), want) {
			t.Errorf("the page of %s does not begin with %q", e.Code, want)
		}
	}
}
