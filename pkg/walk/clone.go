package walk

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// cloneFor copies a snapshot to try a fix on. What there are many of is not
// copied whole, because a cluster's thousands of pods would be copied for each
// fix that is tried: pods and events are shared (a fix may add pods, but
// changes none), and of slices and ReplicaSets those of one namespace are
// copied deeply.
func cloneFor(s *snapshot.Snapshot, namespace string) *snapshot.Snapshot {
	rest := *s
	rest.Objects.Pods, rest.Objects.EndpointSlices, rest.Objects.ReplicaSets, rest.Objects.Events = nil, nil, nil, nil
	out := rest.Clone()
	out.Objects.Pods = slices.Clip(s.Objects.Pods)
	out.Objects.Events = slices.Clip(s.Objects.Events)
	out.Objects.EndpointSlices = cloneIn(s.Objects.EndpointSlices, namespace)
	out.Objects.ReplicaSets = cloneIn(s.Objects.ReplicaSets, namespace)
	return out
}

func cloneIn[T any, P interface {
	*T
	metav1.Object
	DeepCopyInto(*T)
}](list []T, namespace string) []T {
	out := slices.Clone(list)
	for i := range out {
		if P(&out[i]).GetNamespace() == namespace {
			var v T
			P(&list[i]).DeepCopyInto(&v)
			out[i] = v
		}
	}
	return out
}

// insert puts an object where it belongs in a list that is sorted by namespace
// and name. The list's array is not written to.
func insert[T any, P interface {
	*T
	metav1.Object
}](list []T, v T) []T {
	i, _ := slices.BinarySearchFunc(list, v, func(a, b T) int {
		pa, pb := P(&a), P(&b)
		if c := strings.Compare(pa.GetNamespace(), pb.GetNamespace()); c != 0 {
			return c
		}
		return strings.Compare(pa.GetName(), pb.GetName())
	})
	return slices.Insert(slices.Clip(list), i, v)
}

// changed is the world of a copy that a fix was applied to. What the fix left
// as it was is indexed and parsed once for both: pods, and with them the nodes'
// rules, and the policies.
func (w *world) changed(s *snapshot.Snapshot, o Options) *world {
	old, now := w.snap.Objects.Pods, s.Objects.Pods
	if len(old) != len(now) || len(old) > 0 && &old[0] != &now[0] {
		w2 := newWorld(s, o)
		w2.texts = w.texts
		return w2
	}
	w2 := newWorldWithoutPods(s, o)
	w2.podsByNS, w2.podByName, w2.podsByLabel, w2.podsByIP = w.podsByNS, w.podByName, w.podsByLabel, w.podsByIP
	w2.views, w2.texts = w.views, w.texts
	if reflect.DeepEqual(w.snap.Objects.NetworkPolicies, s.Objects.NetworkPolicies) {
		w2.evaluator, w2.kinds, w2.egressByNS = w.evaluator, w.kinds, w.egressByNS
	}
	return w2
}
