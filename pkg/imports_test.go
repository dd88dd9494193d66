// Package pkg holds no code, only the test of the law that the packages below
// it keep: imports follow the flow of data, in one direction.
package pkg

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/vipwalk/vipwalk/"

// law says for each package what it may import beside the standard library: a
// trailing slash means anything below. A package that is not listed here fails
// the test, so that a new one is placed on purpose.
var law = map[string][]string{
	"pkg/lazyregexp":                    {},
	"pkg/startup/heap":                  {},
	"pkg/startup":                       {"pkg/startup/heap"},
	"pkg/diagnosis":                     {},
	"pkg/netfilter":                     {},
	"pkg/netfilter/host":                {"pkg/netfilter"},
	"pkg/netfilter/iptables":            {"pkg/netfilter"},
	"pkg/netfilter/internal/oracletest": {"pkg/netfilter"}, // for tests
	"pkg/netfilter/conntrack":           {},
	"pkg/netfilter/ipset":               {"pkg/netfilter"},
	"pkg/netfilter/ipvs":                {"pkg/netfilter"},
	"pkg/netfilter/nftables":            {"pkg/netfilter"},
	"pkg/cilium":                        {},
	"pkg/spelling":                      {},
	"pkg/netpol":                        {"pkg/spelling", "k8s.io/api/", "k8s.io/apimachinery/"},
	"pkg/proxy":                         {"k8s.io/api/", "k8s.io/apimachinery/"},
	"pkg/snapshot":                      {"k8s.io/api/", "k8s.io/apimachinery/", "sigs.k8s.io/yaml"},
	"pkg/walk": {
		"pkg/cilium", "pkg/diagnosis", "pkg/netfilter", "pkg/netfilter/conntrack", "pkg/netfilter/host", "pkg/netfilter/ipset", "pkg/netfilter/ipvs", "pkg/netfilter/iptables", "pkg/netfilter/nftables", "pkg/netpol", "pkg/proxy", "pkg/snapshot", "pkg/spelling",
		"k8s.io/api/", "k8s.io/apimachinery/", "sigs.k8s.io/yaml",
	},
	"pkg/report": {"pkg/diagnosis", "github.com/fatih/color", "github.com/olekukonko/tablewriter", "github.com/olekukonko/tablewriter/", "golang.org/x/term", "sigs.k8s.io/yaml/"},
	"pkg/cluster": {
		"pkg/snapshot", "k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/", "k8s.io/cli-runtime/", "k8s.io/streaming/", "golang.org/x/sync/", "sigs.k8s.io/yaml", "k8s.io/klog/", "github.com/go-logr/logr",
	},
	"pkg/cluster/apitest": {"pkg/snapshot", "pkg/cluster", "k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/streaming/", "k8s.io/klog/", "github.com/go-logr/logr", "sigs.k8s.io/yaml"},
	"pkg/objects":         {"pkg/snapshot", "k8s.io/api/", "k8s.io/apimachinery/", "sigs.k8s.io/yaml", "sigs.k8s.io/json", "go.yaml.in/yaml/"},
	"pkg/node":            {"pkg/cilium", "pkg/netfilter", "pkg/netfilter/host", "pkg/netfilter/iptables", "pkg/netfilter/nftables", "pkg/snapshot", "k8s.io/api/", "github.com/coreos/go-iptables/", "github.com/vishvananda/netlink", "golang.org/x/sys/", "golang.org/x/sync/"},
	"pkg/cli":             {""},
	"cmd/vipwalk":         {"pkg/cli", "pkg/startup"},
	"docs":                {},
	"testdata/incidents":  {},
}

// pure packages do no I/O and have no clock: the walk's result depends on the
// snapshot alone.
var pure = []string{"pkg/cilium", "pkg/diagnosis", "pkg/netfilter", "pkg/netfilter/conntrack", "pkg/netfilter/host", "pkg/netfilter/ipset", "pkg/netfilter/ipvs", "pkg/netfilter/iptables", "pkg/netfilter/nftables", "pkg/netpol", "pkg/proxy", "pkg/spelling", "pkg/walk"}

var impure = []string{"os", "os/exec", "net", "net/http", "syscall", "math/rand", "math/rand/v2", "log"}

// only names the packages that alone may import something.
var only = map[string][]string{
	"os/exec":                           {"pkg/node"},
	"github.com/olekukonko/tablewriter": {"pkg/report"},
	"github.com/fatih/color":            {"pkg/report"},
	"github.com/coreos/go-iptables/":    {"pkg/node"},
	"github.com/moby/ipvs":              {"pkg/ipvs"},
	"k8s.io/client-go/kubernetes":       {"pkg/cluster"},
}

type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
}

func TestImportLaw(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		may, ok := law[name]
		if !ok {
			t.Errorf("%s: not in the import law; place it there, in the flow of data", name)
			continue
		}
		for _, imp := range p.Imports {
			if isStandard(imp) {
				if slices.Contains(pure, name) && slices.Contains(impure, imp) {
					t.Errorf("%s imports %s: it must stay pure", name, imp)
				}
			} else if imp != module+"pkg/lazyregexp" && !allowed(strings.TrimPrefix(imp, module), may) {
				t.Errorf("%s imports %s, which the law does not let it", name, imp)
			}
			for what, who := range only {
				if (imp == what || strings.HasSuffix(what, "/") && strings.HasPrefix(imp, what)) && !slices.Contains(who, name) {
					t.Errorf("%s imports %s; only %v may", name, imp, who)
				}
			}
			if imp == module+"pkg/cli" && name != "cmd/vipwalk" {
				t.Errorf("%s imports pkg/cli; nothing but main may", name)
			}
		}
	}
}

func TestPurePackagesHaveNoClock(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.Contains(pure, strings.TrimPrefix(p.ImportPath, module)) {
			continue
		}
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && (s.Sel.Name == "Now" || s.Sel.Name == "Since" || s.Sel.Name == "Sleep") {
						t.Errorf("%s/%s uses time.%s", p.ImportPath, f, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

func TestNoCatchAllPackages(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{"util", "utils", "common", "helpers", "misc", "types"}, d.Name()) {
			t.Errorf("%s: name a package for what it is about", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles", "./cmd/...", "./pkg/...", "./docs/...", "./testdata/incidents/...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	var ps []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			ps = append(ps, p)
		}
	}
	if len(ps) < 8 {
		t.Fatalf("go list found only %d packages", len(ps))
	}
	return ps
}

func isStandard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func allowed(imp string, may []string) bool {
	for _, m := range may {
		if m == "" || imp == m || strings.HasSuffix(m, "/") && strings.HasPrefix(imp, m) {
			return true
		}
	}
	return false
}
