package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bind assigns a pod to the node, of those that it may run on, that has the
// fewest pods of the same owner; the first of equals in the order of AddNode.
func (k *kubelet) bind(ctx context.Context, pod *corev1.Pod) error {
	count := map[string]int{}
	for _, obj := range k.informer.GetIndexer().List() {
		other := obj.(*corev1.Pod)
		if other.DeletionTimestamp == nil && other.Namespace == pod.Namespace && sameOwner(pod, other) {
			count[k.nodeName(other)]++
		}
	}
	var best *Node
	for _, n := range k.cluster.Nodes() {
		if mayRunOn(pod, n) && (best == nil || count[n.Name] < count[best.Name]) {
			best = n
		}
	}
	if best == nil {
		return nil // Pending, until a node is added
	}
	err := k.cluster.Client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: best.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("binding it to %s: %w", best.Name, err)
	}
	k.bound[pod.UID] = best.Name
	return nil
}

func (k *kubelet) nodeName(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	return k.bound[pod.UID]
}

func sameOwner(a, b *corev1.Pod) bool {
	x, y := metav1.GetControllerOf(a), metav1.GetControllerOf(b)
	return x != nil && y != nil && x.UID == y.UID
}

// mayRunOn honours what the objects of these tests use: the affinity that a
// DaemonSet's controller writes, and a nodeSelector by host name.
func mayRunOn(pod *corev1.Pod, n *Node) bool {
	if host := pod.Spec.NodeSelector[corev1.LabelHostname]; host != "" && host != n.Name {
		return false
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == "metadata.name" && slices.Contains(f.Values, n.Name) {
				return true
			}
		}
	}
	return false
}
