package walk

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// facts are what several checks need to know of one Service; each is computed
// when it is first asked for.
type facts struct {
	selected  *[]*corev1.Pod
	endpoints *[]Endpoint
	// byPod and byAddr index endpoints; see endpointsOf.
	byPod  map[*corev1.Pod][]int
	byAddr map[netip.Addr][]int
}

// SelectedPods are the pods that the Service's selector matches and that have
// not finished: what the endpoints controllers look at. Pods that are pending,
// unready or terminating are among them. Ask Has(Pods) first: nil is "none"
// only if pods were read.
func (p *Pass) SelectedPods() []*corev1.Pod {
	if p.facts.selected == nil {
		var out []*corev1.Pod
		for _, pod := range p.podsMatching(p.Service.Namespace, p.Service.Spec.Selector) {
			if !finished(pod) {
				out = append(out, pod)
			}
		}
		p.facts.selected = &out
	}
	return *p.facts.selected
}

// Slices are the EndpointSlices that belong to the Service by the label
// kubernetes.io/service-name: what kube-proxy looks at.
func (p *Pass) Slices() []*discoveryv1.EndpointSlice {
	return p.slicesByService[types.NamespacedName{Namespace: p.Service.Namespace, Name: p.Service.Name}]
}

// Endpoint is one entry of an EndpointSlice, with the API's defaults applied:
// conditions that are not set count as ready and serving.
type Endpoint struct {
	Slice *discoveryv1.EndpointSlice
	// Index is its place in Slice.Endpoints.
	Index int
	// Addr is addresses[0], the only one that kube-proxy uses; invalid for a
	// slice of type FQDN or a malformed address.
	Addr                        netip.Addr
	Ready, Serving, Terminating bool
	Node                        string
	// Pod is what targetRef names, nil where it names none or the pod is not
	// in the snapshot.
	Pod *corev1.Pod
}

// Endpoints are all entries of Slices.
func (p *Pass) Endpoints() []Endpoint {
	if p.facts.endpoints == nil {
		var out []Endpoint
		for _, sl := range p.Slices() {
			for i := range sl.Endpoints {
				out = append(out, p.endpoint(sl, i))
			}
		}
		p.facts.endpoints = &out
	}
	return *p.facts.endpoints
}

func (p *Pass) endpoint(sl *discoveryv1.EndpointSlice, i int) Endpoint {
	ep := &sl.Endpoints[i]
	e := Endpoint{
		Slice: sl, Index: i,
		Ready:       ep.Conditions.Ready == nil || *ep.Conditions.Ready,
		Serving:     ep.Conditions.Serving == nil || *ep.Conditions.Serving,
		Terminating: ep.Conditions.Terminating != nil && *ep.Conditions.Terminating,
	}
	if len(ep.Addresses) > 0 && sl.AddressType != discoveryv1.AddressTypeFQDN {
		if a, err := netip.ParseAddr(ep.Addresses[0]); err == nil {
			e.Addr = a.Unmap()
		}
	}
	if ep.NodeName != nil {
		e.Node = *ep.NodeName
	}
	if ep.TargetRef != nil && ep.TargetRef.Kind == "Pod" {
		ns := ep.TargetRef.Namespace
		if ns == "" {
			ns = sl.Namespace
		}
		e.Pod = p.podByName[types.NamespacedName{Namespace: ns, Name: ep.TargetRef.Name}]
	}
	return e
}

// ReadyEndpoints counts the endpoints that are ready, and all, each address
// once.
func (p *Pass) ReadyEndpoints() (ready, all int) {
	seen := map[netip.Addr]bool{}
	for _, e := range p.Endpoints() {
		if !e.Addr.IsValid() {
			continue
		}
		was, again := seen[e.Addr]
		if !again {
			all++
		}
		if e.Ready && !was {
			ready++
		}
		seen[e.Addr] = was || e.Ready
	}
	return ready, all
}

// Frontends are those that kube-proxy serves for the Service, restricted to
// the port that was asked about.
func (p *Pass) Frontends() []proxy.Frontend {
	var out []proxy.Frontend
	for _, f := range proxy.Frontends(p.Service) {
		if portMatches(p.opts.Port, f.PortName, f.ServicePort) && p.Target.wants(f) {
			out = append(out, f)
		}
	}
	return out
}

// HasVIP says whether the Service is of a kind that has a virtual IP.
func HasVIP(svc *corev1.Service) bool {
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone
}
