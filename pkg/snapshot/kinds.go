package snapshot

import (
	"cmp"
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// slot is one list of Objects, seen without its element's type.
type slot interface {
	id() kindID
	sort(*Objects)
	length(*Objects) int
	// clone appends deep copies of one's list to the other's.
	clone(from, to *Objects)
	// append appends one's list to the other's; the objects share what they
	// point to.
	append(from, to *Objects)
	// encode returns each object as JSON, with apiVersion and kind.
	encode(*Objects) ([]json.RawMessage, error)
	decode(json.RawMessage, *Objects) (metav1.Object, error)
	// add appends the object if it is of the slot's type.
	add(runtime.Object, *Objects) bool
}

// kindID names a kind in the two ways that are needed: as a resource for
// kubectl and RBAC, and as the kind inside an object.
type kindID struct {
	resource Resource
	group    string
	version  string
	kind     string
}

func (k kindID) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind}
}

// object is what the pointer to each of the kinds can do.
type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
	DeepCopyInto(*T)
}

type slotOf[T any, P object[T]] struct {
	kindID
	list func(*Objects) *[]T
}

// slots are in the order of Resources.
var slots = []slot{
	slotOf[corev1.Service, *corev1.Service]{kindID{Services, "", "v1", "Service"}, func(o *Objects) *[]corev1.Service { return &o.Services }},
	slotOf[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]{kindID{EndpointSlices, "discovery.k8s.io", "v1", "EndpointSlice"}, func(o *Objects) *[]discoveryv1.EndpointSlice { return &o.EndpointSlices }},
	slotOf[corev1.Endpoints, *corev1.Endpoints]{kindID{Endpoints, "", "v1", "Endpoints"}, func(o *Objects) *[]corev1.Endpoints { return &o.Endpoints }}, //nolint:staticcheck // see Objects
	slotOf[corev1.Pod, *corev1.Pod]{kindID{Pods, "", "v1", "Pod"}, func(o *Objects) *[]corev1.Pod { return &o.Pods }},
	slotOf[appsv1.Deployment, *appsv1.Deployment]{kindID{Deployments, "apps", "v1", "Deployment"}, func(o *Objects) *[]appsv1.Deployment { return &o.Deployments }},
	slotOf[appsv1.ReplicaSet, *appsv1.ReplicaSet]{kindID{ReplicaSets, "apps", "v1", "ReplicaSet"}, func(o *Objects) *[]appsv1.ReplicaSet { return &o.ReplicaSets }},
	slotOf[appsv1.StatefulSet, *appsv1.StatefulSet]{kindID{StatefulSets, "apps", "v1", "StatefulSet"}, func(o *Objects) *[]appsv1.StatefulSet { return &o.StatefulSets }},
	slotOf[appsv1.DaemonSet, *appsv1.DaemonSet]{kindID{DaemonSets, "apps", "v1", "DaemonSet"}, func(o *Objects) *[]appsv1.DaemonSet { return &o.DaemonSets }},
	slotOf[corev1.Node, *corev1.Node]{kindID{Nodes, "", "v1", "Node"}, func(o *Objects) *[]corev1.Node { return &o.Nodes }},
	slotOf[corev1.Namespace, *corev1.Namespace]{kindID{Namespaces, "", "v1", "Namespace"}, func(o *Objects) *[]corev1.Namespace { return &o.Namespaces }},
	slotOf[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy]{kindID{NetworkPolicies, "networking.k8s.io", "v1", "NetworkPolicy"}, func(o *Objects) *[]networkingv1.NetworkPolicy { return &o.NetworkPolicies }},
	slotOf[corev1.Event, *corev1.Event]{kindID{Events, "", "v1", "Event"}, func(o *Objects) *[]corev1.Event { return &o.Events }},
	slotOf[networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR]{kindID{ServiceCIDRs, "networking.k8s.io", "v1", "ServiceCIDR"}, func(o *Objects) *[]networkingv1.ServiceCIDR { return &o.ServiceCIDRs }},
	slotOf[networkingv1.IPAddress, *networkingv1.IPAddress]{kindID{IPAddresses, "networking.k8s.io", "v1", "IPAddress"}, func(o *Objects) *[]networkingv1.IPAddress { return &o.IPAddresses }},
	slotOf[corev1.ConfigMap, *corev1.ConfigMap]{kindID{ConfigMaps, "", "v1", "ConfigMap"}, func(o *Objects) *[]corev1.ConfigMap { return &o.ConfigMaps }},
}

func slotFor(match func(kindID) bool) slot {
	for _, s := range slots {
		if match(s.id()) {
			return s
		}
	}
	return nil
}

// slotOfKind finds the slot by an object's group and kind. Versions are not
// compared: the kinds had the same fields in the versions before, but for the
// topology of a v1beta1 EndpointSlice, which is lost.
func slotOfKind(apiVersion, kind string) slot {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil
	}
	return slotFor(func(k kindID) bool { return k.group == gv.Group && k.kind == kind })
}

func (s slotOf[T, P]) id() kindID            { return s.kindID }
func (s slotOf[T, P]) length(o *Objects) int { return len(*s.list(o)) }

// sort orders by namespace and name, and drops an object that is there twice
// (a page that was read again, two overlapping files): the last one stays.
func (s slotOf[T, P]) sort(o *Objects) {
	list := s.list(o)
	key := func(v *T) (string, string) { p := P(v); return p.GetNamespace(), p.GetName() }
	slices.SortStableFunc(*list, func(a, b T) int {
		ans, an := key(&a)
		bns, bn := key(&b)
		return cmp.Or(cmp.Compare(ans, bns), cmp.Compare(an, bn))
	})
	in := *list
	out := in[:0]
	for i := range in {
		if len(out) > 0 {
			ns, name := key(&in[i])
			if lns, lname := key(&out[len(out)-1]); ns == lns && name == lname {
				out[len(out)-1] = in[i]
				continue
			}
		}
		out = append(out, in[i])
	}
	clear(in[len(out):])
	*list = out
}

func (s slotOf[T, P]) clone(from, to *Objects) {
	src, dst := *s.list(from), s.list(to)
	if len(src) == 0 {
		return
	}
	*dst = slices.Grow(*dst, len(src))
	for i := range src {
		var v T
		P(&src[i]).DeepCopyInto(&v)
		*dst = append(*dst, v)
	}
}

func (s slotOf[T, P]) append(from, to *Objects) {
	dst := s.list(to)
	*dst = append(*dst, *s.list(from)...)
}

func (s slotOf[T, P]) encode(o *Objects) ([]json.RawMessage, error) {
	list := *s.list(o)
	out := make([]json.RawMessage, 0, len(list))
	for i := range list {
		v := list[i]
		P(&v).GetObjectKind().SetGroupVersionKind(s.gvk())
		b, err := indented(&v)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func (s slotOf[T, P]) decode(raw json.RawMessage, o *Objects) (metav1.Object, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	P(&v).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	list := s.list(o)
	*list = append(*list, v)
	return P(&(*list)[len(*list)-1]), nil
}

func (s slotOf[T, P]) add(obj runtime.Object, o *Objects) bool {
	p, ok := obj.(P)
	if !ok || p == nil {
		return false
	}
	list := s.list(o)
	*list = append(*list, *p)
	return true
}

// Sort orders every list by namespace and name, and drops doubles; of two
// objects with one name the one that was added last stays.
func (o *Objects) Sort() {
	for _, s := range slots {
		s.sort(o)
	}
}

// Len counts the objects of a resource.
func (o *Objects) Len(r Resource) int {
	if s := slotFor(func(k kindID) bool { return k.resource == r }); s != nil {
		return s.length(o)
	}
	return 0
}

// Add appends an object to the list of its type, unstripped and unsorted, and
// says whether there is such a list.
func (o *Objects) Add(obj runtime.Object) bool {
	for _, s := range slots {
		if s.add(obj, o) {
			return true
		}
	}
	return false
}

// Append appends another's objects, unsorted. They share what they point to:
// it is for objects that the other gives away.
func (o *Objects) Append(other *Objects) {
	for _, s := range slots {
		s.append(other, o)
	}
}

// Merge appends deep copies of another's objects, and sorts; of two objects
// with one name the other's stays.
func (o *Objects) Merge(other *Objects) {
	for _, s := range slots {
		s.clone(other, o)
	}
	o.Sort()
}

// Clone returns a deep copy.
func (o *Objects) Clone() Objects {
	var out Objects
	for _, s := range slots {
		s.clone(o, &out)
	}
	return out
}

// Clone returns a deep copy, to try a change on.
func (s *Snapshot) Clone() *Snapshot {
	out := &Snapshot{
		TakenAt: s.TakenAt,
		Inputs:  slices.Clone(s.Inputs),
		Reads:   slices.Clone(s.Reads),
		Objects: s.Objects.Clone(),
	}
	for _, n := range s.Nodes {
		c := *n
		c.Texts = slices.Clone(n.Texts)
		out.Nodes = append(out.Nodes, &c)
	}
	return out
}

// MergeInto adds the facts of s to another snapshot: objects (s wins where
// both have one), reads, inputs and nodes' states. A node that both know gets
// the texts of both, s's last. TakenAt becomes the later of the two.
func (s *Snapshot) MergeInto(to *Snapshot) {
	to.Objects.Merge(&s.Objects)
	for _, r := range s.Reads {
		to.Reads.Add(r)
	}
	to.Inputs = append(to.Inputs, s.Inputs...)
	for _, n := range s.Clone().Nodes {
		if old := to.Node(n.Name); old != nil {
			old.Texts = append(old.Texts, n.Texts...)
			continue
		}
		to.Nodes = append(to.Nodes, n)
	}
	to.Nodes = sortedNodes(to.Nodes)
	if s.TakenAt.After(to.TakenAt) {
		to.TakenAt = s.TakenAt
	}
}

// KindOf names a resource's kind as it stands in an object: apiVersion and
// kind; empty for a resource that no Snapshot holds.
func KindOf(r Resource) (apiVersion, kind string) {
	s := slotFor(func(k kindID) bool { return k.resource == r })
	if s == nil {
		return "", ""
	}
	gvk := s.id().gvk()
	return gvk.GroupVersion().String(), gvk.Kind
}
