package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/vipwalk/vipwalk/pkg/cluster"
	"github.com/vipwalk/vipwalk/pkg/node"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// collect reads the facts from every source that the flags name, and puts them
// together. What one source could not read is recorded in the Snapshot; an
// error is for a source that is wrong or gives nothing at all. --timeout bounds
// all of it but standard input, which may wait for a password.
func (a *app) collect(ctx context.Context, f *sourceFlags, scope cluster.Scope) (*snapshot.Snapshot, error) {
	timed, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within --timeout %s", f.timeout))
	defer cancel()
	s := &snapshot.Snapshot{}
	if err := a.collectObjects(ctx, timed, f, scope, s); err != nil {
		return nil, err
	}
	if err := a.collectNodeStates(ctx, f, s); err != nil {
		return nil, err
	}
	if err := a.collectLocal(timed, f, scope, s); err != nil {
		return nil, err
	}
	if err := a.collectExec(timed, f, scope, s); err != nil {
		return nil, err
	}
	if s.TakenAt.IsZero() {
		s.TakenAt = a.now().UTC().Truncate(time.Second)
	}
	return s, nil
}

// collectObjects reads a bundle, or objects from files, or the API.
func (a *app) collectObjects(ctx, timed context.Context, f *sourceFlags, scope cluster.Scope, s *snapshot.Snapshot) error {
	var part *snapshot.Snapshot
	var err error
	switch {
	case f.bundle != "":
		part, err = a.readBundle(ctx, f.bundle)
	case len(f.objects) > 0:
		part, err = a.readObjects(ctx, f)
	case f.noAPI(scope):
		return nil
	default:
		part, err = a.readAPI(timed, f, scope)
	}
	if err != nil {
		return err
	}
	part.MergeInto(s)
	return nil
}

func (a *app) readBundle(ctx context.Context, path string) (*snapshot.Snapshot, error) {
	var s *snapshot.Snapshot
	var err error
	if path == "-" {
		s, err = snapshot.ReadBundle(a.stdin(ctx))
	} else {
		s, err = snapshot.ReadBundleFile(path)
	}
	if err != nil {
		return nil, badInput(ctx, err)
	}
	return s, nil
}

// badInput is for a file that cannot be read or is not what it should be.
func badInput(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return usageErrorf("%w", err)
}

func (a *app) readAPI(ctx context.Context, f *sourceFlags, scope cluster.Scope) (*snapshot.Snapshot, error) {
	if !f.hasAPI() {
		return nil, unknownErrorf("no cluster to ask: no kubeconfig was found (--kubeconfig, KUBECONFIG, ~/.kube/config)").
			hint("name one, or walk without the API: --bundle FILE, --objects PATH").
			hint("`demo` needs no cluster")
	}
	client, err := cluster.New(f.config, programVersion())
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	s, err := client.Collect(ctx, scope)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	}
	return nil, unknownErrorf("%w", err).hint("without the API: --bundle FILE, or --objects PATH")
}

// serviceAccountToken is what a pod has that may ask the API of its cluster.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// hasAPI says whether there is any configuration that names an API server.
// Without one client-go would try http://localhost:8080, where none has been
// for years. A kubeconfig that cannot be read counts: using it will say why.
func (f *sourceFlags) hasAPI() bool {
	if f.config.APIServer != nil && *f.config.APIServer != "" {
		return true
	}
	raw, err := f.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil || len(raw.Clusters)+len(raw.Contexts) > 0 || os.Getenv("KUBERNETES_MASTER") != "" {
		return true
	}
	_, err = os.Stat(serviceAccountToken)
	return err == nil && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// noAPI says whether to do without the API: where none is configured and the
// state of a node is to be had.
func (f *sourceFlags) noAPI(scope cluster.Scope) bool {
	return !f.offline() && !f.exec && (len(f.nodeState) > 0 || f.local == "true" || f.alone(scope)) && !f.hasAPI()
}

// alone says whether this machine's own state is all that there is to go by.
// It will do for an address, not for a Service's name.
func (f *sourceFlags) alone(scope cluster.Scope) bool {
	return f.local == "auto" && isRoot() && !f.offline() && len(f.nodeState) == 0 &&
		scope.ResolveAddress && len(scope.Services) == 0 && !f.hasAPI()
}

// missingKubeconfig is for --kubeconfig with a file that is not there.
func (f *sourceFlags) missingKubeconfig() error {
	if f.offline() || f.config.KubeConfig == nil || *f.config.KubeConfig == "" {
		return nil
	}
	if _, err := os.Stat(*f.config.KubeConfig); err != nil {
		return usageErrorf("--kubeconfig: %w", err).hint("name a kubeconfig that exists, or leave it out to use KUBECONFIG or ~/.kube/config")
	}
	return nil
}

func isRoot() bool { return os.Geteuid() == 0 }

// collectLocal adds this machine's state: always with --local, and of itself
// where it is one of the cluster's nodes, or where nothing else was given.
func (a *app) collectLocal(ctx context.Context, f *sourceFlags, scope cluster.Scope, s *snapshot.Snapshot) error {
	alone := f.alone(scope)
	if f.local == "false" || f.local == "auto" && (!isRoot() || !alone && len(s.Objects.Nodes) == 0 || f.bundle != "") {
		return nil
	}
	state, err := node.Local(ctx)
	if err != nil {
		if f.local == "auto" && !alone {
			return nil // not asked for, and not missed: the walk says which nodes it lacks
		}
		return unknownErrorf("%w", err)
	}
	name, isNode := node.IsNode(state, s.Objects.Nodes)
	if f.local == "auto" && !isNode && !alone {
		return nil
	}
	if state.Name = name; name == "" {
		state.Name = hostname(state)
	}
	local := &snapshot.Snapshot{TakenAt: state.At, Nodes: []*snapshot.NodeState{state}}
	local.Inputs = []snapshot.Input{{Kind: "local", Ref: "this machine", Node: state.Name, At: state.At}}
	local.MergeInto(s)
	return nil
}

// pickNodes turns --nodes into the names of the nodes whose state is used;
// none means all.
func (f *sourceFlags) pickNodes(s *snapshot.Snapshot) ([]string, error) {
	names, count, err := f.nodeNames()
	if err != nil || count == 0 {
		return names, err
	}
	for _, n := range s.Nodes {
		if len(names) < count && n.Name != "" && !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// stdin is standard input that ends with the context, so that an interrupt is
// not waiting for a pipe.
func (a *app) stdin(ctx context.Context) io.Reader { return &interruptible{ctx: ctx, r: a.In} }

type interruptible struct {
	ctx context.Context
	r   io.Reader
	buf []byte // of the last read
}

type readResult struct {
	n   int
	err error
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	// The goroutine that is left behind by an interrupt writes into a buffer of
	// its own; the program is about to end.
	if len(i.buf) < len(p) {
		i.buf = make([]byte, len(p))
	}
	buf := i.buf[:len(p)]
	done := make(chan readResult, 1)
	go func() {
		n, err := i.r.Read(buf)
		done <- readResult{n, err}
	}()
	select {
	case <-i.ctx.Done():
		i.buf = nil
		return 0, i.ctx.Err()
	case r := <-done:
		return copy(p, buf[:r.n]), r.err
	}
}
