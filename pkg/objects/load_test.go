package objects

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const (
	serviceYAML = `apiVersion: v1
kind: Service
metadata:
  name: orders
  namespace: shop
spec:
  selector: {app: orders}
  ports:
  - port: 80
    targetPort: http
`
	podYAML = `apiVersion: v1
kind: Pod
metadata:
  name: orders-1
  namespace: shop
  labels: {app: orders}
spec:
  containers:
  - name: c
    image: registry.example/orders:1
    env:
    - {name: PASSWORD, value: planted-secret}
status:
  podIP: 10.244.1.5
`
	podJSON  = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "json-1", "namespace": "shop"}}`
	listYAML = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: a, namespace: shop}
- apiVersion: v1
  kind: Pod
  metadata: {name: b, namespace: shop}
`
)

// loadText loads what is given on stdin, and names the objects.
func loadText(t *testing.T, text string) (names []string, s *snapshot.Snapshot, notes []string) {
	t.Helper()
	s, notes, err := Load([]string{"-"}, Options{Stdin: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	return namesOf(s), s, notes
}

func namesOf(s *snapshot.Snapshot) []string {
	var out []string
	for _, o := range s.Objects.Services {
		out = append(out, "Service "+o.Namespace+"/"+o.Name)
	}
	for _, o := range s.Objects.Pods {
		out = append(out, "Pod "+o.Namespace+"/"+o.Name)
	}
	for _, o := range s.Objects.Nodes {
		out = append(out, "Node "+o.Name)
	}
	for _, o := range s.Objects.NetworkPolicies {
		out = append(out, "NetworkPolicy "+o.Namespace+"/"+o.Name)
	}
	for _, o := range s.Objects.ConfigMaps {
		out = append(out, "ConfigMap "+o.Namespace+"/"+o.Name)
	}
	return out
}

func TestArrangements(t *testing.T) {
	both := []string{"Service shop/orders", "Pod shop/orders-1"}
	tests := []struct {
		name, text string
		want       []string
	}{
		{"one", serviceYAML, []string{"Service shop/orders"}},
		{"documents", serviceYAML + "---\n" + podYAML, both},
		{"documents with marks all over", "---\n# first\n---\n" + serviceYAML + "...\n--- # second\n" + podYAML + "---\n\n---\n", both},
		{"CRLF", strings.ReplaceAll(serviceYAML+"---\n"+podYAML, "\n", "\r\n"), both},
		{"BOM", "\xef\xbb\xbf" + serviceYAML, []string{"Service shop/orders"}},
		{"List", listYAML, []string{"Service shop/a", "Pod shop/b"}},
		{"List within List", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - {apiVersion: v1, kind: Pod, metadata: {name: x}}\n", []string{"Pod default/x"}},
		{"typed list", "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: x, namespace: ns}\n", []string{"Pod ns/x"}},
		{"JSON", podJSON, []string{"Pod shop/json-1"}},
		{"JSON stream", podJSON + "\n" + strings.ReplaceAll(podJSON, "json-1", "json-2") + "\n", []string{"Pod shop/json-1", "Pod shop/json-2"}},
		{"JSON array", "[" + podJSON + "]", []string{"Pod shop/json-1"}},
		{"JSON then a mark", podJSON + "\n---\n" + strings.ReplaceAll(podJSON, "json-1", "json-2"), []string{"Pod shop/json-1", "Pod shop/json-2"}},
		{"JSON as a YAML document", serviceYAML + "---\n" + podJSON + "\n", []string{"Service shop/orders", "Pod shop/json-1"}},
		{"cluster-info dump", `{"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": "w1"}}]}
==== START logs for container c of pod shop/x ====
{"not": json at all
==== END logs for container c of pod shop/x ====
{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "x", "namespace": "shop"}}]}
`, []string{"Pod shop/x", "Node w1"}},
		{"kinds that no walk reads", serviceYAML + "---\napiVersion: example.com/v1\nkind: Service\nmetadata: {name: theirs}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: cGxhbnRlZC1zZWNyZXQ=}\n", []string{"Service shop/orders"}},
		{"an old group", "apiVersion: extensions/v1beta1\nkind: NetworkPolicy\nmetadata: {name: x, namespace: ns}\nspec: {podSelector: {}}\n", []string{"NetworkPolicy ns/x"}},
		{"a node has no namespace", "apiVersion: v1\nkind: Node\nmetadata: {name: w1, namespace: oops}\n", []string{"Node w1"}},
		{"a name that is generated", podYAML + "---\napiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n", []string{"Pod shop/orders-1"}},
		{"kube-proxy's configuration and another's", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: kube-proxy, namespace: kube-system}, data: {config.conf: 'mode: nftables'}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: app, namespace: shop}, data: {a: b}}\n", []string{"ConfigMap kube-system/kube-proxy"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, s, notes := loadText(t, tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if dump := fmt.Sprintf("%+v %v", s, notes); strings.Contains(dump, "planted-secret") || strings.Contains(dump, "cGxhbnRlZC1zZWNyZXQ") {
				t.Error("a secret got in")
			}
		})
	}
}

func TestReads(t *testing.T) {
	_, s, _ := loadText(t, serviceYAML+"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList\nitems: []\n---\napiVersion: v1\nkind: List\nitems: []\n---\n"+
		`{"apiVersion": "v1", "kind": "EventList", "items": null}`+"\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: shop}\n")
	for _, r := range snapshot.Resources {
		want := snapshot.Failed
		switch r {
		case snapshot.Services, snapshot.NetworkPolicies, snapshot.Events:
			want = snapshot.Done
		}
		got := s.Reads.Of(r, "")
		if got.Status != want {
			t.Errorf("%s: %q, want %q", r, got.Status, want)
		}
		if got.Status == snapshot.Failed && (got.Why == "" || !strings.HasPrefix(got.Supply, "kubectl get ")) {
			t.Errorf("%s: not read, without why or supply: %+v", r, got)
		}
	}
	if !s.Reads.Has(snapshot.Services, "anywhere") || s.Reads.Has(snapshot.ConfigMaps, "kube-system") || !s.Reads.Has(snapshot.ConfigMaps, "shop") {
		t.Error("reads of a namespace are wrong")
	}
	if !s.TakenAt.IsZero() {
		t.Errorf("taken at %s", s.TakenAt)
	}
}

func TestTwice(t *testing.T) {
	pod := func(version, ip string, status bool) string {
		s := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  namespace: ns\n"
		if version != "" {
			s += "  resourceVersion: \"" + version + "\"\n"
		}
		s += "spec: {nodeName: " + ip + "}\n"
		if status {
			s += "status: {phase: Running}\n"
		}
		return s + "---\n"
	}
	tests := []struct{ name, text, want string }{
		{"the last of equals", pod("", "a", false) + pod("", "b", false), "b"},
		{"the one with a status", pod("", "a", true) + pod("", "b", false), "a"},
		{"the one from the server", pod("7", "a", false) + pod("", "b", true), "a"},
		{"the newer one", pod("100", "a", false) + pod("99", "b", true), "a"},
		{"the newer one, after", pod("99", "a", true) + pod("100", "b", false), "b"},
		{"of three", pod("5", "a", true) + pod("7", "b", true) + pod("6", "c", true), "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, s, notes := loadText(t, tt.text)
			if len(s.Objects.Pods) != 1 || s.Objects.Pods[0].Spec.NodeName != tt.want {
				t.Errorf("got %d pods, the first from %s", len(s.Objects.Pods), s.Objects.Pods[0].Spec.NodeName)
			}
			if len(notes) == 0 || !strings.Contains(notes[0], "Pod ns/x is there twice: the one at stdin:") {
				t.Errorf("notes %q", notes)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", " \n", "stdin: empty"},
		{"binary", "apiVersion\x00", "stdin:1:11: binary data"},
		{"gzip", "\x1f\x8b\x08", "--bundle"},
		{"a table", "NAME     TYPE        CLUSTER-IP\norders   ClusterIP   10.0.0.1\n", "stdin:1:1: kubectl's table"},
		{"a table of all namespaces", "NAMESPACE   NAME     READY\nshop   x  1/1\n", "get it again with -o yaml"},
		{"a node's state", "# Generated by iptables-save v1.8.9 on x\n*nat\nCOMMIT\n", "give it with --node-state"},
		{"prose", "hello\n", "stdin:1:1: not a Kubernetes object"},
		{"values", "replicas: 3\n", "stdin:1:1: not a Kubernetes object: it has no apiVersion and kind"},
		{"no kind", "apiVersion: v1\nmetadata: {name: x}\n", "it has no kind"},
		{"no apiVersion", "kind: Service\nmetadata: {name: x}\n", "it has no apiVersion"},
		{"no name", serviceYAML + "---\napiVersion: v1\nkind: Pod\nmetadata:\n  labels: {a: b}\n", "stdin:15:3: a Pod without metadata.name"},
		{"a tab", "apiVersion: v1\nkind: Service\nmetadata:\n\tname: x\n", "stdin:4:2: not valid YAML"},
		{"broken in the second document", serviceYAML + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: x\n", "not valid YAML"},
		{"a list item among keys", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  a:\n    b: |\n      x\n      y\n    c: [1,\n      2]\n    - d\n", "stdin:11:5: not valid YAML"},
		{"Helm", "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}\n  labels:\n    {{- include \"x\" . | nindent 4 }}\n", "Helm template"},
		{"Helm from its first byte", "{{- if .Values.x }}\napiVersion: v1\n{{- end }}\n", "Helm template"},
		{"Helm in quotes", "apiVersion: v1\nkind: Service\nmetadata:\n  name: \"{{ .Release.Name }}\"\n", "stdin:4:9: the Service's name"},
		{"a wrong type", serviceYAML + "---\n" + serviceYAML[:len(serviceYAML)-len("  - port: 80\n    targetPort: http\n")] + "  - port: 80\n  - port: eighty\n", "stdin:21:11: Service shop/orders: spec.ports[1].port: a string where a number"},
		{"a wrong type in a List", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: x\n    labels: {a: 1}\n", "stdin:8:17: Pod x: metadata.labels.a: a number where a string"},
		{"a wrong type in JSON", "{\"apiVersion\": \"v1\", \"kind\": \"Service\",\n \"metadata\": {\"name\": \"x\"},\n \"spec\": {\"ports\": [{\"port\": \"eighty\"}]}}", "stdin:3:30: Service x: spec.ports[0].port: a string where a number"},
		{"metadata of a wrong type", "apiVersion: v1\nkind: Pod\nmetadata: x\n", "stdin:3:11: metadata: a string where an object"},
		{"broken JSON", "{\"apiVersion\": \"v1\",\n  oops}\n", "stdin:2:3: not valid JSON"},
		{"JSON cut short", "{\"apiVersion\": \"v1\",\n", "cut short"},
		{"items that are no list", "apiVersion: v1\nkind: PodList\nitems: {a: b}\n", "stdin:3:8: items of a PodList that are no list"},
		{"an item that is no object", "apiVersion: v1\nkind: List\nitems:\n- x\n", "stdin:4:3: not a Kubernetes object"},
		{"nothing that is read", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", "no object that a walk reads; found 1 Secret"},
		{"only an empty List", "apiVersion: v1\nkind: List\nitems: []\n", "no object that a walk reads"},
		{"lists all the way down", strings.Repeat("[", 100) + strings.Repeat("]", 100), "lists within lists"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Load([]string{"-"}, Options{Stdin: strings.NewReader(tt.text)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/service.yaml": serviceYAML, "a/b/pod.yml": podYAML, "pod.JSON": podJSON, "values.yaml": "replicas: 3\n", "empty.yaml": "",
		"README.md": "{{ not YAML", "notes.txt": "NAME READY", ".hidden.yaml": ": : :", ".git/x.yaml": ": : :",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, notes, err := Load([]string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Service shop/orders", "Pod shop/json-1", "Pod shop/orders-1"}, namesOf(s)); diff != "" {
		t.Error(diff)
	}
	if len(notes) != 2 || len(s.Inputs) != 4 {
		t.Errorf("%d inputs, notes %q", len(s.Inputs), notes)
	}
	if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "values.yaml:1:1: left out") }) {
		t.Errorf("notes %q do not tell of values.yaml", notes)
	}
	for _, paths := range [][]string{{t.TempDir()}, {filepath.Join(dir, "absent.yaml")}, {"-", "-"}, {filepath.Join(dir, "values.yaml")}} {
		if _, _, err := Load(paths, Options{Stdin: strings.NewReader(serviceYAML)}); err == nil {
			t.Errorf("%q: no error", paths)
		}
	}
}

func TestOldForms(t *testing.T) {
	_, s, _ := loadText(t, `apiVersion: discovery.k8s.io/v1beta1
kind: EndpointSlice
metadata: {name: x, namespace: ns}
addressType: IPv4
endpoints:
- addresses: [10.0.0.1]
  topology: {kubernetes.io/hostname: w1, topology.kubernetes.io/zone: z}
---
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: e, namespace: ns}
regarding: {kind: Pod, name: p, namespace: ns}
reason: Unhealthy
note: "Readiness probe failed: HTTP probe failed with statuscode: 500"
type: Warning
eventTime: "2026-11-30T12:00:00.000000Z"
series: {count: 4, lastObservedTime: "2026-11-30T12:05:00.000000Z"}
`)
	ep := s.Objects.EndpointSlices[0].Endpoints[0]
	if ep.NodeName == nil || *ep.NodeName != "w1" || ep.Zone == nil || *ep.Zone != "z" {
		t.Errorf("got %+v", ep)
	}
	e := s.Objects.Events[0]
	if e.InvolvedObject.Name != "p" || e.Reason != "Unhealthy" || e.Type != corev1.EventTypeWarning || e.Message == "" || e.Count != 4 {
		t.Errorf("got %+v", e)
	}
}

func TestNamespace(t *testing.T) {
	s, _, err := Load([]string{"-"}, Options{Namespace: "mine", Stdin: strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Pod mine/x"}, namesOf(s)); diff != "" {
		t.Error(diff)
	}
}

// TestCases reads the objects of the collected cases, where they are at hand.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("../../../shared/cases/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Skip("the collected cases are not beside the repository")
	}
	for _, f := range files {
		t.Run(filepath.Base(filepath.Dir(f))+"/"+filepath.Base(f), func(t *testing.T) {
			s, notes, err := Load([]string{f}, Options{})
			switch base := filepath.Base(f); {
			case strings.Contains(f, "wrong-indent"):
				if err == nil || !strings.Contains(err.Error(), "netpol.yaml:24:5: not valid YAML") {
					t.Errorf("got %v", err)
				}
			case strings.Contains(base, "fragment"), strings.Contains(base, "truncated"), strings.Contains(f, "invalid"):
				t.Logf("a fragment: %v", err)
			case err != nil:
				t.Error(err)
			case len(namesOf(s)) == 0 && s.Objects.Len(snapshot.Endpoints) == 0:
				t.Errorf("nothing read; %q", notes)
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{serviceYAML, podYAML, podJSON, listYAML, "[" + podJSON + "]", "a: &a [*a]\n", "kind: {{ x }}\n", "--- x\n...\n", "{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[{\"metadata\":{\"name\":1}}]}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, _, err := Load([]string{"-"}, Options{Stdin: strings.NewReader(text)})
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without words")
			}
			return
		}
		for _, p := range s.Objects.Pods {
			if p.Name == "" || p.Namespace == "" {
				t.Fatalf("a pod without a name: %+v", p)
			}
		}
	})
}
