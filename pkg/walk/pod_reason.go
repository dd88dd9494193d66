package walk

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// podReason says why a pod is not ready.
type podReason struct {
	// class groups pods with the same trouble, for a headline; one and many
	// are the verb phrase: "fails its readiness probe".
	class reasonClass
	// text is the pod's own reason: "readiness probe GET :8081/healthz: connection refused".
	text     string
	evidence []diagnosis.Evidence
	// container that it is about, "" for the pod.
	container string
}

type reasonClass struct{ one, many string }

var (
	reasonTerminating  = reasonClass{"is terminating", "are terminating"}
	reasonNode         = reasonClass{"is on a node that is not ready", "are on nodes that are not ready"}
	reasonUnscheduled  = reasonClass{"is not scheduled", "are not scheduled"}
	reasonInit         = reasonClass{"is held up by an init container", "are held up by an init container"}
	reasonCrash        = reasonClass{"crashes", "crash"}
	reasonOOM          = reasonClass{"is killed for its memory (OOMKilled)", "are killed for their memory (OOMKilled)"}
	reasonImage        = reasonClass{"cannot pull its image", "cannot pull their image"}
	reasonCreate       = reasonClass{"cannot be started", "cannot be started"}
	reasonStarting     = reasonClass{"is starting", "are starting"}
	reasonStartupProbe = reasonClass{"has not passed its startup probe", "have not passed their startup probe"}
	reasonProbe        = reasonClass{"fails its readiness probe", "fail their readiness probe"}
	reasonGate         = reasonClass{"waits for a readiness gate", "wait for a readiness gate"}
	reasonStopped      = reasonClass{"has a container that ended", "have a container that ended"}
	reasonByHand       = reasonClass{"is marked not ready in its slice", "are marked not ready in their slice"}
	reasonOther        = reasonClass{"is not ready", "are not ready"}
)

// startGrace is how long a pod without any trouble may take to start before it
// is worth a warning.
const startGrace = 30 * time.Second

// whyNotReady finds the first thing that keeps a pod from being ready, in the
// order in which a pod comes to life.
func (p *Pass) whyNotReady(pod *corev1.Pod) podReason {
	for _, f := range []func(*corev1.Pod) (podReason, bool){
		p.terminatingReason, p.nodeReason, p.unscheduledReason, p.initReason, p.containerReason, p.probeReason, p.gateReason,
	} {
		if r, ok := f(pod); ok {
			return r
		}
	}
	r := podReason{class: reasonOther, text: "no reason is given"}
	if c := podCondition(pod, corev1.PodReady); c != nil {
		r.text = emptyAs(strings.TrimSpace(c.Reason+" "+c.Message), r.text)
		r.evidence = []diagnosis.Evidence{conditionEvidence(pod, c)}
	}
	if pod.Status.Phase == corev1.PodPending && len(pod.Status.Conditions) == 0 {
		r.class, r.text = reasonUnscheduled, "no scheduler has looked at it"
		r.evidence = []diagnosis.Evidence{podEvidence(pod, ".status.phase", "Pending")}
	}
	return r
}

func conditionEvidence(pod *corev1.Pod, c *corev1.PodCondition) diagnosis.Evidence {
	quote := fmt.Sprintf("%s=%s", c.Type, c.Status)
	if s := strings.TrimSpace(c.Reason + ": " + c.Message); s != ":" {
		quote += " " + strings.TrimSuffix(strings.TrimPrefix(s, ": "), ":")
	}
	return podEvidence(pod, ".status.conditions", quote)
}

func (p *Pass) terminatingReason(pod *corev1.Pod) (podReason, bool) {
	t := pod.DeletionTimestamp
	if t == nil {
		return podReason{}, false
	}
	r := podReason{class: reasonTerminating, text: "terminating"}
	if past := p.snap.TakenAt.Sub(t.Time); past > 0 && !t.IsZero() {
		r.text += fmt.Sprintf(", %s past its deadline", past.Round(time.Second))
	}
	if len(pod.Finalizers) > 0 {
		r.text += ", held by finalizers " + list(pod.Finalizers)
	}
	r.evidence = []diagnosis.Evidence{podEvidence(pod, ".metadata.deletionTimestamp", t.UTC().Format(time.RFC3339))}
	return r, true
}

func (p *Pass) nodeReason(pod *corev1.Pod) (podReason, bool) {
	n := p.nodeByName[pod.Spec.NodeName]
	if n == nil || nodeReady(n) {
		return podReason{}, false
	}
	r := podReason{class: reasonNode, text: "node " + n.Name + " is not ready"}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			r.text += ": " + strings.TrimSpace(c.Reason+" "+c.Message)
			r.evidence = []diagnosis.Evidence{{
				Source: "node/" + n.Name + " .status.conditions", Ref: "node/" + n.Name, Quote: fmt.Sprintf("Ready=%s %s", c.Status, c.Reason),
				Command: kubectl("get", "node", n.Name, "-o", "jsonpath={.status.conditions}"),
			}}
		}
	}
	return r, true
}

func (p *Pass) unscheduledReason(pod *corev1.Pod) (podReason, bool) {
	c := podCondition(pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return podReason{}, false
	}
	text := "not scheduled"
	if m := strings.TrimSpace(c.Message); m != "" {
		text += ": " + m
	} else if c.Reason != "" {
		text += ": " + c.Reason
	}
	return podReason{class: reasonUnscheduled, text: text, evidence: []diagnosis.Evidence{conditionEvidence(pod, c)}}, true
}

// initReason looks at init containers that are to end before the others start.
func (p *Pass) initReason(pod *corev1.Pod) (podReason, bool) {
	for i := range pod.Status.InitContainerStatuses {
		st := &pod.Status.InitContainerStatuses[i]
		if st.State.Terminated != nil && st.State.Terminated.ExitCode == 0 || st.Started != nil && *st.Started {
			continue // done, or a sidecar that runs
		}
		if st.State.Waiting != nil && st.State.Waiting.Reason == "PodInitializing" {
			continue
		}
		r, ok := p.stateReason(pod, st)
		if !ok {
			r = podReason{text: "has been running", evidence: []diagnosis.Evidence{podEvidence(pod, ".status.initContainerStatuses", st.Name+" is running")}}
		}
		r.class, r.container = reasonInit, st.Name
		r.text = "init container " + st.Name + ": " + r.text
		return r, true
	}
	return podReason{}, false
}

func (p *Pass) containerReason(pod *corev1.Pod) (podReason, bool) {
	for i := range pod.Status.ContainerStatuses {
		st := &pod.Status.ContainerStatuses[i]
		if st.Ready {
			continue
		}
		if r, ok := p.stateReason(pod, st); ok {
			r.text = "container " + st.Name + ": " + r.text
			return r, true
		}
	}
	return podReason{}, false
}

// stateReason reads one container's state; false for one that runs.
func (p *Pass) stateReason(pod *corev1.Pod, st *corev1.ContainerStatus) (podReason, bool) {
	r := podReason{container: st.Name}
	switch {
	case st.State.Terminated != nil:
		t := st.State.Terminated
		r.class, r.text = reasonStopped, ended(t)
		if t.Reason == "OOMKilled" {
			r.class = reasonOOM
		}
	case st.State.Waiting != nil:
		p.waiting(&r, pod, st)
	default:
		return podReason{}, false
	}
	if len(r.evidence) == 0 {
		r.evidence = []diagnosis.Evidence{podEvidence(pod, ".status.containerStatuses", st.Name+": "+r.text)}
	}
	return r, true
}

// waiting reads why a container waits; the reasons are the kubelet's.
func (p *Pass) waiting(r *podReason, pod *corev1.Pod, st *corev1.ContainerStatus) {
	w := st.State.Waiting
	r.text = w.Reason
	if m := strings.TrimSpace(w.Message); m != "" {
		r.text += ": " + m
	}
	switch w.Reason {
	case "CrashLoopBackOff":
		r.class, r.text = reasonCrash, fmt.Sprintf("CrashLoopBackOff after %s", count(int(st.RestartCount), "restart"))
		if t := st.LastTerminationState.Terminated; t != nil {
			r.text += ", " + ended(t)
			if t.Reason == "OOMKilled" {
				r.class = reasonOOM
			}
		}
		e := podEvidence(pod, ".status.containerStatuses", st.Name+": "+r.text)
		r.evidence = []diagnosis.Evidence{e, {
			Source: "log of container " + st.Name + " before it ended", Ref: "pod/" + pod.Namespace + "/" + pod.Name,
			Quote:   "(not read: the container's own words are the next thing to look at)",
			Command: kubectl("logs", pod.Name, "-n", pod.Namespace, "-c", st.Name, "--previous"),
		}}
	case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		r.class, r.text = reasonImage, fmt.Sprintf("%s for image %s", w.Reason, st.Image)
		for _, e := range p.eventsOf("Pod", pod.Namespace, pod.Name) {
			if e.Reason == "Failed" && strings.Contains(e.Message, "pull") {
				r.evidence = append(r.evidence, eventEvidence(e))
				break
			}
		}
		r.evidence = append(r.evidence, podEvidence(pod, ".status.containerStatuses", st.Name+": "+strings.TrimSpace(w.Reason+" "+w.Message)))
	case "ContainerCreating", "PodInitializing", "":
		r.class = reasonStarting
		r.text = emptyAs(w.Reason, "waiting")
		for _, e := range p.eventsOf("Pod", pod.Namespace, pod.Name) {
			if e.Type == corev1.EventTypeWarning {
				r.class, r.text = reasonCreate, e.Reason+": "+strings.TrimSpace(e.Message)
				r.evidence = append(r.evidence, eventEvidence(e))
				break
			}
		}
	default: // CreateContainerConfigError, CreateContainerError, RunContainerError, ...
		r.class = reasonCreate
	}
}

func ended(t *corev1.ContainerStateTerminated) string {
	s := fmt.Sprintf("ended with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		s += " (" + t.Reason + ")"
	}
	return s
}

// probeReason looks at containers that run but are not ready: the startup
// probe comes first, then the readiness probe.
func (p *Pass) probeReason(pod *corev1.Pod) (podReason, bool) {
	for i := range pod.Status.ContainerStatuses {
		st := &pod.Status.ContainerStatuses[i]
		if st.Ready || st.State.Running == nil {
			continue
		}
		c := containerNamed(pod, st.Name)
		if c == nil {
			continue
		}
		switch {
		case c.StartupProbe != nil && (st.Started == nil || !*st.Started):
			return p.probeFailure(pod, c, c.StartupProbe, "Startup", "startupProbe", reasonStartupProbe), true
		case c.ReadinessProbe != nil:
			return p.probeFailure(pod, c, c.ReadinessProbe, "Readiness", "readinessProbe", reasonProbe), true
		}
	}
	return podReason{}, false
}

func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

func (p *Pass) probeFailure(pod *corev1.Pod, c *corev1.Container, probe *corev1.Probe, word, field string, class reasonClass) podReason {
	r := podReason{class: class, container: c.Name, text: strings.ToLower(word) + " probe " + probeText(probe)}
	path := fmt.Sprintf(".spec.containers[?(@.name==%q)].%s", c.Name, field)
	r.evidence = append(r.evidence, podEvidence(pod, path, probeText(probe)))
	for _, e := range p.eventsOf("Pod", pod.Namespace, pod.Name) {
		if e.Reason == "Unhealthy" && strings.HasPrefix(e.Message, word) {
			_, why, ok := strings.Cut(e.Message, "failed: ")
			if !ok {
				why = e.Message
			}
			r.text += ": " + strings.TrimSpace(why)
			r.evidence = append(r.evidence, eventEvidence(e))
			break
		}
	}
	if m := undeclaredProbePort(c, probe); m != "" {
		r.text += "; " + m
	}
	if cond := podCondition(pod, corev1.PodReady); cond != nil {
		r.evidence = append(r.evidence, conditionEvidence(pod, cond))
	}
	return r
}

// probePort is the port that a probe goes to; ok is false for an exec probe.
func probePort(probe *corev1.Probe) (intstr.IntOrString, bool) {
	switch {
	case probe.HTTPGet != nil:
		return probe.HTTPGet.Port, true
	case probe.TCPSocket != nil:
		return probe.TCPSocket.Port, true
	case probe.GRPC != nil:
		return intstr.FromInt32(probe.GRPC.Port), true
	}
	return intstr.IntOrString{}, false
}

func probeText(probe *corev1.Probe) string {
	switch {
	case probe.HTTPGet != nil:
		return fmt.Sprintf("GET :%s%s", probe.HTTPGet.Port.String(), probe.HTTPGet.Path)
	case probe.TCPSocket != nil:
		return "connect to :" + probe.TCPSocket.Port.String()
	case probe.GRPC != nil:
		return fmt.Sprintf("gRPC :%d", probe.GRPC.Port)
	}
	return "a command in the container"
}

// undeclaredProbePort says so where a probe goes to a port that the container
// does not declare although it declares others. That is legal, and often the
// mistake.
func undeclaredProbePort(c *corev1.Container, probe *corev1.Probe) string {
	port, ok := probePort(probe)
	if !ok || len(c.Ports) == 0 {
		return ""
	}
	var have []string
	for _, d := range c.Ports {
		if (port.Type == intstr.Int && d.ContainerPort == port.IntVal) || (port.Type == intstr.String && d.Name == port.StrVal) {
			return ""
		}
		have = append(have, strings.TrimSpace(fmt.Sprintf("%s %d", d.Name, d.ContainerPort)))
	}
	return fmt.Sprintf("the container does not declare port %s (it declares %s)", port.String(), list(have))
}

func (p *Pass) gateReason(pod *corev1.Pod) (podReason, bool) {
	for _, g := range pod.Spec.ReadinessGates {
		c := podCondition(pod, g.ConditionType)
		if c != nil && c.Status == corev1.ConditionTrue {
			continue
		}
		r := podReason{class: reasonGate, text: "readiness gate " + string(g.ConditionType) + " is not set"}
		if c != nil {
			r.text = fmt.Sprintf("readiness gate %s is %s %s", g.ConditionType, c.Status, strings.TrimSpace(c.Reason+" "+c.Message))
		}
		r.evidence = []diagnosis.Evidence{podEvidence(pod, ".status.conditions", r.text)}
		return r, true
	}
	return podReason{}, false
}
