package walk

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// policyCluster is 100 namespaces of 10 Services of 5 pods each, every
// namespace with a default deny and one policy that admits by three kinds of
// peer. Every Service has its own value of app, and the policies name app, so
// that there are 1,000 kinds of client. port is the one that they admit.
func policyCluster(port int32) *snapshot.Snapshot {
	s := &snapshot.Snapshot{TakenAt: takenAt}
	for _, r := range snapshot.Resources {
		s.Reads.Add(snapshot.Read{Resource: r, Status: snapshot.Done})
	}
	for n := range 100 {
		ns := fmt.Sprintf("ns-%d", n)
		s.Objects.Namespaces = append(s.Objects.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"team": fmt.Sprint(n % 7)}}})
		for i := range 10 {
			addPolicyService(s, ns, n, i)
		}
		admit := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "admit"}}
		admit.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			Ports: []networkingv1.NetworkPolicyPort{{Port: ptr(intstr.FromInt32(port))}},
			From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "svc-1"}}},
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "3"}}, PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"svc-2", "svc-3"}}}}},
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}},
			},
		}}
		deny := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deny"}}
		s.Objects.NetworkPolicies = append(s.Objects.NetworkPolicies, admit, deny)
	}
	return s
}

func addPolicyService(s *snapshot.Snapshot, ns string, n, i int) {
	name := fmt.Sprintf("svc-%d", i)
	vip := fmt.Sprintf("10.96.%d.%d", n, i+1)
	s.Objects.Services = append(s.Objects.Services, corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: vip, ClusterIPs: []string{vip}, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	})
	slice := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr(""), Port: ptr(int32(8080)), Protocol: ptr(corev1.ProtocolTCP)}},
	}
	for e := range 5 {
		ip := fmt.Sprintf("10.%d.%d.%d", 100+n, i, e+1)
		pod := readyPod(ns, fmt.Sprintf("%s-%d", name, e), ip, fmt.Sprintf("node-%d", e))
		pod.Labels = map[string]string{"app": name, "pod-template-hash": "abc"}
		s.Objects.Pods = append(s.Objects.Pods, pod)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: pod.Name},
		})
	}
	s.Objects.EndpointSlices = append(s.Objects.EndpointSlices, slice)
}

// BenchmarkPolicyLayer judges 1,000 Services of 5,000 pods by 200 policies for
// any client: some are admitted, or (names the Service's port) none is, so that
// near misses are looked for.
func BenchmarkPolicyLayer(b *testing.B) {
	for name, port := range map[string]int32{"admitted": 8080, "shut": 80} {
		s := policyCluster(port)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := newWorld(s, Options{All: true})
				for _, q := range w.resolve() {
					p := w.pass(q)
					for _, c := range policyChecks {
						p.runCheck(4, c)
					}
					summarisePolicy(p)
				}
			}
		})
	}
}
