package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
)

// BundleVersion is the version of the bundle's format that is written; a
// bundle of a later version is refused.
const BundleVersion = 1

// Limits on what is read from a bundle, against archives that are made to
// unpack to more than the machine holds.
const (
	MaxBundleFile  = 512 << 20 // bytes of one file
	MaxBundleTotal = 2 << 30   // bytes of all files
	MaxBundleFiles = 20000
)

// manifest is manifest.json: what the plain files cannot say themselves.
type manifest struct {
	APIVersion string         `json:"apiVersion"` // vipwalk.dev/v1
	Kind       string         `json:"kind"`       // Bundle
	Version    int            `json:"version"`
	TakenAt    time.Time      `json:"takenAt,omitzero"`
	Inputs     []Input        `json:"inputs,omitempty"`
	Reads      Reads          `json:"reads,omitempty"`
	Nodes      []manifestNode `json:"nodes,omitempty"`
}

type manifestNode struct {
	Name  string         `json:"name"`
	At    time.Time      `json:"at,omitzero"`
	Via   string         `json:"via,omitempty"`
	Texts []manifestText `json:"texts"`
}

type manifestText struct {
	Text
	// File is where Content stands; empty for a text that was not read.
	File string `json:"file,omitempty"`
}

const (
	manifestName       = "manifest.json"
	manifestAPIVersion = "vipwalk.dev/v1"
	manifestKind       = "Bundle"
	objectsDir         = "objects"
	nodesDir           = "nodes"
)

// bundleFile is one plain file of a bundle.
type bundleFile struct {
	data  []byte
	mtime time.Time
}

// layOut turns a Snapshot into the files of a bundle, by name.
func layOut(s *Snapshot) (map[string][]byte, error) {
	files := map[string][]byte{}
	objects := Strip(&s.Objects)
	for _, sl := range slots {
		r := sl.id().resource
		if sl.length(&objects) == 0 && !anyDone(s.Reads, r) {
			continue // no file: nobody looked
		}
		data, err := encodeList(sl, &objects)
		if err != nil {
			return nil, fmt.Errorf("write %s into the bundle: %w", r, err)
		}
		files[path.Join(objectsDir, string(r)+".json")] = data
	}
	m := manifest{
		APIVersion: manifestAPIVersion, Kind: manifestKind, Version: BundleVersion,
		TakenAt: s.TakenAt.UTC(), Reads: s.Reads,
	}
	for _, in := range s.Inputs {
		in.At = in.At.UTC()
		m.Inputs = append(m.Inputs, in)
	}
	dirs := map[string]bool{}
	for _, n := range sortedNodes(s.Nodes) {
		m.Nodes = append(m.Nodes, layOutNode(n, dirs, files))
	}
	data, err := indented(m)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", manifestName, err)
	}
	files[manifestName] = data
	return files, nil
}

func anyDone(reads Reads, r Resource) bool {
	for _, rd := range reads {
		if rd.Resource == r && rd.Status == Done {
			return true
		}
	}
	return false
}

// list is a Kubernetes List of any kinds; `kubectl get -f` reads it.
type list struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

func encodeList(sl slot, o *Objects) ([]byte, error) {
	items, err := sl.encode(o)
	if err != nil {
		return nil, err
	}
	return indented(list{APIVersion: "v1", Kind: "List", Items: items})
}

// indented writes JSON as kubectl does, with <, > and & as they are, because
// a person may read it.
func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return unescapeReplacement(b.Bytes()), nil
}

// unescapeReplacement writes U+FFFD as it is. encoding/json escapes it where
// it stands for bytes that are no UTF-8, and not where it was read as such, so
// that writing, reading and writing again would give other bytes.
func unescapeReplacement(j []byte) []byte {
	escape := []byte(`\ufffd`)
	if !bytes.Contains(j, escape) {
		return j
	}
	out := make([]byte, 0, len(j))
	for i := 0; i < len(j); {
		switch {
		case j[i] != '\\':
			out = append(out, j[i])
			i++
		case bytes.HasPrefix(j[i:], escape):
			out = append(out, "\uFFFD"...)
			i += len(escape)
		default: // another escape, of which a backslash may be the second byte
			out = append(out, j[i:min(i+2, len(j))]...)
			i += 2
		}
	}
	return out
}

// layOutNode adds a node's texts to files and describes them. dirs are the
// folders that are taken.
func layOutNode(n *NodeState, dirs map[string]bool, files map[string][]byte) manifestNode {
	out := manifestNode{Name: n.Name, At: n.At.UTC(), Via: n.Via, Texts: []manifestText{}}
	dir := nodeDir(n.Name, dirs)
	count := map[TextKind]int{}
	for _, t := range n.Texts {
		mt := manifestText{Text: t}
		if t.Status == Done && textName.MatchString(string(t.Kind)) {
			count[t.Kind]++
			name := string(t.Kind)
			if c := count[t.Kind]; c > 1 {
				name += "-" + strconv.Itoa(c)
			}
			mt.File = path.Join(nodesDir, dir, name+".txt")
			files[mt.File] = []byte(t.Content)
		}
		out.Texts = append(out.Texts, mt)
	}
	return out
}

// nodeName is what Kubernetes admits as a Node's name: a DNS subdomain.
var nodeName = lazyregexp.New(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// nodeDir is the folder for a node: its name, where that is a name that can
// stand in a path and is not taken yet.
func nodeDir(name string, taken map[string]bool) string {
	dir := name
	if !nodeName.MatchString(name) {
		dir = "node"
	}
	for i := 2; taken[dir]; i++ {
		dir = fmt.Sprintf("%s_%d", name, i)
		if !nodeName.MatchString(name) {
			dir = fmt.Sprintf("node_%d", i)
		}
	}
	taken[dir] = true
	return dir
}

func sortedNodes(nodes []*NodeState) []*NodeState {
	out := slices.Clone(nodes)
	slices.SortStableFunc(out, func(a, b *NodeState) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// textName is what a kind must look like to name a file.
var textName = lazyregexp.New(`^[a-z0-9][a-z0-9-]*$`)
