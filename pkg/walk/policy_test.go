package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// policyFixture is shop/web (80 to 8080; web-1 on worker-1, web-2 on worker-2)
// with the policies given as YAML specs, named p0, p1 and so on, in namespace
// shop unless they begin with "NAMESPACE: ". Clients are shop/api (app=api),
// shop/client (no labels), front/ui (app=ui, in a namespace labelled team=front)
// and two of kube-system, one on its node's network.
func policyFixture(t testing.TB, specs ...string) *snapshot.Snapshot {
	t.Helper()
	s := nodeFixture()
	s.Nodes = nil
	add := func(ns, name, ip string, labels map[string]string) *corev1.Pod {
		pod := readyPod(ns, name, ip, "worker-1")
		pod.Labels = labels
		s.Objects.Pods = append(s.Objects.Pods, pod)
		return &s.Objects.Pods[len(s.Objects.Pods)-1]
	}
	add("shop", "api", "10.244.1.20", map[string]string{"app": "api", "pod-template-hash": "6f7d"})
	add("front", "ui", "10.244.1.21", map[string]string{"app": "ui"})
	add("kube-system", "coredns", "10.244.1.22", map[string]string{"k8s-app": "kube-dns"})
	add("front", "edge", "172.31.250.11", map[string]string{"app": "edge"}).Spec.HostNetwork = true
	for _, ns := range []string{"front", "kube-system"} {
		n := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"kubernetes.io/metadata.name": ns}}}
		if ns == "front" {
			n.Labels["team"] = "front"
		}
		s.Objects.Namespaces = append(s.Objects.Namespaces, n)
	}
	for i, spec := range specs {
		pol := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("p%d", i)}}
		if ns, rest, ok := strings.Cut(spec, ": "); ok && !strings.HasPrefix(spec, "{") {
			pol.Namespace, spec = ns, rest
		}
		if err := yaml.UnmarshalStrict([]byte(spec), &pol.Spec); err != nil {
			t.Fatalf("policy %d: %v", i, err)
		}
		s.Objects.NetworkPolicies = append(s.Objects.NetworkPolicies, pol)
	}
	return s
}

const (
	denyIn  = `{podSelector: {}, policyTypes: [Ingress]}`
	denyOut = `{podSelector: {}, policyTypes: [Egress]}`
)

// admit is a policy for app=web with one rule.
func admitWeb(rule string) string {
	return `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [` + rule + `]}`
}

func callFrom(client string) func(*Options) {
	return func(o *Options) {
		c, err := ParseClient(client, "shop")
		if err != nil {
			panic(err)
		}
		o.Client = c
	}
}

// unread forgets what was read of a resource, but for these namespaces.
func unreadBut(r snapshot.Resource, but ...string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		s.Reads = slices.DeleteFunc(s.Reads, func(rd snapshot.Read) bool { return rd.Resource == r })
		for _, ns := range but {
			s.Reads.Add(snapshot.Read{Resource: r, Namespace: ns, Status: snapshot.Done})
		}
	}
}

func podNamed(s *snapshot.Snapshot, name string) *corev1.Pod {
	for i := range s.Objects.Pods {
		if s.Objects.Pods[i].Name == name {
			return &s.Objects.Pods[i]
		}
	}
	panic("no pod " + name)
}

// walkPolicy walks shop/web and sorts layer 4's diagnoses.
func walkPolicy(s *snapshot.Snapshot, opts ...func(*Options)) (svc diagnosis.Service, roots, folded []string) {
	o := Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}
	for _, f := range opts {
		f(&o)
	}
	svc = Walk(s, o).Services[0]
	for _, d := range svc.Diagnoses {
		switch code := string(d.Code) + map[diagnosis.Severity]string{diagnosis.Warning: "w", diagnosis.Info: "i"}[d.Severity]; {
		case d.Layer != diagnosis.LayerPolicy:
		case len(d.CausedBy) == 0:
			roots = append(roots, code)
		default:
			folded = append(folded, code)
		}
	}
	return svc, roots, folded
}

func TestPolicyLayer(t *testing.T) {
	tests := []struct {
		name     string
		policies []string
		change   []func(*snapshot.Snapshot)
		from     string
		// roots and folded are codes, with w for a warning and i for an info.
		roots, folded []string
		status        diagnosis.Status
		// simulated is what trying the first root's first fix says.
		simulated diagnosis.SimulationStatus
		// says is part of the first root's title, or of the summary where there
		// is none; lacks is part of what the layer is missing or notes.
		says, lacks string
	}{
		// Healthy.
		{name: "no policy", status: "ok", says: "no NetworkPolicy isolates a backend"},
		{name: "no policy, a named pod", from: "front/ui", status: "ok", says: "no NetworkPolicy isolates pod front/ui or a backend"},
		{name: "a policy for other pods", policies: []string{`{podSelector: {matchLabels: {app: db}}}`}, status: "ok", says: "no NetworkPolicy isolates a backend"},
		{name: "everybody is admitted", policies: []string{admitWeb(`{}`)}, status: "ok", says: "every client that was read is admitted"},
		{name: "the named pod is admitted", policies: []string{denyIn, admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 8080}]}`)}, from: "api", status: "ok", says: "may reach all 2 backends"},
		{name: "by the name of the port", policies: []string{admitWeb(`{ports: [{port: http}]}`)}, from: "api", status: "ok"},

		// VIP401.
		{
			name: "default deny, nobody named", policies: []string{denyIn},
			roots: []string{"VIP401"}, status: "fail", simulated: "notSimulated", says: "every client that was read is blocked from web by ingress policy: shop/p0",
		},
		{
			name: "some are admitted: that is what policies are for", policies: []string{denyIn, admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}]}`)},
			roots: []string{"VIP401i"}, status: "ok", says: "kinds of client are refused",
		},
		{
			name: "the named pod is not the one that is admitted", policies: []string{denyIn, admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 8080}]}`)}, from: "front/ui",
			roots: []string{"VIP401"}, status: "fail", simulated: "confirmed", says: "pod front/ui is blocked from web",
		},
		{
			name: "a rule for addresses outside keeps pods out and is no error", policies: []string{admitWeb(`{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}`)},
			roots: []string{"VIP401i"}, status: "ok",
		},
		{
			name: "a rule for a Job that has finished is no error", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {job: migrate}}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				podNamed(s, "api").Status.Phase, podNamed(s, "api").Labels = corev1.PodSucceeded, map[string]string{"job": "migrate"}
			}},
			roots: []string{"VIP401i"}, status: "ok",
		},
		{
			name: "two backends isolated by two policies: the fix opens both", from: "front/ui",
			policies: []string{`{podSelector: {matchLabels: {v: one}}}`, `{podSelector: {matchLabels: {v: two}}}`},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				podNamed(s, "web-1").Labels["v"], podNamed(s, "web-2").Labels["v"] = "one", "two"
			}},
			roots: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "an address outside, through externalTrafficPolicy Local", policies: []string{admitWeb(`{from: [{podSelector: {}}]}`)}, from: "198.51.100.7",
			change: []func(*snapshot.Snapshot){etpLocal},
			roots:  []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "that address admitted", policies: []string{admitWeb(`{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}`)}, from: "198.51.100.7",
			change: []func(*snapshot.Snapshot){etpLocal}, status: "ok",
		},
		{
			name: "under Cluster the address is the node's, which the block does not hold", policies: []string{admitWeb(`{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}`)}, from: "198.51.100.7",
			change: []func(*snapshot.Snapshot){addWorker3},
			roots:  []string{"VIP401"}, status: "fail", simulated: "notSimulated",
		},
		{
			name: "external under Cluster, and the nodes were not read", policies: []string{admitWeb(`{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}`)}, from: "external",
			change: []func(*snapshot.Snapshot){unreadBut(snapshot.Nodes), func(s *snapshot.Snapshot) { s.Objects.Nodes = nil }},
			status: "unknown", lacks: "kubectl get nodes",
		},
		{
			name: "external under Local, and a rule goes by addresses", policies: []string{admitWeb(`{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}`)}, from: "external",
			change: []func(*snapshot.Snapshot){etpLocal}, status: "unknown", lacks: "--from IP",
		},
		{
			name: "external under Local, and no rule does", policies: []string{admitWeb(`{from: [{podSelector: {}}]}`)}, from: "external",
			change: []func(*snapshot.Snapshot){etpLocal}, roots: []string{"VIP401"}, status: "fail", simulated: "notSimulated",
		},
		{
			name: "a remote node", policies: []string{denyIn}, from: "node/worker-3", change: []func(*snapshot.Snapshot){addWorker3},
			roots: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "a node reaches its own pod whatever policies say", policies: []string{denyIn}, from: "node/worker-1",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				s.Objects.EndpointSlices[0].Endpoints = s.Objects.EndpointSlices[0].Endpoints[:1]
			}},
			status: "ok",
		},

		// VIP402.
		{
			name: "the client may not get out", policies: []string{denyOut}, from: "api",
			roots: []string{"VIP402"}, status: "fail", simulated: "confirmed", says: "by egress policy: shop/p0",
		},
		{
			name: "neither out nor in: two faults", policies: []string{denyIn, denyOut}, from: "api",
			roots: []string{"VIP401", "VIP402"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "it may get out to the backends", policies: []string{denyOut, `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]}`}, from: "api",
			status: "ok",
		},
		{
			name: "own egress is the clients' affair while others get through", policies: []string{denyOut}, status: "ok", says: "only clients' egress policies apply",
		},
		{
			name: "the client's namespace has policies that were not read", from: "front/ui",
			change: []func(*snapshot.Snapshot){unreadBut(snapshot.NetworkPolicies, "shop")}, status: "unknown", lacks: "kubectl get networkpolicies.networking.k8s.io -n front",
		},
		{
			name: "a stale endpoint is not the policy's fault", from: "api",
			policies: []string{`{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				s.Objects.Pods = slices.DeleteFunc(s.Objects.Pods, func(p corev1.Pod) bool { return p.Name == "web-2" })
			}},
			status: "ok",
		},

		// VIP404.
		{
			name: "ingress names the Service's port", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 80}]}`)}, from: "api",
			roots: []string{"VIP404"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed", says: "80/TCP; policies see the pod's, 8080/TCP",
		},
		{
			name: "ingress names the Service's port, nobody named", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: 80}]}`)},
			roots: []string{"VIP404"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "egress names the Service's port", policies: []string{`{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]}`}, from: "api",
			roots: []string{"VIP404"}, folded: []string{"VIP402"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "both sides do: two policies to mend", from: "api",
			policies: []string{
				admitWeb(`{ports: [{port: 80}]}`),
				`{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`,
			},
			roots: []string{"VIP404", "VIP404"}, folded: []string{"VIP401", "VIP402"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "it names another port altogether", policies: []string{admitWeb(`{ports: [{port: 9090}]}`)}, from: "api",
			roots: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "the port is the pod's and the Service's at once", policies: []string{admitWeb(`{ports: [{port: 8080}]}`)}, from: "api", status: "ok",
		},
		{
			name: "two ports of one rule: one fix mends both", policies: []string{admitWeb(`{ports: [{port: 80}, {port: 443}]}`)}, from: "api",
			change: []func(*snapshot.Snapshot){addHTTPS},
			roots:  []string{"VIP404"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "one port by its name, the other for others: two faults", policies: []string{admitWeb(`{ports: [{port: 80}]}`)}, from: "api",
			change: []func(*snapshot.Snapshot){addHTTPS},
			roots:  []string{"VIP401", "VIP404"}, status: "fail",
		},

		// VIP406.
		{
			name: "a letter is missing", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: apis}}}]}`)}, from: "api",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "api").Labels["app"] = "api-srv" }, rewritePolicy("apis", "api-serv")},
			roots:  []string{"VIP406"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed", says: "nearly admits pod shop/api",
		},
		{
			name: "a letter is missing, nobody named", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: api-serv}}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "api").Labels["app"] = "api-srv" }},
			roots:  []string{"VIP406"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "the nearest of two is meant", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: checkout-api}}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				podNamed(s, "api").Labels["app"], podNamed(s, "client").Labels = "checkout-app", map[string]string{"app": "checkout-apu2"}
			}},
			roots: []string{"VIP406"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed", says: "pod shop/api",
		},
		{
			name: "the label is somebody else's, who is there", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: api-serv}}}]}`)}, from: "client",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				podNamed(s, "api").Labels["app"], podNamed(s, "client").Labels = "api-serv", map[string]string{"app": "api-srv"}
			}},
			roots: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "the namespace is not named", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: ui}}}], ports: [{port: 8080}]}`)}, from: "front/ui",
			roots: []string{"VIP406"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed", says: "without a namespaceSelector",
		},
		{
			name: "the namespace is not named, and pods of this one are meant", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: ui}}}]}`)}, from: "front/ui",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "api").Labels["app"] = "ui" }},
			roots:  []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "the namespace by a label that it has not", policies: []string{admitWeb(`{from: [{namespaceSelector: {matchLabels: {name: front}}}]}`)}, from: "front/ui",
			roots: []string{"VIP406"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "all of kube-system is no slip of anybody's pen", policies: []string{admitWeb(`{from: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dms}}}]}`)},
			roots: []string{"VIP401"}, status: "fail", simulated: "notSimulated",
		},
		{
			name: "labels of a pod on its node's network", policies: []string{admitWeb(`{from: [{namespaceSelector: {matchLabels: {team: front}}, podSelector: {matchLabels: {app: edge}}}]}`)}, from: "front/edge",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				s.Objects.EndpointSlices[0].Endpoints = s.Objects.EndpointSlices[0].Endpoints[1:]
			}},
			roots: []string{"VIP406"}, folded: []string{"VIP401"}, status: "fail", simulated: "confirmed", says: "its node's network", lacks: "plugin",
		},
		{
			name: "egress to the Service's address", from: "api",
			policies: []string{`{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.96.0.50/32}}]}]}`},
			roots:    []string{"VIP406"}, folded: []string{"VIP402"}, status: "fail", simulated: "confirmed", says: "holds the Service's address",
		},

		// VIP410.
		{
			name: "one of two backends refuses", policies: []string{`{podSelector: {matchLabels: {v: one}}}`}, from: "api",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "web-1").Labels["v"] = "one" }},
			roots:  []string{"VIP410"}, status: "fail", simulated: "confirmed", says: "1 of 2 backends",
		},
		{
			name: "one of two backends refuses, nobody named", policies: []string{`{podSelector: {matchLabels: {v: one}}}`},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "web-1").Labels["v"] = "one" }},
			roots:  []string{"VIP410w"}, status: "warn",
		},
		{
			name: "one of two backends refuses, for the Service's port", policies: []string{`{podSelector: {matchLabels: {v: one}}, ingress: [{ports: [{port: 80}]}]}`}, from: "api",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "web-1").Labels["v"] = "one" }},
			roots:  []string{"VIP404"}, folded: []string{"VIP410"}, status: "fail", simulated: "confirmed",
		},
		{
			name: "both admit", policies: []string{`{podSelector: {matchLabels: {v: one}}, ingress: [{}]}`}, from: "api",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { podNamed(s, "web-1").Labels["v"] = "one" }},
			status: "ok",
		},
		{
			name: "of two ports one refuses: not now and then, but always", policies: []string{admitWeb(`{ports: [{port: 8080}]}`)}, from: "api",
			change: []func(*snapshot.Snapshot){addHTTPS},
			roots:  []string{"VIP401"}, status: "fail", simulated: "confirmed", says: "on port 443/TCP",
		},

		// Unknown, and never ok over it.
		{name: "policies were not read", change: []func(*snapshot.Snapshot){unreadBut(snapshot.NetworkPolicies)}, status: "unknown", lacks: "networkpolicies"},
		{name: "pods were not read", change: []func(*snapshot.Snapshot){unreadBut(snapshot.Pods)}, status: "unknown", lacks: "pods"},
		{
			name: "the client was not read", from: "front/nobody", status: "unknown", lacks: "kubectl get pod nobody -n front",
		},
		{
			name: "namespaces were not read", policies: []string{admitWeb(`{from: [{namespaceSelector: {matchLabels: {team: front}}}]}`)}, from: "front/ui",
			change: []func(*snapshot.Snapshot){unreadBut(snapshot.Namespaces), func(s *snapshot.Snapshot) { s.Objects.Namespaces = nil }},
			status: "unknown", lacks: "kubectl get namespaces",
		},
		{
			name: "an invalid policy", policies: []string{`{podSelector: {matchLabels: {"-": "-"}}}`}, from: "api", status: "unknown", lacks: "kubectl get networkpolicy p0",
		},
		{
			name: "an invalid policy of another namespace", policies: []string{`front: {podSelector: {matchLabels: {"-": "-"}}}`}, from: "api", status: "ok",
		},
		{
			name: "only this namespace's pods were read, and the rule is for another's", policies: []string{admitWeb(`{from: [{namespaceSelector: {matchLabels: {team: edge}}, podSelector: {matchLabels: {app: lb}}}]}`)},
			change: []func(*snapshot.Snapshot){unreadBut(snapshot.Pods, "shop"), onlyShop},
			roots:  []string{"VIP401i"}, status: "unknown", lacks: "none that was read does",
		},
		{
			name: "only this namespace's pods were read, and no rule is for others", policies: []string{denyIn},
			change: []func(*snapshot.Snapshot){unreadBut(snapshot.Pods, "shop"), onlyShop},
			roots:  []string{"VIP401"}, status: "fail", simulated: "notSimulated",
		},
		{
			name: "an address that may be a pod's", policies: []string{admitWeb(`{from: [{ipBlock: {cidr: 10.244.0.0/16}}]}`)}, from: "10.244.1.99",
			change: []func(*snapshot.Snapshot){unreadBut(snapshot.Pods, "shop"), etpLocal},
			status: "unknown", lacks: "whose address",
		},
		{
			name: "the Service's own pod is the only one there", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				s.Objects.Pods = s.Objects.Pods[:1]
				s.Objects.EndpointSlices[0].Endpoints = s.Objects.EndpointSlices[0].Endpoints[:1]
			}},
			roots: []string{"VIP401i"}, status: "unknown", lacks: "whether any client gets to port 80/TCP",
		},
		{name: "no endpoints", change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) { s.Objects.EndpointSlices[0].Endpoints = nil }}, status: "unknown", says: "no backend to judge"},
		{
			name: "through a node port the source is rewritten", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}]}`)}, from: "api",
			change: nil, status: "ok",
		},

		// Of other kinds.
		{
			name: "backends on their node's network are open, and it is said", policies: []string{denyIn}, from: "api",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				podNamed(s, "web-1").Spec.HostNetwork, podNamed(s, "web-2").Spec.HostNetwork = true, true
			}},
			status: "ok", lacks: "node's network",
		},
		{
			name: "an endpoint that is no pod", policies: []string{denyIn}, from: "api",
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				e := &s.Objects.EndpointSlices[0]
				e.Endpoints = e.Endpoints[:1]
				e.Endpoints[0].Addresses, e.Endpoints[0].TargetRef = []string{"192.0.2.9"}, nil
			}},
			status: "ok",
		},
		{
			name: "internalTrafficPolicy Local has backends on some node", policies: []string{denyIn},
			change: []func(*snapshot.Snapshot){itpLocal},
			roots:  []string{"VIP401"}, status: "fail", simulated: "notSimulated",
		},
		{
			name: "internalTrafficPolicy Local, the client's node alone counts", from: "api",
			policies: []string{`{podSelector: {matchLabels: {v: two}}}`},
			change: []func(*snapshot.Snapshot){itpLocal, func(s *snapshot.Snapshot) {
				podNamed(s, "web-2").Labels["v"] = "two" // on worker-2, and the client on worker-1
			}},
			status: "ok",
		},
		{
			name: "headless", policies: []string{denyIn}, from: "api", change: []func(*snapshot.Snapshot){asHeadless},
			roots: []string{"VIP401"}, status: "fail", simulated: "confirmed",
		},
		{name: "headless, admitted", policies: []string{denyIn, admitWeb(`{ports: [{port: 8080}]}`)}, from: "api", change: []func(*snapshot.Snapshot){asHeadless}, status: "ok"},
		{
			name: "headless without ports, and a rule goes by port", policies: []string{admitWeb(`{ports: [{port: 8080}]}`)}, from: "api",
			change: []func(*snapshot.Snapshot){asHeadless, func(s *snapshot.Snapshot) {
				s.Objects.Services[0].Spec.Ports, s.Objects.EndpointSlices[0].Ports = nil, nil
			}},
			status: "unknown", lacks: "port is not known",
		},
		{
			name: "a v4 client of a dual-stack Service", policies: []string{admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}]}`)}, from: "api",
			change: []func(*snapshot.Snapshot){addIPv6}, status: "ok", says: "may reach all 2 backends",
		},
		{
			name: "a v6 address of a v4 Service", policies: []string{denyIn}, from: "2001:db8::7", change: []func(*snapshot.Snapshot){etpLocal},
			status: "unknown", lacks: "address of the backends' family",
		},
		{
			name: "alike by labels, told apart by an ipBlock", policies: []string{admitWeb(`{from: [{ipBlock: {cidr: 10.244.1.20/32}}]}`)},
			change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
				podNamed(s, "api").Labels, podNamed(s, "client").Labels = map[string]string{"app": "x"}, map[string]string{"app": "x"}
			}},
			roots: []string{"VIP401i"}, status: "ok", says: "kinds of client are refused",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := policyFixture(t, tt.policies...)
			for _, c := range tt.change {
				c(s)
			}
			var opts []func(*Options)
			if tt.from != "" {
				opts = append(opts, callFrom(tt.from))
			}
			svc, roots, folded := walkPolicy(s, opts...)
			layer := svc.Layers[3]
			if !slices.Equal(roots, tt.roots) || !slices.Equal(folded, tt.folded) {
				t.Errorf("roots %v, folded %v; want %v, %v\n%s", roots, folded, tt.roots, tt.folded, describe(svc))
			}
			if layer.Status != tt.status {
				t.Errorf("layer 4 is %s (%s), want %s\n%s", layer.Status, layer.Summary, tt.status, describe(svc))
			}
			says, simulated := layer.Summary, diagnosis.SimulationStatus("")
			for _, d := range svc.Diagnoses {
				if d.Layer != diagnosis.LayerPolicy {
					continue
				}
				if len(d.Evidence) == 0 || d.Title == "" || d.Expected == "" || d.Found == "" || len(d.Fixes) == 0 {
					t.Errorf("%s lacks something: %+v", d.Code, d)
				}
				for _, e := range d.Evidence {
					if e.Command == "" || e.Source == "" || e.Quote == "" {
						t.Errorf("%s has evidence without a command: %+v", d.Code, e)
					}
				}
				if simulated == "" && len(d.CausedBy) == 0 && len(d.Fixes) > 0 {
					says, simulated = d.Title, d.Fixes[0].Simulated.Status
					if tt.simulated != "" && simulated != tt.simulated {
						t.Errorf("the fix of %s is %s (%s), want %s\n%s", d.Code, simulated, d.Fixes[0].Simulated.Why, tt.simulated, d.Fixes[0].Commands)
					}
				}
			}
			if !strings.Contains(says, tt.says) {
				t.Errorf("says %q, want %q", says, tt.says)
			}
			if missing := fmt.Sprint(layer.Missing); !strings.Contains(missing, tt.lacks) {
				t.Errorf("lacks %s, want %q", missing, tt.lacks)
			}
		})
	}
}

func etpLocal(s *snapshot.Snapshot) {
	s.Objects.Services[0].Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func itpLocal(s *snapshot.Snapshot) {
	s.Objects.Services[0].Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
}

func asHeadless(s *snapshot.Snapshot) {
	spec := &s.Objects.Services[0].Spec
	spec.Type, spec.ClusterIP, spec.ClusterIPs, spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, "None", []string{"None"}, 0
}

// addWorker3 has no backend.
func addWorker3(s *snapshot.Snapshot) {
	n := *s.Objects.Nodes[0].DeepCopy()
	n.Name, n.Status.Addresses[0].Address = "worker-3", "172.31.250.13"
	s.Objects.Nodes = append(s.Objects.Nodes, n)
}

// addHTTPS adds 443 to 8443.
func addHTTPS(s *snapshot.Snapshot) {
	spec := &s.Objects.Services[0].Spec
	spec.Ports[0].Name = "http"
	spec.Ports = append(spec.Ports, corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8443)})
	sl := &s.Objects.EndpointSlices[0]
	sl.Ports[0].Name = ptr("http")
	second := *sl.Ports[0].DeepCopy()
	second.Name, second.Port = ptr("https"), ptr(int32(8443))
	sl.Ports = append(sl.Ports, second)
}

func onlyShop(s *snapshot.Snapshot) {
	s.Objects.Pods = slices.DeleteFunc(s.Objects.Pods, func(p corev1.Pod) bool { return p.Namespace != "shop" })
	s.Objects.Namespaces = s.Objects.Namespaces[:1]
}

// addIPv6 gives the Service and web-1 an address of IPv6 too.
func addIPv6(s *snapshot.Snapshot) {
	spec := &s.Objects.Services[0].Spec
	spec.IPFamilies, spec.ClusterIPs = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, []string{"10.96.0.50", "fd00:96::50"}
	six := *s.Objects.EndpointSlices[0].DeepCopy()
	six.Name, six.AddressType, six.Endpoints = "web-six", "IPv6", six.Endpoints[:1]
	six.Endpoints[0].Addresses = []string{"fd00:244::5"}
	s.Objects.EndpointSlices = append(s.Objects.EndpointSlices, six)
	web := podNamed(s, "web-1")
	web.Status.PodIPs = append(web.Status.PodIPs, corev1.PodIP{IP: "fd00:244::5"})
}

// rewritePolicy replaces a label's value in the first policy's first peer.
func rewritePolicy(old, with string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		sel := s.Objects.NetworkPolicies[0].Spec.Ingress[0].From[0].PodSelector.MatchLabels
		for k, v := range sel {
			if v == old {
				sel[k] = with
			}
		}
	}
}

// A node port is masqueraded, so that policies do not see the pod that calls.
func TestPolicyThroughNodePort(t *testing.T) {
	s := policyFixture(t, admitWeb(`{from: [{podSelector: {matchLabels: {app: api}}}]}`))
	svc, _, _ := walkPolicy(s, callFrom("api"), func(o *Options) {
		o.Targets = []Target{{Text: ":30080", NodePort: true, Port: 30080}}
	})
	if l := svc.Layers[3]; l.Status != diagnosis.Unknown || !strings.Contains(fmt.Sprint(l.Missing), "which source the backends see") {
		t.Errorf("layer 4 is %s\n%s", l.Status, describe(svc))
	}
}

// Whoever calls a node port, backends see a node.
func TestPolicyNodePortOfAnyClient(t *testing.T) {
	target := func(o *Options) { o.Targets = []Target{{Text: ":30080", NodePort: true, Port: 30080}} }
	s := policyFixture(t, admitWeb(`{from: [{podSelector: {}}]}`))
	addWorker3(s)
	svc, roots, _ := walkPolicy(s, target)
	if !slices.Equal(roots, []string{"VIP401"}) || !strings.Contains(fmt.Sprint(svc.Diagnoses[0].Evidence), "worker-3") {
		t.Errorf("roots %v\n%s", roots, describe(svc))
	}
	s = policyFixture(t, admitWeb(`{from: [{ipBlock: {cidr: 172.31.250.0/24}}]}`))
	addWorker3(s)
	if svc, roots, _ = walkPolicy(s, target); len(roots) > 0 || svc.Layers[3].Status != diagnosis.OK {
		t.Errorf("the nodes are admitted: roots %v\n%s", roots, describe(svc))
	}
	if svc, roots, _ = walkPolicy(policyFixture(t), target); len(roots) > 0 || svc.Layers[3].Status != diagnosis.OK {
		t.Errorf("no policy: roots %v\n%s", roots, describe(svc))
	}
}

// A node with a backend is let in there, whatever the policies say; from the
// address of one that has none, nobody is.
func TestPolicyEntryNode(t *testing.T) {
	s := policyFixture(t, denyIn)
	svc, roots, _ := walkPolicy(s, callFrom("external"))
	if !slices.Equal(roots, []string{"VIP410"}) {
		t.Errorf("both nodes have a backend: roots %v\n%s", roots, describe(svc))
	}
	addWorker3(s)
	svc, roots, _ = walkPolicy(s, callFrom("external"))
	if !slices.Equal(roots, []string{"VIP401"}) {
		t.Errorf("worker-3 has none: roots %v\n%s", roots, describe(svc))
	}
	if e := fmt.Sprint(svc.Diagnoses[0].Evidence); !strings.Contains(e, "externalTrafficPolicy is Cluster") {
		t.Errorf("it is not said as whom the backends see the client: %s", e)
	}
	svc, _, _ = walkPolicy(s, func(o *Options) { o.Client = Client{Kind: FromAddress, Addr: netip.MustParseAddr("172.31.250.13")} })
	if svc.Layers[3].Status != diagnosis.Fail {
		t.Errorf("a node's address is not taken for the node\n%s", describe(svc))
	}
}
