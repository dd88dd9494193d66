package netpol

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// pod is what policies see of a Pod.
type pod struct {
	object      *corev1.Pod
	namespace   string
	labels      labels.Set
	node        string
	hostAddrs   []netip.Addr // its node's, from status.hostIPs
	addrs       []netip.Addr // its own, from status.podIPs, primary first
	hostNetwork bool
	// finished: Succeeded and Failed pods keep status.podIP, which may be
	// another pod's by now (kubernetes/kubernetes#92697).
	finished bool
	ports    []namedPort
	ingress  isolation
	egress   isolation
}

// namedPort is a port that a container declares under a name.
type namedPort struct {
	name     string
	protocol corev1.Protocol
	number   int32
	sidecar  bool // by an init container with restartPolicy Always
}

func readPod(p *corev1.Pod) *pod {
	out := &pod{
		object:      p,
		namespace:   namespaceOrDefault(p.Namespace),
		labels:      p.Labels,
		node:        p.Spec.NodeName,
		hostNetwork: p.Spec.HostNetwork,
		finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	for _, ip := range p.Status.PodIPs {
		out.addrs = appendAddr(out.addrs, ip.IP)
	}
	out.addrs = appendAddr(out.addrs, p.Status.PodIP)
	for _, ip := range p.Status.HostIPs {
		out.hostAddrs = appendAddr(out.hostAddrs, ip.IP)
	}
	out.hostAddrs = appendAddr(out.hostAddrs, p.Status.HostIP)
	if p.Spec.HostNetwork && len(out.addrs) == 0 {
		out.addrs = out.hostAddrs
	}
	for _, c := range p.Spec.Containers {
		out.addPorts(c.Ports, false)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out.addPorts(c.Ports, true)
		}
	}
	return out
}

func (p *pod) addPorts(ports []corev1.ContainerPort, sidecar bool) {
	for _, cp := range ports {
		if cp.Name == "" {
			continue
		}
		protocol := cp.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		p.ports = append(p.ports, namedPort{cp.Name, protocol, cp.ContainerPort, sidecar})
	}
}

// same: the two are one pod, though perhaps read twice.
func (p *pod) same(q *pod) bool {
	return p == q || p.namespace == q.namespace && p.object.Name == q.object.Name && p.object.Name != ""
}

// onNode says whether the endpoint is the node that the pod runs on.
func (p *pod) onNode(e endpoint) bool {
	if e.node != "" && p.node != "" {
		return e.node == p.node
	}
	for _, a := range e.addrs {
		for _, h := range p.hostAddrs {
			if a == h {
				return true
			}
		}
	}
	return false
}

func appendAddr(to []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return to // absent, or no address: the same as not known
	}
	a = a.Unmap()
	for _, have := range to {
		if have == a {
			return to
		}
	}
	return append(to, a)
}

func namespaceOrDefault(ns string) string {
	if ns == "" {
		return corev1.NamespaceDefault
	}
	return ns
}
