package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// kubectlFlag marks the flags that are kubectl's own, for the help.
const kubectlFlag = "vipwalk.dev/kubectl"

// sourceFlags say where the facts come from.
type sourceFlags struct {
	config    *genericclioptions.ConfigFlags
	objects   []string
	nodeState []string
	bundle    string
	local     string
	exec      bool
	nodes     string
	timeout   time.Duration
	// silent: no progress is told.
	silent bool
}

func (f *sourceFlags) add(fs *pflag.FlagSet) {
	f.config = genericclioptions.NewConfigFlags(true)
	before := names(fs)
	f.config.AddFlags(fs)
	fs.VisitAll(func(fl *pflag.Flag) {
		if !slices.Contains(before, fl.Name) && fl.Name != "namespace" {
			fl.Annotations = map[string][]string{kubectlFlag: {"true"}}
		}
	})
	fs.StringArrayVar(&f.objects, "objects", nil, "Kubernetes objects from files, in place of the API: `PATH` of a YAML or JSON file or a folder of them, - for stdin; repeatable")
	fs.StringArrayVar(&f.nodeState, "node-state", nil, "a node's state from files: `[NODE=]PATH` of the output of node-state, iptables-save, ip addr, ...; - for stdin; repeatable")
	fs.StringVar(&f.bundle, "bundle", "", "everything from a bundle `FILE` that capture wrote")
	fs.StringVar(&f.local, "local", "auto", "read this machine's own state: `auto|true|false`; auto is when root, and this machine is one of the cluster's nodes or nothing else is given")
	fs.Lookup("local").NoOptDefVal = "true"
	fs.BoolVar(&f.exec, "exec", false, "read nodes through their kube-proxy pods: run a few read-only commands there, each shown before it runs")
	fs.StringVar(&f.nodes, "nodes", "all", "whose node state to use: all, a number, or `NAMES`, comma-separated")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "give up reading after this time")
}

func names(fs *pflag.FlagSet) []string {
	var out []string
	fs.VisitAll(func(f *pflag.Flag) { out = append(out, f.Name) })
	return out
}

func (f *sourceFlags) validate() error {
	switch {
	case !slices.Contains([]string{"auto", "true", "false"}, f.local):
		return usageErrorf("--local=%s: no such mode", f.local).hint("one of auto, true, false")
	case f.bundle != "" && len(f.objects) > 0:
		return usageErrorf("--bundle and --objects are both given").hint("a bundle has its own objects; give one of the two")
	case f.exec && f.offline():
		return usageErrorf("--exec needs the API: with --bundle or --objects there is no pod to run a command in").hint("leave out one of them")
	case f.timeout <= 0:
		return usageErrorf("--timeout %s: give a time above zero", f.timeout)
	}
	if _, _, err := f.nodeNames(); err != nil {
		return err
	}
	return f.oneStdin()
}

// oneStdin: standard input can be read once.
func (f *sourceFlags) oneStdin() error {
	var users []string
	for _, p := range f.objects {
		if p == "-" {
			users = append(users, "--objects -")
		}
	}
	for _, p := range f.nodeState {
		if p == "-" || strings.HasSuffix(p, "=-") {
			users = append(users, "--node-state "+p)
		}
	}
	if len(users) > 1 {
		return usageErrorf("standard input is asked for %d times: %s", len(users), strings.Join(users, ", ")).hint("put all but one into files")
	}
	return nil
}

// offline says whether objects come from files, so that no API is asked.
func (f *sourceFlags) offline() bool { return f.bundle != "" || len(f.objects) > 0 }

// nodeNames are the names that --nodes lists; count is the number that it is,
// 0 for all.
func (f *sourceFlags) nodeNames() (names []string, count int, err error) {
	if f.nodes == "" || f.nodes == "all" {
		return nil, 0, nil
	}
	if n, err := strconv.Atoi(f.nodes); err == nil {
		if n < 1 {
			return nil, 0, usageErrorf("--nodes %d: give all, a number from 1, or names", n)
		}
		return nil, n, nil
	}
	for _, name := range strings.Split(f.nodes, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, 0, usageErrorf("--nodes %q names no node", f.nodes)
	}
	return names, 0, nil
}

// choiceFlags say which Services to walk, and how they are asked about.
type choiceFlags struct {
	allNamespaces bool
	all           bool
	selector      string
	port          string
	from          string
}

func (f *choiceFlags) add(fs *pflag.FlagSet) {
	fs.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "every Service of every namespace")
	fs.BoolVar(&f.all, "all", false, "every Service of the namespace")
	fs.StringVarP(&f.selector, "selector", "l", "", "the Services that this label `SELECTOR` matches")
	fs.StringVar(&f.port, "port", "", "only this Service port: `NAME|NUM`")
	fs.StringVar(&f.from, "from", "", "`CLIENT` that is calling: pod/NAME, NS/POD, node/NAME, an address, or external (default any pod)")
}

// verdictFlags decide over the exit code.
type verdictFlags struct {
	failOn  string
	require string
	ignore  []string
}

func (f *verdictFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.failOn, "fail-on", "error", "from which `SEVERITY` on the exit code is 1: error, warning, info, never")
	fs.StringVar(&f.require, "require", "", "`LAYERS` that must have been examined (1,2,3,4): exit code 3 if one of them is unknown")
	fs.StringArrayVar(&f.ignore, "ignore", nil, "suppress a diagnosis: `CODE[=NS/NAME]`; it is counted, not hidden; repeatable")
}

func (f *verdictFlags) criteria() (criteria, error) {
	c := criteria{failOn: diagnosis.Severity(f.failOn)}
	switch {
	case f.failOn == "never":
		c.failOn = ""
	case c.failOn.Rank() == 0:
		return c, usageErrorf("--fail-on %q: no such severity", f.failOn).hint("one of error, warning, info, never")
	}
	for _, word := range strings.Split(f.require, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		i := slices.IndexFunc(diagnosis.Layers[:], func(l diagnosis.Layer) bool {
			return word == strconv.Itoa(int(l)) || word == l.Name()
		})
		if i < 0 {
			return c, usageErrorf("--require %q: there is no layer %q", f.require, word).hint("layers are 1 selector, 2 endpoints, 3 node, 4 policy: --require 1,2,3,4")
		}
		c.require = append(c.require, diagnosis.Layers[i])
	}
	return c, nil
}

// ignores reads the --ignore values.
func (f *verdictFlags) ignores() ([]walk.Ignore, error) {
	var out []walk.Ignore
	for _, text := range f.ignore {
		word, service, restricted := strings.Cut(text, "=")
		e, err := lookupCode(word)
		if err != nil {
			return nil, fmt.Errorf("--ignore %s: %w", text, err)
		}
		ig := walk.Ignore{Code: e.Code}
		if restricted {
			ns, name, ok := strings.Cut(service, "/")
			if !ok || ns == "" || name == "" {
				return nil, usageErrorf("--ignore %s: %q is not NAMESPACE/NAME", text, service).hint("--ignore %s=production/orders", e.Code)
			}
			ig.Namespace, ig.Name = ns, name
		}
		out = append(out, ig)
	}
	return out, nil
}

// newFlagSet is for arguments that come from elsewhere than the command line.
func newFlagSet() *pflag.FlagSet { return pflag.NewFlagSet("", pflag.ContinueOnError) }
