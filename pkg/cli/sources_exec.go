package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/vipwalk/vipwalk/pkg/cluster"
	"github.com/vipwalk/vipwalk/pkg/node"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// parallelNodes is how many nodes are read through their pods at once.
const parallelNodes = 8

// collectExec reads nodes through the pods on their networks, where --exec asks
// for it: those whose state is not known yet. Each command line is shown on
// stderr before it first runs, and all pods before any of them. What cannot be
// read is named among the inputs, and that node stays unknown.
func (a *app) collectExec(ctx context.Context, f *sourceFlags, scope cluster.Scope, s *snapshot.Snapshot) error {
	if !f.exec {
		return nil
	}
	pods := cluster.ProxyContainers(s.Objects.Pods)
	names, err := f.nodesToRead(s, pods, scope)
	if err != nil || len(names) == 0 {
		return err
	}
	client, err := cluster.New(f.config, programVersion())
	if err != nil {
		return usageErrorf("%w", err)
	}
	execs, err := client.Execs(node.AllowedInContainer)
	if err != nil {
		return usageErrorf("%w", err)
	}
	shown := a.announce(names, pods)
	read := make([]*snapshot.Snapshot, len(names))
	var g errgroup.Group
	g.SetLimit(parallelNodes)
	for i, name := range names {
		g.Go(func() error {
			read[i] = a.execOn(ctx, execs, shown, name, pods)
			return nil
		})
	}
	_ = g.Wait() // a node that fails does not stop the others
	if err := context.Cause(ctx); ctx.Err() == context.Canceled {
		return err
	}
	for _, part := range read {
		part.MergeInto(s)
	}
	return nil
}

// nodesToRead are the nodes to read through pods, in order: those of --nodes,
// without those whose state was given. With a number, the client's node first.
func (f *sourceFlags) nodesToRead(s *snapshot.Snapshot, pods map[string]cluster.ContainerRef, scope cluster.Scope) ([]string, error) {
	names, count, err := f.nodeNames()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		for i := range s.Objects.Nodes {
			names = append(names, s.Objects.Nodes[i].Name)
		}
		for name := range pods { // where nodes may not be listed
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		first := clientNode(s, scope)
		slices.SortFunc(names, func(x, y string) int {
			if (x == first) != (y == first) {
				return map[bool]int{true: -1, false: 1}[x == first]
			}
			return strings.Compare(x, y)
		})
	}
	if count > 0 {
		names = names[:min(count, len(names))]
	}
	return slices.DeleteFunc(names, func(name string) bool { return s.Node(name) != nil }), nil
}

func clientNode(s *snapshot.Snapshot, scope cluster.Scope) string {
	if scope.ClientPod == nil {
		return ""
	}
	for i := range s.Objects.Pods {
		if p := &s.Objects.Pods[i]; p.Namespace == scope.ClientPod.Namespace && p.Name == scope.ClientPod.Name {
			return p.Spec.NodeName
		}
	}
	return ""
}

// commandsShown are the command lines that were shown.
type commandsShown struct {
	app *app
	mu  sync.Mutex
	set map[string]bool
}

// announce shows the pods.
func (a *app) announce(names []string, pods map[string]cluster.ContainerRef) *commandsShown {
	var list []string
	for _, name := range names {
		if in, ok := pods[name]; ok {
			list = append(list, fmt.Sprintf("%s -c %s (%s)", in, in.Container, name))
		}
	}
	if len(list) > 0 {
		a.note("--exec runs these commands in %s:", strings.Join(list, ", "))
	}
	return &commandsShown{app: a, set: map[string]bool{}}
}

func (c *commandsShown) show(argv []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line := strings.Join(argv, " "); !c.set[line] {
		c.set[line] = true
		c.app.note("  %s", line)
	}
}

// execOn reads one node.
func (a *app) execOn(ctx context.Context, execs *cluster.Execs, shown *commandsShown, name string, pods map[string]cluster.ContainerRef) *snapshot.Snapshot {
	in := snapshot.Input{Kind: "exec", Ref: "node " + name, Node: name}
	pod, ok := pods[name]
	if !ok {
		in.Error = "no pod of kube-proxy runs there on the node's network (one with the label k8s-app=kube-proxy or component=kube-proxy in " + snapshot.ProxyNamespace + ")"
		return &snapshot.Snapshot{Inputs: []snapshot.Input{in}}
	}
	in.Ref = pod.String()
	container := node.Container{Now: a.now, Run: func(ctx context.Context, argv []string) (string, error) {
		if err := node.AllowedInContainer(argv); err != nil {
			return "", err
		}
		shown.show(argv)
		return execs.Run(ctx, pod, argv)
	}}
	state, err := container.Read(ctx)
	if err != nil {
		in.Error = err.Error()
		return &snapshot.Snapshot{Inputs: []snapshot.Input{in}}
	}
	state.Name, in.At = name, state.At
	return &snapshot.Snapshot{TakenAt: state.At, Inputs: []snapshot.Input{in}, Nodes: []*snapshot.NodeState{state}}
}
