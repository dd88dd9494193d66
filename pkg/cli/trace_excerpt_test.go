package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTraceExcerpt: of what grep found, trace says both that it can't tell and
// what the rules do where kube-proxy's jumps lead to them.
func TestTraceExcerpt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grep.txt")
	text := "-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.5:8080\n" +
		"-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment \"ns/web:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-X\n" +
		"-A KUBE-SVC-X -j KUBE-SEP-A\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	code := Run(t.Context(), []string{"vipwalk", "trace", "--from", "10.244.3.3", "--to", "10.96.0.10:80", "--node-state", file},
		Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, func(string) string { return "" })
	if code != 0 || !strings.Contains(out.String(), "UNKNOWN") {
		t.Errorf("%d: %s%s", code, out.String(), errs.String())
	}
	if want := "with kube-proxy's usual jumps to its chains, which are not in it: dnat 10.244.1.5:8080, 100%, by line 1"; !strings.Contains(strings.ToLower(errs.String()), want) {
		t.Errorf("%q is not in\n%s", want, errs.String())
	}
}
