package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// proxyPod is how a program that programs nodes for Services, or sees their
// rules, is known in snapshot.ProxyNamespace.
type proxyPod struct{ label, value, container string }

// proxyPods are those through which a node may be read, the best first:
// kube-proxy's own (kubeadm and EKS; AKS, GKE and RKE2), then those of network
// plugins, whose images have iptables too. All are on the node's own network.
var proxyPods = []proxyPod{
	{"k8s-app", "kube-proxy", "kube-proxy"},
	{"component", "kube-proxy", "kube-proxy"},
	{"k8s-app", "kube-router", "kube-router"},
	{"k8s-app", "calico-node", "calico-node"},
	{"app", "antrea", "antrea-agent"},
	{"k8s-app", "cilium", "cilium-agent"},
}

// ProxyContainers are the containers through which nodes may be read, by the
// node's name: of each node the best that runs on its network.
func ProxyContainers(pods []corev1.Pod) map[string]ContainerRef {
	out, rank := map[string]ContainerRef{}, map[string]int{}
	for i := range pods {
		pod := &pods[i]
		if pod.Namespace != snapshot.ProxyNamespace || pod.Spec.NodeName == "" || !pod.Spec.HostNetwork || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		n := slices.IndexFunc(proxyPods, func(p proxyPod) bool { return pod.Labels[p.label] == p.value && running(pod, p.container) })
		if old, seen := rank[pod.Spec.NodeName]; n < 0 || seen && old <= n {
			continue
		}
		rank[pod.Spec.NodeName] = n
		out[pod.Spec.NodeName] = ContainerRef{Namespace: pod.Namespace, Pod: pod.Name, Container: proxyPods[n].container}
	}
	return out
}

// running says whether a pod's container runs, as far as its status tells.
func running(pod *corev1.Pod, container string) bool {
	if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container }) {
		return false
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			return s.State.Running != nil
		}
	}
	return true
}
