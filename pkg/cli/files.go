package cli

import (
	"context"
	"os"
	"time"

	"github.com/vipwalk/vipwalk/pkg/node"
	"github.com/vipwalk/vipwalk/pkg/objects"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// readObjects reads --objects. What was left out or found twice is noted on
// stderr.
func (a *app) readObjects(ctx context.Context, f *sourceFlags) (*snapshot.Snapshot, error) {
	opt := objects.Options{Stdin: a.stdin(ctx)}
	if f.config.Namespace != nil {
		opt.Namespace = *f.config.Namespace
	}
	s, notes, err := objects.Load(f.objects, opt)
	if err != nil {
		return nil, badInput(ctx, err)
	}
	for _, n := range notes {
		a.note("%s", n)
	}
	for _, in := range s.Inputs {
		s.TakenAt = later(s.TakenAt, modified(in.Ref))
	}
	return s, nil
}

// manyFiles is after how many files it is told how far the reading is.
const manyFiles = 50

// readNodeStates reads --node-state; isNode says whether a name is one of the
// cluster's nodes, and may be nil.
func (a *app) readNodeStates(ctx context.Context, specs []string, quiet bool, isNode func(string) bool) (*snapshot.Snapshot, error) {
	progress := func(files int) {
		if files%manyFiles == 0 {
			a.progress(quiet, "reading the nodes' states: %d files ...", files)
		}
	}
	states, inputs, err := node.ReadFiles(specs, node.FileOptions{Stdin: a.stdin(ctx), IsNode: isNode, Progress: progress})
	if err != nil {
		return nil, badInput(ctx, err)
	}
	s := &snapshot.Snapshot{Nodes: states, Inputs: inputs}
	for _, n := range states {
		s.TakenAt = later(s.TakenAt, n.At)
	}
	for _, in := range inputs {
		s.TakenAt = later(s.TakenAt, modified(in.Ref))
	}
	return s, nil
}

func (a *app) collectNodeStates(ctx context.Context, f *sourceFlags, s *snapshot.Snapshot) error {
	if len(f.nodeState) == 0 {
		return nil
	}
	part, err := a.readNodeStates(ctx, f.nodeState, f.silent, func(name string) bool {
		for i := range s.Objects.Nodes {
			if s.Objects.Nodes[i].Name == name {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	part.MergeInto(s)
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// modified is when a file was last written, which is as near as can be known
// to when its facts were read, and the same at every run; zero for what is no
// file.
func modified(path string) time.Time {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return time.Time{}
	}
	return st.ModTime().UTC().Truncate(time.Second)
}
