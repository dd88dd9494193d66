package cluster

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Scope says what a walk, or a capture, is about, and so what has to be read.
type Scope struct {
	// Namespaces are those whose Services are walked. With All, or with none
	// at all, every namespace is read.
	Namespaces []string
	All        bool
	// Services are the Services asked about, where they are known by name.
	// Their namespaces count as listed in Namespaces. They decide what is read
	// beyond the first round.
	Services []types.NamespacedName
	// ClientPod is the pod that calls, where --from names one.
	ClientPod *types.NamespacedName
	// ResolveAddress is set where a target is an address or a node port, whose
	// owner may be in any namespace. Addresses and NodePorts narrow down what is
	// then read of the others; with neither everything is read.
	ResolveAddress bool
	Addresses      []netip.Addr
	NodePorts      []int32
	// Full reads every kind that a Snapshot holds, for a capture.
	Full bool
}

// everywhere says whether all namespaces are walked.
func (s *Scope) everywhere() bool {
	return s.All || (len(s.namespaces()) == 0 && (!s.ResolveAddress || !s.narrow()))
}

func (s *Scope) narrow() bool { return len(s.Addresses)+len(s.NodePorts) > 0 }

// namespaces are those that are named, each once, in the order given.
func (s *Scope) namespaces() []string {
	var out []string
	seen := map[string]bool{"": true}
	add := func(ns string) {
		if !seen[ns] {
			seen[ns] = true
			out = append(out, ns)
		}
	}
	for _, ns := range s.Namespaces {
		add(ns)
	}
	for _, svc := range s.Services {
		add(svc.Namespace)
	}
	return out
}

// owns says whether a Service may own one of the addresses asked about.
func (s *Scope) owns(svc *corev1.Service) bool {
	for _, p := range svc.Spec.Ports {
		for _, np := range s.NodePorts {
			if p.NodePort == np {
				return true
			}
		}
	}
	texts := append([]string{svc.Spec.ClusterIP, svc.Spec.LoadBalancerIP}, svc.Spec.ClusterIPs...)
	texts = append(texts, svc.Spec.ExternalIPs...)
	for _, in := range svc.Status.LoadBalancer.Ingress {
		texts = append(texts, in.IP)
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			for _, want := range s.Addresses {
				if a.Unmap() == want.Unmap() {
					return true
				}
			}
		}
	}
	return false
}
