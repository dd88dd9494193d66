package incidents

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Captured returns the incidents to make bundles of: All, those that the API's
// objects show and that this cluster does not make traffic feel, because
// nothing in it enforces a NetworkPolicy, and those of nftables mode alone.
func Captured() []Incident {
	all := append(All(), inMode(iptablesMode, policyFaults())...)
	for _, i := range Nftables() {
		if strings.HasPrefix(i.Name, "nft-") {
			all = append(all, i)
		}
	}
	return all
}

func policyFaults() []Incident {
	return []Incident{
		{
			Name: "policy-service-port", Fault: "the NetworkPolicy names the Service's port, and policies see the pod's", Code: "VIP404", Target: orders,
			Break: createPolicy(intstr.FromInt32(80)), Heal: deletePolicy,
		},
		{
			Name: "policy-healthy", Fault: "none: the NetworkPolicy names the pod's port", Target: orders,
			Break: createPolicy(intstr.FromString("http")), Heal: deletePolicy,
		},
	}
}

// createPolicy isolates orders, but for pods of any namespace on the port.
func createPolicy(port intstr.IntOrString) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		tcp := corev1.ProtocolTCP
		policy := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "orders"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: ordersLabels},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{
					From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}},
					Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
				}},
			},
		}
		if _, err := s.Cluster.Client.NetworkingV1().NetworkPolicies(production).Create(ctx, policy, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating networkpolicy orders: %w", err)
		}
		return nil
	}
}

func deletePolicy(ctx context.Context, s *Scene) error {
	if err := s.Cluster.Client.NetworkingV1().NetworkPolicies(production).Delete(ctx, "orders", metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting networkpolicy orders: %w", err)
	}
	return nil
}
