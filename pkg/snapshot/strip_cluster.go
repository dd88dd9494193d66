package snapshot

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StripNode keeps a node's addresses, ranges, taints, conditions and the
// versions that it reports; not its machine's identities, images or volumes.
func StripNode(in *corev1.Node) corev1.Node {
	info := &in.Status.NodeInfo
	return corev1.Node{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: corev1.NodeSpec{
			PodCIDR: in.Spec.PodCIDR, PodCIDRs: copySlice(in.Spec.PodCIDRs), Unschedulable: in.Spec.Unschedulable,
			Taints: each(in.Spec.Taints, func(t *corev1.Taint) corev1.Taint {
				return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: utcPtr(t.TimeAdded)}
			}),
		},
		Status: corev1.NodeStatus{
			Addresses: each(in.Status.Addresses, func(a *corev1.NodeAddress) corev1.NodeAddress {
				return corev1.NodeAddress{Type: a.Type, Address: a.Address}
			}),
			Conditions: each(in.Status.Conditions, func(c *corev1.NodeCondition) corev1.NodeCondition {
				return corev1.NodeCondition{
					Type: c.Type, Status: c.Status, LastHeartbeatTime: utc(c.LastHeartbeatTime),
					LastTransitionTime: utc(c.LastTransitionTime), Reason: c.Reason, Message: RedactText(c.Message),
				}
			}),
			NodeInfo: corev1.NodeSystemInfo{
				KernelVersion: info.KernelVersion, OSImage: info.OSImage, ContainerRuntimeVersion: info.ContainerRuntimeVersion,
				KubeletVersion: info.KubeletVersion, OperatingSystem: info.OperatingSystem, Architecture: info.Architecture,
				KubeProxyVersion: info.KubeProxyVersion, //nolint:staticcheck // filled by clusters before 1.31, and all there is then
			},
		},
	}
}

// StripNamespace keeps the labels and the phase.
func StripNamespace(in *corev1.Namespace) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: meta(&in.ObjectMeta), Status: corev1.NamespaceStatus{Phase: in.Status.Phase}}
}

// eventKinds are the kinds whose events a walk quotes.
var eventKinds = map[string]bool{
	"Service": true, "EndpointSlice": true, "Endpoints": true, "Pod": true, "Deployment": true, "ReplicaSet": true,
	"StatefulSet": true, "DaemonSet": true, "Node": true, "NetworkPolicy": true, "HorizontalPodAutoscaler": true,
	"ScaledObject": true, "IPAddress": true, "ServiceCIDR": true,
}

// StripEvent keeps what happened to what, how often and when. Messages that
// repeat a command or an application's output lose that part.
func StripEvent(in *corev1.Event) corev1.Event {
	return corev1.Event{
		ObjectMeta:     meta(&in.ObjectMeta),
		InvolvedObject: objectReference(&in.InvolvedObject),
		Reason:         in.Reason,
		Message:        redactMessage(in.Reason, in.Message),
		Type:           in.Type,
		Count:          in.Count,
		FirstTimestamp: utc(in.FirstTimestamp),
		LastTimestamp:  utc(in.LastTimestamp),
		EventTime:      utcMicro(in.EventTime),
		Series: with(in.Series, func(s *corev1.EventSeries) corev1.EventSeries {
			return corev1.EventSeries{Count: s.Count, LastObservedTime: utcMicro(s.LastObservedTime)}
		}),
		Source:              corev1.EventSource{Component: in.Source.Component},
		ReportingController: in.ReportingController,
	}
}

func utcMicro(t metav1.MicroTime) metav1.MicroTime {
	if t.IsZero() {
		return metav1.MicroTime{}
	}
	return metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}
