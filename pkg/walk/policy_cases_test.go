package walk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// casePolicies reads the policies of a published incident in place. Its
// documents may be of an API version that is gone; the spec is the same.
func casePolicies(t *testing.T, dir, file string) []networkingv1.NetworkPolicy {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", dir, file))
	if os.IsNotExist(err) {
		t.Skipf("the published incidents are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []networkingv1.NetworkPolicy
	for _, doc := range strings.Split("\n"+string(raw), "\n---") {
		var pol networkingv1.NetworkPolicy
		if err := yaml.Unmarshal([]byte(doc), &pol); err != nil {
			t.Fatal(err)
		}
		if pol.Name != "" {
			out = append(out, pol)
		}
	}
	return out
}

// caseCluster is namespaces with their labels and pods, and one Service over
// the pods labelled backend=yes.
type caseCluster struct{ *snapshot.Snapshot }

func newCase(policies []networkingv1.NetworkPolicy, namespace string, port, target int32) caseCluster {
	c := caseCluster{&snapshot.Snapshot{TakenAt: takenAt}}
	for _, r := range snapshot.Resources {
		c.Reads.Add(snapshot.Read{Resource: r, Status: snapshot.Done})
	}
	c.Objects.NetworkPolicies = policies
	c.Objects.Services = []corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "target"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.87", ClusterIPs: []string{"10.96.0.87"}, Selector: map[string]string{"backend": "yes"},
			Ports: []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(target)}},
		},
	}}
	c.Objects.EndpointSlices = []discoveryv1.EndpointSlice{{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "target-1", Labels: map[string]string{discoveryv1.LabelServiceName: "target"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr(""), Port: ptr(target), Protocol: ptr(corev1.ProtocolTCP)}},
	}}
	return c
}

func (c caseCluster) namespace(name string, labels map[string]string) {
	c.Objects.Namespaces = append(c.Objects.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func (c caseCluster) pod(ns, name, ip string, labels map[string]string) *corev1.Pod {
	pod := readyPod(ns, name, ip, "node-"+name)
	pod.Labels = labels
	c.Objects.Pods = append(c.Objects.Pods, pod)
	if labels["backend"] == "yes" {
		sl := &c.Objects.EndpointSlices[0]
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: name},
		})
	}
	return &c.Objects.Pods[len(c.Objects.Pods)-1]
}

// Incidents that people have reported, with the policies as they were posted.
func TestPublishedPolicyIncidents(t *testing.T) {
	tests := []struct {
		name, dir, file string
		make            func([]networkingv1.NetworkPolicy) caseCluster
		from            Client
		roots, folded   []string
		says            string
		status          string
	}{
		{
			name: "the Service's port instead of the pod's", dir: "087-netpol-service-port-vs-target-port-egress", file: "netpol.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return serviceAndTargetPort(pols, 8080) },
			from: Client{Kind: OnePod, Namespace: "default", Name: "backend"}, roots: []string{"VIP404"}, folded: []string{"VIP402"}, says: "80/TCP; policies see the pod's, 8080/TCP", status: "fail",
		},
		{
			name: "its twin: the pod listens on 80", dir: "087-netpol-service-port-vs-target-port-egress", file: "netpol.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return serviceAndTargetPort(pols, 80) },
			from: Client{Kind: OnePod, Namespace: "default", Name: "backend"}, status: "ok",
		},
		{
			name: "a podSelector for another namespace's pods", dir: "094-netpol-ingress-nginx-wrong-namespace", file: "netpol.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return ingressController(pols, "ingress-nginx") },
			from: Client{Kind: OnePod, Namespace: "ingress-nginx", Name: "controller"}, roots: []string{"VIP406"}, folded: []string{"VIP401"}, says: "without a namespaceSelector", status: "fail",
		},
		{
			name: "its twin: the controller is in the policy's namespace", dir: "094-netpol-ingress-nginx-wrong-namespace", file: "netpol.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return ingressController(pols, "payment-gateway") },
			from: Client{Kind: OnePod, Namespace: "payment-gateway", Name: "controller"}, status: "ok",
		},
		{
			name: "a client on its node's network", dir: "096-netpol-hostnetwork-ingress-namespaceselector", file: "netpol.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return adminClient(pols, true) },
			from: Client{Kind: OnePod, Namespace: "admin", Name: "ingress"}, roots: []string{"VIP406"}, folded: []string{"VIP401"}, says: "its node's network", status: "fail",
		},
		{
			name: "its twin: a client with a network of its own", dir: "096-netpol-hostnetwork-ingress-namespaceselector", file: "netpol.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return adminClient(pols, false) },
			from: Client{Kind: OnePod, Namespace: "admin", Name: "ingress"}, status: "ok",
		},
		{
			name: "a named port that one of two backends declares", dir: "098-netpol-named-port-egress", file: "netpol-named-egress.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return namedPort(pols, "a") },
			from: Client{Kind: OnePod, Namespace: "x", Name: "a"}, roots: []string{"VIP410"}, says: "1 of 2 backends", status: "fail",
		},
		{
			name: "its twin: both declare it", dir: "098-netpol-named-port-egress", file: "netpol-named-egress.yaml",
			make: func(pols []networkingv1.NetworkPolicy) caseCluster { return namedPort(pols, "a", "b") },
			from: Client{Kind: OnePod, Namespace: "x", Name: "a"}, status: "ok",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.make(casePolicies(t, tt.dir, tt.file))
			svc, roots, folded := walkPolicy(c.Snapshot, func(o *Options) {
				o.Client = tt.from
				o.Targets = []Target{{Namespace: c.Objects.Services[0].Namespace, Name: "target"}}
			})
			if !slices.Equal(roots, tt.roots) || !slices.Equal(folded, tt.folded) || string(svc.Layers[3].Status) != tt.status {
				t.Fatalf("roots %v, folded %v; want %v, %v, %s\n%s", roots, folded, tt.roots, tt.folded, tt.status, describe(svc))
			}
			for _, d := range svc.Diagnoses {
				if d.Layer != 4 || len(d.CausedBy) > 0 {
					continue
				}
				if !strings.Contains(d.Title, tt.says) {
					t.Errorf("says %q, want %q", d.Title, tt.says)
				}
				if got := d.Fixes[0].Simulated; got.Status != "confirmed" {
					t.Errorf("the fix is %s: %s", got.Status, got.Why)
				}
			}
		})
	}
}

func serviceAndTargetPort(pols []networkingv1.NetworkPolicy, target int32) caseCluster {
	c := newCase(pols, "default", 80, target)
	c.namespace("default", nil)
	c.pod("default", "db1", "10.244.1.5", map[string]string{"app": "db1", "backend": "yes"})
	c.pod("default", "backend", "10.244.1.6", map[string]string{"app": "backend"})
	return c
}

func ingressController(pols []networkingv1.NetworkPolicy, namespace string) caseCluster {
	c := newCase(pols, "payment-gateway", 80, 8080)
	c.namespace("payment-gateway", nil)
	c.namespace("ingress-nginx", nil)
	c.pod("payment-gateway", "gateway", "10.244.1.5", map[string]string{"app": "gateway", "backend": "yes"})
	c.pod(namespace, "controller", "10.244.1.6", map[string]string{"app": "ingress-nginx"})
	return c
}

func adminClient(pols []networkingv1.NetworkPolicy, hostNetwork bool) caseCluster {
	c := newCase(pols, "app01", 80, 8080)
	c.namespace("app01", map[string]string{"project": "app01"})
	c.namespace("admin", map[string]string{"scope": "admin"})
	c.pod("app01", "web", "10.244.1.5", map[string]string{"app": "web", "backend": "yes"})
	pod := c.pod("admin", "ingress", "172.18.0.9", map[string]string{"app": "ingress"})
	pod.Spec.HostNetwork = hostNetwork
	return c
}

// namedPort declares serve-81-tcp in the backends of these names.
func namedPort(pols []networkingv1.NetworkPolicy, declaring ...string) caseCluster {
	c := newCase(pols, "y", 81, 81)
	c.namespace("x", map[string]string{"ns": "x"})
	c.namespace("y", map[string]string{"ns": "y"})
	for i, name := range []string{"a", "b"} {
		pod := c.pod("y", name, []string{"10.244.1.5", "10.244.1.6"}[i], map[string]string{"pod": name, "backend": "yes"})
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "serve-80-tcp", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
		if slices.Contains(declaring, name) {
			pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "serve-81-tcp", ContainerPort: 81, Protocol: corev1.ProtocolTCP})
		}
	}
	c.pod("x", "a", "10.244.1.7", map[string]string{"pod": "a"})
	return c
}
