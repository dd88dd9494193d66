package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// MaxRounds is how often a Collect waits for answers before it asks for more.
const MaxRounds = 3

// MaxRequests is how many resources a Collect for one Service asks for at
// most. A list of more than 500 objects takes further requests, one for each
// page.
const MaxRequests = 12

// request is one thing to read: a list, or with a name one object. A namespace
// of "" is all of them, or that of a cluster-scoped resource.
type request struct {
	resource  snapshot.Resource
	namespace string
	name      string
}

// planner says what is still called for, given what is known. It plans; it
// does not judge: that a Service's selector finds no pod calls for the
// workloads, and what it means is the walk's to say.
type planner struct {
	scope *Scope
	snap  *snapshot.Snapshot
	want  []request
}

// plan lists what is wanted, the most useful first. It lists what was read
// before as well.
func plan(scope *Scope, snap *snapshot.Snapshot) []request {
	p := &planner{scope: scope, snap: snap}
	namespaces := p.namespaces()
	p.services(namespaces)
	for _, ns := range namespaces {
		p.add(snapshot.EndpointSlices, ns)
		p.add(snapshot.Pods, ns)
	}
	p.add(snapshot.Nodes, "")
	p.add(snapshot.NetworkPolicies, "")
	p.add(snapshot.Namespaces, "")
	p.addRequest(proxyConfig(0))
	p.add(snapshot.Pods, snapshot.ProxyNamespace) // kube-proxy's own, and the network plugin's
	if pod := scope.ClientPod; pod != nil && pod.Namespace != "" {
		p.add(snapshot.Pods, pod.Namespace)
	}
	p.instead()
	if scope.Full || scope.everywhere() {
		p.everything(namespaces)
	} else {
		p.calledFor()
	}
	if p.proxyConfigElsewhere() {
		p.addRequest(proxyConfig(1))
	}
	p.replacementConfig()
	return p.want
}

func proxyConfig(i int) request {
	return request{resource: snapshot.ConfigMaps, namespace: snapshot.ProxyNamespace, name: snapshot.ProxyConfigMaps[i]}
}

// replacementConfig wants what says whether a network plugin that is there
// stands in for kube-proxy.
func (p *planner) replacementConfig() {
	for i := range p.snap.Objects.Pods {
		pod := &p.snap.Objects.Pods[i]
		switch {
		case pod.Namespace != snapshot.ProxyNamespace:
		case pod.Labels["k8s-app"] == "cilium":
			p.addRequest(request{resource: snapshot.ConfigMaps, namespace: snapshot.ProxyNamespace, name: snapshot.ReplacementConfigMaps[0]})
		case pod.Labels["app"] == "antrea":
			p.addRequest(request{resource: snapshot.ConfigMaps, namespace: snapshot.ProxyNamespace, name: snapshot.ReplacementConfigMaps[1]})
		}
	}
}

// proxyConfigElsewhere says whether the usual ConfigMap could be read, and
// holds no configuration.
func (p *planner) proxyConfigElsewhere() bool {
	first := proxyConfig(0)
	if p.snap.Reads.Object(first.resource, first.namespace, first.name).Status != snapshot.Done {
		return false
	}
	for _, cm := range p.snap.Objects.ConfigMaps {
		if cm.Name == first.name && len(cm.Data) > 0 {
			return false
		}
	}
	return true
}

// add wants a list, unless a list of all namespaces that was wanted before
// holds it.
func (p *planner) add(r snapshot.Resource, namespace string) {
	if p.wants(request{resource: r}) && !p.failed(r) {
		return
	}
	p.addRequest(request{resource: r, namespace: namespace})
}

func (p *planner) addRequest(r request) {
	if !p.wants(r) {
		p.want = append(p.want, r)
	}
}

func (p *planner) wants(r request) bool { return slices.Contains(p.want, r) }

// failed says whether all namespaces were asked for and refused.
func (p *planner) failed(r snapshot.Resource) bool {
	return p.snap.Reads.Of(r, "").Status == snapshot.Failed
}

// namespaces are those whose Services are walked; "" for all. An address that
// has to be resolved adds those of its owners, once the Services are known.
func (p *planner) namespaces() []string {
	if p.scope.everywhere() {
		return []string{""}
	}
	out := p.scope.namespaces()
	if p.scope.ResolveAddress {
		for i := range p.snap.Objects.Services {
			svc := &p.snap.Objects.Services[i]
			if p.scope.owns(svc) && !slices.Contains(out, svc.Namespace) {
				out = append(out, svc.Namespace)
			}
		}
	}
	return out
}

func (p *planner) services(namespaces []string) {
	if p.scope.ResolveAddress || p.notFound() {
		p.add(snapshot.Services, "")
	}
	for _, ns := range namespaces {
		p.addRequest(request{resource: snapshot.Services, namespace: ns})
	}
	if p.scope.ResolveAddress && !p.failed(snapshot.Services) {
		// The list of all holds them.
		p.want = slices.DeleteFunc(p.want, func(r request) bool { return r.resource == snapshot.Services && r.namespace != "" })
	}
}

// notFound says whether a Service that was asked for by name is not there: its
// name may be known in another namespace.
func (p *planner) notFound() bool {
	for _, svc := range p.scope.Services {
		if p.snap.Reads.Has(snapshot.Services, svc.Namespace) && p.service(svc.Namespace, svc.Name) == nil {
			return true
		}
	}
	return false
}

func (p *planner) service(namespace, name string) *corev1.Service {
	for i := range p.snap.Objects.Services {
		if svc := &p.snap.Objects.Services[i]; svc.Namespace == namespace && svc.Name == name {
			return svc
		}
	}
	return nil
}

// instead wants the lists of single namespaces where the list of all is
// forbidden.
func (p *planner) instead() {
	namespaces := p.scope.namespaces()
	if pod := p.scope.ClientPod; pod != nil && pod.Namespace != "" {
		namespaces = append(namespaces, pod.Namespace)
	}
	for _, r := range []snapshot.Resource{snapshot.NetworkPolicies, snapshot.Services, snapshot.EndpointSlices, snapshot.Pods} {
		if !p.wants(request{resource: r}) || !p.failed(r) {
			continue
		}
		for _, ns := range namespaces {
			p.addRequest(request{resource: r, namespace: ns})
		}
	}
}

// workloads are the resources whose pods a selector may miss.
var workloads = []snapshot.Resource{snapshot.Deployments, snapshot.StatefulSets, snapshot.DaemonSets}

// calledFor wants what single Services' facts call for.
func (p *planner) calledFor() {
	for i := range p.snap.Objects.Services {
		if svc := &p.snap.Objects.Services[i]; p.asked(svc) {
			p.calledForBy(svc)
		}
	}
}

// asked says whether the Service is one that is walked.
func (p *planner) asked(svc *corev1.Service) bool {
	for _, want := range p.scope.Services {
		if want.Namespace == svc.Namespace && want.Name == svc.Name {
			return true
		}
	}
	if p.scope.ResolveAddress && p.scope.owns(svc) {
		return true
	}
	return slices.Contains(p.scope.Namespaces, svc.Namespace) && len(p.scope.Services) == 0
}

func (p *planner) calledForBy(svc *corev1.Service) {
	ns := svc.Namespace
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
	case len(svc.Spec.Selector) == 0:
		p.add(snapshot.Endpoints, ns)
	case p.snap.Reads.Has(snapshot.Pods, ns):
		selected, ready := p.pods(svc)
		if selected == 0 {
			for _, r := range workloads {
				p.add(r, ns)
			}
		}
		if selected == 0 || ready < selected {
			p.add(snapshot.Events, ns)
		}
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && len(svc.Status.LoadBalancer.Ingress) == 0 {
		p.add(snapshot.Events, ns)
	}
}

// pods counts the pods that a Service selects, and those of them that are
// ready.
func (p *planner) pods(svc *corev1.Service) (selected, ready int) {
	sel := labels.SelectorFromSet(svc.Spec.Selector)
	for i := range p.snap.Objects.Pods {
		pod := &p.snap.Objects.Pods[i]
		if pod.Namespace != svc.Namespace || !sel.Matches(labels.Set(pod.Labels)) {
			continue
		}
		selected++
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return selected, ready
}

// everything wants every kind, for the namespaces in scope.
func (p *planner) everything(namespaces []string) {
	for _, ns := range namespaces {
		for _, r := range []snapshot.Resource{
			snapshot.Endpoints, snapshot.Deployments, snapshot.StatefulSets, snapshot.DaemonSets, snapshot.ReplicaSets, snapshot.Events,
		} {
			p.add(r, ns)
		}
	}
	p.add(snapshot.ServiceCIDRs, "")
	p.add(snapshot.IPAddresses, "")
}
