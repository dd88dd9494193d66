package cluster

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// TestRBACIsWhatIsRead holds docs/rbac.yaml to the resources that Collect asks
// for: none missing, and none too many.
func TestRBACIsWhatIsRead(t *testing.T) {
	data, err := os.ReadFile("../../docs/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs := bytes.Split(data, []byte("\n---\n"))
	if len(docs) != 4 {
		t.Fatalf("%d documents, want a ClusterRole and three Roles", len(docs))
	}
	var role rbacv1.ClusterRole
	var proxy, exec, logs rbacv1.Role
	for i, into := range []any{&role, &proxy, &exec, &logs} {
		if err := yaml.UnmarshalStrict(docs[i], into); err != nil {
			t.Fatal(err)
		}
	}

	var granted, read []string
	for _, rule := range role.Rules {
		if diff := cmp.Diff([]string{"get", "list"}, rule.Verbs); diff != "" {
			t.Errorf("verbs of %v: %s", rule.Resources, diff)
		}
		for _, g := range rule.APIGroups {
			for _, r := range rule.Resources {
				granted = append(granted, g+"/"+r)
			}
		}
	}
	for r, rt := range resourceTypes {
		if r != snapshot.ConfigMaps {
			read = append(read, rt.gv.Group+"/"+rt.path)
		}
	}
	slices.Sort(granted)
	slices.Sort(read)
	if diff := cmp.Diff(read, granted); diff != "" {
		t.Errorf("read (-) and granted (+):\n%s", diff)
	}

	want := []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"},
		ResourceNames: append([]string{proxyConfig(0).name, proxyConfig(1).name}, snapshot.ReplacementConfigMaps...),
	}}
	if diff := cmp.Diff(want, proxy.Rules); diff != "" {
		t.Error(diff)
	}
	if proxy.Namespace != snapshot.ProxyNamespace || exec.Namespace != snapshot.ProxyNamespace || logs.Namespace != snapshot.ProxyNamespace {
		t.Errorf("the Roles are in %q, %q and %q", proxy.Namespace, exec.Namespace, logs.Namespace)
	}
	for _, r := range []struct {
		rules []rbacv1.PolicyRule
		only  rbacv1.PolicyRule
	}{
		{exec.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get", "create"}}},
		{logs.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}}},
	} {
		if diff := cmp.Diff([]rbacv1.PolicyRule{r.only}, r.rules); diff != "" {
			t.Error(diff)
		}
	}
}

// TestEveryResourceCanBeRead: what a Snapshot holds, Collect knows how to ask
// for.
func TestEveryResourceCanBeRead(t *testing.T) {
	for _, r := range snapshot.Resources {
		rt, ok := resourceTypes[r]
		if !ok {
			t.Errorf("%s cannot be read", r)
			continue
		}
		full := rt.path
		if rt.gv.Group != "" {
			full += "." + rt.gv.Group
		}
		if full != string(r) {
			t.Errorf("%s is asked for as %s", r, full)
		}
		if rt.list == nil {
			continue
		}
		var o snapshot.Objects
		if o.Add(rt.list()) {
			t.Errorf("%s: the list itself is taken for an object", r)
		}
	}
}
