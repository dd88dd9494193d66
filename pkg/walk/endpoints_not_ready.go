package walk

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// noReadyEndpoint finds a Service whose backends exist and of which none is
// ready, and says of each why.
var noReadyEndpoint = &Check{
	Code:    diagnosis.NoReadyEndpoint,
	Needs:   []snapshot.Resource{snapshot.EndpointSlices},
	Applies: hasEndpointsLayer,
	Explains: []diagnosis.Code{
		diagnosis.SomeEndpointsNotReady, diagnosis.RejectedAsEmpty, diagnosis.NoEndpointSlice,
	},
	Run: func(p *Pass) {
		if ready, _ := p.ReadyEndpoints(); ready > 0 {
			return
		}
		waiting := p.notReady()
		if len(waiting) == 0 {
			return
		}
		groups := p.reasons(waiting)
		f := Finding{
			Title:    noneReadyTitle(len(waiting), groups),
			Expected: "at least one endpoint with condition ready",
			Found:    groupText(groups),
			Evidence: append(groupEvidence(groups), p.slicesEvidence(fmt.Sprintf("0 of %d ready", len(waiting)))),
			Fixes:    p.readinessFixes(groups),
		}
		if n := p.draining(); n > 0 {
			f.Severity = diagnosis.Warning
			f.Title = fmt.Sprintf("no endpoint is ready, and traffic goes to %s that still %s", count(n, "terminating one"), are(n, "serves", "serve"))
		}
		p.Report(f)
	},
}

func noneReadyTitle(n int, groups []reasonGroup) string {
	if n == 1 {
		if groups[0].reason.class == reasonOther {
			return "the only endpoint is not ready"
		}
		return "the only endpoint is not ready: it " + groups[0].reason.class.one
	}
	return fmt.Sprintf("none of %s is ready: %s", count(n, "endpoint"), classText(groups))
}

// someEndpointsNotReady warns of backends that are left out while others serve.
// A pod on its way out, or one that has only begun to start, is none.
var someEndpointsNotReady = &Check{
	Code:    diagnosis.SomeEndpointsNotReady,
	Needs:   []snapshot.Resource{snapshot.EndpointSlices},
	Applies: hasEndpointsLayer,
	Run: func(p *Pass) {
		ready, _ := p.ReadyEndpoints()
		if ready == 0 {
			return
		}
		waiting := slices.DeleteFunc(p.notReady(), func(b backend) bool {
			return b.pod != nil && (b.pod.DeletionTimestamp != nil || p.justStarting(b.pod)) || b.ep != nil && b.ep.Terminating
		})
		if len(waiting) == 0 {
			return
		}
		groups := p.reasons(waiting)
		p.Report(Finding{
			Title:    fmt.Sprintf("%d of %s not ready: %s", len(waiting), count(ready+len(waiting), "endpoint"), classText(groups)),
			Expected: "every endpoint with condition ready",
			Found:    groupText(groups),
			Evidence: append(groupEvidence(groups), p.slicesEvidence(fmt.Sprintf("%d of %d ready", ready, ready+len(waiting)))),
			Fixes:    p.readinessFixes(groups),
		})
	},
}

// hasEndpointsLayer: every Service but an alias has endpoints.
func hasEndpointsLayer(p *Pass) bool { return p.Service != nil && !isExternalName(p) }

// draining counts the endpoints that terminate and still serve; kube-proxy
// falls back to them (1.26 and later, KEP-1669).
func (p *Pass) draining() int {
	n := 0
	for _, e := range p.Endpoints() {
		if e.Addr.IsValid() && !e.Ready && e.Serving && e.Terminating {
			n++
		}
	}
	return n
}

// justStarting: a young pod to which nothing has happened yet.
func (p *Pass) justStarting(pod *corev1.Pod) bool {
	if pod.CreationTimestamp.IsZero() || p.snap.TakenAt.Sub(pod.CreationTimestamp.Time) >= startGrace {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].RestartCount > 0 {
			return false
		}
	}
	switch p.whyNotReady(pod).class {
	case reasonStarting, reasonStartupProbe, reasonProbe, reasonOther, reasonInit, reasonUnscheduled:
		return true
	}
	return false
}

// readinessFixes are what may be done about pods that are not ready. None of
// it can be tried on paper: whether a pod becomes ready, only the cluster can
// tell.
func (p *Pass) readinessFixes(groups []reasonGroup) []Proposal {
	var out []Proposal
	done := map[string]bool{}
	add := func(key string, pr Proposal) {
		if !done[key] {
			done[key] = true
			out = append(out, pr)
		}
	}
	for _, g := range groups {
		pod := g.who[0].pod
		if pod == nil {
			continue
		}
		owner, ok := p.ownerOf(pod)
		if !ok {
			continue
		}
		switch g.reason.class {
		case reasonProbe, reasonStartupProbe:
			if pr, ok := p.probePortFix(pod, owner, g.reason); ok {
				add("probe "+owner, pr)
			}
		case reasonCrash, reasonOOM, reasonImage, reasonCreate, reasonInit:
			if pr, ok := p.rollbackFix(pod, owner); ok {
				add("undo "+owner, pr)
			}
		}
	}
	return out
}

// probePortFix proposes the one declared port for a probe that goes to one that
// is not declared.
func (p *Pass) probePortFix(pod *corev1.Pod, owner string, r podReason) (Proposal, bool) {
	c := containerNamed(pod, r.container)
	if c == nil || len(c.Ports) != 1 || !strings.HasPrefix(owner, "deployment/") && !strings.HasPrefix(owner, "statefulset/") && !strings.HasPrefix(owner, "daemonset/") {
		return Proposal{}, false
	}
	probe, field := c.ReadinessProbe, "readinessProbe"
	if r.class == reasonStartupProbe {
		probe, field = c.StartupProbe, "startupProbe"
	}
	if undeclaredProbePort(c, probe) == "" || probe.GRPC != nil {
		return Proposal{}, false
	}
	handler := "httpGet"
	if probe.TCPSocket != nil {
		handler = "tcpSocket"
	}
	from, _ := probePort(probe)
	to := intstr.FromInt32(c.Ports[0].ContainerPort)
	index := slices.IndexFunc(pod.Spec.Containers, func(k corev1.Container) bool { return k.Name == c.Name })
	at := fmt.Sprintf("/spec/template/spec/containers/%d", index)
	path := fmt.Sprintf("%s/%s/%s/port", at, field, handler)
	patch := func(from, to intstr.IntOrString) string {
		return kubectl("patch", owner, "-n", pod.Namespace, "--type=json", "-p",
			compactJSON([]jsonOp{{"test", at + "/name", c.Name}, {"test", path, from}, {"replace", path, to}}))
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       fmt.Sprintf("probe the port that the container declares: %s", to.String()),
			Commands:    tried(patch(from, to)),
			BlastRadius: "replaces the pods of " + owner,
			Undo:        []string{patch(to, from)},
			Verify:      p.verify(),
		},
		NotSimulated: "whether the application answers there, only the cluster can tell",
	}, true
}

// rollbackFix proposes the previous revision of a Deployment, where there is
// one and the pod is of the newest.
func (p *Pass) rollbackFix(pod *corev1.Pod, owner string) (Proposal, bool) {
	name, ok := strings.CutPrefix(owner, "deployment/")
	if !ok {
		return Proposal{}, false
	}
	var d *workload
	for _, wl := range p.workloads(pod.Namespace) {
		if wl.kind == "Deployment" && wl.meta.Name == name {
			d = &wl
			break
		}
	}
	if d == nil {
		return Proposal{}, false
	}
	sets := p.replicaSetsOf(*d)
	if len(sets) < 2 || !ownedBy(pod.OwnerReferences, "ReplicaSet", sets[0].Name) {
		return Proposal{}, false
	}
	undo := []string{kubectl("rollout", "undo", owner, "-n", pod.Namespace)}
	if r := sets[0].Annotations["deployment.kubernetes.io/revision"]; r != "" {
		undo = []string{kubectl("rollout", "undo", owner, "-n", pod.Namespace, "--to-revision="+r)}
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "roll " + owner + " back to the revision before",
			Commands:    tried(kubectl("rollout", "undo", owner, "-n", pod.Namespace)),
			BlastRadius: "replaces the pods of " + owner + "; the change that came with the newest revision is gone",
			Undo:        undo,
			Verify:      p.verify(),
		},
		NotSimulated: "whether the earlier revision runs, only the cluster can tell",
	}, true
}
