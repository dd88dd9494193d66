package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// status is what the kubelet would report of the pod.
func (s *sandbox) status(pod *corev1.Pod) corev1.PodStatus {
	st := *pod.Status.DeepCopy()
	st.Phase, st.Reason, st.Message = corev1.PodRunning, "", ""
	st.HostIP, st.HostIPs = s.node.Address, []corev1.HostIP{{IP: s.node.Address}}
	st.PodIP, st.PodIPs = s.ip, []corev1.PodIP{{IP: s.ip}}
	st.StartTime = &s.started
	ready, reason, message := corev1.ConditionTrue, "", ""
	if !s.ready {
		ready, reason, message = corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: ["+containerNames(pod)+"]"
	}
	scheduled := condition(pod.Status.Conditions, corev1.PodScheduled)
	st.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: s.started},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: s.started},
		{Type: corev1.PodReady, Status: ready, Reason: reason, Message: message, LastTransitionTime: s.since},
		{Type: corev1.ContainersReady, Status: ready, Reason: reason, Message: message, LastTransitionTime: s.since},
	}
	if scheduled != nil {
		st.Conditions = append(st.Conditions, *scheduled)
	}
	st.ContainerStatuses = nil
	started := true
	for _, c := range pod.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + string(pod.UID) + "-" + c.Name,
			Ready: s.ready, Started: &started, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.started}},
		})
	}
	return st
}

// notCreated is the status of a pod whose sandbox could not be made.
func notCreated(pod *corev1.Pod, err error) corev1.PodStatus {
	st := *pod.Status.DeepCopy()
	st.Phase, st.Reason, st.Message = corev1.PodPending, "FailedCreatePodSandBox", err.Error()
	return st
}

func containerNames(pod *corev1.Pod) string {
	names := ""
	for _, c := range pod.Spec.Containers {
		if names != "" {
			names += " "
		}
		names += c.Name
	}
	return names
}

func condition(conditions []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}

// report writes a status, unless the API server has it already.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	if equality.Semantic.DeepEqual(pod.Status, status) {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Status = status
	_, err := k.cluster.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the event of the newer version brings the pod here again
	}
	return err
}

// recordUnhealthy writes the event of a failed readiness probe as a kubelet does.
func (k *kubelet) recordUnhealthy(ctx context.Context, n *Node, pod *corev1.Pod, message string) error {
	now := metav1.NewTime(time.Now())
	_, err := k.cluster.Client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("%s.%x", pod.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			FieldPath: "spec.containers{" + pod.Spec.Containers[0].Name + "}",
		},
		Type: corev1.EventTypeWarning, Reason: "Unhealthy", Message: message,
		Source:              corev1.EventSource{Component: "kubelet", Host: n.Name},
		ReportingController: "kubelet", ReportingInstance: n.Name,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("recording a failed probe: %w", err)
	}
	return nil
}

// FailReadiness makes the servers of the pods that the selector selects answer
// their readiness probe with 503, of those that come later too, until
// HealReadiness. The pods must have a readiness probe.
func (c *Cluster) FailReadiness(namespace string, selector map[string]string) {
	s := labels.SelectorFromSet(selector)
	c.kubelet.mu.Lock()
	c.kubelet.failing[readinessFault{namespace, s.String()}] = s
	c.kubelet.mu.Unlock()
	c.kubelet.enqueueAll()
}

// HealReadiness takes FailReadiness back.
func (c *Cluster) HealReadiness(namespace string, selector map[string]string) {
	s := labels.SelectorFromSet(selector)
	c.kubelet.mu.Lock()
	delete(c.kubelet.failing, readinessFault{namespace, s.String()})
	c.kubelet.mu.Unlock()
	c.kubelet.enqueueAll()
}
