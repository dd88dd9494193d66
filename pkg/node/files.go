package node

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// FileOptions are what ReadFiles needs beside the names.
type FileOptions struct {
	// Stdin is read for "-".
	Stdin io.Reader
	// IsNode says whether a name is a node's. It may be nil. Where a file says
	// nothing about which node it is from, its own name, or its folder's, is
	// taken if it is a node's.
	IsNode func(name string) bool
	// Progress is called after each file with how many were read so far; it may
	// be nil.
	Progress func(files int)
}

const expected = "expected the output of vipwalk node-state, iptables-save, nft list ruleset, ip addr, ip route, sysctl -a or /proc/modules"

// ReadFiles reads nodes' states from files. Each spec is [NODE=]PATH; a PATH
// is a file, a folder (all its files; or, if it holds only folders, each of
// them a node's), or "-". What a file holds is recognised from its content,
// and a file may hold the output of several tools; each becomes a Text whose
// lines keep their numbers in the file.
//
// States of one node are merged, and the result is sorted by name; the name is
// "" where nothing says which node it is. An input that is recognised and not
// read, or skipped in a folder, is in inputs with the reason. The error names
// the file, and the line where there is one.
func ReadFiles(specs []string, opt FileOptions) (states []*snapshot.NodeState, inputs []snapshot.Input, err error) {
	r := &fileReader{opt: opt}
	if len(specs) > 1 || len(specs) == 1 && isFolder(specs[0]) {
		r.same = newSameTexts()
	}
	for _, spec := range specs {
		if err := r.spec(spec); err != nil {
			return nil, nil, fmt.Errorf("--node-state %s: %w", spec, err)
		}
	}
	return r.states(), r.inputs, nil
}

type fileReader struct {
	opt       FileOptions
	stdinRead bool
	pieces    []piece
	inputs    []snapshot.Input
	// same is set where there may be many files.
	same    *sameTexts
	numRead int
}

// piece is one text, with what decides where it goes.
type piece struct {
	snapshot.Text
	node string
	at   time.Time
	// legacy ranks dumps of one family: 0 for the nft backend or not known
	// which, 1 for legacy by its header, 2 for legacy by its file's name.
	legacy int
}

// nodeName matches the names that Kubernetes allows for a Node.
var nodeName = lazyregexp.New(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// splitSpec splits [NODE=]PATH. A path that has an equals sign of its own wins
// if there is such a file.
func splitSpec(spec string) (node, path string) {
	node, path, ok := strings.Cut(spec, "=")
	if !ok || !nodeName.MatchString(node) {
		return "", spec
	}
	if _, err := os.Stat(spec); err == nil {
		return "", spec
	}
	return node, path
}

func isFolder(spec string) bool {
	_, path := splitSpec(spec)
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (r *fileReader) spec(spec string) error {
	node, path := splitSpec(spec)
	if path == "" {
		return errors.New("no path given")
	}
	if path == "-" {
		return r.stdin(node)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		if is, err := r.tree(node, path); is {
			return err
		}
		return r.folder(node, path)
	}
	f, err := r.file(path)
	if err != nil {
		return err
	}
	return r.add(node, f)
}

func (r *fileReader) stdin(node string) error {
	if r.stdinRead || r.opt.Stdin == nil {
		return errors.New("stdin can be read only once")
	}
	r.stdinRead = true
	f, err := readStream("stdin", r.opt.Stdin)
	if err != nil {
		return err
	}
	return r.add(node, f)
}

func (r *fileReader) file(path string) (*stateFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if r.numRead++; r.opt.Progress != nil {
		r.opt.Progress(r.numRead)
	}
	if r.same != nil {
		return r.same.read(path, f)
	}
	return readStream(path, f)
}

// folder reads all files of a folder. A file that cannot be used is skipped
// and told of; a folder of which nothing can be used is an error.
func (r *fileReader) folder(node, path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	var files, folders []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		full := filepath.Join(path, e.Name())
		if info, err := os.Stat(full); err == nil && info.IsDir() {
			folders = append(folders, full)
		} else {
			files = append(files, full)
		}
	}
	if len(files) == 0 && node == "" {
		return r.folders(folders)
	}
	return r.files(node, path, files)
}

func (r *fileReader) folders(folders []string) error {
	if len(folders) == 0 {
		return errors.New("the folder is empty")
	}
	for _, f := range folders {
		node := filepath.Base(f)
		if !nodeName.MatchString(node) {
			return fmt.Errorf("folder %s: %q is not a node's name", f, node)
		}
		entries, err := os.ReadDir(f)
		if err != nil {
			return err
		}
		var files []string
		for _, e := range entries {
			if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				files = append(files, filepath.Join(f, e.Name()))
			}
		}
		if err := r.files(node, f, files); err != nil {
			return err
		}
	}
	return nil
}

func (r *fileReader) files(node, folder string, paths []string) error {
	var files []*stateFile
	hostname := ""
	for _, p := range paths {
		f, err := r.file(p)
		if err != nil {
			r.inputs = append(r.inputs, snapshot.Input{Kind: "node-state", Ref: p, Node: node, Error: err.Error()})
			continue
		}
		files = append(files, f)
		hostname = cmp.Or(hostname, f.hostname)
	}
	if len(files) == 0 {
		return fmt.Errorf("no file of the folder %s could be used; %s", folder, expected)
	}
	for _, f := range files {
		if f.hostname == "" && f.states == nil && !r.isNode(f.base()) {
			f.hostname = hostname
			if base := filepath.Base(folder); hostname == "" && r.isNode(base) {
				f.hostname = base
			}
		}
		if err := r.add(node, f); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return nil
}

func (r *fileReader) isNode(name string) bool {
	return r.opt.IsNode != nil && r.opt.IsNode(name)
}

// add takes over what a file held. node is the name that the user gave.
func (r *fileReader) add(node string, f *stateFile) error {
	if f.states != nil {
		return r.addStates(node, f)
	}
	name := cmp.Or(node, f.hostname)
	if name == "" && r.isNode(f.base()) {
		name = f.base()
	}
	for _, p := range f.pieces {
		p.node = name
		r.pieces = append(r.pieces, p)
	}
	r.inputs = append(r.inputs, snapshot.Input{Kind: "node-state", Ref: f.path, Node: name, Error: strings.Join(f.notes, "; ")})
	return nil
}

func (r *fileReader) addStates(node string, f *stateFile) error {
	if node != "" && len(f.states) > 1 {
		return fmt.Errorf("holds the states of %d nodes, and cannot all be %s's", len(f.states), node)
	}
	for _, s := range f.states {
		name := cmp.Or(node, s.Name, strings.TrimSpace(s.Text(snapshot.Hostname).Content))
		for _, t := range s.Texts {
			r.pieces = append(r.pieces, piece{Text: t, node: name, at: s.At})
		}
		in := snapshot.Input{Kind: "node-state", Ref: f.path, Node: name, At: s.At}
		if s.cut {
			in.Error = "cut short: the state has no end"
		}
		r.inputs = append(r.inputs, in)
	}
	return nil
}

// states sorts the pieces by node.
func (r *fileReader) states() []*snapshot.NodeState {
	settleLegacy(r.pieces)
	byName := map[string]*snapshot.NodeState{}
	var out []*snapshot.NodeState
	var failed []piece
	for _, p := range r.pieces {
		s := byName[p.node]
		if s == nil {
			s = &snapshot.NodeState{Name: p.node, Via: "node-state"}
			byName[p.node] = s
			out = append(out, s)
		}
		if p.at.After(s.At) {
			s.At = p.at
		}
		if p.Status == snapshot.Failed {
			failed = append(failed, p)
			continue
		}
		s.Texts = append(s.Texts, p.Text)
	}
	// What failed matters only where nothing else gave it.
	for _, p := range failed {
		if s := byName[p.node]; s.Text(p.Kind).Status == snapshot.NotRead {
			s.Texts = append(s.Texts, p.Text)
		}
	}
	slices.SortStableFunc(out, func(a, b *snapshot.NodeState) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// settleLegacy gives a legacy dump its own kind where its node has another
// one of the family beside it.
func settleLegacy(pieces []piece) {
	type key struct {
		node string
		kind snapshot.TextKind
	}
	least := map[key]int{}
	for _, p := range pieces {
		k := key{p.node, p.Kind}
		if old, ok := least[k]; p.Status == snapshot.Done && (!ok || p.legacy < old) {
			least[k] = p.legacy
		}
	}
	for i := range pieces {
		p := &pieces[i]
		if p.legacy <= least[key{p.node, p.Kind}] {
			continue
		}
		switch p.Kind {
		case snapshot.IptablesSave:
			p.Kind = snapshot.IptablesLegacySave
		case snapshot.Ip6tablesSave:
			p.Kind = snapshot.Ip6tablesLegacySave
		}
	}
}
