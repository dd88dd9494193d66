package objects

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// tree is a folder that a tool wrote in a layout of its own. Where each list is
// says which namespaces were asked, which objects in plain folders do not tell;
// and of thousands of files only those are read that a walk has a use for.
type tree struct {
	// tool is what wrote it.
	tool  string
	files []treeFile
}

// treeFile is one file of a tree.
type treeFile struct {
	path     string
	resource snapshot.Resource
	// namespace is the one that was asked; "" for all.
	namespace string
	// part is set for a file that holds one object of many: that it is there
	// says nothing of the others.
	part bool
}

// layouts find the files of each tool's tree below a folder; none, if it is
// not one.
var layouts = []struct {
	tool string
	find func(fsys fs.FS) []treeFile
}{
	{"kubectl cluster-info dump", clusterInfoDump},
	{"must-gather", mustGather},
	{"sosreport", sosReport},
}

// findTree recognises a tree by its layout; nil for any other folder.
func findTree(root string) *tree {
	fsys := os.DirFS(root)
	for _, layout := range layouts {
		files := layout.find(fsys)
		if len(files) == 0 {
			continue
		}
		for i := range files {
			files[i].path = filepath.Join(root, filepath.FromSlash(files[i].path))
		}
		return &tree{layout.tool, files}
	}
	return nil
}

// plurals are the names that files of lists have, without the group.
var plurals = func() map[string]snapshot.Resource {
	out := map[string]snapshot.Resource{}
	for _, r := range snapshot.Resources {
		plural, _, _ := strings.Cut(string(r), ".")
		out[plural] = r
	}
	delete(out, string(snapshot.ConfigMaps)) // of one namespace alone: see proxyNamespace
	return out
}()

// resourceOf is the resource of a list of a namespace; ConfigMaps are wanted
// where kube-proxy's is.
func resourceOf(plural, namespace string) (snapshot.Resource, bool) {
	if plural == string(snapshot.ConfigMaps) {
		return snapshot.ConfigMaps, namespace == snapshot.ProxyNamespace
	}
	r, ok := plurals[plural]
	return r, ok
}

// clusterInfoDump is what `kubectl cluster-info dump --output-directory` wrote:
// nodes.json, and for each namespace pods.json, services.json and others.
func clusterInfoDump(fsys fs.FS) []treeFile {
	for _, ext := range []string{".json", ".yaml"} {
		if !isFile(fsys, "nodes"+ext) {
			continue
		}
		out := []treeFile{{path: "nodes" + ext, resource: snapshot.Nodes}}
		for _, name := range glob(fsys, "*/*"+ext) {
			ns, file := path.Split(name)
			ns = strings.TrimSuffix(ns, "/")
			if r, ok := resourceOf(strings.TrimSuffix(file, ext), ns); ok && r.Namespaced() {
				out = append(out, treeFile{path: name, resource: r, namespace: ns})
			}
		}
		if slices.ContainsFunc(out, func(f treeFile) bool { return f.resource == snapshot.Pods }) {
			return out
		}
	}
	return nil
}

// mustGather is what `oc adm must-gather` and `oc adm inspect` wrote:
// namespaces/NS/GROUP/RESOURCE.yaml and
// cluster-scoped-resources/GROUP/RESOURCE/NAME.yaml, below a folder for each
// image that gathered.
func mustGather(fsys fs.FS) []treeFile {
	var out []treeFile
	for _, base := range append([]string{"."}, glob(fsys, "*")...) {
		for _, name := range glob(fsys, path.Join(base, "namespaces/*/*/*.yaml")) {
			parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(name, base), "/"), "/")
			ns, group, plural := parts[1], parts[2], strings.TrimSuffix(parts[3], ".yaml")
			if r, ok := resourceOf(plural, ns); ok && r.Namespaced() && inGroup(r, group) {
				out = append(out, treeFile{path: name, resource: r, namespace: ns})
			}
		}
		for _, name := range glob(fsys, path.Join(base, "namespaces/*/*.yaml")) {
			if ns := path.Base(path.Dir(name)); path.Base(name) == ns+".yaml" {
				out = append(out, treeFile{path: name, resource: snapshot.Namespaces, part: true})
			}
		}
		for _, name := range glob(fsys, path.Join(base, "cluster-scoped-resources/*/*/*.yaml")) {
			dir := path.Dir(name)
			if r, ok := resourceOf(path.Base(dir), ""); ok && !r.Namespaced() && inGroup(r, path.Base(path.Dir(dir))) {
				out = append(out, treeFile{path: name, resource: r})
			}
		}
		for _, name := range glob(fsys, path.Join(base, "cluster-scoped-resources/*/*.yaml")) {
			if r, ok := resourceOf(strings.TrimSuffix(path.Base(name), ".yaml"), ""); ok && !r.Namespaced() && inGroup(r, path.Base(path.Dir(name))) {
				out = append(out, treeFile{path: name, resource: r})
			}
		}
	}
	return out
}

// inGroup says whether a folder's name is that of the resource's group; the
// core group's is called core.
func inGroup(r snapshot.Resource, folder string) bool {
	_, group, _ := strings.Cut(string(r), ".")
	return folder == group || group == "" && folder == "core"
}

// sosList is a list that sos got from kubectl or oc: its file has the command's
// name, in which everything but letters, digits, dots and dashes is underscores.
var sosList = regexp.MustCompile(`_get_-o_json_(?:--(?:namespace|all-namespaces)_.*_)?([a-z]+)$`)

// sosReport is a sosreport of a node of the control plane: sos_commands holds
// kubernetes/cluster-info, with a folder for each namespace.
func sosReport(fsys fs.FS) []treeFile {
	var out []treeFile
	for _, base := range append([]string{"."}, glob(fsys, "sosreport-*")...) {
		for _, plugin := range []string{"kubernetes", "openshift"} {
			dir := path.Join(base, "sos_commands", plugin, "cluster-info")
			for _, name := range slices.Concat(glob(fsys, dir+"/*"), glob(fsys, dir+"/*/*")) {
				ns := ""
				if path.Dir(name) != dir {
					ns = path.Base(path.Dir(name))
				}
				m := sosList.FindStringSubmatch(path.Base(name))
				if m == nil || !isFile(fsys, name) {
					continue
				}
				if r, ok := resourceOf(m[1], ns); ok {
					out = append(out, treeFile{path: name, resource: r, namespace: ns})
				}
			}
		}
	}
	return out
}

func glob(fsys fs.FS, pattern string) []string {
	names, err := fs.Glob(fsys, pattern)
	if err != nil {
		return nil // the folder's own name has a bracket in it
	}
	return names
}

func isFile(fsys fs.FS, name string) bool {
	info, err := fs.Stat(fsys, name)
	return err == nil && info.Mode().IsRegular()
}

// tree reads a tree's files. One that cannot be read leaves its list unread,
// and says why; what the tree is of more than one namespace it holds once.
func (l *loader) tree(root string, t *tree) error {
	l.inTree = true
	defer func() { l.inTree = false }()
	before := len(l.entries)
	for _, f := range t.files {
		read := snapshot.Read{Resource: f.resource, Namespace: f.namespace, Status: snapshot.Done}
		if err := l.file(f.path, true); err != nil {
			read.Status, read.Why, read.Supply = snapshot.Failed, err.Error(), supply(f.resource)
			l.notes = append(l.notes, err.Error())
		}
		if !f.part {
			l.treeReads.Add(read)
		}
	}
	if len(l.entries) == before && len(l.treeReads) == 0 {
		return fmt.Errorf("--objects %s: a folder of %s without an object that a walk reads", root, t.tool)
	}
	l.trees = append(l.trees, t.tool)
	return nil
}
