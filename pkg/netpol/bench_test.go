package netpol

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// cluster is 50 namespaces of 40 pods and 6 policies each.
func cluster() Objects {
	var objs Objects
	port := intstr.FromInt32(8080)
	for n := range 50 {
		ns := fmt.Sprintf("ns-%d", n)
		objs.Namespaces = append(objs.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"team": fmt.Sprint(n % 5)}}})
		for p := range 40 {
			objs.Pods = append(objs.Pods, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("pod-%d", p), Labels: map[string]string{"app": fmt.Sprint(p % 8), "tier": fmt.Sprint(p % 3)}},
				Status:     corev1.PodStatus{PodIP: fmt.Sprintf("10.%d.0.%d", n, p+1)},
			})
		}
		for p := range 6 {
			objs.Policies = append(objs.Policies, networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("policy-%d", p)},
				Spec: networkingv1.NetworkPolicySpec{
					PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(p)}},
					Ingress: []networkingv1.NetworkPolicyIngressRule{{
						Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
						From: []networkingv1.NetworkPolicyPeer{
							{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}},
							{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "2"}}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "2"}}},
							{IPBlock: &networkingv1.IPBlock{CIDR: "192.168.0.0/16"}},
						},
					}},
				},
			})
		}
	}
	return objs
}

// flow is the i-th of many, spread over the pods.
func (s scene) flow(i int) Flow {
	pods := s.objs.Pods
	return Flow{From: PodPeer(&pods[i*7919%len(pods)]), To: PodPeer(&pods[i*104729%len(pods)]), Port: 8080}
}

func BenchmarkNew(b *testing.B) {
	objs := cluster()
	for b.Loop() {
		New(objs)
	}
}

// BenchmarkEvaluate10000 asks about 10,000 flows among 2,000 pods.
func BenchmarkEvaluate10000(b *testing.B) {
	objs := cluster()
	s := scene{New(objs), objs}
	for b.Loop() {
		for i := range 10000 {
			s.Evaluate(s.flow(i))
		}
	}
}

func BenchmarkNearMisses(b *testing.B) {
	objs := cluster()
	s := scene{New(objs), objs}
	i := 0
	for b.Loop() {
		s.NearMisses(s.flow(i), Ingress)
		i++
	}
}
