package snapshot

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func podTemplate(in *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: meta(&in.ObjectMeta), Spec: podSpec(&in.Spec)}
}

// StripDeployment keeps the selector, the counts, the conditions and what the
// template's pods declare.
func StripDeployment(in *appsv1.Deployment) appsv1.Deployment {
	st := &in.Status
	return appsv1.Deployment{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: appsv1.DeploymentSpec{
			Replicas: copyPtr(in.Spec.Replicas), Selector: with(in.Spec.Selector, labelSelector),
			Template: podTemplate(&in.Spec.Template), Paused: in.Spec.Paused, MinReadySeconds: in.Spec.MinReadySeconds,
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: st.ObservedGeneration, Replicas: st.Replicas, UpdatedReplicas: st.UpdatedReplicas,
			ReadyReplicas: st.ReadyReplicas, AvailableReplicas: st.AvailableReplicas, UnavailableReplicas: st.UnavailableReplicas,
			TerminatingReplicas: copyPtr(st.TerminatingReplicas),
			Conditions: each(st.Conditions, func(c *appsv1.DeploymentCondition) appsv1.DeploymentCondition {
				return appsv1.DeploymentCondition{
					Type: c.Type, Status: c.Status, LastUpdateTime: utc(c.LastUpdateTime), LastTransitionTime: utc(c.LastTransitionTime),
					Reason: c.Reason, Message: RedactText(c.Message),
				}
			}),
		},
	}
}

// StripReplicaSet keeps the same of a ReplicaSet.
func StripReplicaSet(in *appsv1.ReplicaSet) appsv1.ReplicaSet {
	st := &in.Status
	return appsv1.ReplicaSet{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: appsv1.ReplicaSetSpec{
			Replicas: copyPtr(in.Spec.Replicas), Selector: with(in.Spec.Selector, labelSelector),
			Template: podTemplate(&in.Spec.Template), MinReadySeconds: in.Spec.MinReadySeconds,
		},
		Status: appsv1.ReplicaSetStatus{
			ObservedGeneration: st.ObservedGeneration, Replicas: st.Replicas, FullyLabeledReplicas: st.FullyLabeledReplicas,
			ReadyReplicas: st.ReadyReplicas, AvailableReplicas: st.AvailableReplicas, TerminatingReplicas: copyPtr(st.TerminatingReplicas),
			Conditions: each(st.Conditions, func(c *appsv1.ReplicaSetCondition) appsv1.ReplicaSetCondition {
				return appsv1.ReplicaSetCondition{
					Type: c.Type, Status: c.Status, LastTransitionTime: utc(c.LastTransitionTime),
					Reason: c.Reason, Message: RedactText(c.Message),
				}
			}),
		},
	}
}

// StripStatefulSet keeps the same of a StatefulSet, and the Service that it
// names for its pods.
func StripStatefulSet(in *appsv1.StatefulSet) appsv1.StatefulSet {
	st := &in.Status
	return appsv1.StatefulSet{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: appsv1.StatefulSetSpec{
			Replicas: copyPtr(in.Spec.Replicas), Selector: with(in.Spec.Selector, labelSelector),
			Template: podTemplate(&in.Spec.Template), ServiceName: in.Spec.ServiceName,
			PodManagementPolicy: in.Spec.PodManagementPolicy, MinReadySeconds: in.Spec.MinReadySeconds,
		},
		Status: appsv1.StatefulSetStatus{
			ObservedGeneration: st.ObservedGeneration, Replicas: st.Replicas, ReadyReplicas: st.ReadyReplicas,
			CurrentReplicas: st.CurrentReplicas, UpdatedReplicas: st.UpdatedReplicas, AvailableReplicas: st.AvailableReplicas,
			Conditions: each(st.Conditions, func(c *appsv1.StatefulSetCondition) appsv1.StatefulSetCondition {
				return appsv1.StatefulSetCondition{
					Type: c.Type, Status: c.Status, LastTransitionTime: utc(c.LastTransitionTime),
					Reason: c.Reason, Message: RedactText(c.Message),
				}
			}),
		},
	}
}

// StripDaemonSet keeps the same of a DaemonSet.
func StripDaemonSet(in *appsv1.DaemonSet) appsv1.DaemonSet {
	st := &in.Status
	return appsv1.DaemonSet{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: appsv1.DaemonSetSpec{
			Selector: with(in.Spec.Selector, labelSelector), Template: podTemplate(&in.Spec.Template),
			MinReadySeconds: in.Spec.MinReadySeconds,
		},
		Status: appsv1.DaemonSetStatus{
			ObservedGeneration: st.ObservedGeneration, CurrentNumberScheduled: st.CurrentNumberScheduled,
			NumberMisscheduled: st.NumberMisscheduled, DesiredNumberScheduled: st.DesiredNumberScheduled,
			NumberReady: st.NumberReady, UpdatedNumberScheduled: st.UpdatedNumberScheduled,
			NumberAvailable: st.NumberAvailable, NumberUnavailable: st.NumberUnavailable,
			Conditions: each(st.Conditions, func(c *appsv1.DaemonSetCondition) appsv1.DaemonSetCondition {
				return appsv1.DaemonSetCondition{
					Type: c.Type, Status: c.Status, LastTransitionTime: utc(c.LastTransitionTime),
					Reason: c.Reason, Message: RedactText(c.Message),
				}
			}),
		},
	}
}
