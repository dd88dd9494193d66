package proxy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Expect says what one node's kube-proxy ought to do with a new connection of
// a client to one of the Service's frontends. The slices may be more than the
// Service's own; those that kube-proxy would not count to it are left out. A
// hairpin (a backend that draws itself) is apart from Masquerade; it always
// needs it.
func Expect(svc *corev1.Service, sls []*discoveryv1.EndpointSlice, node Node, client ClientKind, f Frontend) Expectation {
	return ExpectFrom(svc, sls, node, client, netip.Addr{}, f)
}

// ExpectFrom is Expect for a client whose address is known:
// loadBalancerSourceRanges admit it or not. An invalid Addr is not known.
func ExpectFrom(svc *corev1.Service, sls []*discoveryv1.EndpointSlice, node Node, client ClientKind, addr netip.Addr, f Frontend) Expectation {
	e := Expectation{Frontend: f, Masquerade: MasqNo}
	if why := ignored(svc, f); why != "" {
		e.Action, e.Why = Ignore, why
		return e
	}
	c := categorize(endpointsOf(svc, sls, node.Name, f), node)
	if node.IPVS {
		e.expectIPVS(svc, c, node, client, addr)
		return e
	}
	if !c.usable {
		// In iptables mode a client outside the source ranges is refused too: the
		// firewall chain is written only where there are endpoints.
		e.Action, e.Why = Reject, "no ready endpoint"
		return e
	}
	if f.Kind == LoadBalancer {
		admitted, unsure := rangesAdmit(svc, node, client, addr, f)
		if !admitted {
			e.Action, e.Why = Drop, "loadBalancerSourceRanges do not admit the client"
			return e
		}
		e.Unsure = unsure
	}
	local, policy := localOnly(svc, node, client, f)
	e.choose(c, local, policy, node)
	if e.Action == Forward {
		e.Masquerade = masquerade(node, client, f, ExternalLocal(svc))
	}
	return e
}

// ExpectAll is Expect for each of the Service's frontends.
func ExpectAll(svc *corev1.Service, sls []*discoveryv1.EndpointSlice, node Node, client ClientKind) []Expectation {
	var out []Expectation
	for _, f := range Frontends(svc) {
		out = append(out, Expect(svc, sls, node, client, f))
	}
	return out
}

// choose takes the list that the traffic policy calls for.
func (e *Expectation) choose(c categories, local bool, policy string, node Node) {
	list := c.cluster
	switch {
	case local:
		list, e.Why = c.local, policy+" Local: endpoints on "+node.Name+" only"
	default:
		e.Topology, e.Why = c.topology, c.topology.String()
	}
	if !local && c.unsureTopology {
		e.Unsure = "the endpoints carry topology hints, and the zone of " + node.Name + " is not known"
	}
	if len(list) == 0 {
		e.Action, e.Why = Drop, policy+" Local and no endpoint on "+node.Name
		return
	}
	if !list[0].Ready {
		e.Why = also(e.Why, "only terminating endpoints that still serve are left")
	}
	e.Action = Forward
	for _, ep := range list {
		e.Backends = append(e.Backends, ep.Backend)
	}
}

func also(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// ignored says why kube-proxy programs nothing for a frontend, "" if it does.
func ignored(svc *corev1.Service, f Frontend) string {
	switch {
	case svc == nil:
		return "there is no such Service"
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return "an ExternalName Service has no virtual IP"
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return "a headless Service has no virtual IP"
	}
	if by, elsewhere := svc.Labels[serviceProxyNameLabel]; elsewhere {
		return "the label " + serviceProxyNameLabel + " gives the Service to the proxy \"" + by + "\""
	}
	for _, have := range Frontends(svc) {
		if have.Kind == f.Kind && have.IP == f.IP && have.Port == f.Port && have.Protocol == f.Protocol && have.V6 == f.V6 {
			return ""
		}
	}
	if f.Kind == LoadBalancer {
		for _, ing := range svc.Status.LoadBalancer.Ingress {
			if ip, ok := ParseAddr(ing.IP); ok && ip == f.IP && ing.IPMode != nil && *ing.IPMode == corev1.LoadBalancerIPModeProxy {
				return "ipMode Proxy: the load balancer terminates the address itself"
			}
		}
	}
	return "the Service has no such address and port"
}

// localOnly says whether this client is held to the node's own endpoints, by
// which policy. Pods and the node's own processes are let through to every
// endpoint under externalTrafficPolicy Local: a load balancer would not have
// sent them to a node without one. Without a local-traffic detector kube-proxy
// cannot tell a pod.
func localOnly(svc *corev1.Service, node Node, client ClientKind, f Frontend) (bool, string) {
	if f.Kind == ClusterIP {
		return InternalLocal(svc), "internalTrafficPolicy"
	}
	if !ExternalLocal(svc) {
		return false, "externalTrafficPolicy"
	}
	short := client == NodeClient || (client == PodClient && node.DetectLocal != SettingOff)
	return !short, "externalTrafficPolicy"
}

func masquerade(node Node, client ClientKind, f Frontend, externalLocal bool) Masquerade {
	switch {
	case f.Kind != ClusterIP && !externalLocal:
		return MasqYes
	case f.Kind != ClusterIP && client == NodeClient:
		return MasqYes
	case f.Kind != ClusterIP:
		return MasqNo
	case node.MasqueradeAll == SettingOn:
		return MasqYes
	case client == PodClient:
		return MasqNo
	}
	switch node.DetectLocal {
	case SettingOn:
		return MasqYes
	case SettingOff:
		return MasqNo
	}
	return MasqMaybe
}
