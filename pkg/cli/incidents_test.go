package cli

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

var update = flag.Bool("update", false, "rewrite the incidents' golden reports")

// TestIncidentReports walks every incident that was captured from the real
// cluster: its root is the code that the index names, a healthy one has no
// diagnosis at all, and the text is the golden report's.
func TestIncidentReports(t *testing.T) {
	dir := filepath.Join("..", "..", "testdata", "incidents")
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index []struct {
		Name, Title, Code string
		Args              []string
	}
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	if len(index) < 6 {
		t.Fatalf("only %d incidents", len(index))
	}
	for _, i := range index {
		t.Run(i.Name, func(t *testing.T) {
			var r diagnosis.Report
			out := runForReport(t, append([]string{"--bundle", filepath.Join(dir, i.Name+".tar.gz"), "-o", "json"}, i.Args...))
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			checkRoots(t, r, i.Code)

			golden := filepath.Join(dir, "golden", i.Name+".txt")
			text := runForReport(t, []string{"demo", i.Name})
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (run with -update)", err)
			}
			if diff := cmp.Diff(string(want), text); diff != "" {
				t.Errorf("the report differs from %s (-want +got); -update if it ought to:\n%s", golden, diff)
			}
		})
	}
}

// checkRoots: one Service, one root, which is the code; none for "".
func checkRoots(t *testing.T, r diagnosis.Report, code string) {
	t.Helper()
	var roots []string
	for _, s := range r.Services {
		for _, d := range s.Diagnoses {
			if len(d.CausedBy) == 0 {
				roots = append(roots, string(d.Code))
			}
		}
		if code == "" && s.Verdict != diagnosis.OK {
			t.Errorf("verdict %s, want ok", s.Verdict)
		}
	}
	if strings.Join(roots, " ") != code {
		t.Errorf("roots %v, want %q alone", roots, code)
	}
}

func runForReport(t *testing.T, args []string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), append([]string{"vipwalk"}, args...), Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, func(string) string { return "" })
	if code > 1 {
		t.Fatalf("%v: exit %d\n%s", args, code, errs.String())
	}
	return out.String()
}

// TestReadmeTranscript: what the README shows is what the program prints.
func TestReadmeTranscript(t *testing.T) {
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(filepath.Join(root, "testdata", "incidents", "golden", "selector-typo.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "```\n$ kubectl vipwalk orders -n production\n" + string(golden) + "```\n"; !bytes.Contains(readme, []byte(want)) {
		t.Errorf("README.md does not have the report of the incident selector-typo as it is now")
	}
}
