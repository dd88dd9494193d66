package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/vipwalk/vipwalk/docs"
	"github.com/vipwalk/vipwalk/pkg/cluster/apitest"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

var update = flag.Bool("update", false, "rewrite the scripts' expected output")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"vipwalk":                  main,
		"kubectl-vipwalk":          main,
		"kubectl_complete-vipwalk": main,
	})
}

// TestScript runs testdata/script/*.txtar. A script with a file cluster.yaml
// finds KUBECONFIG pointing at an API server that has those objects, and that
// fails the test on any request that is not a GET.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "../../testdata/script",
		Setup:               setup,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"noesc":  noEscape,
			"forbid": forbid,
			"silent": silent,
		},
	})
}

func setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	// Nothing of whoever runs the test gets in.
	env.Setenv("HOME", home)
	env.Setenv("KUBECONFIG", "")
	env.Setenv("NO_COLOR", "")
	env.Setenv("TERM", "xterm")
	env.Setenv("KUBERNETES_SERVICE_HOST", "")
	objects, err := os.ReadFile(filepath.Join(env.WorkDir, "cluster.yaml"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	server, err := apitest.Start()
	if err != nil {
		return err
	}
	env.Defer(func() {
		server.Close()
		if v := server.Violations(); len(v) > 0 {
			panic(fmt.Sprintf("the API server was sent %s", strings.Join(v, ", ")))
		}
	})
	if err := server.AddYAML(objects); err != nil {
		return err
	}
	kubeconfig, err := server.WriteKubeconfig(env.WorkDir, "default")
	if err != nil {
		return err
	}
	env.Setenv("KUBECONFIG", kubeconfig)
	env.Values[serverKey{}] = server
	return nil
}

type serverKey struct{}

// exits CODE PROGRAM ARGS... runs a program and checks its exit code; stdout
// and stderr are then as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program args...")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exits: %v", err)
	}
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s exits with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
	keepsToSchema(ts, ts.ReadFile("stdout"))
	if trace := ts.ReadFile("stderr"); strings.Contains(trace, "goroutine ") || strings.Contains(trace, "panic:") {
		ts.Fatalf("a stack trace on stderr")
	}
}

// keepsToSchema holds every JSON report that a script prints to its schema.
func keepsToSchema(ts *testscript.TestScript, out string) {
	var head struct{ Kind string }
	if json.Unmarshal([]byte(out), &head) != nil {
		return
	}
	name, ok := map[string]string{"WalkReport": "walkreport", "TraceReport": "tracereport", "Inventory": "inventory"}[head.Kind]
	if !ok {
		return
	}
	text, err := fs.ReadFile(docs.FS, "schema/"+name+".json")
	ts.Check(err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	ts.Check(err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	ts.Check(c.AddResource(name, doc))
	schema, err := c.Compile(name)
	ts.Check(err)
	report, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
	ts.Check(err)
	if err := schema.Validate(report); err != nil {
		ts.Fatalf("the report does not keep to docs/schema/%s.json: %v", name, err)
	}
}

// noesc FILE... fails if a file holds a byte that a terminal would obey.
func noEscape(ts *testscript.TestScript, neg bool, args []string) {
	for _, f := range args {
		for i, r := range ts.ReadFile(f) {
			if r < 0x20 && r != '\n' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
				ts.Fatalf("%s holds %q at byte %d", f, r, i)
			}
		}
	}
}

// forbid RESOURCE [NAMESPACE] has the API server refuse a resource.
func forbid(ts *testscript.TestScript, neg bool, args []string) {
	ns := "*"
	if len(args) > 1 {
		ns = args[1]
	}
	server(ts).Forbid(snapshot.Resource(args[0]), ns)
}

// silent RESOURCE has the API server never answer for a resource.
func silent(ts *testscript.TestScript, neg bool, args []string) {
	server(ts).Silence(snapshot.Resource(args[0]))
}

func server(ts *testscript.TestScript) *apitest.Server {
	s, ok := ts.Value(serverKey{}).(*apitest.Server)
	if !ok {
		ts.Fatalf("the script has no cluster.yaml")
	}
	return s
}
