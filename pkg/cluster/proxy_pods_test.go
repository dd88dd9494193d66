package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/cluster"
)

func TestProxyContainers(t *testing.T) {
	on := func(node, name, label, value, container string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: meta("kube-system", name)}
		p.Labels = map[string]string{label: value}
		p.Spec = corev1.PodSpec{NodeName: node, HostNetwork: true, Containers: []corev1.Container{{Name: "sidecar"}, {Name: container}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
		if change != nil {
			change(&p)
		}
		return p
	}
	kubeProxy := func(node, name string, change func(*corev1.Pod)) corev1.Pod {
		return on(node, name, "k8s-app", "kube-proxy", "kube-proxy", change)
	}
	got := cluster.ProxyContainers([]corev1.Pod{
		on("w1", "calico-1", "k8s-app", "calico-node", "calico-node", nil),
		kubeProxy("w1", "kube-proxy-1", nil),
		on("w2", "kube-proxy-w2", "component", "kube-proxy", "kube-proxy", nil),
		on("w3", "cilium-3", "k8s-app", "cilium", "cilium-agent", nil),
		kubeProxy("w4", "pending", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		kubeProxy("w5", "crashes", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }),
		kubeProxy("w6", "own-network", func(p *corev1.Pod) { p.Spec.HostNetwork = false }),
		kubeProxy("w7", "elsewhere", func(p *corev1.Pod) { p.Namespace = "shop" }),
		kubeProxy("w8", "no-such-container", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
		kubeProxy("", "unscheduled", nil),
	})
	want := map[string]cluster.ContainerRef{
		"w1": {Namespace: "kube-system", Pod: "kube-proxy-1", Container: "kube-proxy"},
		"w2": {Namespace: "kube-system", Pod: "kube-proxy-w2", Container: "kube-proxy"},
		"w3": {Namespace: "kube-system", Pod: "cilium-3", Container: "cilium-agent"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
