package walk

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// shellWords is what a shell makes of a command: its words, or what it prints
// where the command is printf.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	script := strings.Replace(command, "kubectl ", "words ", 1)
	script = strings.Replace(script, "| words create", "| kubectl_create", 1)
	out, err := exec.Command("sh", "-c", "words() { for w; do printf '%s\\0' \"$w\"; done; }\nkubectl_create() { cat; }\n"+script).Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// patchOps are the operations in a kubectl patch command, as a shell passes
// them on, and whose policy it patches.
func patchOps(t *testing.T, command string) (policy string, ops []map[string]any) {
	t.Helper()
	w := shellWords(t, command)
	i := slices.Index(w, "-p")
	if len(w) < 6 || w[0] != "patch" || w[1] != "networkpolicy" || w[3] != "-n" || i < 0 {
		t.Fatalf("no patch: %q", w)
	}
	if err := json.Unmarshal([]byte(w[i+1]), &ops); err != nil {
		t.Fatalf("%s: %v", w[i+1], err)
	}
	return w[4] + "/" + w[2], ops
}

// patched applies the operations that we print (test, add, remove) to a policy,
// by RFC 6902.
func patched(t *testing.T, pol networkingv1.NetworkPolicy, ops []map[string]any) networkingv1.NetworkPolicy {
	t.Helper()
	var doc any
	raw, _ := json.Marshal(pol)
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		doc = patchAt(t, doc, strings.Split(strings.TrimPrefix(op["path"].(string), "/"), "/"), op)
	}
	raw, _ = json.Marshal(doc)
	var out networkingv1.NetworkPolicy
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func patchAt(t *testing.T, doc any, path []string, op map[string]any) any {
	t.Helper()
	switch d := doc.(type) {
	case map[string]any:
		d[path[0]] = patchAt(t, d[path[0]], path[1:], op)
		return d
	case []any:
		i, err := strconv.Atoi(path[0])
		switch {
		case len(path) > 1:
			d[i] = patchAt(t, d[i], path[1:], op)
			return d
		case op["op"] == "add" && path[0] == "-":
			return append(d, op["value"])
		case err != nil || i >= len(d):
			t.Fatalf("%v does not exist in %v", op, d)
		case op["op"] == "test":
			if diff := cmp.Diff(op["value"], d[i]); diff != "" {
				t.Fatalf("the test fails: %s", diff)
			}
			return d
		case op["op"] == "remove":
			return slices.Delete(d, i, i+1)
		}
	}
	t.Fatalf("no place for %v in %v", op, doc)
	return nil
}

// defaulted is a policy as the API server keeps it.
func defaulted(pol networkingv1.NetworkPolicy) networkingv1.NetworkPolicy {
	pol = *pol.DeepCopy()
	fill := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = ptr(corev1.ProtocolTCP)
			}
		}
	}
	for i := range pol.Spec.Ingress {
		fill(pol.Spec.Ingress[i].Ports)
	}
	for i := range pol.Spec.Egress {
		fill(pol.Spec.Egress[i].Ports)
	}
	return pol
}

// The patch that a fix prints makes the very policy that its simulation walked,
// and the undo restores the one that was there.
func TestPolicyPatches(t *testing.T) {
	const hostile = `x'; $(touch /tmp/owned) "\n` + "`"
	tests := []struct {
		name     string
		policies []string
		change   []func(*snapshot.Snapshot)
		from     string
	}{
		{name: "a port", from: "api", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: db}}}]}, {from: [{podSelector: {}}], ports: [{port: 81}, {port: 80, protocol: TCP}, {port: 82}]}`)}},
		{name: "two ports", from: "api", policies: []string{admitWeb(`{ports: [{port: 80}, {port: 443}]}`)}, change: []func(*snapshot.Snapshot){addHTTPS}},
		{name: "an egress port", from: "api", policies: []string{`{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{ports: [{port: 53, protocol: UDP}]}, {ports: [{port: 80}]}]}`}},
		{name: "a peer with its namespace", from: "front/ui", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: db}}}, {podSelector: {matchLabels: {app: ui}}}], ports: [{port: 8080}]}`)}},
		{name: "a namespace by its name", from: "front/ui", policies: []string{admitWeb(`{from: [{namespaceSelector: {matchLabels: {name: front}}}]}`)}},
		{
			name: "a label by its key", from: "api", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app.kubernetes.io/name: api}}}]}`)},
		},
		{
			name: "a label of an expression", from: "api", policies: []string{admitWeb(`{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [api-serv, other]}]}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "api").Labels["app"] = "api-srv" }},
		},
		{
			name: "both selectors in one item", from: "api", policies: []string{admitWeb(`{from: [{namespaceSelector: {matchLabels: {team: front}}, podSelector: {matchLabels: {app: api}}}]}`)},
		},
		{
			name: "addresses of nodes", from: "front/edge", policies: []string{admitWeb(`{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: edge}}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				kin := *podNamed(s, "edge").DeepCopy()
				kin.Name, kin.Status.PodIP, kin.Status.PodIPs = "edge-2", "172.31.250.12", []corev1.PodIP{{IP: "172.31.250.12"}}
				s.Objects.Pods = append(s.Objects.Pods, kin)
				s.Objects.EndpointSlices[0].Endpoints = s.Objects.EndpointSlices[0].Endpoints[1:]
			}},
		},
		{
			name: "hostile labels", from: "front/ui", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: ui}}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				podNamed(s, "ui").Namespace = hostile
				s.Objects.Namespaces[1].Name = hostile
				podNamed(s, "ui").Name = "ui"
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := policyFixture(t, tt.policies...)
			for _, c := range tt.change {
				c(s)
			}
			o := Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}
			callFrom(tt.from)(&o)
			if tt.name == "hostile labels" {
				o.Client.Namespace = hostile
			}
			p := runPolicyPass(s, o)
			i := slices.IndexFunc(p.findings, func(f *finding) bool { return f.code == "VIP404" || f.code == "VIP406" })
			if i < 0 {
				t.Fatal("no near miss")
			}
			pr := p.findings[i].Fixes[0]
			after := s.Clone()
			if err := pr.Change(after); err != nil {
				t.Fatal(err)
			}
			for k, command := range append(slices.Clone(pr.Fix.Commands), pr.Fix.Undo...) {
				name, ops := patchOps(t, command)
				if name != "shop/p0" {
					t.Errorf("patches %s", name)
				}
				before, want := defaulted(s.Objects.NetworkPolicies[0]), defaulted(after.Objects.NetworkPolicies[0])
				if k == len(pr.Fix.Commands) {
					before, want = want, before
				}
				if diff := cmp.Diff(want, patched(t, before, ops), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s\n%s", command, diff)
				}
			}
			if tt.name == "hostile labels" {
				return // no API server has such an object, and no selector can name it
			}
			if before, _, _ := walkPolicy(s, func(oo *Options) { *oo = o }); before.Layers[3].Status != "fail" {
				t.Errorf("it was %s before", before.Layers[3].Status)
			}
			if svc, _, _ := walkPolicy(after, func(oo *Options) { *oo = o }); svc.Layers[3].Status != "ok" {
				t.Errorf("the fix does not mend it\n%s", describe(svc))
			}
		})
	}
}

// runPolicyPass walks one Service and keeps its findings.
func runPolicyPass(s *snapshot.Snapshot, o Options) *Pass {
	w := newWorld(s, o)
	p := w.pass(w.resolve()[0])
	p.run()
	return p
}

// A policy that a fix creates shuts nobody out, whatever else selects the pods.
func TestAdmittingPolicies(t *testing.T) {
	const hostile = `it's "$(touch x)" \n`
	tests := []struct {
		name, from string
		policies   []string
		change     func(*snapshot.Snapshot)
		names      []string
	}{
		{name: "in", from: "front/ui", policies: []string{denyIn}, names: []string{"allow-ingress-web"}},
		{name: "out", from: "api", policies: []string{denyOut}, names: []string{"allow-egress-web"}},
		{name: "both", from: "api", policies: []string{denyIn, denyOut}, names: []string{"allow-ingress-web", "allow-egress-web"}},
		{name: "a pod without labels", from: "client", policies: []string{denyIn, denyOut}, names: []string{"allow-ingress-web", "allow-egress-web"}},
		{name: "hostile labels", from: "front/ui", policies: []string{denyIn}, names: []string{"allow-ingress-web"}, change: func(s *snapshot.Snapshot) {
			podNamed(s, "ui").Labels["note"] = hostile
		}},
		{name: "the name is taken", from: "api", policies: []string{denyIn}, names: []string{"allow-ingress-web-2"}, change: func(s *snapshot.Snapshot) {
			s.Objects.NetworkPolicies[0].Name = "allow-ingress-web"
		}},
		{name: "only one of the backends is isolated", from: "api", policies: []string{`{podSelector: {matchLabels: {v: one}}}`}, names: []string{"allow-ingress-web"}, change: func(s *snapshot.Snapshot) {
			podNamed(s, "web-1").Labels["v"] = "one"
		}},
		{name: "a node", from: "node/worker-2", policies: []string{denyIn}, names: []string{"allow-ingress-web"}},
		{name: "an endpoint that is no pod", from: "api", policies: []string{denyOut}, names: []string{"allow-egress-web"}, change: func(s *snapshot.Snapshot) {
			e := &s.Objects.EndpointSlices[0].Endpoints[0]
			e.Addresses, e.TargetRef = []string{"192.0.2.9"}, nil
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := policyFixture(t, tt.policies...)
			if tt.change != nil {
				tt.change(s)
			}
			o := Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}
			callFrom(tt.from)(&o)
			p := runPolicyPass(s, o)
			// One direction at a time is what each finding mends.
			after := s.Clone()
			var names []string
			for _, f := range p.findings {
				if f.code.Layer() != 4 {
					continue
				}
				pr := f.Fixes[0]
				if pr.Change == nil {
					t.Fatalf("%s: no fix but %s", f.code, pr.Fix.Title)
				}
				before := len(after.Objects.NetworkPolicies)
				if err := pr.Change(after); err != nil {
					t.Fatal(err)
				}
				made := after.Objects.NetworkPolicies[before:]
				printed := printedPolicies(t, pr.Fix.Commands[1])
				if diff := cmp.Diff(made, printed, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("prints another than it simulates: %s", diff)
				}
				for _, pol := range made {
					if !slices.Contains(names, pol.Name) {
						names = append(names, pol.Name)
					}
				}
				for i, undo := range pr.Fix.Undo {
					if w := shellWords(t, undo); fmt.Sprint(w[:3]) != fmt.Sprint([]string{"delete", "networkpolicy", made[i].Name}) {
						t.Errorf("undo: %s", undo)
					}
				}
			}
			if !slices.Equal(names, tt.names) {
				t.Errorf("creates %v, want %v", names, tt.names)
			}
			if tt.name == "hostile labels" {
				return // no API server has such a pod, and no selector can name it
			}
			svc, _, _ := walkPolicy(after, func(oo *Options) { *oo = o })
			if svc.Layers[3].Status != "ok" {
				t.Errorf("the fix does not mend it\n%s", describe(svc))
			}
			shutOut(t, s, after)
		})
	}
}

// shutOut checks that every kind of client still gets where it got.
func shutOut(t *testing.T, before, after *snapshot.Snapshot) {
	t.Helper()
	open := func(s *snapshot.Snapshot) map[string]bool {
		p := runPolicyPass(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}})
		out := map[string]bool{}
		for i := range s.Objects.Pods {
			pod := &s.Objects.Pods[i]
			c := p.podClient(pod)
			for _, b := range p.policyBackends() {
				if f := p.flowTo(c, b); f != nil {
					p.judgeFlow(f)
					out[c.label+" to "+b.label()] = f.is("allowed")
				}
			}
		}
		return out
	}
	was, is := open(before), open(after)
	for flow, ok := range was {
		if ok && !is[flow] {
			t.Errorf("%s is shut out", flow)
		}
	}
}

func printedPolicies(t *testing.T, command string) []networkingv1.NetworkPolicy {
	t.Helper()
	raw := []byte(shellWords(t, command)[0])
	var list struct {
		Kind  string
		Items []networkingv1.NetworkPolicy
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if list.Kind == "List" {
		return list.Items
	}
	var pol networkingv1.NetworkPolicy
	if err := json.Unmarshal(raw, &pol); err != nil {
		t.Fatal(err)
	}
	return []networkingv1.NetworkPolicy{pol}
}
