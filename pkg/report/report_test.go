package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// variants are the ways in which every report of testdata is rendered; the
// name is the golden's ending.
var variants = []struct {
	name   string
	render Renderer
	opts   Options
}{
	{"text", Text, Options{Program: "kubectl vipwalk"}},
	{"text-showok", Text, Options{ShowOK: true}},
	{"text-color", Text, Options{Color: true, Width: 100}},
	{"wide", Wide, Options{}},
	{"wide-noheaders", Wide, Options{NoHeaders: true}},
	{"name", Name, Options{}},
	{"yaml", YAML, Options{}},
}

func TestGolden(t *testing.T) {
	for _, file := range reports(t) {
		base := strings.TrimSuffix(filepath.Base(file), ".json")
		r := load(t, file)
		for _, v := range variants {
			t.Run(base+"/"+v.name, func(t *testing.T) {
				golden(t, filepath.Join("testdata", base+"."+v.name), render(t, v.render, r, v.opts))
			})
		}
	}
}

// A report that is read back and written again is the same bytes, so that a
// saved report can be rendered later.
func TestJSONRoundTrip(t *testing.T) {
	for _, file := range reports(t) {
		golden(t, file, render(t, JSON, load(t, file), Options{}))
	}
}

// No line of prose is wider than the width; only quotes and commands are, and
// those are coloured as quotes, which is how the test knows them.
func TestTextKeepsTheWidth(t *testing.T) {
	const quote = "\x1b[36m"
	for _, file := range reports(t) {
		for _, width := range []int{40, 60, 80, 120} {
			out := render(t, Text, load(t, file), Options{Width: width, Color: true, Program: "kubectl vipwalk"})
			for _, line := range strings.Split(out, "\n") {
				plain := stripColor(line)
				if columns(plain) <= width || strings.Contains(line, quote) || isTableRow(plain) {
					continue
				}
				t.Errorf("%s at width %d: %d columns: %q", filepath.Base(file), width, columns(plain), plain)
			}
		}
	}
}

// isTableRow: names in the overview are never cut, so at 40 columns its rows
// may be wider; at 80 they are within the width for the reports of testdata.
func isTableRow(line string) bool {
	return strings.Contains(line, "/TCP") || strings.HasPrefix(line, "VERDICT")
}

func TestOverviewFitsEighty(t *testing.T) {
	out := render(t, Text, load(t, "testdata/many.json"), Options{})
	for _, line := range strings.Split(out, "\n") {
		if isTableRow(line) && columns(line) > 80 {
			t.Errorf("%d columns: %q", columns(line), line)
		}
	}
}

func TestHealthyIsSixLines(t *testing.T) {
	out := render(t, Text, load(t, "testdata/healthy.json"), Options{})
	if n := strings.Count(out, "\n"); n > 6 {
		t.Errorf("a healthy Service takes %d lines:\n%s", n, out)
	}
}

// Whatever is in a report, no byte of it reaches a terminal as a control.
func TestNothingFromOutsideControlsTheTerminal(t *testing.T) {
	r := hostile()
	for _, f := range Formats() {
		for _, opts := range []Options{{}, {ShowOK: true}, {Width: 40}} {
			for i, c := range render(t, f.Render, r, opts) {
				if c == '\n' {
					continue
				}
				if c < 0x20 || c == 0x7f || (f.Name != "yaml" && isBidi(c)) {
					t.Fatalf("%s: control character %q at byte %d", f.Name, c, i)
				}
			}
		}
	}
}

// A newline in a quote must not make a line that looks like the report's own.
func TestQuotesStayInTheirLine(t *testing.T) {
	out := render(t, Text, hostile(), Options{ShowOK: true})
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "OK ") {
			t.Errorf("a quote made a verdict line of its own: %q", line)
		}
	}
}

func TestOnlyConfirmedFixesAreCalledFixes(t *testing.T) {
	out := render(t, Text, load(t, "testdata/fixes.json"), Options{})
	for _, want := range []string{"fix 1     point the Service", "try 1     restart kube-proxy", "not a fix"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "fix 2") {
		t.Errorf("an unconfirmed fix is called a fix:\n%s", out)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	for _, f := range Formats() {
		a := render(t, f.Render, load(t, "testdata/many.json"), Options{})
		b := render(t, f.Render, load(t, "testdata/many.json"), Options{})
		if a != b {
			t.Errorf("%s differs between two runs", f.Name)
		}
	}
}

func TestTraceText(t *testing.T) {
	var tr diagnosis.TraceReport
	unmarshal(t, "testdata/trace/dns.json", &tr)
	for _, f := range TraceFormats() {
		var buf bytes.Buffer
		if err := f.Render(&buf, &tr, Options{}); err != nil {
			t.Fatal(err)
		}
		if f.Name == "json" {
			continue // it is the input itself
		}
		golden(t, "testdata/trace/dns."+f.Name, buf.String())
	}
}

func isBidi(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

func hostile() *diagnosis.Report {
	const bad = "x\x1b[2J\x1b]0;owned\a\nOK    production/orders  fine\r\u202edesrever\u2066\u009b31m\xff"
	missing := []diagnosis.Missing{{What: bad, Why: bad, Supply: bad}}
	rule := diagnosis.Rule{Source: bad, Table: bad, Chain: bad, Line: 1, Text: bad}
	d := diagnosis.Diagnosis{
		Code: bad, Name: bad, Severity: bad, Layer: 1, Subject: diagnosis.Subject{Kind: bad, Namespace: bad, Name: bad, Node: bad},
		Title: bad, Expected: bad, Found: bad, Evidence: []diagnosis.Evidence{{Source: bad, Ref: bad, Quote: bad, Command: bad}},
		Causes: []diagnosis.Code{"VIP202"},
		Fixes: []diagnosis.Fix{
			{Title: bad, Commands: []string{bad}, BlastRadius: bad, Undo: []string{bad}, Verify: []string{bad}, Simulated: diagnosis.Simulation{Status: diagnosis.Confirmed, Before: bad, After: bad}},
			{Title: bad, Simulated: diagnosis.Simulation{Status: diagnosis.NotSimulated, Why: bad}},
			{Title: bad, Simulated: diagnosis.Simulation{Status: diagnosis.Refuted, Why: bad}},
		},
	}
	effect := d
	effect.Code, effect.Causes, effect.CausedBy = "VIP202", nil, []diagnosis.Code{bad}
	outcomes := []diagnosis.Outcome{
		{Verdict: "dnat", To: bad, Endpoint: bad, Probability: 0.5, Rules: []diagnosis.Rule{rule}},
		{Verdict: "unknown", Probability: 0.25, Unknowns: []diagnosis.UnknownRule{{Rule: rule, Why: bad}}},
		{Verdict: "drop", To: bad, Probability: 0.25, Rules: []diagnosis.Rule{rule}},
	}
	ignored := d
	ignored.Ignored = true
	s := diagnosis.Service{
		Namespace: bad, Name: bad, Type: bad, Verdict: diagnosis.Fail, Consequence: bad,
		Frontends: []diagnosis.Frontend{{Kind: bad, IP: bad, Port: 80, Protocol: bad, Name: bad, TargetPort: bad}},
		Layers: []diagnosis.LayerResult{
			{Layer: 1, Name: bad, Status: diagnosis.Fail, Summary: bad, Missing: missing},
			{Layer: 2, Name: bad, Status: bad, Summary: bad},
			{Layer: 3, Name: bad, Status: diagnosis.OK, Summary: bad},
			{Layer: 4, Name: bad, Status: diagnosis.Unknown, Summary: bad, Missing: missing},
		},
		Diagnoses: []diagnosis.Diagnosis{d, effect, ignored},
		Paths:     []diagnosis.Path{{Node: bad, Client: bad, Frontend: bad, Outcomes: outcomes}, {Node: "n2", Client: bad, Frontend: bad, Outcomes: outcomes[:1]}},
	}
	return &diagnosis.Report{
		APIVersion: diagnosis.APIVersion, Kind: "WalkReport", Tool: diagnosis.Tool{Version: bad},
		Inputs:   []diagnosis.Input{{Kind: "objects", Ref: bad, Node: bad, Error: bad + bad}},
		Services: []diagnosis.Service{s, s}, Summary: diagnosis.Summary{Services: 2, Fail: 2, Ignored: 2},
	}
}

func reports(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no reports in testdata: %v", err)
	}
	return files
}

func load(t *testing.T, file string) *diagnosis.Report {
	t.Helper()
	var r diagnosis.Report
	unmarshal(t, file, &r)
	return &r
}

func unmarshal(t *testing.T, file string, v any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func render(t *testing.T, f Renderer, r *diagnosis.Report, o Options) string {
	t.Helper()
	var buf bytes.Buffer
	if err := f(&buf, r, o); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func stripColor(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if s[0] == 0x1b {
			if i := strings.IndexByte(s, 'm'); i >= 0 {
				s = s[i+1:]
				continue
			}
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}
