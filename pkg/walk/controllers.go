package walk

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// sliceController is the value of the managed-by label that the EndpointSlice
// controller gives to its slices, and reacts to.
const sliceController = "endpointslice-controller.k8s.io"

// controllerManaged says whether the EndpointSlice controller keeps the slice.
// A slice from a file may lack the label and still be its work: it is owned by
// the Service then.
func controllerManaged(sl *discoveryv1.EndpointSlice) bool {
	if by, ok := sl.Labels[discoveryv1.LabelManagedBy]; ok {
		return by == sliceController
	}
	return slices.ContainsFunc(sl.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Service" })
}

// reconcileSlices does to a Service's slices what the EndpointSlice controller
// would: its own are made anew from the pods, those that others made stay. A
// Service without selector has none of its own.
func reconcileSlices(s *snapshot.Snapshot, svc *corev1.Service) {
	if len(svc.Spec.Selector) == 0 || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	s.Objects.EndpointSlices = slices.DeleteFunc(s.Objects.EndpointSlices, func(sl discoveryv1.EndpointSlice) bool {
		return sl.Namespace == svc.Namespace && sl.Labels[discoveryv1.LabelServiceName] == svc.Name && controllerManaged(&sl)
	})
	v4, v6 := serviceFamilies(svc)
	if v4 {
		addSlices(s, svc, false)
	}
	if v6 {
		addSlices(s, svc, true)
	}
}

// addSlices makes the slices of one family: one for each set of port numbers,
// because pods may give one named port different numbers.
func addSlices(s *snapshot.Snapshot, svc *corev1.Service, v6 bool) {
	sel := labels.SelectorFromSet(svc.Spec.Selector)
	byPorts := map[string]*discoveryv1.EndpointSlice{}
	for i := range s.Objects.Pods {
		pod := &s.Objects.Pods[i]
		if pod.Namespace != svc.Namespace || finished(pod) || !sel.Matches(labels.Set(pod.Labels)) {
			continue
		}
		addr, ok := podAddr(pod, v6)
		if !ok {
			continue
		}
		ports := endpointPorts(svc, pod)
		key := compactJSON(ports)
		if byPorts[key] == nil {
			byPorts[key] = newSlice(svc, v6, ports)
		}
		byPorts[key].Endpoints = append(byPorts[key].Endpoints, podEndpoint(svc, pod, addr))
	}
	if len(byPorts) == 0 {
		// The controller leaves a placeholder, so that the Service is seen to be empty.
		byPorts[""] = newSlice(svc, v6, nil)
	}
	for i, key := range sortedKeys(byPorts) {
		sl := byPorts[key]
		sl.Name = fmt.Sprintf("%s-%s-%d", svc.Name, strings.ToLower(string(sl.AddressType)), i+1)
		s.Objects.EndpointSlices = insert(s.Objects.EndpointSlices, *sl)
	}
}

func newSlice(svc *corev1.Service, v6 bool, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace,
			Labels:    map[string]string{},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       ports,
	}
	if v6 {
		sl.AddressType = discoveryv1.AddressTypeIPv6
	}
	for k, v := range svc.Labels {
		sl.Labels[k] = v
	}
	sl.Labels[discoveryv1.LabelServiceName] = svc.Name
	sl.Labels[discoveryv1.LabelManagedBy] = sliceController
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		sl.Labels[corev1.IsHeadlessService] = ""
	} else {
		delete(sl.Labels, corev1.IsHeadlessService)
	}
	return sl
}

// endpointPorts are the ports of one pod; one whose name the pod does not
// declare is left out.
func endpointPorts(svc *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for i := range svc.Spec.Ports {
		sp := &svc.Spec.Ports[i]
		n, ok := targetPort(&pod.Spec, sp)
		if !ok {
			continue
		}
		name, proto := sp.Name, protocolOf(sp)
		out = append(out, discoveryv1.EndpointPort{Name: &name, Port: &n, Protocol: &proto, AppProtocol: sp.AppProtocol})
	}
	return out
}

func podEndpoint(svc *corev1.Service, pod *corev1.Pod, addr netip.Addr) discoveryv1.Endpoint {
	serving := podReady(pod) || publishesNotReady(svc)
	terminating := pod.DeletionTimestamp != nil
	ready := publishesNotReady(svc) || serving && !terminating
	ep := discoveryv1.Endpoint{
		Addresses:  []string{addr.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.NodeName != "" {
		node := pod.Spec.NodeName
		ep.NodeName = &node
	}
	return ep
}

// tolerateUnready is the annotation that came before the field; controllers
// still obey it.
const tolerateUnready = "service.alpha.kubernetes.io/tolerate-unready-endpoints"

func publishesNotReady(svc *corev1.Service) bool {
	return svc.Spec.PublishNotReadyAddresses || svc.Annotations[tolerateUnready] == "true"
}

// addPods does what a workload's controller would when it is scaled up: n more
// pods from the template, which are assumed to become ready. Their addresses,
// one of each family that the Service has, and their nodes are made up.
func addPods(s *snapshot.Snapshot, svc *corev1.Service, wl workload, n int) error {
	nodes := readyNodes(s)
	for i := range n {
		addrs, err := freeAddrs(s, svc)
		if err != nil {
			return err
		}
		yes := true
		pod := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: wl.meta.Namespace, Name: fmt.Sprintf("%s-new-%d", wl.meta.Name, i+1),
				UID: types.UID(fmt.Sprintf("new-%d", i+1)), Labels: maps.Clone(wl.spec.Labels),
				OwnerReferences: []metav1.OwnerReference{{Kind: wl.kind, Name: wl.meta.Name, UID: wl.meta.UID, Controller: &yes}},
			},
			Spec: *wl.spec.Spec.DeepCopy(),
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: addrs[0].IP, PodIPs: addrs,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
		if len(nodes) > 0 {
			pod.Spec.NodeName = nodes[i%len(nodes)]
		}
		s.Objects.Pods = insert(s.Objects.Pods, pod)
	}
	return nil
}

func readyNodes(s *snapshot.Snapshot) []string {
	var out []string
	for i := range s.Objects.Nodes {
		if n := &s.Objects.Nodes[i]; nodeReady(n) && !n.Spec.Unschedulable {
			out = append(out, n.Name)
		}
	}
	return out
}

// nodeReady says whether the node is known to be ready; one without conditions
// (from a file) counts as ready.
func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true
}

// freeAddrs makes up addresses for a new pod, one of each of the Service's
// families: the next after the highest that a pod has.
func freeAddrs(s *snapshot.Snapshot, svc *corev1.Service) ([]corev1.PodIP, error) {
	v4, v6 := serviceFamilies(svc)
	var out []corev1.PodIP
	for _, f := range []struct {
		wanted, v6 bool
		highest    netip.Addr
	}{
		{v4, false, netip.AddrFrom4([4]byte{10, 255, 255, 0})},
		{v6, true, netip.MustParseAddr("fd00:ffff::")},
	} {
		if !f.wanted {
			continue
		}
		next := highestPodAddr(s, f.v6, f.highest).Next()
		if !next.IsValid() || next.Is6() != f.v6 {
			return nil, fmt.Errorf("the highest address of the family is taken; none can be made up for a new pod")
		}
		out = append(out, corev1.PodIP{IP: next.String()})
	}
	return out, nil
}

func highestPodAddr(s *snapshot.Snapshot, v6 bool, none netip.Addr) netip.Addr {
	highest := netip.Addr{}
	for i := range s.Objects.Pods {
		pod := &s.Objects.Pods[i]
		if a, ok := podAddr(pod, v6); ok && !pod.Spec.HostNetwork && (!highest.IsValid() || highest.Less(a)) {
			highest = a
		}
	}
	if !highest.IsValid() {
		return none
	}
	return highest
}
