package walk

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// workload is what makes pods from a template: a Deployment, StatefulSet,
// DaemonSet, or a ReplicaSet without an owner.
type workload struct {
	kind string // Deployment
	meta *metav1.ObjectMeta
	spec *corev1.PodTemplateSpec
	// want is how many pods it is to run, ready how many of them are.
	want, ready int32
	selector    *metav1.LabelSelector
	paused      bool
	conditions  []workloadCondition
}

type workloadCondition struct {
	kind, status, reason, message string
}

// String is kind/name as kubectl takes it: "deployment/orders".
func (w workload) String() string { return strings.ToLower(w.kind) + "/" + w.meta.Name }

// workloadResources are what has to be read to know a namespace's workloads.
// ReplicaSets count where they were read: nearly all belong to a Deployment,
// and what bare ones there are do not make the rest unknown.
var workloadResources = []snapshot.Resource{
	snapshot.Deployments, snapshot.StatefulSets, snapshot.DaemonSets,
}

// workloads lists a namespace's, by kind and name.
func (w *world) workloads(namespace string) []workload {
	o := &w.snap.Objects
	var out []workload
	for i := range o.Deployments {
		if d := &o.Deployments[i]; d.Namespace == namespace {
			out = append(out, deployment(d))
		}
	}
	for i := range o.StatefulSets {
		s := &o.StatefulSets[i]
		if s.Namespace != namespace {
			continue
		}
		wl := workload{kind: "StatefulSet", meta: &s.ObjectMeta, spec: &s.Spec.Template, want: replicas(s.Spec.Replicas), ready: s.Status.ReadyReplicas, selector: s.Spec.Selector}
		for _, c := range s.Status.Conditions {
			wl.conditions = append(wl.conditions, workloadCondition{string(c.Type), string(c.Status), c.Reason, c.Message})
		}
		out = append(out, wl)
	}
	for i := range o.DaemonSets {
		if d := &o.DaemonSets[i]; d.Namespace == namespace {
			out = append(out, workload{kind: "DaemonSet", meta: &d.ObjectMeta, spec: &d.Spec.Template, want: d.Status.DesiredNumberScheduled, ready: d.Status.NumberReady, selector: d.Spec.Selector})
		}
	}
	for i := range o.ReplicaSets {
		if r := &o.ReplicaSets[i]; r.Namespace == namespace && len(r.OwnerReferences) == 0 {
			out = append(out, workload{kind: "ReplicaSet", meta: &r.ObjectMeta, spec: &r.Spec.Template, want: replicas(r.Spec.Replicas), ready: r.Status.ReadyReplicas, selector: r.Spec.Selector, conditions: replicaSetConditions(r)})
		}
	}
	return out
}

func deployment(d *appsv1.Deployment) workload {
	wl := workload{
		kind: "Deployment", meta: &d.ObjectMeta, spec: &d.Spec.Template, want: replicas(d.Spec.Replicas),
		ready: d.Status.ReadyReplicas, selector: d.Spec.Selector, paused: d.Spec.Paused,
	}
	for _, c := range d.Status.Conditions {
		wl.conditions = append(wl.conditions, workloadCondition{string(c.Type), string(c.Status), c.Reason, c.Message})
	}
	return wl
}

func replicaSetConditions(r *appsv1.ReplicaSet) []workloadCondition {
	var out []workloadCondition
	for _, c := range r.Status.Conditions {
		out = append(out, workloadCondition{string(c.Type), string(c.Status), c.Reason, c.Message})
	}
	return out
}

// replicas applies the API's default.
func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// matchingWorkloads are those whose template's pods a Service's selector
// would select.
func (w *world) matchingWorkloads(namespace string, selector map[string]string) []workload {
	if len(selector) == 0 {
		return nil
	}
	sel := labels.SelectorFromSet(selector)
	var out []workload
	for _, wl := range w.workloads(namespace) {
		if sel.Matches(labels.Set(wl.spec.Labels)) {
			out = append(out, wl)
		}
	}
	return out
}

// replicaSetsOf are a Deployment's ReplicaSets, the latest revision first.
func (w *world) replicaSetsOf(d workload) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for i := range w.snap.Objects.ReplicaSets {
		r := &w.snap.Objects.ReplicaSets[i]
		if r.Namespace != d.meta.Namespace || !ownedBy(r.OwnerReferences, d.kind, d.meta.Name) {
			continue
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *appsv1.ReplicaSet) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	return out
}

func ownedBy(refs []metav1.OwnerReference, kind, name string) bool {
	return slices.ContainsFunc(refs, func(o metav1.OwnerReference) bool { return o.Kind == kind && o.Name == name })
}

// ownerOf names the workload that a pod belongs to, "deployment/orders"; ok is
// false for a bare pod.
func (w *world) ownerOf(pod *corev1.Pod) (name string, ok bool) {
	for _, o := range pod.OwnerReferences {
		if o.Controller != nil && !*o.Controller {
			continue
		}
		if o.Kind != "ReplicaSet" {
			return strings.ToLower(o.Kind) + "/" + o.Name, true
		}
		for i := range w.snap.Objects.ReplicaSets {
			r := &w.snap.Objects.ReplicaSets[i]
			if r.Namespace != pod.Namespace || r.Name != o.Name {
				continue
			}
			for _, ro := range r.OwnerReferences {
				return strings.ToLower(ro.Kind) + "/" + ro.Name, true
			}
			return "replicaset/" + r.Name, true
		}
		// The ReplicaSets were not read: the Deployment's name is the ReplicaSet's
		// without the hash that its pods carry as a label.
		if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" && strings.HasSuffix(o.Name, "-"+hash) {
			return "deployment/" + strings.TrimSuffix(o.Name, "-"+hash), true
		}
		return "replicaset/" + o.Name, true
	}
	return "", false
}
