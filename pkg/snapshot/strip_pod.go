package snapshot

import (
	corev1 "k8s.io/api/core/v1"
)

// StripPod keeps where a pod runs, what its containers declare and how they
// are probed, and its status.
func StripPod(in *corev1.Pod) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec:       podSpec(&in.Spec),
		Status:     podStatus(&in.Status),
	}
}

func podSpec(in *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:       in.NodeName,
		HostNetwork:    in.HostNetwork,
		Hostname:       in.Hostname,
		Subdomain:      in.Subdomain,
		RestartPolicy:  in.RestartPolicy,
		DNSPolicy:      in.DNSPolicy,
		InitContainers: each(in.InitContainers, container),
		Containers:     each(in.Containers, container),
		ReadinessGates: each(in.ReadinessGates, func(g *corev1.PodReadinessGate) corev1.PodReadinessGate {
			return corev1.PodReadinessGate{ConditionType: g.ConditionType}
		}),
		SchedulingGates: each(in.SchedulingGates, func(g *corev1.PodSchedulingGate) corev1.PodSchedulingGate {
			return corev1.PodSchedulingGate{Name: g.Name}
		}),
	}
}

func container(in *corev1.Container) corev1.Container {
	return corev1.Container{
		Name:          in.Name,
		Image:         in.Image,
		RestartPolicy: copyPtr(in.RestartPolicy), // Always makes an init container a sidecar, which counts for readiness
		Ports: each(in.Ports, func(p *corev1.ContainerPort) corev1.ContainerPort {
			return corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol, HostPort: p.HostPort, HostIP: p.HostIP}
		}),
		ReadinessProbe: with(in.ReadinessProbe, probe),
		LivenessProbe:  with(in.LivenessProbe, probe),
		StartupProbe:   with(in.StartupProbe, probe),
	}
}

// probe keeps what is probed and how often. Of an exec probe only that it is
// one, and of a URL the query only as a mark: both are places for passwords.
func probe(in *corev1.Probe) corev1.Probe {
	out := corev1.Probe{
		InitialDelaySeconds: in.InitialDelaySeconds,
		TimeoutSeconds:      in.TimeoutSeconds,
		PeriodSeconds:       in.PeriodSeconds,
		SuccessThreshold:    in.SuccessThreshold,
		FailureThreshold:    in.FailureThreshold,
	}
	if in.Exec != nil {
		out.Exec = &corev1.ExecAction{}
	}
	out.HTTPGet = with(in.HTTPGet, func(h *corev1.HTTPGetAction) corev1.HTTPGetAction {
		return corev1.HTTPGetAction{Path: redactPath(h.Path), Port: h.Port, Host: h.Host, Scheme: h.Scheme}
	})
	out.TCPSocket = with(in.TCPSocket, func(t *corev1.TCPSocketAction) corev1.TCPSocketAction {
		return corev1.TCPSocketAction{Port: t.Port, Host: t.Host}
	})
	out.GRPC = with(in.GRPC, func(g *corev1.GRPCAction) corev1.GRPCAction {
		return corev1.GRPCAction{Port: g.Port, Service: copyPtr(g.Service)}
	})
	return out
}

func podStatus(in *corev1.PodStatus) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:             in.Phase,
		Reason:            in.Reason,
		Message:           RedactText(in.Message),
		NominatedNodeName: in.NominatedNodeName,
		HostIP:            in.HostIP,
		HostIPs:           each(in.HostIPs, func(h *corev1.HostIP) corev1.HostIP { return corev1.HostIP{IP: h.IP} }),
		PodIP:             in.PodIP,
		PodIPs:            each(in.PodIPs, func(p *corev1.PodIP) corev1.PodIP { return corev1.PodIP{IP: p.IP} }),
		StartTime:         utcPtr(in.StartTime),
		Conditions: each(in.Conditions, func(c *corev1.PodCondition) corev1.PodCondition {
			return corev1.PodCondition{
				Type: c.Type, Status: c.Status, LastTransitionTime: utc(c.LastTransitionTime),
				Reason: c.Reason, Message: RedactText(c.Message),
			}
		}),
		InitContainerStatuses: each(in.InitContainerStatuses, containerStatus),
		ContainerStatuses:     each(in.ContainerStatuses, containerStatus),
	}
}

func containerStatus(in *corev1.ContainerStatus) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:                 in.Name,
		Image:                in.Image,
		Ready:                in.Ready,
		Started:              copyPtr(in.Started),
		RestartCount:         in.RestartCount,
		State:                containerState(&in.State),
		LastTerminationState: containerState(&in.LastTerminationState),
	}
}

// containerState leaves out a terminated container's message, which is the
// application's own output, and the waiting message of a failed postStart
// hook, which repeats the hook's command and output.
func containerState(in *corev1.ContainerState) corev1.ContainerState {
	return corev1.ContainerState{
		Waiting: with(in.Waiting, func(w *corev1.ContainerStateWaiting) corev1.ContainerStateWaiting {
			return corev1.ContainerStateWaiting{Reason: w.Reason, Message: redactMessage(w.Reason, w.Message)}
		}),
		Running: with(in.Running, func(r *corev1.ContainerStateRunning) corev1.ContainerStateRunning {
			return corev1.ContainerStateRunning{StartedAt: utc(r.StartedAt)}
		}),
		Terminated: with(in.Terminated, func(t *corev1.ContainerStateTerminated) corev1.ContainerStateTerminated {
			return corev1.ContainerStateTerminated{
				ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason,
				StartedAt: utc(t.StartedAt), FinishedAt: utc(t.FinishedAt),
			}
		}),
	}
}
