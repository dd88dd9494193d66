package walk

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// world is a Snapshot with the indices that the checks share. It is built once
// for a walk and not changed after, but for the lazily parsed rulesets.
type world struct {
	snap *snapshot.Snapshot
	opts Options

	servicesByName map[types.NamespacedName]*corev1.Service
	podsByNS       map[string][]*corev1.Pod
	podByName      map[types.NamespacedName]*corev1.Pod
	podsByLabel    map[labelKey][]*corev1.Pod
	// podsByIP lists the pods that have an address, by status.podIPs. Pods on
	// the host's network share their node's.
	podsByIP        map[netip.Addr][]*corev1.Pod
	slicesByService map[types.NamespacedName][]*discoveryv1.EndpointSlice
	nodeByName      map[string]*corev1.Node
	nodeByAddress   map[netip.Addr]*corev1.Node
	views           map[string]*nodeView
	texts           *parsedTexts
	cniPods         [][]*corev1.Pod   // see networkAgents
	proxyConf       *proxySeen        // see configured
	evaluator       *netpol.Evaluator // see policies
	kinds           *policyKinds      // see policyKinds
	egressByNS      map[string]bool   // see isolatesEgress
}

type labelKey struct{ namespace, key, value string }

func newWorld(s *snapshot.Snapshot, o Options) *world {
	w := newWorldWithoutPods(s, o)
	w.podsByNS = map[string][]*corev1.Pod{}
	w.podByName = make(map[types.NamespacedName]*corev1.Pod, len(s.Objects.Pods))
	w.podsByLabel = map[labelKey][]*corev1.Pod{}
	w.podsByIP = make(map[netip.Addr][]*corev1.Pod, len(s.Objects.Pods))
	for i := range s.Objects.Pods {
		w.indexPod(&s.Objects.Pods[i])
	}
	return w
}

func newWorldWithoutPods(s *snapshot.Snapshot, o Options) *world {
	w := &world{
		snap: s, opts: o,
		servicesByName:  make(map[types.NamespacedName]*corev1.Service, len(s.Objects.Services)),
		slicesByService: map[types.NamespacedName][]*discoveryv1.EndpointSlice{},
		nodeByName:      make(map[string]*corev1.Node, len(s.Objects.Nodes)),
		nodeByAddress:   make(map[netip.Addr]*corev1.Node, len(s.Objects.Nodes)),
		views:           map[string]*nodeView{},
		texts:           &parsedTexts{},
	}
	for i := range s.Objects.Services {
		svc := &s.Objects.Services[i]
		w.servicesByName[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = svc
	}
	for i := range s.Objects.EndpointSlices {
		sl := &s.Objects.EndpointSlices[i]
		if name := sl.Labels[discoveryv1.LabelServiceName]; name != "" {
			k := types.NamespacedName{Namespace: sl.Namespace, Name: name}
			w.slicesByService[k] = append(w.slicesByService[k], sl)
		}
	}
	for i := range s.Objects.Nodes {
		n := &s.Objects.Nodes[i]
		w.nodeByName[n.Name] = n
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				w.nodeByAddress[ip.Unmap()] = n
			}
		}
	}
	return w
}

func (w *world) indexPod(pod *corev1.Pod) {
	w.podsByNS[pod.Namespace] = append(w.podsByNS[pod.Namespace], pod)
	w.podByName[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
	for k, v := range pod.Labels {
		lk := labelKey{pod.Namespace, k, v}
		w.podsByLabel[lk] = append(w.podsByLabel[lk], pod)
	}
	if finished(pod) {
		// Its address may be another pod's by now (kubernetes#92697).
		return
	}
	for _, ip := range podAddrs(pod) {
		w.podsByIP[ip] = append(w.podsByIP[ip], pod)
	}
}

// finished says whether the pod has ended for good; the endpoints controllers
// and policies take no notice of it any more.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// podAddrs are a pod's addresses, all families.
func podAddrs(pod *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	if len(out) == 0 {
		if a, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// podsMatching returns the pods of a namespace that a label selector of a
// Service matches. A Service's selector is a plain map: every pair must be
// there. An empty one matches nothing.
func (w *world) podsMatching(namespace string, selector map[string]string) []*corev1.Pod {
	if len(selector) == 0 {
		return nil
	}
	var shortest []*corev1.Pod
	first := true
	for k, v := range selector {
		list := w.podsByLabel[labelKey{namespace, k, v}]
		if first || len(list) < len(shortest) {
			shortest, first = list, false
		}
	}
	sel := labels.SelectorFromSet(selector)
	var out []*corev1.Pod
	for _, pod := range shortest {
		if sel.Matches(labels.Set(pod.Labels)) {
			out = append(out, pod)
		}
	}
	return out
}
