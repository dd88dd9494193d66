package objects

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// writeTree writes files below a new folder.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		full := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// typed lists, as kubectl and oc write them.
func list(kind, apiVersion string, items ...string) string {
	return `{"kind": "` + kind + `List", "apiVersion": "` + apiVersion + `", "metadata": {}, "items": [` + strings.Join(items, ",") + `]}`
}

func named(namespace, name string) string {
	return `{"metadata": {"namespace": "` + namespace + `", "name": "` + name + `"}}`
}

const secretYAML = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: planted-secret}\n"

var dumpTree = map[string]string{
	"nodes.json":                        list("Node", "v1", `{"metadata": {"name": "w1"}}`),
	"kube-system/pods.json":             list("Pod", "v1", named("kube-system", "kube-proxy-1")),
	"kube-system/services.json":         list("Service", "v1"),
	"kube-system/kube-proxy-1/logs.txt": "==== START logs\n{\n",
	"shop/pods.json":                    list("Pod", "v1", named("shop", "orders-1")),
	"shop/services.json":                list("Service", "v1", named("shop", "orders")),
	"shop/events.json":                  list("Event", "v1"),
	"shop/replication-controllers.json": `{"not": "read"`,
	"shop/orders-1/logs.json":           `{"an application's": "log"}`,
}

var gatherTree = map[string]string{
	"event-filter.html": "<html>",
	"image-sha256-1/cluster-scoped-resources/core/nodes/w1.yaml":                     "apiVersion: v1\nkind: Node\nmetadata: {name: w1}\n",
	"image-sha256-1/cluster-scoped-resources/core/nodes/w2.yaml":                     "apiVersion: v1\nkind: Node\nmetadata: {name: w2}\n",
	"image-sha256-1/cluster-scoped-resources/config.openshift.io/nodes/cluster.yaml": "apiVersion: config.openshift.io/v1\nkind: Node\nmetadata: {name: cluster}\n",
	"image-sha256-1/cluster-scoped-resources/core/persistentvolumes/p.yaml":          "broken: [",
	"image-sha256-1/namespaces/shop/shop.yaml":                                       "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
	"image-sha256-1/namespaces/shop/core/services.yaml":                              list("Service", "v1", named("shop", "orders")),
	"image-sha256-1/namespaces/shop/core/pods.yaml":                                  list("Pod", "v1", named("shop", "orders-1")),
	"image-sha256-1/namespaces/shop/core/endpoints.yaml":                             "---\napiVersion: [",
	"image-sha256-1/namespaces/shop/core/secrets.yaml":                               secretYAML,
	"image-sha256-1/namespaces/shop/core/configmaps.yaml":                            "broken: [",
	"image-sha256-1/namespaces/shop/pods/orders-1/orders-1.yaml":                     "apiVersion: v1\nkind: Pod\nmetadata: {name: orders-1, namespace: shop}\n",
	"image-sha256-1/namespaces/shop/discovery.k8s.io/endpointslices.yaml":            list("EndpointSlice", "discovery.k8s.io/v1", named("shop", "orders-x")),
	"image-sha256-1/namespaces/shop/networking.k8s.io/networkpolicies.yaml":          list("NetworkPolicy", "networking.k8s.io/v1"),
	"image-sha256-1/namespaces/shop/route.openshift.io/services.yaml":                "broken: [",
	"image-sha256-1/namespaces/kube-system/core/configmaps.yaml":                     list("ConfigMap", "v1", `{"metadata": {"namespace": "kube-system", "name": "kube-proxy"}, "data": {"config.conf": "mode: nftables"}}`),
}

var sosTree = map[string]string{
	"sosreport-cp1-2026/etc/hostname": "cp1\n",
	"sosreport-cp1-2026/sos_commands/kubernetes/cluster-info/kubectl_get_-o_json_nodes":                                                              list("Node", "v1", `{"metadata": {"name": "cp1"}}`),
	"sosreport-cp1-2026/sos_commands/kubernetes/cluster-info/kubectl_get_nodes":                                                                      "NAME STATUS\ncp1 Ready\n",
	"sosreport-cp1-2026/sos_commands/kubernetes/cluster-info/shop/kubectl_get_-o_json_--namespace_shop_services":                                     list("Service", "v1", named("shop", "orders")),
	"sosreport-cp1-2026/sos_commands/kubernetes/cluster-info/shop/kubectl_get_-o_json_--namespace_shop_secrets":                                      list("Secret", "v1", named("shop", "s")),
	"sosreport-cp1-2026/sos_commands/kubernetes/cluster-info/shop/kubectl_--kubeconfig_.etc.kubernetes.admin.conf_get_-o_json_--namespace_shop_pods": list("Pod", "v1", named("shop", "orders-1")),
}

func TestTrees(t *testing.T) {
	type place struct {
		resource  snapshot.Resource
		namespace string
	}
	const done, failed = snapshot.Done, snapshot.Failed
	tests := []struct {
		name  string
		files map[string]string
		want  []string
		reads map[place]snapshot.ReadStatus
		notes int
	}{
		{"cluster-info dump", dumpTree, []string{"Service shop/orders", "Pod kube-system/kube-proxy-1", "Pod shop/orders-1", "Node w1"},
			map[place]snapshot.ReadStatus{
				{snapshot.Nodes, ""}: done, {snapshot.Pods, "shop"}: done, {snapshot.Services, "kube-system"}: done, {snapshot.Events, "shop"}: done,
				{snapshot.Services, "elsewhere"}: failed, {snapshot.Pods, ""}: failed, {snapshot.EndpointSlices, "shop"}: failed, {snapshot.NetworkPolicies, "shop"}: failed,
			}, 0},
		{"must-gather", gatherTree, []string{"Service shop/orders", "Pod shop/orders-1", "Node w1", "Node w2", "ConfigMap kube-system/kube-proxy"},
			map[place]snapshot.ReadStatus{
				{snapshot.Nodes, ""}: done, {snapshot.EndpointSlices, "shop"}: done, {snapshot.NetworkPolicies, "shop"}: done, {snapshot.ConfigMaps, "kube-system"}: done,
				{snapshot.Endpoints, "shop"}: failed, {snapshot.Namespaces, ""}: failed, {snapshot.ConfigMaps, "shop"}: failed, {snapshot.NetworkPolicies, ""}: failed,
			}, 1},
		{"sosreport", sosTree, []string{"Service shop/orders", "Pod shop/orders-1", "Node cp1"},
			map[place]snapshot.ReadStatus{{snapshot.Nodes, ""}: done, {snapshot.Services, "shop"}: done, {snapshot.Pods, "shop"}: done, {snapshot.Pods, "x"}: failed}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := writeTree(t, tt.files)
			s, notes, err := Load([]string{root}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, namesOf(s)); diff != "" {
				t.Error(diff)
			}
			for p, want := range tt.reads {
				got := s.Reads.Of(p.resource, p.namespace)
				if got.Status != want || want == failed && (got.Why == "" || got.Supply == "") {
					t.Errorf("%s in %q: %+v", p.resource, p.namespace, got)
				}
			}
			if len(notes) != tt.notes {
				t.Errorf("notes %q", notes)
			}
			for _, n := range notes {
				if strings.Contains(n, "planted-secret") {
					t.Errorf("a secret got in: %s", n)
				}
			}
			// The layout is found from within as well.
			if tt.name != "cluster-info dump" {
				entries, err := os.ReadDir(root)
				if err != nil {
					t.Fatal(err)
				}
				inner, _, err := Load([]string{filepath.Join(root, entries[len(entries)-1].Name())}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, namesOf(inner)); diff != "" {
					t.Errorf("from within: %s", diff)
				}
			}
		})
	}
}

// A folder of manifests is none of the trees, whatever its files are called.
func TestPlainFoldersAreNoTrees(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"manifests":      {"services.yaml": serviceYAML, "app/pods.yaml": podYAML},
		"nodes and more": {"nodes.json": list("Node", "v1"), "services.json": list("Service", "v1", named("shop", "orders"))},
		"namespaces":     {"namespaces/shop/service.yaml": serviceYAML},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := Load([]string{writeTree(t, files)}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !s.Reads.Has(snapshot.Services, "anywhere") {
				t.Errorf("reads %+v", s.Reads)
			}
		})
	}
}

// With a file beside a tree, the file's objects stand for all namespaces, as
// ever.
func TestTreeAndFile(t *testing.T) {
	more := writeTree(t, map[string]string{"policies.json": list("NetworkPolicy", "networking.k8s.io/v1")})
	s, _, err := Load([]string{writeTree(t, dumpTree), more}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Reads.Has(snapshot.NetworkPolicies, "shop") || s.Reads.Has(snapshot.Pods, "elsewhere") || !s.Reads.Has(snapshot.Pods, "shop") {
		t.Errorf("reads %+v", s.Reads)
	}
}

func TestTreeOfNothing(t *testing.T) {
	root := writeTree(t, map[string]string{"cluster-scoped-resources/core/nodes/w1.yaml": "", "namespaces/shop/core/pods.yaml": ""})
	s, notes, err := Load([]string{root}, Options{})
	if err != nil || s.Reads.Has(snapshot.Pods, "shop") || len(notes) != 2 {
		t.Errorf("%v, notes %q", err, notes)
	}
}
