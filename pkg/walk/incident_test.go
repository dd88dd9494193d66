package walk

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// cluster edits the healthy fixture: shop/web, a NodePort Service of two pods
// (web-1 on worker-1, web-2 on worker-2) that a Deployment keeps.
type cluster struct{ *snapshot.Snapshot }

type edit func(cluster)

func newCluster(edits ...edit) cluster {
	c := cluster{nodeFixture()}
	c.Nodes = nil // layer 3 has its own tests, and TestSimulationSeesTheNode
	yes := true
	for i := range c.Objects.Pods {
		pod := &c.Objects.Pods[i]
		pod.UID = types.UID("uid-" + pod.Name)
		if pod.Labels["app"] == "web" {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1111", Controller: &yes}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true, Image: "web:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: *c.pod("web-1").Spec.DeepCopy()}
	template.Spec.NodeName = ""
	sel := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	c.Objects.Deployments = []appsv1.Deployment{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr(int32(2)), Selector: sel, Template: template},
		Status:     appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2},
	}}
	c.Objects.ReplicaSets = []appsv1.ReplicaSet{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1111", OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: &yes}}, CreationTimestamp: metav1.NewTime(takenAt.Add(-time.Hour))},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr(int32(2)), Selector: sel, Template: template},
	}}
	c.Objects.Services[0].UID = "uid-service"
	c.sync()
	for _, e := range edits {
		e(c)
	}
	c.Objects.Sort()
	return c
}

func (c cluster) service() *corev1.Service { return findService(c.Snapshot, "shop", "web") }

// sync lets the EndpointSlice controller do its work.
func (c cluster) sync() { reconcileSlices(c.Snapshot, c.service()) }

func (c cluster) slice() *discoveryv1.EndpointSlice { return &c.Objects.EndpointSlices[0] }

func (c cluster) pod(name string) *corev1.Pod {
	i := slices.IndexFunc(c.Objects.Pods, func(p corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		panic("no pod " + name)
	}
	return &c.Objects.Pods[i]
}

func (c cluster) deployment() *appsv1.Deployment { return &c.Objects.Deployments[0] }

func (c cluster) webPods() []*corev1.Pod {
	var out []*corev1.Pod
	for i := range c.Objects.Pods {
		if strings.HasPrefix(c.Objects.Pods[i].Name, "web-") {
			out = append(out, &c.Objects.Pods[i])
		}
	}
	return out
}

func (c cluster) deletePods(names ...string) {
	c.Objects.Pods = slices.DeleteFunc(c.Objects.Pods, func(p corev1.Pod) bool { return slices.Contains(names, p.Name) })
}

func (c cluster) event(kind, name, typ, reason, message string) {
	c.Objects.Events = append(c.Objects.Events, corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: name + "." + reason},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "shop", Name: name},
		Type:           typ, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(takenAt),
	})
}

func (c cluster) unread(rs ...snapshot.Resource) {
	c.Reads = slices.DeleteFunc(c.Reads, func(r snapshot.Read) bool { return slices.Contains(rs, r.Resource) })
	for _, r := range rs {
		c.Reads.Add(snapshot.Read{Resource: r, Status: snapshot.Failed, Why: "forbidden", Supply: "grant get and list on " + string(r)})
	}
}

// unready takes a pod's readiness away, as its kubelet would.
func unready(pod *corev1.Pod) {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			pod.Status.Conditions[i].Status = corev1.ConditionFalse
			pod.Status.Conditions[i].Reason = "ContainersNotReady"
			pod.Status.Conditions[i].Message = "containers with unready status: [c]"
		}
	}
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].Ready = false
	}
}

func waiting(pod *corev1.Pod, reason, message string) {
	unready(pod)
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func selector(pairs ...string) edit {
	return func(c cluster) {
		c.service().Spec.Selector = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			c.service().Spec.Selector[pairs[i]] = pairs[i+1]
		}
		c.sync()
	}
}

func relabel(pairs ...string) edit {
	return func(c cluster) {
		l := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			l[pairs[i]] = pairs[i+1]
		}
		for _, pod := range c.webPods() {
			pod.Labels = l
		}
		c.deployment().Spec.Template.Labels = l
		c.deployment().Spec.Selector = &metav1.LabelSelector{MatchLabels: l}
		c.sync()
	}
}

func scale(n int32) edit {
	return func(c cluster) {
		c.deployment().Spec.Replicas = &n
		c.deployment().Status = appsv1.DeploymentStatus{}
		c.deletePods("web-1", "web-2")
		c.sync()
	}
}

// manual turns the Service into one without selector, with a slice made by hand.
func manual(c cluster) {
	c.service().Spec.Selector = nil
	sl := c.slice()
	sl.Name, sl.Labels = "web-manual", map[string]string{discoveryv1.LabelServiceName: "web"}
	for i := range sl.Endpoints {
		sl.Endpoints[i].TargetRef = nil
	}
}

func onlyOn(node string) edit {
	return func(c cluster) {
		for _, pod := range c.webPods() {
			pod.Spec.NodeName = node
		}
		c.sync()
	}
}

func target(t *testing.T, text string) Target {
	t.Helper()
	tg, err := ParseTarget(text, "shop")
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

// incident is one state of a cluster, and what the first two layers are to say
// of it.
type incident struct {
	name  string
	edits []edit
	// ask is the target, "web" if empty; with is further options.
	ask  string
	with func(*Options)
	// roots are layers 1 and 2's codes that nothing explains, with their
	// severity; folded those that something does.
	roots, folded []string
	// says must stand in the first root's title, found or evidence.
	says []string
	// one and two are the layers' status.
	one, two diagnosis.Status
}

func (in incident) walk(t *testing.T) diagnosis.Service {
	t.Helper()
	c := newCluster(in.edits...)
	o := Options{Targets: []Target{target(t, cmpOr(in.ask, "web"))}}
	if in.with != nil {
		in.with(&o)
	}
	r := Walk(c.Snapshot, o)
	if len(r.Services) != 1 {
		t.Fatalf("%d Services in the report, want 1", len(r.Services))
	}
	return r.Services[0]
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func TestIncidents(t *testing.T) {
	for _, in := range incidents {
		t.Run(in.name, func(t *testing.T) {
			s := in.walk(t)
			var roots, folded []string
			for _, d := range s.Diagnoses {
				if d.Layer > 2 {
					continue
				}
				if line := string(d.Code) + " " + string(d.Severity); len(d.CausedBy) == 0 {
					roots = append(roots, line)
				} else {
					folded = append(folded, line)
				}
				sound(t, d)
			}
			if diff := cmp.Diff(in.roots, roots); diff != "" {
				t.Errorf("roots (-want +got)\n%s\n%s", diff, describe(s))
			}
			if diff := cmp.Diff(in.folded, folded); diff != "" {
				t.Errorf("folded (-want +got)\n%s\n%s", diff, describe(s))
			}
			for _, text := range in.says {
				if len(s.Diagnoses) == 0 || !strings.Contains(everything(s.Diagnoses[0]), text) {
					t.Errorf("the first diagnosis does not say %q\n%s", text, describe(s))
				}
			}
			one, two := diagnosis.Status(cmpOr(string(in.one), "ok")), diagnosis.Status(cmpOr(string(in.two), "ok"))
			if s.Layers[0].Status != one || s.Layers[1].Status != two {
				t.Errorf("layers 1 and 2 are %s (%s) and %s (%s), want %s and %s", s.Layers[0].Status, s.Layers[0].Summary, s.Layers[1].Status, s.Layers[1].Summary, one, two)
			}
		})
	}
}

// sound holds what every diagnosis must be.
func sound(t *testing.T, d diagnosis.Diagnosis) {
	t.Helper()
	if d.Title == "" || strings.HasSuffix(d.Title, ".") || strings.Contains(d.Title, "\n") || strings.ToUpper(d.Title[:1]) == d.Title[:1] && d.Title[0] >= 'A' {
		t.Errorf("%s: title %q is no lower-case line", d.Code, d.Title)
	}
	if d.Expected == "" || d.Found == "" {
		t.Errorf("%s: expected %q, found %q", d.Code, d.Expected, d.Found)
	}
	for _, e := range d.Evidence {
		if e.Source == "" || e.Quote == "" || e.Command == "" {
			t.Errorf("%s: evidence %+v lacks something", d.Code, e)
		}
		if !readsOnly(e.Command) {
			t.Errorf("%s: evidence command %q does not only read", d.Code, e.Command)
		}
	}
	for _, f := range d.Fixes {
		if f.Title == "" || len(f.Commands) == 0 || f.BlastRadius == "" || f.Undo == nil || len(f.Verify) == 0 || f.Simulated.Status == "" {
			t.Errorf("%s: fix %+v lacks something", d.Code, f)
		}
		if f.Simulated.Status != diagnosis.Confirmed && f.Simulated.Why == "" {
			t.Errorf("%s: fix %q is %s without a reason", d.Code, f.Title, f.Simulated.Status)
		}
		for i, c := range f.Commands {
			if dry := strings.HasSuffix(c, " --dry-run=server"); dry && (i+1 >= len(f.Commands) || f.Commands[i+1]+" --dry-run=server" != c) {
				t.Errorf("%s: dry run %q is not followed by the command in earnest", d.Code, c)
			}
		}
	}
}

func readsOnly(c string) bool {
	for _, p := range []string{"kubectl get ", "kubectl describe ", "kubectl logs "} {
		if strings.HasPrefix(c, p) {
			return true
		}
	}
	return false
}

func everything(d diagnosis.Diagnosis) string {
	s := d.Title + "\n" + d.Expected + "\n" + d.Found
	for _, e := range d.Evidence {
		s += "\n" + e.Source + " " + e.Quote + " " + e.Command
	}
	for _, f := range d.Fixes {
		s += "\n" + f.Title + "\n" + strings.Join(f.Commands, "\n") + "\n" + f.BlastRadius + "\n" + strings.Join(f.Undo, "\n") +
			"\n" + string(f.Simulated.Status) + ": " + f.Simulated.Before + " > " + f.Simulated.After + " (" + f.Simulated.Why + ")"
	}
	return s
}

// TestEveryCheck holds the checks to the catalogue: each code of layers 1 and 2
// has one check in its layer, an incident that raises it, and one that does not
// though it nearly would.
func TestEveryCheck(t *testing.T) {
	seen := map[diagnosis.Code]bool{}
	for _, l := range layers() {
		for _, c := range l.checks {
			if seen[c.Code] {
				t.Errorf("%s has two checks", c.Code)
			}
			seen[c.Code] = true
			e, ok := diagnosis.Lookup(string(c.Code))
			if !ok || c.Run == nil || e.Code.Layer() != l.number {
				t.Errorf("%s is not declared soundly: %+v in layer %d", c.Code, c, l.number)
			}
			for _, x := range c.Explains {
				if _, ok := diagnosis.Lookup(string(x)); !ok || x == c.Code {
					t.Errorf("%s explains %s", c.Code, x)
				}
			}
		}
	}
	for _, e := range diagnosis.Catalogue {
		if e.Code.Layer() != 1 && e.Code.Layer() != 2 {
			continue
		}
		if !seen[e.Code] {
			t.Errorf("%s %s has no check", e.Code, e.Name)
		}
		raised, twin := false, false
		for _, in := range incidents {
			has := slices.ContainsFunc(append(slices.Clone(in.roots), in.folded...), func(s string) bool { return strings.HasPrefix(s, string(e.Code)) })
			raised = raised || has
			twin = twin || (!has && strings.HasPrefix(in.name, "not "+string(e.Code)))
		}
		if !raised || !twin {
			t.Errorf("%s %s: an incident raises it: %v, a near twin does not: %v", e.Code, e.Name, raised, twin)
		}
	}
}

func TestHealthyIsSilent(t *testing.T) {
	c := newCluster()
	r := Walk(c.Snapshot, Options{Targets: []Target{target(t, "web")}})
	if s := r.Services[0]; len(s.Diagnoses) != 0 || s.Layers[0].Status != diagnosis.OK || s.Layers[1].Status != diagnosis.OK {
		t.Errorf("a healthy Service is not silent:\n%s", describe(s))
	}
}
