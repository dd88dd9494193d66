package snapshot

import (
	networkingv1 "k8s.io/api/networking/v1"
)

// StripNetworkPolicy keeps the spec whole.
func StripNetworkPolicy(in *networkingv1.NetworkPolicy) networkingv1.NetworkPolicy {
	return networkingv1.NetworkPolicy{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: labelSelector(&in.Spec.PodSelector),
			PolicyTypes: copySlice(in.Spec.PolicyTypes),
			Ingress: each(in.Spec.Ingress, func(r *networkingv1.NetworkPolicyIngressRule) networkingv1.NetworkPolicyIngressRule {
				return networkingv1.NetworkPolicyIngressRule{Ports: each(r.Ports, policyPort), From: each(r.From, policyPeer)}
			}),
			Egress: each(in.Spec.Egress, func(r *networkingv1.NetworkPolicyEgressRule) networkingv1.NetworkPolicyEgressRule {
				return networkingv1.NetworkPolicyEgressRule{Ports: each(r.Ports, policyPort), To: each(r.To, policyPeer)}
			}),
		},
	}
}

func policyPort(in *networkingv1.NetworkPolicyPort) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: copyPtr(in.Protocol), Port: copyPtr(in.Port), EndPort: copyPtr(in.EndPort)}
}

// policyPeer keeps an empty selector apart from none: the first selects
// everything.
func policyPeer(in *networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{
		PodSelector:       with(in.PodSelector, labelSelector),
		NamespaceSelector: with(in.NamespaceSelector, labelSelector),
		IPBlock: with(in.IPBlock, func(b *networkingv1.IPBlock) networkingv1.IPBlock {
			return networkingv1.IPBlock{CIDR: b.CIDR, Except: copySlice(b.Except)}
		}),
	}
}
