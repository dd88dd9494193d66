package walk

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// flannel runs on both nodes, and its pod on the second is changed.
func flannel(change func(*corev1.Pod)) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		for i := range s.Objects.Nodes {
			node := s.Objects.Nodes[i].Name
			pod := readyPod("kube-flannel", "flannel-"+node, "172.31.250.11", node)
			pod.Labels, pod.Spec.HostNetwork = map[string]string{"app": "flannel"}, true
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true, State: runs}}
			if i == 1 && change != nil {
				if change(&pod); pod.Name == "" {
					continue
				}
			}
			s.Objects.Pods = append(s.Objects.Pods, pod)
		}
	}
}

func condition(i int, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		n := &s.Objects.Nodes[i]
		for j := range n.Status.Conditions {
			if n.Status.Conditions[j].Type == kind {
				n.Status.Conditions[j] = corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message}
				return
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func TestCNIAgentNotReady(t *testing.T) {
	loops := func(pod *corev1.Pod) {
		waiting(pod, "CrashLoopBackOff", "back-off")
		pod.Status.ContainerStatuses[0].RestartCount = 4
	}
	gone := func(pod *corev1.Pod) { pod.Name = "" }
	runNodeCases(t, []nodeCase{
		{name: "an agent crashes on a backend's node", change: []func(*snapshot.Snapshot){flannel(loops)}, roots: []string{"VIP327 warning"}, status: warn,
			says: []string{"Flannel's agent crashes on worker-2", "CrashLoopBackOff after 4 restarts", "kubectl delete pod flannel-worker-2 -n kube-flannel"}},
		{name: "an agent is missing on a backend's node", change: []func(*snapshot.Snapshot){flannel(gone)}, roots: []string{"VIP327 warning"}, status: warn,
			says: []string{"Flannel's agent is missing on worker-2", "1 pod of Flannel on other nodes, none on worker-2"}},
		{name: "a node says that it has no network", change: []func(*snapshot.Snapshot){condition(1, corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "NoRouteCreated", "no route")},
			roots: []string{"VIP327 error"}, status: fail, says: []string{"NetworkUnavailable=True NoRouteCreated no route"}},
		{name: "the kubelet waits for the plugin, whose agent crashes", change: []func(*snapshot.Snapshot){flannel(loops),
			condition(1, corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message: cni plugin not initialized")},
			roots: []string{"VIP327 error"}, status: fail, says: []string{"the kubelet waits for the network plugin on worker-2", "Flannel's agent flannel-worker-2"}},
		{name: "not VIP327: agents run", change: []func(*snapshot.Snapshot){flannel(nil)}, status: diagnosis.OK},
		{name: "not VIP327: NetworkUnavailable is False", change: []func(*snapshot.Snapshot){condition(1, corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "FlannelIsUp", "")}, status: diagnosis.OK},
		{name: "not VIP327: the node has only just come", change: []func(*snapshot.Snapshot){flannel(gone), func(s *snapshot.Snapshot) {
			s.Objects.Nodes[1].CreationTimestamp = metav1.NewTime(takenAt.Add(-time.Minute))
		}}, status: diagnosis.OK},
		{name: "not VIP327: a virtual node runs no agents", change: []func(*snapshot.Snapshot){flannel(gone), func(s *snapshot.Snapshot) {
			s.Objects.Nodes[1].Labels = map[string]string{"type": "virtual-kubelet"}
		}}, status: diagnosis.OK},
		{name: "not VIP327: another node without a part in it", change: []func(*snapshot.Snapshot){flannel(loops), func(s *snapshot.Snapshot) {
			s.Objects.Pods[len(s.Objects.Pods)-1].Spec.NodeName = "worker-9"
			agentPod("kube-flannel", "flannel-other", "app", "flannel")(s)
			s.Objects.Pods[len(s.Objects.Pods)-1].Spec.NodeName = "worker-2"
		}}, status: diagnosis.OK},
		{name: "not VIP327: pods of its namespace were not read", change: []func(*snapshot.Snapshot){}, status: diagnosis.OK},
	})
}
