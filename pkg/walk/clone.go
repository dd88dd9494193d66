package walk

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// cloneFor copies a snapshot to try a fix on. What there are many of is copied
// deeply in one namespace only; of the others' pods, slices, ReplicaSets and
// events the copy shares the insides, which no fix changes. A cluster's
// thousands of pods would otherwise be copied for each fix that is tried.
func cloneFor(s *snapshot.Snapshot, namespace string) *snapshot.Snapshot {
	rest := *s
	rest.Objects.Pods, rest.Objects.EndpointSlices, rest.Objects.ReplicaSets, rest.Objects.Events = nil, nil, nil, nil
	out := rest.Clone()
	out.Objects.Pods = cloneIn(s.Objects.Pods, namespace)
	out.Objects.EndpointSlices = cloneIn(s.Objects.EndpointSlices, namespace)
	out.Objects.ReplicaSets = cloneIn(s.Objects.ReplicaSets, namespace)
	out.Objects.Events = s.Objects.Events // nothing makes an event on paper
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
