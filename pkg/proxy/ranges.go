package proxy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// sourceRanges are spec.loadBalancerSourceRanges of one family; nil where they
// exclude nobody (a /0 among them counts as that).
func sourceRanges(svc *corev1.Service, v6 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range svc.Spec.LoadBalancerSourceRanges {
		p, ok := parsePrefix(s)
		if !ok || p.Addr().Is6() != v6 {
			continue
		}
		if p.Bits() == 0 {
			return nil
		}
		out = append(out, p)
	}
	return out
}

// rangesAdmit says whether a client may use a load balancer's address. Where it
// hangs on an address that is not known, it is admitted and unsure says so.
func rangesAdmit(svc *corev1.Service, node Node, client ClientKind, addr netip.Addr, f Frontend) (admitted bool, unsure string) {
	ranges := sourceRanges(svc, f.V6)
	if ranges == nil {
		return true, ""
	}
	var mine []netip.Addr
	for _, a := range node.Addresses {
		if a.Is6() == f.V6 {
			mine = append(mine, a)
		}
	}
	in := func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if addr.IsValid() {
		// A packet of the node to the load balancer's address may carry that very
		// address as its source; it is admitted where the node is.
		return in(addr) || (isLoadBalancerAddr(svc, addr) && slices.ContainsFunc(mine, in)), ""
	}
	if client == NodeClient && len(mine) > 0 {
		switch admits := slices.ContainsFunc(mine, in); {
		case !admits:
			return false, ""
		case !slices.ContainsFunc(mine, func(a netip.Addr) bool { return !in(a) }):
			return true, ""
		}
	}
	return true, "loadBalancerSourceRanges admit some clients only, and the client's address is not known"
}

func isLoadBalancerAddr(svc *corev1.Service, addr netip.Addr) bool {
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(ing corev1.LoadBalancerIngress) bool {
		ip, ok := ParseAddr(ing.IP)
		return ok && ip == addr
	})
}
