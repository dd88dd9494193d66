package proxy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// serviceProxyNameLabel makes kube-proxy leave a Service to another proxy.
const serviceProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// Frontends lists every address and port at which kube-proxy serves the
// Service: ClusterIPs, node ports, external IPs and load balancer IPs, for each
// port, IPv4 before IPv6. A headless or ExternalName Service has none, nor has
// one that the label service.kubernetes.io/service-proxy-name gives to another
// proxy.
func Frontends(svc *corev1.Service) []Frontend {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	if _, elsewhere := svc.Labels[serviceProxyNameLabel]; elsewhere {
		return nil
	}
	var out []Frontend
	for _, v6 := range []bool{false, true} {
		vip, ok := clusterIP(svc, v6)
		if !ok {
			continue // invisible to that family's proxier
		}
		for i := range svc.Spec.Ports {
			out = append(out, portFrontends(svc, &svc.Spec.Ports[i], vip, v6)...)
		}
	}
	return out
}

func portFrontends(svc *corev1.Service, port *corev1.ServicePort, vip netip.Addr, v6 bool) []Frontend {
	f := Frontend{
		Kind: ClusterIP, IP: vip, Port: port.Port, ServicePort: port.Port, Protocol: port.Protocol,
		PortName: port.Name, TargetPort: port.TargetPort, V6: v6,
	}
	if f.Protocol == "" {
		f.Protocol = corev1.ProtocolTCP
	}
	out := []Frontend{f}
	add := func(kind Kind, ip netip.Addr, n int32) {
		g := f
		g.Kind, g.IP, g.Port = kind, ip, n
		out = append(out, g)
	}
	for _, s := range svc.Spec.ExternalIPs {
		if ip, ok := parseFamily(s, v6); ok {
			add(ExternalIP, ip, port.Port)
		}
	}
	for _, ing := range svc.Status.LoadBalancer.Ingress {
		// ipMode Proxy means that the load balancer terminates the address
		// itself; kube-proxy writes no rules for it (KEP-1860).
		if ing.IPMode != nil && *ing.IPMode == corev1.LoadBalancerIPModeProxy {
			continue
		}
		if ip, ok := parseFamily(ing.IP, v6); ok {
			add(LoadBalancer, ip, port.Port)
		}
	}
	if port.NodePort != 0 {
		add(NodePort, netip.Addr{}, port.NodePort)
	}
	return out
}

// clusterIP finds the Service's ClusterIP of one family: by the index of the
// family in ipFamilies, or by clusterIP itself where ipFamilies is not set.
func clusterIP(svc *corev1.Service, v6 bool) (netip.Addr, bool) {
	want := corev1.IPv4Protocol
	if v6 {
		want = corev1.IPv6Protocol
	}
	for i, fam := range svc.Spec.IPFamilies {
		if fam == want && i < len(svc.Spec.ClusterIPs) {
			return parseFamily(svc.Spec.ClusterIPs[i], v6)
		}
	}
	for _, s := range append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...) {
		if ip, ok := parseFamily(s, v6); ok {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

func parseFamily(s string, v6 bool) (netip.Addr, bool) {
	ip, ok := ParseAddr(s)
	return ip, ok && ip.Is6() == v6
}
