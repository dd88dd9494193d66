package nftables

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// seeds are texts that fuzzing starts from, of one form.
func seeds(f *testing.F, inJSON bool) []string {
	text, twin := generated(2, 3)
	ending := "*.txt"
	if inJSON {
		text, ending = twin, "*.json"
	}
	out := []string{text, "", "table ip x {\n", `{"nftables": [`}
	files, err := filepath.Glob(filepath.Join("testdata", "foreign", ending))
	if err != nil {
		f.Fatal(err)
	}
	kernel, err := filepath.Glob(filepath.Join("..", "testdata", "kernel", "*.nft"))
	if err != nil {
		f.Fatal(err)
	}
	if !inJSON {
		files = append(files, kernel...)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// parseAny parses whatever it is; nil where it holds no table.
func parseAny(t *testing.T, text string) *netfilter.Ruleset {
	rs, problems, err := Parse(text, Options{Strict: true})
	if err != nil {
		for _, named := range []error{ErrEmpty, ErrNoTable, ErrJSON, ErrBinary} {
			if errors.Is(err, named) {
				return nil
			}
		}
		t.Fatalf("an unnamed error: %v", err)
	}
	lines := strings.Count(text, "\n") + 1
	for _, p := range problems {
		if p.Line < 1 || p.Line > lines || p.Column < 1 || p.Message == "" {
			t.Errorf("a problem that is nowhere, or says nothing: %+v", p)
		}
	}
	for _, table := range rs.Tables() {
		for c := range rs.AllChains(table.Name) {
			for r := range c.Rules() {
				if r.Line < 1 || r.Line > lines || len(r.Exprs) == 0 && r.Text != "" && r.Problem == "" {
					t.Errorf("a rule that is nowhere, or does nothing: %+v", r)
				}
			}
		}
	}
	return rs
}

// FuzzText: nothing panics, and each rule reads the same again as it is quoted.
func FuzzText(f *testing.F) {
	for _, s := range seeds(f, false) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rs := parseAny(t, text)
		if rs == nil {
			return
		}
		for _, table := range rs.Tables() {
			for c := range rs.AllChains(table.Name) {
				for r := range c.Rules() {
					if r.Problem != "" || strings.ContainsAny(r.Text, "\r\n;#{}@") {
						continue
					}
					again, _, err := Parse("table inet x {\n chain c {\n"+r.Text+"\n}\n}\n", Options{})
					if err != nil {
						t.Fatalf("%q: %v", r.Text, err)
					}
					c, _ := again.Chain("x", "c")
					for twice := range c.Rules() {
						if twice.Text != r.Text || twice.Target != r.Target || twice.Problem != "" {
							t.Fatalf("%+v reads again as %+v", r, twice)
						}
					}
				}
			}
		}
	})
}

// FuzzJSON: nothing panics; the reader takes whatever the standard library
// takes of nft's shape.
func FuzzJSON(f *testing.F) {
	for _, s := range seeds(f, true) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parseAny(t, text)
		var in struct {
			Nftables []json.RawMessage `json:"nftables"`
		}
		if !looksJSON(text) || !strings.Contains(text, `"nftables"`) || json.Unmarshal([]byte(text), &in) != nil || len(in.Nftables) == 0 {
			return
		}
		if _, _, err := Parse(text, Options{}); errors.Is(err, ErrNoTable) {
			t.Errorf("valid JSON gives %v", err)
		}
	})
}

// FuzzWalk: any packet through any ruleset ends, and the probabilities of its
// ends sum to 1.
func FuzzWalk(f *testing.F) {
	oracletest.Seeds(f, append(seeds(f, false), seeds(f, true)...), "10.91.96.10")
	f.Fuzz(func(t *testing.T, text, src, dst, proto string, port uint16, local bool) {
		if rs, _, err := Parse(text, Options{}); err == nil {
			oracletest.HoldEnds(t, rs, src, dst, proto, port, local)
		}
	})
}
