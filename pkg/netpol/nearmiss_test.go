package netpol

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/spelling"
)

// TestNearMisses denies web -> db 5432/TCP by one rule each.
func TestNearMisses(t *testing.T) {
	const f = "spec.ingress[0].from[0]"
	tests := []struct {
		name     string
		rule     string // of ingress, from the policy that isolates db
		from, to string
		port     int32
		protocol corev1.Protocol
		failed   string // the parts: peer, port, protocol
		want     []Miss
	}{
		{name: "port", rule: "{ports: [{port: 80}, {port: 8000, endPort: 8080}]}", failed: "port", want: []Miss{
			{Kind: MissPort, Field: "spec.ingress[0].ports[0].port", Want: "80/TCP", Got: "5432/TCP", Selects: -1, Only: true},
			{Kind: MissPort, Field: "spec.ingress[0].ports[1].port", Item: 1, Want: "8000-8080/TCP", Got: "5432/TCP", Selects: -1, Only: true},
		}},
		{name: "the Service's port", rule: "{ports: [{port: 8432}]}", failed: "port", want: []Miss{
			{Kind: MissServicePort, Field: "spec.ingress[0].ports[0].port", Want: "8432/TCP", Got: "5432/TCP", Selects: -1, Only: true, Near: true},
		}},
		{name: "protocol", rule: "{ports: [{port: 5432, protocol: UDP}]}", failed: "protocol", want: []Miss{
			{Kind: MissProtocol, Field: "spec.ingress[0].ports[0].protocol", Want: "5432/UDP", Got: "5432/TCP", Selects: -1, Only: true, Near: true},
		}},
		{name: "port and protocol", rule: "{ports: [{port: 53, protocol: UDP}]}", failed: "port protocol", want: []Miss{
			{Kind: MissPort, Field: "spec.ingress[0].ports[0].port", Want: "53/UDP", Got: "5432/TCP", Selects: -1, Only: true},
		}},
		{name: "port name misspelt", rule: "{ports: [{port: sqll}]}", failed: "port", want: []Miss{
			{Kind: MissPortNameUndeclared, Field: "spec.ingress[0].ports[0].port", Want: "sqll/TCP", Got: "5432/TCP, and the pod declares sql=5432/TCP, dns=53/UDP, mesh=15000/TCP", Distance: 1, Selects: -1, Only: true, Near: true},
		}},
		{name: "port name elsewhere", rule: "{ports: [{port: sql}]}", to: "db2", failed: "port", want: []Miss{
			{Kind: MissPortNameElsewhere, Field: "spec.ingress[0].ports[0].port", Want: "sql/TCP", Got: "5432/TCP, and the pod declares sql=5433/TCP", Selects: -1, Only: true},
		}},
		{name: "label value", rule: "{from: [{namespaceSelector: {}, podSelector: {matchLabels: {tier: frnot}}}]}", failed: "peer", want: []Miss{
			{Kind: MissPodLabelValue, Field: f + ".podSelector.matchLabels[tier]", Key: "tier", Want: "tier=frnot", Got: "tier=front", Distance: 1, Only: true, Near: true},
			{Kind: MissSplitPeers, Field: f, Want: "namespaceSelector and podSelector both", Got: "namespaceSelector only", Only: true},
		}},
		{name: "label value of another pod", rule: "{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [db, web2]}]}}]}", failed: "peer", want: []Miss{
			{Kind: MissPodLabelValue, Field: f + ".podSelector.matchExpressions[0]", Key: "app", Want: "app in (db,web2)", Got: "app=web", Distance: 1, Selects: 2, Only: true},
			{Kind: MissSplitPeers, Field: f, Want: "namespaceSelector and podSelector both", Got: "namespaceSelector only", Selects: 2, Only: true},
		}},
		{name: "label key", rule: "{from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app.kubernetes.io/name: web}}}]}", failed: "peer", want: []Miss{
			{Kind: MissPodLabelKey, Field: f + ".podSelector.matchLabels[app.kubernetes.io/name]", Key: "app.kubernetes.io/name", GotKey: "app", Want: "app.kubernetes.io/name=web", Got: "app=web", Only: true, Near: true},
			{Kind: MissSplitPeers, Field: f, Want: "namespaceSelector and podSelector both", Got: "namespaceSelector only", Only: true},
		}},
		{name: "two labels", rule: "{from: [{podSelector: {matchLabels: {app: near, tier: back}}}]}", from: "near", failed: "peer", want: []Miss{
			{Kind: MissPodLabelAbsent, Field: f + ".podSelector.matchLabels[tier]", Key: "tier", Want: "tier=back", Got: "no label tier", Only: true},
		}},
		{name: "label excluded", rule: "{from: [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]}", from: "near", failed: "peer", want: []Miss{
			{Kind: MissPodLabelExcluded, Field: f + ".podSelector.matchExpressions[0]", Key: "app", Want: "!app", Got: "app=near", Only: true},
		}},
		{name: "namespaceSelector missing", rule: "{from: [{podSelector: {matchLabels: {app: web}}}]}", failed: "peer", want: []Miss{
			{Kind: MissNamespaceSelector, Field: f, Want: "a pod in namespace store (no namespaceSelector)", Got: "namespace shop", Only: true, Near: true},
		}},
		{name: "own namespace meant", rule: "{from: [{podSelector: {}}]}", failed: "peer", want: []Miss{
			{Kind: MissNamespaceSelector, Field: f, Want: "a pod in namespace store (no namespaceSelector)", Got: "namespace shop", Selects: 3, Only: true},
		}},
		{name: "namespaceSelector missing and another label", rule: "{from: [{podSelector: {matchLabels: {app: wep}}}]}", failed: "peer", want: []Miss{
			{Kind: MissNamespaceSelector, Field: f, Want: "a pod in namespace store (no namespaceSelector)", Got: "namespace shop"},
			{Kind: MissPodLabelValue, Field: f + ".podSelector.matchLabels[app]", Key: "app", Want: "app=wep", Got: "app=web", Distance: 1, Near: true},
		}},
		{name: "namespace by name", rule: "{from: [{namespaceSelector: {matchLabels: {name: shop}}}]}", failed: "peer", want: []Miss{
			{Kind: MissNamespaceLabelKey, Field: f + ".namespaceSelector.matchLabels[name]", Key: "name", GotKey: "kubernetes.io/metadata.name", Want: "name=shop", Got: "kubernetes.io/metadata.name=shop", Only: true, Near: true},
		}},
		{name: "namespace's name misspelt", rule: "{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shpo}}}]}", failed: "peer", want: []Miss{
			{Kind: MissNamespaceLabelValue, Field: f + ".namespaceSelector.matchLabels[kubernetes.io/metadata.name]", Key: "kubernetes.io/metadata.name", Want: "kubernetes.io/metadata.name=shpo", Got: "kubernetes.io/metadata.name=shop", Distance: 1, Only: true, Near: true},
		}},
		{name: "namespace not labelled", rule: "{from: [{namespaceSelector: {matchLabels: {stage: prod}}}]}", failed: "peer", want: []Miss{
			{Kind: MissNamespaceLabelAbsent, Field: f + ".namespaceSelector.matchLabels[stage]", Key: "stage", Want: "stage=prod", Got: "no label stage", Only: true, Near: true},
		}},
		{name: "another namespace", rule: "{from: [{namespaceSelector: {matchLabels: {team: b}}}]}", failed: "peer", want: []Miss{
			{Kind: MissNamespaceLabelValue, Field: f + ".namespaceSelector.matchLabels[team]", Key: "team", Want: "team=b", Got: "team=a", Distance: 1, Selects: 3, Only: true},
		}},
		{name: "and where or was meant", rule: "{from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: near}}}]}", from: "near", failed: "peer", want: []Miss{
			{Kind: MissNamespaceLabelValue, Field: f + ".namespaceSelector.matchLabels[team]", Key: "team", Want: "team=a", Got: "team=b", Distance: 1, Only: true},
			{Kind: MissSplitPeers, Field: f, Want: "namespaceSelector and podSelector both", Got: "podSelector only", Only: true, Near: true},
		}},
		{name: "ipBlock", rule: "{from: [{ipBlock: {cidr: 10.9.0.0/16}}]}", from: "near", failed: "peer", want: []Miss{
			{Kind: MissIPBlock, Field: f + ".ipBlock", Want: "10.9.0.0/16", Got: "10.2.0.2", Selects: -1, Only: true},
		}},
		{name: "ipBlock except", rule: "{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.2.0.0/16]}}]}", from: "near", failed: "peer", want: []Miss{
			{Kind: MissIPBlockExcept, Field: f + ".ipBlock", Want: "10.0.0.0/8 except 10.2.0.0/16", Got: "10.2.0.2", Selects: -1, Only: true},
		}},
		{name: "ipBlock of the other family", rule: `{from: [{ipBlock: {cidr: "::/0"}}]}`, from: "near", failed: "peer", want: []Miss{
			{Kind: MissIPBlockFamily, Field: f + ".ipBlock", Want: "::/0", Got: "10.2.0.2", Selects: -1, Only: true},
		}},
		{name: "hostNetwork", rule: "{from: [{podSelector: {matchLabels: {app: agent}}}]}", from: "agent2", failed: "peer", want: []Miss{
			{Kind: MissHostNetwork, Field: f, Want: "a pod with a network of its own", Got: "pod store/agent2", Only: true, Near: true},
		}},
		{name: "no pod", rule: "{from: [{podSelector: {}}]}", from: "203.0.113.7", failed: "peer", want: []Miss{
			{Kind: MissNotAPod, Field: f, Want: "a pod", Got: "203.0.113.7", Selects: 3, Only: true},
		}},
		{name: "both", rule: "{from: [{podSelector: {}}], ports: [{port: 80}]}", failed: "peer port", want: []Miss{
			{Kind: MissPort, Field: "spec.ingress[0].ports[0].port", Want: "80/TCP", Got: "5432/TCP", Selects: -1, Only: true},
			{Kind: MissNamespaceSelector, Field: f, Want: "a pod in namespace store (no namespaceSelector)", Got: "namespace shop", Selects: 3, Only: true},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t, world+policies("{"+db+", ingress: ["+tt.rule+"]}"))
			flow := Flow{From: s.peer(t, or(tt.from, "web")), To: s.peer(t, or(tt.to, "db")), Port: 5432, Protocol: tt.protocol, VIPPort: 8432}
			got := s.NearMisses(flow, Ingress)
			if len(got) != 1 {
				t.Fatalf("%d near misses of one rule: %v", len(got), got)
			}
			if diff := cmp.Diff(tt.want, got[0].Misses); diff != "" {
				t.Errorf("misses (-want +got):\n%s", diff)
			}
			if parts := failedParts(got[0]); parts != tt.failed {
				t.Errorf("failed: %s, want %s", parts, tt.failed)
			}
			if s.NearMisses(flow, Egress) != nil {
				t.Error("near misses of a direction that is not denied")
			}
		})
	}
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func failedParts(n NearMiss) string {
	var out []string
	for _, p := range []struct {
		failed bool
		name   string
	}{{n.PeerFailed, "peer"}, {n.PortFailed, "port"}, {n.ProtocolFailed, "protocol"}} {
		if p.failed {
			out = append(out, p.name)
		}
	}
	return strings.Join(out, " ")
}

func TestNearMissNamesVIP(t *testing.T) {
	s := newScene(t, world+policies("{podSelector: {matchLabels: {app: near}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.96.0.0/12}}]}]}"))
	flow := Flow{From: s.peer(t, "near"), To: s.peer(t, "db"), Port: 5432, VIP: netip.MustParseAddr("10.96.0.10"), VIPPort: 5432}
	got := s.NearMisses(flow, Egress)
	want := []NearMiss{{Policy: PolicyRef{"store", "p0"}, Direction: Egress, PeerFailed: true, Misses: []Miss{
		{Kind: MissIPBlockVIP, Field: "spec.egress[0].to[0].ipBlock", Want: "10.96.0.0/12", Got: "10.2.0.1", Selects: -1, Only: true, Near: true},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("near misses (-want +got):\n%s", diff)
	}
}

// A word may be near and yet be another pod's label: then the rule is for that.
func TestNearMissOfAnotherPod(t *testing.T) {
	rule := policies("{" + db + ", ingress: [{from: [{podSelector: {matchLabels: {app: neat}}}]}]}")
	other := `
---
kind: Pod
metadata: {name: neat, namespace: store, labels: {app: neat}}
spec: {containers: [{name: c}]}
`
	for yaml, near := range map[string]bool{world + rule: true, world + other + rule: false} {
		s := newScene(t, yaml)
		got := s.NearMisses(Flow{From: s.peer(t, "near"), To: s.peer(t, "db"), Port: 1}, Ingress)
		if len(got) != 1 || got[0].Near() != near || got[0].Misses[0].Distance != 1 {
			t.Errorf("want near %v, got %+v", near, got)
		}
	}
}

func TestNearMissesRanked(t *testing.T) {
	s := newScene(t, world+policies(
		"{"+db+", ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}, {from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}",
		"{"+db+", ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}, {from: [{namespaceSelector: {matchLabels: {team: a}}}], ports: [{port: 80}]}, {ports: [{port: 5432, protocol: UDP}]}]}",
	))
	var got []string
	for _, n := range s.NearMisses(Flow{From: s.peer(t, "web"), To: s.peer(t, "db"), Port: 5432}, Ingress) {
		got = append(got, RuleRef{n.Policy, n.Direction, n.Rule, -1, -1}.String()+" "+failedParts(n))
	}
	want := []string{
		"store/p1#ingress[2] protocol",
		"store/p1#ingress[1] port",
		"store/p1#ingress[0] peer",
		"store/p0#ingress[1] peer",
		"store/p0#ingress[0] peer port",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b     string
		distance int
		near     bool
	}{
		{"", "", 0, true},
		{"orders", "order", 1, true},
		{"frontend", "frontned", 1, true},
		{"web", "wbe", 1, true},
		{"web", "WEB", 3, true},
		{"web-1", "web-2", 1, false},
		{"v1", "v2", 1, false},
		{"a", "b", 1, false},
		{"prod", "dev", 4, false},
		{"", "abc", 3, false},
		{"käse", "kase", 1, true},
		{strings.Repeat("x", 400), "x", maxDistance, false},
	} {
		got := spelling.Distance(tt.a, tt.b)
		if got != tt.distance || spelling.Distance(tt.b, tt.a) != got {
			t.Errorf("%q, %q: %d, want %d", tt.a, tt.b, got, tt.distance)
		}
		if near := closeWords(tt.a, tt.b, got); near != tt.near {
			t.Errorf("%q, %q: near %v", tt.a, tt.b, near)
		}
	}
}
