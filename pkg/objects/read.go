package objects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// key names an object.
type key struct {
	resource        snapshot.Resource
	namespace, name string
}

// entry is one object, with what decides between two of one name.
type entry struct {
	key
	object    runtime.Object
	version   string // resourceVersion
	hasStatus bool
	inTree    bool
	place     func() string // where it is; asked for only of one of two
}

// head is what tells what an object is.
type head struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Items      json.RawMessage `json:"items"`
	Status     json.RawMessage `json:"status"`
	Metadata   struct {
		GenerateName string `json:"generateName"`
	} `json:"metadata"`
}

// maxDepth bounds lists within lists.
const maxDepth = 8

// item is a value within a document that ought to be an object.
type item struct {
	doc  *document
	path []any // from the document's root
	raw  json.RawMessage
	// apiVersion and kind are those of the list that it is in; the items of a
	// typed list (kind: PodList) need not have their own.
	apiVersion, kind string
}

func (i item) errorf(path []any, format string, args ...any) error {
	return fmt.Errorf("%s: %w", i.doc.place(append(append([]any{}, i.path...), path...)), fmt.Errorf(format, args...))
}

func (l *loader) read(src *source, named bool) error {
	return src.documents(func(d *document) error {
		return l.item(item{doc: d, raw: d.raw}, named)
	})
}

// item reads an object, or a list of them.
func (l *loader) item(it item, named bool) error {
	if raw := bytes.TrimSpace(it.raw); len(raw) > 0 && raw[0] == '[' {
		return l.items(it, it.raw, nil, named)
	}
	var h head
	if err := json.Unmarshal(it.raw, &h); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			path := pathAt(string(it.raw), wrong.Offset)
			return it.errorf(path, "%s: a %s where %s should be", pathString(path), wrong.Value, plainType(wrong.Type.String()))
		}
		return it.errorf(nil, "not a Kubernetes object, which would have apiVersion and kind")
	}
	h.APIVersion, h.Kind = cmp.Or(h.APIVersion, it.apiVersion), cmp.Or(h.Kind, it.kind)
	switch {
	case h.Kind == "" || h.APIVersion == "":
		return l.notAnObject(it, h, named)
	case h.Kind == "List" || strings.HasSuffix(h.Kind, "List") && h.Items != nil:
		return l.list(it, h, named)
	}
	return l.object(it, h)
}

func (l *loader) notAnObject(it item, h head, named bool) error {
	missing := "apiVersion and kind"
	switch {
	case h.Kind != "":
		missing = "apiVersion"
	case h.APIVersion != "":
		missing = "kind"
	}
	if named || h.Kind != "" {
		return it.errorf(nil, "not a Kubernetes object: it has no %s", missing)
	}
	l.notes = append(l.notes, fmt.Sprintf("%s: left out: it has no %s", it.doc.place(it.path), missing))
	return nil
}

func (l *loader) list(it item, h head, named bool) error {
	kind := strings.TrimSuffix(h.Kind, "List")
	r, known := readerOf(h.APIVersion, kind)
	inner := item{doc: it.doc, path: it.path, apiVersion: h.APIVersion, kind: kind}
	if kind == "" {
		inner.apiVersion = ""
	}
	items := bytes.TrimSpace(h.Items)
	if len(items) == 0 || bytes.Equal(items, []byte("null")) || emptyArray(items) {
		if known && !l.inTree {
			l.lists[r.resource] = true
		}
		return nil
	}
	if items[0] != '[' {
		return it.errorf([]any{"items"}, "items of a %s that are no list", h.Kind)
	}
	return l.items(inner, h.Items, []any{"items"}, named)
}

func emptyArray(b []byte) bool {
	return len(b) >= 2 && b[0] == '[' && len(bytes.TrimSpace(b[1:])) == 1
}

func (l *loader) items(it item, raw json.RawMessage, path []any, named bool) error {
	if len(it.path) > 2*maxDepth {
		return it.errorf(nil, "lists within lists, over %d deep", maxDepth)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return it.errorf(path, "not a list: %w", err)
	}
	for n, raw := range items {
		inner := it
		inner.raw = raw
		inner.path = append(append(append([]any{}, it.path...), path...), n)
		if err := l.item(inner, named); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) object(it item, h head) error {
	r, ok := readerOf(h.APIVersion, h.Kind)
	if !ok {
		l.ignored[h.Kind]++
		return nil
	}
	obj, err := r.decode(h.APIVersion, it.raw)
	if err != nil {
		return it.decodeError(h.Kind, err)
	}
	meta, ok := obj.(metav1.Object)
	if !ok {
		return it.errorf(nil, "a %s without metadata", h.Kind)
	}
	switch name := meta.GetName(); {
	case strings.Contains(name, "{{"):
		return it.errorf([]any{"metadata", "name"}, "the %s's name %q is a template's: render it first (helm template) and give the result", h.Kind, name)
	case name == "" && h.Metadata.GenerateName != "":
		l.notes = append(l.notes, fmt.Sprintf("%s: left out: a %s that gets its name when it is created", it.doc.place(it.path), h.Kind))
		return nil
	case name == "":
		return it.errorf([]any{"metadata"}, "a %s without metadata.name", h.Kind)
	}
	switch {
	case !r.resource.Namespaced():
		meta.SetNamespace("")
	case meta.GetNamespace() == "":
		meta.SetNamespace(l.opt.Namespace)
	}
	l.add(entry{
		key: key{r.resource, meta.GetNamespace(), meta.GetName()}, object: obj,
		version: meta.GetResourceVersion(), hasStatus: len(h.Status) > len("{}"), inTree: l.inTree, place: func() string { return it.doc.place(it.path) },
	}, h.Kind)
	return nil
}

// decodeError tells which field of the object is wrong.
func (it item) decodeError(kind string, err error) error {
	name := it.name(kind)
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return it.errorf(nil, "%s: %w", name, err)
	}
	path := pathAt(string(it.raw), wrong.Offset)
	return it.errorf(path, "%s: %s: a %s where %s should be", name, pathString(path), wrong.Value, plainType(wrong.Type.String()))
}

func (it item) name(kind string) string {
	var m struct {
		Metadata struct{ Namespace, Name string } `json:"metadata"`
	}
	if json.Unmarshal(it.raw, &m) != nil || m.Metadata.Name == "" {
		return kind
	}
	if m.Metadata.Namespace == "" {
		return kind + " " + m.Metadata.Name
	}
	return kind + " " + m.Metadata.Namespace + "/" + m.Metadata.Name
}

// plainType says in JSON's words what a Go type takes.
func plainType(t string) string {
	switch {
	case strings.HasPrefix(t, "[]"):
		return "a list"
	case strings.HasPrefix(t, "map["), strings.HasPrefix(t, "struct "), strings.Contains(t, "."):
		return "an object"
	case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "uint"), strings.HasPrefix(t, "float"):
		return "a number"
	case t == "bool":
		return "true or false"
	case t == "string":
		return "a string (in quotes, if it looks like a number)"
	}
	return "a " + t
}

// add keeps an object, or the better of two with one name.
func (l *loader) add(e entry, kind string) {
	i, twice := l.at[e.key]
	if !twice {
		l.at[e.key] = len(l.entries)
		l.entries = append(l.entries, e)
		return
	}
	kept, left := e, l.entries[i]
	if better(left, e) {
		kept, left = left, e
	}
	l.entries[i] = kept
	name := strings.TrimPrefix(e.namespace+"/"+e.key.name, "/")
	l.notes = append(l.notes, fmt.Sprintf("%s %s is there twice: the one at %s is used, not the one at %s", kind, name, kept.place(), left.place()))
}

// better says whether the first of two objects is to be kept, where the
// second came after it.
func better(a, b entry) bool {
	if c := compareVersions(a.version, b.version); c != 0 {
		return c > 0
	}
	return a.hasStatus && !b.hasStatus
}

// compareVersions compares resourceVersions, which are decimal numbers of any
// length (KEP-5504); none is the least.
func compareVersions(a, b string) int {
	if strings.Trim(a+b, "0123456789") != "" {
		return cmp.Compare(min(len(a), 1), min(len(b), 1))
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
