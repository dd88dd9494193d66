package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// bundleParser gathers a Snapshot from the files of a bundle.
type bundleParser struct {
	files    map[string]bundleFile
	used     map[string]bool
	snapshot Snapshot
	// found are the reads that the files under objects/ show.
	found Reads
}

func parseBundle(files map[string]bundleFile) (*Snapshot, error) {
	p := &bundleParser{files: rebase(files), used: map[string]bool{}}
	m, err := p.readManifest()
	if err != nil {
		return nil, err
	}
	if err := p.readObjects(); err != nil {
		return nil, err
	}
	s := &p.snapshot
	s.Objects = Strip(&s.Objects)
	if m == nil {
		s.TakenAt = p.newest("")
		s.Reads = p.found
		s.Inputs = []Input{{Kind: "bundle", Ref: "made by hand: without " + manifestName, At: s.TakenAt}}
	} else {
		s.TakenAt = m.TakenAt.UTC()
		s.Reads = p.reconcile(m.Reads)
		s.Inputs = m.Inputs
		p.readManifestNodes(m)
	}
	p.readPlainNodes()
	if len(p.used) == 0 {
		return nil, fmt.Errorf("there is no %s, no %s/ and no %s/ in it: %s", manifestName, objectsDir, nodesDir, notBundle)
	}
	p.noteUnknown()
	return s, nil
}

func (p *bundleParser) readManifest() (*manifest, error) {
	f, ok := p.files[manifestName]
	if !ok {
		return nil, nil
	}
	p.used[manifestName] = true
	var m manifest
	if err := json.Unmarshal(f.data, &m); err != nil {
		return nil, placed(manifestName, f.data, err)
	}
	if m.APIVersion != manifestAPIVersion || m.Kind != manifestKind {
		return nil, fmt.Errorf("%s: apiVersion %q and kind %q, want %s and %s", manifestName, m.APIVersion, m.Kind, manifestAPIVersion, manifestKind)
	}
	if m.Version > BundleVersion {
		return nil, fmt.Errorf("%s: the bundle's version is %d, this vipwalk reads up to %d: use a newer vipwalk", manifestName, m.Version, BundleVersion)
	}
	for i := range m.Inputs {
		m.Inputs[i].At = m.Inputs[i].At.UTC()
	}
	return &m, nil
}

// readObjects reads objects/FILE and objects/NAMESPACE/FILE.
func (p *bundleParser) readObjects() error {
	for _, name := range p.names(objectsDir) {
		ext := path.Ext(name)
		if hidden(name) || (ext != ".json" && ext != ".yaml" && ext != ".yml") || strings.Count(name, "/") > 2 {
			continue
		}
		p.used[name] = true
		namespace := ""
		if dir := path.Dir(name); dir != objectsDir {
			namespace = path.Base(dir)
		}
		if err := p.readObjectFile(name, namespace); err != nil {
			return err
		}
	}
	return nil
}

func (p *bundleParser) readObjectFile(name, namespace string) error {
	found := map[Resource]map[string]bool{}
	data := p.files[name].data
	if path.Ext(name) == ".json" {
		if err := decodeList(data, &p.snapshot.Objects, found); err != nil {
			return placed(name, data, err)
		}
	} else if err := decodeYAML(name, data, &p.snapshot.Objects, found); err != nil {
		return err
	}
	if r, ok := resourceOf(name); ok && found[r] == nil {
		found[r] = map[string]bool{} // read, and empty
	}
	for _, r := range Resources {
		if namespaces, ok := found[r]; ok {
			p.found.Add(handRead(r, namespace, namespaces))
		}
	}
	return nil
}

// handRead says what a file shows to have been read. A file straight under
// objects/ stands for the whole cluster, but where all of its objects are of
// one namespace it may well be a listing of that namespace alone, so that is
// all that is claimed. kube-proxy's ConfigMap is the only one that is looked
// for.
func handRead(r Resource, folder string, namespaces map[string]bool) Read {
	rd := Read{Resource: r, Status: Done}
	switch {
	case !r.Namespaced():
	case folder != "":
		rd.Namespace = folder
	case r == ConfigMaps:
		rd.Namespace = ProxyNamespace
	case len(namespaces) == 1:
		for ns := range namespaces {
			rd.Namespace = ns
		}
	}
	return rd
}

// resourceOf tells the resource from a file's name: pods.json, or
// deployments.apps.json, or deployments.json.
func resourceOf(name string) (Resource, bool) {
	base := strings.TrimSuffix(path.Base(name), path.Ext(name))
	for _, r := range Resources {
		plural, _, _ := strings.Cut(string(r), ".")
		if base == string(r) || base == plural {
			return r, true
		}
	}
	return "", false
}

// decodeYAML reads the documents of a YAML file.
func decodeYAML(name string, data []byte, o *Objects, found map[Resource]map[string]bool) error {
	for _, doc := range documents(data) {
		j, err := yaml.YAMLToJSON(doc.text)
		if err == nil && string(j) != "null" {
			err = decodeList(j, o, found)
		}
		if err != nil {
			return fmt.Errorf("%s: the document that starts in line %d: %w", name, doc.line, err)
		}
	}
	return nil
}

// document is one document of a YAML file and the line in which it starts.
type document struct {
	line int
	text []byte
}

func documents(data []byte) []document {
	var out []document
	line, start, startLine := 0, 0, 1
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line++
		if l := bytes.TrimRight(data[at:end], " \t\r\n"); string(l) == "---" && at > 0 {
			out = append(out, document{startLine, data[start:at]})
			start, startLine = end, line+1
		}
		at = end
	}
	return append(out, document{startLine, data[start:]})
}

// decodeList reads a List, or a single object, into o, and adds the namespaces
// of the objects of each resource to found. Kinds that no Snapshot holds are
// passed over.
func decodeList(data []byte, o *Objects, found map[Resource]map[string]bool) error {
	var l list
	if err := json.Unmarshal(data, &l); err != nil {
		return err
	}
	items, itemKind := l.Items, ""
	if items == nil && !strings.HasSuffix(l.Kind, "List") {
		items = []json.RawMessage{data}
	} else {
		itemKind = strings.TrimSuffix(l.Kind, "List") // the items of a typed list, PodList, need not repeat it
	}
	at := 0
	for _, raw := range items {
		if i := bytes.Index(data[at:], raw); i >= 0 {
			at += i
		}
		r, namespace, err := decodeItem(raw, l.APIVersion, itemKind, o)
		if err != nil {
			return &itemError{offset: at, err: err}
		}
		if r != "" {
			if found[r] == nil {
				found[r] = map[string]bool{}
			}
			found[r][namespace] = true
		}
		at += len(raw)
	}
	return nil
}

func decodeItem(raw json.RawMessage, listVersion, listKind string, o *Objects) (Resource, string, error) {
	var id struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &id); err != nil {
		return "", "", err
	}
	if id.Kind == "" {
		if listKind == "" {
			return "", "", errors.New("an object without apiVersion and kind")
		}
		id.APIVersion, id.Kind = listVersion, listKind
	}
	sl := slotOfKind(id.APIVersion, id.Kind)
	if sl == nil {
		return "", "", nil // Secrets among them
	}
	obj, err := sl.decode(raw, o)
	if err != nil {
		return "", "", err
	}
	if obj.GetName() == "" {
		return "", "", fmt.Errorf("a %s without metadata.name", id.Kind)
	}
	return sl.id().resource, obj.GetNamespace(), nil
}

// reconcile goes by the manifest, but not against the files: what it calls
// read and no file shows was not read, and a file that somebody added counts.
func (p *bundleParser) reconcile(reads Reads) Reads {
	var out Reads
	listed := map[Resource]bool{}
	for _, rd := range reads {
		if rd.Status == Done && !anyDone(p.found, rd.Resource) {
			rd.Status = Failed
			rd.Why = fmt.Sprintf("the bundle has no %s/%s.json", objectsDir, rd.Resource)
			rd.Supply = "vipwalk capture"
		}
		listed[rd.Resource] = listed[rd.Resource] || rd.Status == Done
		out = append(out, rd)
	}
	for _, rd := range p.found {
		if !listed[rd.Resource] {
			out.Add(rd)
		}
	}
	return out
}

func (p *bundleParser) readManifestNodes(m *manifest) {
	for _, mn := range m.Nodes {
		n := &NodeState{Name: mn.Name, At: mn.At.UTC(), Via: mn.Via}
		for _, mt := range mn.Texts {
			t := mt.Text
			if t.Status == Done {
				f, ok := p.files[mt.File]
				if !ok || !strings.HasPrefix(mt.File, nodesDir+"/") {
					t.Status, t.Why = Failed, fmt.Sprintf("the bundle has no %q", mt.File)
				} else {
					t.Content = string(f.data)
					p.used[mt.File] = true
				}
			}
			n.Texts = append(n.Texts, t)
		}
		p.snapshot.Nodes = append(p.snapshot.Nodes, n)
	}
}

// readPlainNodes reads nodes/NAME/KIND.txt that no manifest mentions.
func (p *bundleParser) readPlainNodes() {
	for _, name := range p.names(nodesDir) {
		parts := strings.Split(name, "/")
		if p.used[name] || hidden(name) || len(parts) != 3 {
			continue
		}
		kind, ok := textKindOf(parts[2])
		if !ok {
			continue
		}
		p.used[name] = true
		n := p.snapshot.Node(parts[1])
		if n == nil {
			n = &NodeState{Name: parts[1], At: p.newest(path.Join(nodesDir, parts[1]) + "/"), Via: "bundle"}
			p.snapshot.Nodes = append(p.snapshot.Nodes, n)
		}
		n.Texts = append(n.Texts, Text{Kind: kind, Ref: name, Status: Done, Content: string(p.files[name].data)})
	}
	p.snapshot.Nodes = sortedNodes(p.snapshot.Nodes)
}

// textKindOf tells a text's kind from its file's name: iptables-save.txt, or
// iptables-save-2.txt for a second one.
func textKindOf(base string) (TextKind, bool) {
	name, ok := strings.CutSuffix(base, ".txt")
	if !ok {
		return "", false
	}
	if slices.Contains(TextKinds, TextKind(name)) {
		return TextKind(name), true
	}
	if i := strings.LastIndexByte(name, '-'); i > 0 && strings.Trim(name[i+1:], "0123456789") == "" {
		k := TextKind(name[:i])
		return k, slices.Contains(TextKinds, k)
	}
	return "", false
}

// names are the files below a folder, sorted.
func (p *bundleParser) names(dir string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		if strings.HasPrefix(name, dir+"/") {
			out = append(out, name)
		}
	}
	return out
}

// newest is the latest modification time of the files with that prefix; zero
// where they have none, as embedded files do.
func (p *bundleParser) newest(prefix string) time.Time {
	var t time.Time
	for name, f := range p.files {
		if strings.HasPrefix(name, prefix) && f.mtime.After(t) {
			t = f.mtime
		}
	}
	return t.UTC()
}

// maxNotes bounds how many unknown files are named one by one.
const maxNotes = 10

func (p *bundleParser) noteUnknown() {
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		if !p.used[name] && !hidden(name) {
			unknown = append(unknown, name)
		}
	}
	for i, name := range unknown {
		if i == maxNotes {
			p.note(fmt.Sprintf("%d more files", len(unknown)-i))
			return
		}
		p.note(name)
	}
}

// note adds an Input for what was passed over, unless the manifest of a bundle
// that was read before has it already.
func (p *bundleParser) note(ref string) {
	in := Input{Kind: "bundle", Ref: ref, Error: "passed over: not a file of a bundle"}
	if !slices.Contains(p.snapshot.Inputs, in) {
		p.snapshot.Inputs = append(p.snapshot.Inputs, in)
	}
}
