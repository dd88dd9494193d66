package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// headlessLabel is what the EndpointSlice controller puts on a headless
// Service's slices, for kube-proxy to leave them out.
const headlessLabel = corev1.IsHeadlessService

// endpoint is a Backend with the hints that come with it.
type endpoint struct {
	Backend
	hints *discoveryv1.EndpointHints
}

// endpointsOf lists the endpoints of one Service port in one family, each
// ip:port once, sorted by address: what kube-proxy's EndpointsMap holds for it.
func endpointsOf(svc *corev1.Service, sls []*discoveryv1.EndpointSlice, node string, f Frontend) []endpoint {
	byAddr := map[netip.AddrPort]endpoint{}
	for _, sl := range sls {
		if !watched(svc, sl) {
			continue
		}
		port, ok := slicePort(sl, f)
		if !ok {
			continue
		}
		for i := range sl.Endpoints {
			e, ok := sliceEndpoint(sl, &sl.Endpoints[i], port, node, f.V6)
			if !ok {
				continue
			}
			if old, dup := byAddr[e.Addr]; !dup || preferred(e, old) {
				byAddr[e.Addr] = e
			}
		}
	}
	out := make([]endpoint, 0, len(byAddr))
	for _, e := range byAddr {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b endpoint) int {
		return cmp.Or(a.Addr.Addr().Compare(b.Addr.Addr()), cmp.Compare(a.Addr.Port(), b.Addr.Port()))
	})
	return out
}

// watched says whether kube-proxy sees the slice, and counts it to the Service.
// The informer's label selector leaves out headless Services' slices, and those
// that another proxy is to serve; the controller copies these labels from the
// Service.
func watched(svc *corev1.Service, sl *discoveryv1.EndpointSlice) bool {
	if sl == nil || sl.Namespace != svc.Namespace || sl.Labels[discoveryv1.LabelServiceName] != svc.Name {
		return false
	}
	_, headless := sl.Labels[headlessLabel]
	_, elsewhere := sl.Labels[serviceProxyNameLabel]
	return !headless && !elsewhere
}

// slicePort finds the number that a slice gives to a Service port: by name and
// protocol, never by number. The API server defaults a name to "" and a
// protocol to TCP, so that a slice from a file may leave them out.
func slicePort(sl *discoveryv1.EndpointSlice, f Frontend) (uint16, bool) {
	want := discoveryv1.AddressTypeIPv4
	if f.V6 {
		want = discoveryv1.AddressTypeIPv6
	}
	if sl.AddressType != want {
		return 0, false
	}
	for _, p := range sl.Ports {
		name, proto := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil && *p.Protocol != "" {
			proto = *p.Protocol
		}
		if name != f.PortName || proto != f.Protocol || p.Port == nil || *p.Port <= 0 || *p.Port > 65535 {
			continue
		}
		return uint16(*p.Port), true
	}
	return 0, false
}

func sliceEndpoint(sl *discoveryv1.EndpointSlice, ep *discoveryv1.Endpoint, port uint16, node string, v6 bool) (endpoint, bool) {
	if len(ep.Addresses) == 0 {
		return endpoint{}, false
	}
	ip, ok := parseFamily(ep.Addresses[0], v6)
	if !ok {
		return endpoint{}, false
	}
	e := endpoint{hints: ep.Hints, Backend: Backend{
		Addr:        netip.AddrPortFrom(ip, port),
		Slice:       sl.Name,
		TargetRef:   targetRef(sl, ep),
		Ready:       ep.Conditions.Ready == nil || *ep.Conditions.Ready,
		Serving:     ep.Conditions.Serving == nil || *ep.Conditions.Serving,
		Terminating: ep.Conditions.Terminating != nil && *ep.Conditions.Terminating,
	}}
	if ep.NodeName != nil {
		e.Node = *ep.NodeName
		e.Local = e.Node == node && node != ""
	}
	return e, true
}

func targetRef(sl *discoveryv1.EndpointSlice, ep *discoveryv1.Endpoint) string {
	if ep.TargetRef == nil {
		return ""
	}
	ns := ep.TargetRef.Namespace
	if ns == "" {
		ns = sl.Namespace
	}
	return strings.ToLower(ep.TargetRef.Kind) + "/" + ns + "/" + ep.TargetRef.Name
}

// preferred says which of two entries with one address counts, where slices
// overlap: since 1.37 one that is not terminating, up to 1.34 a local one.
func preferred(a, b endpoint) bool {
	if a.Terminating != b.Terminating {
		return !a.Terminating
	}
	return a.Local && !b.Local
}
