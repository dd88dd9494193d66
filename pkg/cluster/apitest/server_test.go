package apitest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const objects = `apiVersion: v1
kind: Pod
metadata: {name: b, namespace: x, labels: {app: one}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: x, labels: {app: two}}}
- {apiVersion: v1, kind: Pod, metadata: {name: c, namespace: z, labels: {app: one}}}
`

func served(t *testing.T) *Server {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.AddFS(fstest.MapFS{"a/pods.yaml": {Data: []byte(objects)}, "README": {Data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, url string) (int, []string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var v struct {
		Metadata struct{ Name, Continue string }
		Items    []struct{ Metadata struct{ Name string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil && r.StatusCode == http.StatusOK {
		t.Fatal(err)
	}
	var names []string
	for _, i := range v.Items {
		names = append(names, i.Metadata.Name)
	}
	if v.Metadata.Name != "" {
		names = append(names, v.Metadata.Name)
	}
	if v.Metadata.Continue != "" {
		names = append(names, "continue="+v.Metadata.Continue)
	}
	return r.StatusCode, names
}

func TestServe(t *testing.T) {
	s := served(t)
	s.Forbid(snapshot.Nodes, "*")
	s.Lack(snapshot.ServiceCIDRs)
	for path, want := range map[string][]string{
		"/api/v1/pods":                                          {"200", "a", "b", "c"},
		"/api/v1/namespaces/x/pods":                             {"200", "a", "b"},
		"/api/v1/namespaces/x/pods/b":                           {"200", "b"},
		"/api/v1/namespaces/x/pods/z":                           {"404"},
		"/api/v1/pods?limit=2":                                  {"200", "a", "b", "continue=2"},
		"/api/v1/pods?limit=2&continue=2":                       {"200", "c"},
		"/api/v1/pods?labelSelector=app%3Done":                  {"200", "b", "c"},
		"/api/v1/pods?fieldSelector=metadata.name%3Da":          {"200", "a"},
		"/api/v1/pods?labelSelector=%21%21":                     {"400"},
		"/api/v1/nodes":                                         {"403"},
		"/api/v1/secrets":                                       {"404"},
		"/apis/networking.k8s.io/v1/servicecidrs":               {"404"},
		"/apis/discovery.k8s.io/v1/namespaces/x/endpointslices": {"200"},
	} {
		code, names := get(t, s.URL+path)
		got := append([]string{map[int]string{200: "200", 400: "400", 403: "403", 404: "404"}[code]}, names...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", path, diff)
		}
	}
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("violations: %v", v)
	}
}

func TestAnotherVerbIsAViolation(t *testing.T) {
	s := served(t)
	r, err := http.Post(s.URL+"/api/v1/namespaces/x/pods?dryRun=All", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("status %d", r.StatusCode)
	}
	if diff := cmp.Diff([]string{"POST /api/v1/namespaces/x/pods?dryRun=All"}, s.Violations()); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownKind(t *testing.T) {
	s := served(t)
	if err := s.AddYAML([]byte("kind: Secret\napiVersion: v1\nmetadata: {name: a}")); err == nil {
		t.Error("a Secret is served")
	}
}
