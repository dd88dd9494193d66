package objects

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// maxInput bounds one file or stream, in bytes.
const maxInput = 512 << 20

// Options are what Load needs beside the paths.
type Options struct {
	// Stdin is read for "-".
	Stdin io.Reader
	// Namespace is where an object without one is taken to be; "default" if
	// empty.
	Namespace string
}

// Load reads objects from files, folders (every .yaml, .yml and .json file
// below them; or, of what `kubectl cluster-info dump`, `oc adm must-gather` and
// sosreport write, the lists that a walk reads) and "-". The snapshot holds the objects, stripped (see
// snapshot.Strip); what is known to have been read: a kind is, for all
// namespaces, if there is an object of it or an empty list of that very kind
// (kind: NetworkPolicyList, items: []), and everything else is not; and one
// Input a file. It has no time: files do not say when their facts were true.
//
// Of two objects with one name the one stays that is from an API server, or is
// newer, or has a status, or came last. notes tell of that, and of what was
// left out because no walk reads it. An error names the file, the line and the
// column.
func Load(paths []string, opt Options) (s *snapshot.Snapshot, notes []string, err error) {
	l := newLoader(opt)
	for _, p := range paths {
		if err := l.path(p); err != nil {
			return nil, nil, err
		}
	}
	if len(l.entries) == 0 && len(l.lists) == 0 && len(l.treeReads) == 0 {
		return nil, nil, fmt.Errorf("--objects %s: no object that a walk reads%s", strings.Join(paths, " "), l.foundInstead())
	}
	s = &snapshot.Snapshot{Inputs: l.inputs, Reads: l.reads()}
	var all snapshot.Objects
	for _, e := range l.entries {
		all.Add(e.object)
	}
	s.Objects = snapshot.Strip(&all)
	return s, l.allNotes(), nil
}

// loader collects what the files hold.
type loader struct {
	opt       Options
	stdinRead bool
	entries   []entry
	at        map[key]int // where in entries an object is
	// lists are the kinds of which an empty list of that very kind was given.
	lists   map[snapshot.Resource]bool
	ignored map[string]int // kinds that no walk reads, counted
	inputs  []snapshot.Input
	notes   []string
	// inTree is set while a tree is read; trees are the tools whose trees were,
	// and treeReads what their files were lists of.
	inTree    bool
	trees     []string
	treeReads snapshot.Reads
}

func newLoader(opt Options) *loader {
	if opt.Namespace == "" {
		opt.Namespace = "default"
	}
	return &loader{opt: opt, at: map[key]int{}, lists: map[snapshot.Resource]bool{}, ignored: map[string]int{}}
}

func (l *loader) path(path string) error {
	if path == "-" {
		if l.stdinRead || l.opt.Stdin == nil {
			return errors.New("--objects -: stdin can be read only once")
		}
		l.stdinRead = true
		return l.stream("stdin", l.opt.Stdin, true)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("--objects: %w", err)
	case info.IsDir():
		if t := findTree(path); t != nil {
			return l.tree(path, t)
		}
		return l.folder(path)
	}
	return l.file(path, true)
}

func (l *loader) folder(root string) error {
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || strings.HasPrefix(d.Name(), ".") || !objectFile(d.Name()):
			return nil
		}
		files++
		return l.file(path, false)
	})
	if err != nil {
		return err
	}
	if files == 0 {
		return fmt.Errorf("--objects %s: no .yaml, .yml or .json file in the folder", root)
	}
	return nil
}

func objectFile(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// file reads one file. One that was named must hold objects; one that was
// found in a folder need not (values.yaml, kustomization.yaml).
func (l *loader) file(path string, named bool) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--objects: %w", err)
	}
	defer f.Close()
	return l.stream(path, f, named)
}

func (l *loader) stream(name string, r io.Reader, named bool) error {
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return fmt.Errorf("--objects: reading %s: %w", name, err)
	case len(b) > maxInput:
		return fmt.Errorf("--objects %s: over %d MiB", name, maxInput>>20)
	}
	src := &source{name: name, text: plain(b)}
	if err := src.check(); err != nil {
		if !named && errors.Is(err, errEmpty) {
			l.notes = append(l.notes, name+": empty, left out")
			return nil
		}
		return err
	}
	if err := l.read(src, named); err != nil {
		return err
	}
	l.inputs = append(l.inputs, snapshot.Input{Kind: "objects", Ref: name})
	return nil
}

// reads says what is known to have been read.
func (l *loader) reads() snapshot.Reads {
	seen := map[snapshot.Resource]bool{}
	var out snapshot.Reads
	for _, e := range l.entries {
		if e.inTree {
			continue // its file says what was asked
		}
		if e.resource == snapshot.ConfigMaps {
			// Some application's ConfigMap says nothing about kube-proxy's.
			out.Add(snapshot.Read{Resource: e.resource, Namespace: e.key.namespace, Status: snapshot.Done})
			continue
		}
		seen[e.resource] = true
	}
	for _, r := range snapshot.Resources {
		if seen[r] || l.lists[r] {
			out.Add(snapshot.Read{Resource: r, Status: snapshot.Done})
			continue
		}
		_, kind := snapshot.KindOf(r)
		why := fmt.Sprintf("no %s among the objects given, and no empty %sList that would say that there is none", kind, kind)
		if len(l.trees) > 0 {
			why = fmt.Sprintf("the folder of %s has no list of all %s", strings.Join(l.trees, ", "), r)
		}
		out.Add(snapshot.Read{Resource: r, Status: snapshot.Failed, Why: why, Supply: supply(r)})
	}
	for _, rd := range l.treeReads {
		out.Add(rd)
	}
	return out
}

// supply is the command whose output would be read as the resource.
func supply(r snapshot.Resource) string {
	switch {
	case r == snapshot.ConfigMaps:
		return "kubectl get configmaps -n kube-system kube-proxy -o yaml"
	case r.Namespaced():
		return fmt.Sprintf("kubectl get %s -A -o yaml", r)
	}
	return fmt.Sprintf("kubectl get %s -o yaml", r)
}

// ignoredKinds are the kinds that were left out, with their counts.
func (l *loader) ignoredKinds() []string {
	var out []string
	for kind, n := range l.ignored {
		out = append(out, fmt.Sprintf("%d %s", n, kind))
	}
	slices.Sort(out)
	return out
}

func (l *loader) foundInstead() string {
	if len(l.ignored) == 0 {
		return ""
	}
	return "; found " + strings.Join(l.ignoredKinds(), ", ")
}

func (l *loader) allNotes() []string {
	if len(l.ignored) == 0 {
		return l.notes
	}
	return append(l.notes, "left out, because no walk reads them: "+strings.Join(l.ignoredKinds(), ", "))
}
