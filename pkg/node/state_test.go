package node

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

func sampleState(t testing.TB) *snapshot.NodeState {
	return &snapshot.NodeState{
		Name: "worker-1", At: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Via: "local",
		Texts: []snapshot.Text{
			{Kind: snapshot.IptablesSave, Ref: "iptables-nft-save -c", Status: snapshot.Done, Content: testdata(t, "iptables-nft-save-c.txt")},
			{Kind: snapshot.Ip6tablesSave, Ref: "ip6tables-nft-save -c", Status: snapshot.Failed, Why: "exit status 4: \"quoted\"\nand more", Supply: rerun},
			{Kind: snapshot.TableNames, Ref: "/proc/net/ip_tables_names", Status: snapshot.Done},
			{Kind: snapshot.Sysctl, Ref: " padded ", Status: snapshot.Done, Content: "=== end\n\\=== end of node-state\n=== vipwalk node-state 1\n---\n\\\\\\x"},
			{Kind: snapshot.Hostname, Ref: "hostname", Status: snapshot.Done, Content: "worker-1\n"},
			{Kind: snapshot.ProxyHealthz, Status: snapshot.Done, Content: "HTTP/1.1 200 OK\r\n\r\n{\"a\":1}"},
		},
	}
}

func TestStateRoundTrip(t *testing.T) {
	want := sampleState(t)
	forms := map[string]func(*bytes.Buffer) error{
		"text": func(b *bytes.Buffer) error { return WriteState(b, want, "v0.1.0") },
		"json": func(b *bytes.Buffer) error { return WriteStateJSON(b, want, "v0.1.0") },
	}
	for name, write := range forms {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			got, err := ParseState(bytes.NewReader(b.Bytes()))
			if err != nil {
				t.Fatalf("%v\n%s", err, b.String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func stateText(t testing.TB, s *snapshot.NodeState) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteState(&b, s, "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestParseStateAfterBanner(t *testing.T) {
	want := sampleState(t)
	got, err := ParseState(strings.NewReader("*** authorised use only ***\nLast login: Mon\n\n" + stateText(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseStateCRLF(t *testing.T) {
	want := sampleState(t)
	want.Texts = want.Texts[:5]
	got, err := ParseState(strings.NewReader(strings.ReplaceAll(stateText(t, want), "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestParseStateCut cuts the text form at every byte: it never fails for that,
// never invents a text, and says so where it ends inside one.
func TestParseStateCut(t *testing.T) {
	whole := sampleState(t)
	whole.Texts[0].Content = "*nat\nCOMMIT\n"
	s := stateText(t, whole)
	for n := len(stateHead); n < len(s)-1; n++ {
		states, err := parseStates(s[:n])
		if err != nil {
			t.Fatalf("cut at %d: %v\n%s", n, err, s[:n])
		}
		got := states[0]
		if !got.cut {
			t.Fatalf("cut at %d of %d: not noticed", n, len(s))
		}
		for i, x := range got.Texts {
			if x.Kind != whole.Texts[i].Kind && i < len(got.Texts)-1 {
				t.Fatalf("cut at %d: text %d is %q", n, i, x.Kind)
			}
			if x.Why != cutShort && x.Content != whole.Texts[i].Content {
				t.Fatalf("cut at %d: text %d differs without a note", n, i)
			}
		}
	}
}

func TestReadFilesNames(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	save, addr := testdata(t, "iptables-nft-save.txt"), testdata(t, "ip-addr.txt")
	state := write("state.txt", stateText(t, sampleState(t)))
	other := sampleState(t)
	other.Name, other.Texts = "", []snapshot.Text{{Kind: snapshot.Hostname, Status: snapshot.Done, Content: "worker-2\n"}}
	plainSave, named := write("save.txt", save), write("worker-3.txt", save)
	write("collected/save.txt", save)
	write("collected/host", "worker-4\n")
	write("collected/README", "what this is\n")
	write("nodes/worker-5/save.txt", save)
	write("nodes/worker-6/save.txt", save)
	isNode := func(n string) bool { return n == "worker-3" || n == "worker-5" }

	tests := []struct {
		name  string
		specs []string
		stdin string
		want  map[string][]snapshot.TextKind
	}{
		{"given", []string{"a=" + plainSave}, "", map[string][]snapshot.TextKind{"a": {snapshot.IptablesSave}}},
		{"none", []string{plainSave}, "", map[string][]snapshot.TextKind{"": {snapshot.IptablesSave}}},
		{"by the file's name", []string{named}, "", map[string][]snapshot.TextKind{"worker-3": {snapshot.IptablesSave}}},
		{"merged", []string{"a=" + plainSave, "a=-"}, addr, map[string][]snapshot.TextKind{"a": {snapshot.IptablesSave, snapshot.IPAddr}}},
		{"by the folder's hostname", []string{filepath.Join(dir, "collected")}, "", map[string][]snapshot.TextKind{"worker-4": {snapshot.Hostname, snapshot.IptablesSave}}},
		{"folders of nodes", []string{filepath.Join(dir, "nodes")}, "", map[string][]snapshot.TextKind{"worker-5": {snapshot.IptablesSave}, "worker-6": {snapshot.IptablesSave}}},
		{"two states in one stream", []string{"-"}, stateText(t, sampleState(t)) + stateText(t, other), map[string][]snapshot.TextKind{
			"worker-1": {snapshot.IptablesSave, snapshot.TableNames, snapshot.Sysctl, snapshot.Hostname, snapshot.ProxyHealthz, snapshot.Ip6tablesSave},
			"worker-2": {snapshot.Hostname}}},
		{"state, renamed", []string{"b=" + state}, "", map[string][]snapshot.TextKind{
			"b": {snapshot.IptablesSave, snapshot.TableNames, snapshot.Sysctl, snapshot.Hostname, snapshot.ProxyHealthz, snapshot.Ip6tablesSave}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			states, inputs, err := ReadFiles(tt.specs, FileOptions{Stdin: strings.NewReader(tt.stdin), IsNode: isNode})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]snapshot.TextKind{}
			for _, s := range states {
				for _, x := range s.Texts {
					got[s.Name] = append(got[s.Name], x.Kind)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if len(inputs) == 0 {
				t.Error("no inputs")
			}
		})
	}
	t.Run("a skipped file is told of", func(t *testing.T) {
		_, inputs, err := ReadFiles([]string{filepath.Join(dir, "collected")}, FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, in := range inputs {
			told = told || strings.HasSuffix(in.Ref, "README") && strings.Contains(in.Error, "not recognised")
		}
		if !told {
			t.Errorf("inputs %+v do not tell of README", inputs)
		}
	})
	for _, specs := range [][]string{{"-", "-"}, {"a="}, {filepath.Join(dir, "absent")}, {"x=-"}} {
		stdin := save
		if specs[0] == "x=-" {
			stdin = stateText(t, sampleState(t)) + stateText(t, other)
		}
		if _, _, err := ReadFiles(specs, FileOptions{Stdin: strings.NewReader(stdin)}); err == nil {
			t.Errorf("%q: no error", specs)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add(stateText(f, sampleState(f)))
	var b bytes.Buffer
	if err := WriteStateJSON(&b, sampleState(f), "v"); err != nil {
		f.Fatal(err)
	}
	f.Add(b.String())
	f.Add("=== vipwalk node-state 1\nnode: \"\\xff\"\n=== a\nstatus: read\n---\n\\===\n=== no newline, end\n=== end of node-state\n")
	f.Fuzz(func(t *testing.T, s string) {
		state, err := ParseState(strings.NewReader(s))
		if err != nil {
			return
		}
		again, err := ParseState(strings.NewReader(stateText(t, state)))
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if !reflect.DeepEqual(state, again) {
			t.Fatal(cmp.Diff(state, again))
		}
	})
}

func FuzzStateContent(f *testing.F) {
	f.Add("=== end\n", "why\n", "ref")
	f.Add("\\\\===\r\n", "\"", "\xff")
	f.Fuzz(func(t *testing.T, content, why, ref string) {
		want := &snapshot.NodeState{Name: ref, Via: why, Texts: []snapshot.Text{{Kind: "sysctl", Status: snapshot.Done, Ref: ref, Why: why, Content: content}}}
		got, err := ParseState(strings.NewReader(stateText(t, want)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(want, got) {
			t.Fatal(cmp.Diff(want, got))
		}
	})
}
