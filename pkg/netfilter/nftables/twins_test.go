package nftables

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// contents is all that a document says, in an order of its own: chains with
// their hooks and rules, sets with their elements.
func contents(t testing.TB, text string) []string {
	t.Helper()
	d := &document{text: text, byKey: map[tableKey]*tableIndex{}}
	var err error
	if looksJSON(text) {
		err = d.indexJSON()
	} else {
		err = d.indexText()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.ruleset()
	d.parseAll()
	var out []string
	for _, tab := range d.tables {
		for i := range tab.bodies {
			out = append(out, chainContents(tab, &tab.bodies[i])...)
		}
		for _, s := range tab.sets {
			out = append(out, setContents(tab, s)...)
		}
	}
	for _, p := range d.problems {
		if p.Kind != UnknownRule && p.Kind != IptablesView {
			out = append(out, fmt.Sprintf("problem %s", p.Kind))
		}
	}
	slices.Sort(out)
	return out
}

func chainContents(tab *tableIndex, b *body) []string {
	name := fmt.Sprintf("%s %s chain %s", tab.family, tab.name, b.chain.name)
	head := name
	if b.chain.base != nil {
		head += fmt.Sprintf(" %+v policy %s", *b.chain.base, b.chain.policy)
	}
	out := []string{head}
	for i := range b.Len() {
		r := b.Rule(i)
		out = append(out, fmt.Sprintf("%s rule %03d: %s; %s %s %t %t %d; %s", name, i, r.Text, r.Target, r.Jump, r.Goto, r.Unconditional, len(r.Exprs), r.Problem))
	}
	return out
}

func setContents(tab *tableIndex, s *set) []string {
	s.load()
	name := fmt.Sprintf("%s %s set %s %v %v", tab.family, tab.name, s.name, s.keys, s.data)
	out := []string{name + " " + s.lack}
	for _, e := range s.all() {
		out = append(out, fmt.Sprintf("%s: %v %+v %v", name, e.key, e.verdict, e.data))
	}
	return out
}

// onlyOne lists the lines that one of two sorted lists has and the other lacks.
func onlyOne(a, b []string) string {
	var out strings.Builder
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(a) == 0 || len(b) > 0 && b[0] < a[0]:
			out.WriteString("+ " + b[0] + "\n")
			b = b[1:]
		case len(b) == 0 || a[0] < b[0]:
			out.WriteString("- " + a[0] + "\n")
			a = a[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return out.String()
}

// TestTwins: the text, the text with handles and the JSON of one ruleset give
// the same rules in the same words, and the same sets, for every oracle file.
func TestTwins(t *testing.T) {
	files := oracletest.Files(t, "nftables", "*", 59)
	rules := 0
	for _, f := range files {
		text := contents(t, f.Text(t, "nftList"))
		for _, form := range forms[1:] {
			if diff := onlyOne(text, contents(t, f.Text(t, form))); diff != "" {
				t.Errorf("%s (-nftList +%s)\n%s", f.Name, form, diff)
			}
		}
		for _, line := range text {
			if strings.Contains(line, " rule ") {
				rules++
			}
		}
	}
	if rules < 1000 {
		t.Errorf("%d rules compared, want at least 1000", rules)
	}
	t.Logf("%d rules of %d files", rules, len(files))
}

// TestForeignTwins does the same for what other tools write, in testdata: each
// ruleset as nft gave it back as text and as JSON.
func TestForeignTwins(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "foreign", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := contents(t, oracletest.ReadFile(t, file))
			twin := contents(t, oracletest.ReadFile(t, strings.TrimSuffix(file, ".txt")+".json"))
			if diff := onlyOne(text, twin); diff != "" {
				t.Errorf("(-text +JSON)\n%s", diff)
			}
			for _, line := range text {
				if i := strings.LastIndex(line, "; "); i >= 0 && strings.Contains(line, " rule ") && line[i+2:] != "" {
					t.Errorf("not understood: %s", line)
				}
			}
		})
	}
}
