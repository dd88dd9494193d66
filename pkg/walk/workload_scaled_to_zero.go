package walk

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// workloadScaledToZero finds the workload that the selector is right about but
// that runs no pod: scaled to zero, or kept from creating pods. It comes before
// selectorMatchesNoPod, which would otherwise call the selector wrong.
var workloadScaledToZero = &Check{
	Code:    diagnosis.WorkloadScaledToZero,
	Needs:   []snapshot.Resource{snapshot.Pods},
	Applies: hasSelector,
	Explains: []diagnosis.Code{
		diagnosis.SelectorMatchesNoPod, diagnosis.NoEndpointSlice, diagnosis.NoReadyEndpoint, diagnosis.SomeEndpointsNotReady,
		diagnosis.SlicePortMismatch, diagnosis.RejectedAsEmpty,
	},
	Run: func(p *Pass) {
		if len(staying(p.SelectedPods())) > 0 {
			return
		}
		for _, wl := range p.matchingWorkloads(p.Service.Namespace, p.Service.Spec.Selector) {
			if len(p.SelectedPods()) > 0 && wl.want > 0 {
				continue // its pods are being replaced; layer 2 says so
			}
			if wl.kind == "DaemonSet" && wl.meta.UID == "" {
				continue // a manifest: its status says nothing of how many nodes it fits
			}
			p.reportNoPods(wl)
		}
	},
}

func hasSelector(p *Pass) bool {
	return p.Service != nil && len(p.Service.Spec.Selector) > 0 && p.Service.Spec.Type != corev1.ServiceTypeExternalName
}

// staying are the pods that are not on their way out.
func staying(pods []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	return out
}

func (p *Pass) reportNoPods(wl workload) {
	ns := wl.meta.Namespace
	f := Finding{
		Subject:  diagnosis.Subject{Kind: wl.kind, Namespace: ns, Name: wl.meta.Name},
		Expected: "pods that " + selectorText(p.Service.Spec.Selector) + " selects",
		Evidence: []diagnosis.Evidence{
			p.serviceField(".spec.selector", selectorText(p.Service.Spec.Selector)),
			{
				Source: wl.String() + " .spec.template.metadata.labels", Ref: strings.ToLower(wl.kind) + "/" + ns + "/" + wl.meta.Name,
				Quote:   selectorText(wl.spec.Labels),
				Command: kubectl("get", wl.String(), "-n", ns, "-o", "jsonpath={.spec.template.metadata.labels}"),
			},
		},
	}
	switch {
	case wl.kind == "DaemonSet" && wl.want == 0:
		f.Title = fmt.Sprintf("%s is to run on 0 nodes", wl)
		f.Found = "no node fits its node selector, affinity and tolerations (.status.desiredNumberScheduled is 0)"
		f.Evidence = append(f.Evidence, wl.field(".status.desiredNumberScheduled", "0"))
	case wl.want == 0:
		p.scaledToZero(&f, wl)
	default:
		p.createsNoPod(&f, wl)
	}
	p.Report(f)
}

func (w workload) field(path, quote string) diagnosis.Evidence {
	return diagnosis.Evidence{
		Source: w.String() + " " + path, Ref: strings.ToLower(w.kind) + "/" + w.meta.Namespace + "/" + w.meta.Name, Quote: quote,
		Command: kubectl("get", w.String(), "-n", w.meta.Namespace, "-o", "jsonpath={"+path+"}"),
	}
}

func (p *Pass) scaledToZero(f *Finding, wl workload) {
	f.Title = fmt.Sprintf("%s, which the selector is right about, is scaled to 0", wl)
	f.Found = fmt.Sprintf("%s .spec.replicas is 0", wl)
	f.Evidence = append(f.Evidence, wl.field(".spec.replicas", "0"))
	before := 1
	if n, e := p.scaledFrom(wl); n > 0 {
		before = n
		f.Found += fmt.Sprintf("; it was %d before", n)
		f.Evidence = append(f.Evidence, eventEvidence(e))
	}
	if who, e := p.scaledBy(wl); e != nil {
		f.Found += "; " + who + " did it"
		f.Evidence = append(f.Evidence, eventEvidence(e))
	}
	f.Fixes = append(f.Fixes, p.scaleFix(wl, before))
}

var scaledDown = lazyregexp.New(`^Scaled down replica set \S+ (?:from (\d+) )?to 0\b`)

// scaledFrom reads from the Deployment controller's event how many pods there
// were (the wording with "from" is that of 1.26 and later).
func (p *Pass) scaledFrom(wl workload) (int, *corev1.Event) {
	for _, e := range p.eventsOf(wl.kind, wl.meta.Namespace, wl.meta.Name) {
		if m := scaledDown.FindStringSubmatch(e.Message); m != nil && m[1] != "" {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && n < 1000 {
				return n, e
			}
		}
	}
	return 0, nil
}

// scaledBy finds an autoscaler that says it scaled the workload.
func (p *Pass) scaledBy(wl workload) (string, *corev1.Event) {
	for i := range p.snap.Objects.Events {
		e := &p.snap.Objects.Events[i]
		o := e.InvolvedObject
		if o.Namespace != wl.meta.Namespace {
			continue
		}
		switch {
		case o.Kind == "HorizontalPodAutoscaler" && e.Reason == "SuccessfulRescale" && o.Name == wl.meta.Name && strings.Contains(e.Message, "New size: 0"):
			return "horizontalpodautoscaler/" + o.Name, e
		case o.Kind == "ScaledObject" && e.Reason == "KEDAScaleTargetDeactivated" && strings.Contains(e.Message, "/"+wl.meta.Name+" "):
			return "KEDA (scaledobject/" + o.Name + ")", e
		}
	}
	return "", nil
}

func (p *Pass) scaleFix(wl workload, n int) Proposal {
	ns := wl.meta.Namespace
	scale := func(n int) string {
		return kubectl("scale", wl.String(), "-n", ns, "--replicas="+strconv.Itoa(n))
	}
	svcNS, svcName := p.Service.Namespace, p.Service.Name
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       fmt.Sprintf("scale %s to %d", wl, n),
			Commands:    tried(scale(n)),
			BlastRadius: fmt.Sprintf("starts %s of %s; an autoscaler that scaled it down may do so again", count(n, "pod"), wl),
			Undo:        []string{scale(0)},
			Verify:      p.verify(),
		},
		Change: func(s *snapshot.Snapshot) error {
			svc := findService(s, svcNS, svcName)
			if svc == nil {
				return fmt.Errorf("service %s/%s is not in the snapshot", svcNS, svcName)
			}
			setReplicas(s, wl, int32(n))
			if err := addPods(s, svc, wl, n); err != nil {
				return err
			}
			reconcileSlices(s, svc)
			return nil
		},
		Assuming: "the new pods become ready",
	}
}

func setReplicas(s *snapshot.Snapshot, wl workload, n int32) {
	o := &s.Objects
	for i := range o.Deployments {
		if d := &o.Deployments[i]; wl.kind == "Deployment" && d.Namespace == wl.meta.Namespace && d.Name == wl.meta.Name {
			d.Spec.Replicas = &n
		}
	}
	for i := range o.StatefulSets {
		if d := &o.StatefulSets[i]; wl.kind == "StatefulSet" && d.Namespace == wl.meta.Namespace && d.Name == wl.meta.Name {
			d.Spec.Replicas = &n
		}
	}
	for i := range o.ReplicaSets {
		if d := &o.ReplicaSets[i]; wl.kind == "ReplicaSet" && d.Namespace == wl.meta.Namespace && d.Name == wl.meta.Name {
			d.Spec.Replicas = &n
		}
	}
}

var exceededQuota = lazyregexp.New(`exceeded quota: ([^,\s]+)`)

// createsNoPod: the workload asks for pods, and there is none.
func (p *Pass) createsNoPod(f *Finding, wl workload) {
	f.Title = fmt.Sprintf("%s asks for %s, and none was created", wl, count(int(wl.want), "pod"))
	f.Found = fmt.Sprintf("%s .spec.replicas is %d, and no pod exists", wl, wl.want)
	if wl.kind == "DaemonSet" {
		f.Found = fmt.Sprintf("%s .status.desiredNumberScheduled is %d, and no pod exists", wl, wl.want)
	}
	f.Evidence = append(f.Evidence, wl.field(".status", fmt.Sprintf("%d wanted, %d ready", wl.want, wl.ready)))
	why, ev := p.createFailure(wl)
	f.Evidence = append(f.Evidence, ev...)
	switch {
	case why != "":
		f.Found += ": " + why
		if m := exceededQuota.FindStringSubmatch(why); m != nil {
			f.Title += ": quota " + m[1] + " is used up"
			f.Fixes = append(f.Fixes, p.quotaFix(m[1], wl))
		}
	case wl.paused && len(p.replicaSetsOf(wl)) == 0:
		f.Found += ": it is paused, and was never rolled out"
		f.Evidence = append(f.Evidence, wl.field(".spec.paused", "true"))
		f.Fixes = append(f.Fixes, p.resumeFix(wl))
	default:
		f.Found += ", and no controller says why; a controller manager that is down leaves no word"
	}
}

// createFailure finds what kept the controllers from creating pods: the
// ReplicaFailure condition, or a FailedCreate event of the workload or of its
// ReplicaSets.
func (p *Pass) createFailure(wl workload) (string, []diagnosis.Evidence) {
	for _, c := range wl.conditions {
		if c.kind == string(appsv1.DeploymentReplicaFailure) && c.status == "True" {
			return c.message, []diagnosis.Evidence{wl.field(".status.conditions", c.kind+" "+c.reason+": "+c.message)}
		}
	}
	objects := [][2]string{{wl.kind, wl.meta.Name}}
	if wl.kind == "Deployment" {
		for _, r := range p.replicaSetsOf(wl) {
			objects = append(objects, [2]string{"ReplicaSet", r.Name})
		}
	}
	for _, o := range objects {
		for _, e := range p.eventsOf(o[0], wl.meta.Namespace, o[1]) {
			if e.Reason == "FailedCreate" {
				return e.Message, []diagnosis.Evidence{eventEvidence(e)}
			}
		}
	}
	return "", nil
}

func (p *Pass) quotaFix(quota string, wl workload) Proposal {
	ns := wl.meta.Namespace
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "make room in quota " + quota + ": raise it, or scale down what else it counts",
			Commands:    []string{kubectl("describe", "resourcequota", quota, "-n", ns), kubectl("edit", "resourcequota", quota, "-n", ns)},
			BlastRadius: "every workload of namespace " + ns + " may then use more",
			Undo:        []string{kubectl("edit", "resourcequota", quota, "-n", ns)},
			Verify:      p.verify(),
		},
		NotSimulated: "quotas are not among the facts of a walk",
	}
}

func (p *Pass) resumeFix(wl workload) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "resume " + wl.String(),
			Commands:    []string{kubectl("rollout", "resume", wl.String(), "-n", wl.meta.Namespace)},
			BlastRadius: fmt.Sprintf("rolls %s out: %s", wl, count(int(wl.want), "new pod")),
			Undo:        []string{kubectl("rollout", "pause", wl.String(), "-n", wl.meta.Namespace)},
			Verify:      p.verify(),
		},
		NotSimulated: "whether the pods of a first rollout start, only the cluster can tell",
	}
}
