package walk

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// podKind stands for all pods of a namespace that are alike.
type podKind struct {
	label string
	pod   *corev1.Pod
	addrs []netip.Addr
	// alike is how many pods it stands for; 0 for one that no pod is now: a
	// workload's template, a Job that has finished, or a namespace of which no
	// pod was read.
	alike int
}

// policyKinds are the clients that a cluster can have, as far as policies are
// concerned. They are the same for every Service, so they are made once a walk.
type policyKinds struct {
	sight *policySight
	// telling are as few as policies can tell apart: by namespace, by the labels
	// that some policy names, and by the ipBlocks that hold their address.
	telling []*podKind
	// labelled tell more apart: by every label that is not a rollout's. A slip
	// of the pen in a policy shows only there.
	labelled []*podKind
}

// policyKinds lists the kinds of pod that may be clients, sorted by label. Pods
// on their node's network are left out: no policy tells them from the node.
func (w *world) policyKinds() *policyKinds {
	if w.kinds != nil {
		return w.kinds
	}
	sight := w.policySight()
	telling, labelled := kindSet{}, kindSet{}
	for i := range w.snap.Objects.Pods {
		pod := &w.snap.Objects.Pods[i]
		if finished(pod) || pod.Spec.HostNetwork {
			continue
		}
		telling.add(sight.labels(pod), sight.blocks(pod), pod)
		labelled.add(labelText(pod.Labels), "", pod)
	}
	for _, k := range w.absentKinds() {
		telling.addAbsent(sight.labels(k.pod), k)
		labelled.addAbsent(labelText(k.pod.Labels), k)
	}
	w.kinds = &policyKinds{sight: sight, telling: telling.sorted(), labelled: labelled.sorted()}
	return w.kinds
}

// kindSet collects kinds by namespace and labels, and by blocks.
type kindSet map[kindKey]*podKind

type kindKey struct{ namespace, labels, blocks string }

func (s kindSet) add(labels, blocks string, pod *corev1.Pod) {
	key := kindKey{pod.Namespace, labels, blocks}
	k := s[key]
	if k == nil {
		k = &podKind{}
		s[key] = k
		s[kindKey{pod.Namespace, labels, anyBlock}] = nil
	}
	k.alike++
	if k.pod == nil || len(k.addrs) == 0 && len(podAddrs(pod)) > 0 {
		k.pod, k.label, k.addrs = pod, "pod "+pod.Namespace+"/"+pod.Name, podAddrs(pod)
	}
}

// anyBlock marks that there is a pod with these labels, under any address.
const anyBlock = "any"

// addAbsent adds what is no pod now, unless one with these labels is there.
func (s kindSet) addAbsent(labels string, k podKind) {
	any := kindKey{k.pod.Namespace, labels, anyBlock}
	if _, there := s[any]; there {
		return
	}
	s[any] = nil
	s[kindKey{k.pod.Namespace, labels, ""}] = &k
}

func (s kindSet) sorted() []*podKind {
	var out []*podKind
	for _, k := range s {
		if k != nil {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *podKind) int { return strings.Compare(a.label, b.label) })
	return out
}

// absentKinds are clients that a policy may have been written for although no
// such pod runs at the moment.
func (w *world) absentKinds() []podKind {
	var out []podKind
	add := func(label, ns string, labels map[string]string) {
		out = append(out, podKind{label: label, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Labels: labels}}})
	}
	for i := range w.snap.Objects.Pods {
		if pod := &w.snap.Objects.Pods[i]; finished(pod) && !pod.Spec.HostNetwork {
			add("pod "+pod.Namespace+"/"+pod.Name, pod.Namespace, pod.Labels)
		}
	}
	for _, ns := range w.workloadNamespaces() {
		for _, wl := range w.workloads(ns) {
			if !wl.spec.Spec.HostNetwork {
				add(fmt.Sprintf("a pod of %s in %s", wl, ns), ns, wl.spec.Labels)
			}
		}
	}
	for i := range w.snap.Objects.Namespaces {
		if ns := w.snap.Objects.Namespaces[i].Name; !w.snap.Reads.Has(snapshot.Pods, ns) {
			add("a pod of "+ns+" without labels", ns, nil)
		}
	}
	return out
}

func (w *world) workloadNamespaces() []string {
	o, set := &w.snap.Objects, map[string]bool{}
	for i := range o.Deployments {
		set[o.Deployments[i].Namespace] = true
	}
	for i := range o.StatefulSets {
		set[o.StatefulSets[i].Namespace] = true
	}
	for i := range o.DaemonSets {
		set[o.DaemonSets[i].Namespace] = true
	}
	for i := range o.ReplicaSets {
		set[o.ReplicaSets[i].Namespace] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// policySight is what all policies together look at in a pod.
type policySight struct {
	keys     []string
	prefixes []netip.Prefix
	// odd: an ipBlock could not be read here, so addresses are compared whole.
	odd bool
}

func (w *world) policySight() *policySight {
	keys, prefixes, s := map[string]bool{}, map[netip.Prefix]bool{}, &policySight{}
	for i := range w.snap.Objects.NetworkPolicies {
		spec := &w.snap.Objects.NetworkPolicies[i].Spec
		addKeys(keys, &spec.PodSelector)
		for _, peer := range peersOfSpec(spec) {
			addKeys(keys, peer.PodSelector)
			if peer.IPBlock == nil {
				continue
			}
			for _, text := range append([]string{peer.IPBlock.CIDR}, peer.IPBlock.Except...) {
				if c, err := netip.ParsePrefix(text); err == nil {
					prefixes[c.Masked()] = true
				} else {
					s.odd = true
				}
			}
		}
	}
	s.keys = slices.Sorted(maps.Keys(keys))
	s.prefixes = slices.SortedFunc(maps.Keys(prefixes), netip.Prefix.Compare)
	return s
}

func peersOfSpec(spec *networkingv1.NetworkPolicySpec) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for i := range spec.Ingress {
		out = append(out, spec.Ingress[i].From...)
	}
	for i := range spec.Egress {
		out = append(out, spec.Egress[i].To...)
	}
	return out
}

func addKeys(to map[string]bool, s *metav1.LabelSelector) {
	if s == nil {
		return
	}
	for k := range s.MatchLabels {
		to[k] = true
	}
	for _, e := range s.MatchExpressions {
		to[e.Key] = true
	}
}

func (s *policySight) labels(pod *corev1.Pod) string {
	var b strings.Builder
	for _, k := range s.keys {
		if v, ok := pod.Labels[k]; ok {
			b.WriteString(k + "=" + v + ",")
		}
	}
	return b.String()
}

// backend is all that policies see of a backend: whose labels and address it
// has, on which port and under which names.
func (s *policySight) backend(b *policyBackend) string {
	key := fmt.Sprintf("%d %d %s %s", b.port.number, b.addr.Port(), b.port.protocol, s.blocksOf([]netip.Addr{b.addr.Addr()}))
	if b.pod == nil {
		return key + b.addr.Addr().String()
	}
	key += fmt.Sprintf("%s %s %t %s", b.pod.Namespace, s.labels(b.pod), b.pod.Spec.HostNetwork, b.pod.Status.Phase)
	for _, d := range declaredPorts(&b.pod.Spec) {
		key += fmt.Sprintf(" %s=%d/%s", d.name, d.number, d.protocol)
	}
	return key
}

// blocks says which ipBlocks hold the pod's addresses, and of which families
// they are.
func (s *policySight) blocks(pod *corev1.Pod) string { return s.blocksOf(podAddrs(pod)) }

func (s *policySight) blocksOf(addrs []netip.Addr) string {
	var b strings.Builder
	for _, a := range addrs {
		if s.odd {
			b.WriteString(a.String() + ",")
			continue
		}
		fmt.Fprintf(&b, "%d", a.BitLen())
		for i, c := range s.prefixes {
			if c.Contains(a) {
				fmt.Fprintf(&b, " %d", i)
			}
		}
		b.WriteByte(',')
	}
	return b.String()
}

// labelText writes the labels that do not change from one rollout to the next.
func labelText(labels map[string]string) string {
	var b strings.Builder
	for _, k := range sortedKeys(labels) {
		if !volatileLabel(k) {
			b.WriteString(k + "=" + labels[k] + ",")
		}
	}
	return b.String()
}

// volatileLabel says whether a label tells apart pods of one workload, so that
// no policy should go by it.
func volatileLabel(key string) bool { return slices.Contains(volatileLabels, key) }
