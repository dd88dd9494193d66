// Package netpol says who may talk to whom by the NetworkPolicies of
// networking.k8s.io/v1: by which policy, rule, peer and port it is allowed,
// or which policies refuse it and how nearly each of their rules would not.
//
// It follows the API's reference (k8s.io/api/networking/v1, types.go) and the
// SIG Network conformance tests. Where the API leaves something undefined, or
// network plugins are known to differ, the verdict carries a Caveat; docs/netpol.md
// lists them. It reads nothing but what it is given and changes none of it.
package netpol

import (
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Objects are what the policies are evaluated over. Manifests that no API
// server has defaulted will do; an empty namespace is "default". A namespace
// that is missing here has unknown labels, apart from its name.
type Objects struct {
	Pods       []corev1.Pod
	Namespaces []corev1.Namespace
	Policies   []networkingv1.NetworkPolicy
	// Nodes tell a node's address from one outside of the cluster. Optional: a
	// pod's own node is also known from its status.
	Nodes []corev1.Node
}

// Evaluator answers for one set of objects. It keeps pointers into them; they
// must not change while it is used. It may be used by several goroutines.
type Evaluator struct {
	policies   map[string][]*policy // by namespace, in the order given
	all        []*policy
	namespaces map[string]labels.Set
	pods       map[*corev1.Pod]*pod
	live       []*pod // those that a selector can reach
	podByIP    map[netip.Addr]*pod
	nodeByIP   map[netip.Addr]string
	nodeAddrs  map[string][]netip.Addr
	// reached caches selects by *peerItem; it alone changes after New.
	reached sync.Map
}

// isolation is which policies isolate a pod in one direction.
type isolation struct {
	by, perhaps         []*policy
	byRefs, perhapsRefs []PolicyRef
}

// New prepares the objects. It never fails: an invalid policy is unknown for
// whatever it could select (see Issues).
func New(objs Objects) *Evaluator {
	e := &Evaluator{
		policies:   map[string][]*policy{},
		namespaces: map[string]labels.Set{},
		pods:       make(map[*corev1.Pod]*pod, len(objs.Pods)),
		podByIP:    make(map[netip.Addr]*pod, len(objs.Pods)),
		nodeByIP:   map[netip.Addr]string{},
		nodeAddrs:  map[string][]netip.Addr{},
	}
	for i := range objs.Policies {
		p := compile(&objs.Policies[i])
		e.all = append(e.all, p)
		e.policies[p.ref.Namespace] = append(e.policies[p.ref.Namespace], p)
	}
	for i := range objs.Namespaces {
		e.namespaces[objs.Namespaces[i].Name] = namespaceLabels(&objs.Namespaces[i])
	}
	for i := range objs.Nodes {
		e.addNode(&objs.Nodes[i])
	}
	for i := range objs.Pods {
		e.addPod(&objs.Pods[i])
	}
	return e
}

// namespaceLabels adds the label that the API server sets on every namespace.
func namespaceLabels(ns *corev1.Namespace) labels.Set {
	set := make(labels.Set, len(ns.Labels)+1)
	for k, v := range ns.Labels {
		set[k] = v
	}
	set[corev1.LabelMetadataName] = ns.Name
	return set
}

func (e *Evaluator) addNode(n *corev1.Node) {
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		before := len(e.nodeAddrs[n.Name])
		e.nodeAddrs[n.Name] = appendAddr(e.nodeAddrs[n.Name], a.Address)
		for _, ip := range e.nodeAddrs[n.Name][before:] {
			e.nodeByIP[ip] = n.Name
		}
	}
}

func (e *Evaluator) addPod(object *corev1.Pod) {
	p := e.isolate(readPod(object))
	e.pods[object] = p
	for _, ip := range p.hostAddrs {
		if _, ok := e.nodeByIP[ip]; !ok {
			e.nodeByIP[ip] = p.node
		}
	}
	if p.hostNetwork || p.finished {
		return
	}
	e.live = append(e.live, p)
	for _, ip := range p.addrs {
		if e.podByIP[ip] == nil {
			e.podByIP[ip] = p
		}
	}
}

// pod looks a pod up by its pointer, so that a changed copy of a pod is
// evaluated as what it is.
func (e *Evaluator) pod(object *corev1.Pod) *pod {
	if p := e.pods[object]; p != nil {
		return p
	}
	return e.isolate(readPod(object))
}

func (e *Evaluator) isolate(p *pod) *pod {
	if p.hostNetwork || p.finished {
		return p
	}
	p.ingress = e.isolation(p, Ingress)
	p.egress = e.isolation(p, Egress)
	return p
}

// isolation asks the pod's labels alone, whatever kind of pod it is.
func (e *Evaluator) isolation(p *pod, d Direction) isolation {
	var out isolation
	for _, np := range e.policies[p.namespace] {
		switch min(np.half(d).isolates, np.subject.match(p.labels).grade) {
		case yes:
			out.by = append(out.by, np)
			out.byRefs = append(out.byRefs, np.ref)
		case maybe:
			out.perhaps = append(out.perhaps, np)
			out.perhapsRefs = append(out.perhapsRefs, np.ref)
		}
	}
	return out
}

func (p *pod) isolation(d Direction) *isolation {
	if d == Egress {
		return &p.egress
	}
	return &p.ingress
}

// Issues lists what is invalid in the policies, in the order of the policies.
func (e *Evaluator) Issues() []Issue {
	var out []Issue
	for _, p := range e.all {
		for _, i := range p.issues {
			out = append(out, *i)
		}
	}
	return out
}

// Policy returns the object as it was given, or nil. It must not be changed.
func (e *Evaluator) Policy(ref PolicyRef) *networkingv1.NetworkPolicy {
	for _, p := range e.policies[ref.Namespace] {
		if p.ref == ref {
			return p.object
		}
	}
	return nil
}

// Isolating lists the policies that certainly isolate the pod in a direction,
// in the order given. None isolates a pod that shares its node's network, or
// that has finished.
func (e *Evaluator) Isolating(pod *corev1.Pod, d Direction) []PolicyRef {
	return append([]PolicyRef(nil), e.pod(pod).isolation(d).byRefs...)
}

// Clients are candidates, sorted by whether they may reach a backend.
type Clients struct {
	Allowed, Refused, Unknown []*corev1.Pod
}

// AllowedClients asks of each candidate whether it may reach the backend on
// its port, by the policies of both sides, and keeps their order.
func (e *Evaluator) AllowedClients(backend *corev1.Pod, port int32, protocol corev1.Protocol, candidates []*corev1.Pod) Clients {
	var out Clients
	for _, c := range candidates {
		d := e.Evaluate(Flow{From: PodPeer(c), To: PodPeer(backend), Port: port, Protocol: protocol})
		switch d.Verdict {
		case Allowed:
			out.Allowed = append(out.Allowed, c)
		case Denied:
			out.Refused = append(out.Refused, c)
		default:
			out.Unknown = append(out.Unknown, c)
		}
	}
	return out
}

// NodeOf says whose address it is, of the nodes and of the pods' status.
func (e *Evaluator) NodeOf(ip netip.Addr) (name string, ok bool) {
	name, ok = e.nodeByIP[ip.Unmap()]
	return name, ok
}
