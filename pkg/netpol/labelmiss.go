package netpol

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/vipwalk/vipwalk/pkg/spelling"
)

const metadataName = corev1.LabelMetadataName

// labelKinds are the kinds of misses of one kind of object.
type labelKinds struct{ value, key, absent, excluded MissKind }

var (
	podKinds       = labelKinds{MissPodLabelValue, MissPodLabelKey, MissPodLabelAbsent, MissPodLabelExcluded}
	namespaceKinds = labelKinds{MissNamespaceLabelValue, MissNamespaceLabelKey, MissNamespaceLabelAbsent, MissNamespaceLabelExcluded}
)

// missLabels lists the requirements that the labels don't meet. Near is set by
// the words alone.
func missLabels(s *selector, set labels.Set, kinds labelKinds) []Miss {
	var out []Miss
	for i := range s.requirements {
		r := &s.requirements[i]
		if r.Matches(set) {
			continue
		}
		out = append(out, missLabel(r, set, kinds))
	}
	return out
}

func missLabel(r *requirement, set labels.Set, kinds labelKinds) Miss {
	m := Miss{Field: r.field, Want: r.String(), Key: r.Key()}
	value, present := set[r.Key()]
	m.Got = r.Key() + "=" + value
	if op := r.Operator(); op == selection.NotIn || op == selection.DoesNotExist {
		m.Kind = kinds.excluded
		return m
	}
	if present {
		m.Kind = kinds.value
		m.Distance, m.Near = nearestValue(r.ValuesUnsorted(), value)
		return m
	}
	m.Kind, m.Got = kinds.absent, "no label "+r.Key()
	if key, distance, ok := nearestKey(r, set); ok {
		m.Kind, m.GotKey, m.Distance, m.Near = kinds.key, key, distance, true
		m.Got = key + "=" + set[key]
	}
	return m
}

func nearestValue(wanted []string, got string) (distance int, near bool) {
	distance = maxDistance
	for _, w := range wanted {
		d := spelling.Distance(w, got)
		near = near || closeWords(w, got, d)
		distance = min(distance, d)
	}
	return distance, near
}

// nearestKey finds the label that was probably meant: one with the very value
// under another key, best one whose key ends alike (app, and
// app.kubernetes.io/name), or one whose key is nearly the same. The distance
// is 0 where key and value leave no doubt.
func nearestKey(r *requirement, set labels.Set) (key string, distance int, ok bool) {
	distance = maxDistance
	for _, k := range sortedLabels(set) {
		var d int
		exists := r.Operator() == selection.Exists
		valued := exists || slices.Contains(r.ValuesUnsorted(), set[k])
		edit := spelling.Distance(k, r.Key())
		switch {
		case valued && relatedKeys(k, r.Key()):
			d = 0
		case valued && closeWords(k, r.Key(), edit):
			d = edit
		case valued && !exists && telling(set[k]):
			d = max(edit, 1)
		default:
			continue
		}
		if !ok || d < distance {
			key, distance, ok = k, d, true
		}
	}
	return key, distance, ok
}

// telling: a value that says something without its key.
func telling(value string) bool {
	return value != "" && value != "true" && value != "false"
}

// relatedKeys: the same name with and without a prefix, or two of the names
// under which one thing is commonly kept.
func relatedKeys(a, b string) bool {
	return baseKey(a) == baseKey(b)
}

func baseKey(key string) string {
	switch key {
	case "app", "k8s-app", "app.kubernetes.io/name":
		return "app"
	case "name", "ns", "namespace", "kubernetes.io/metadata.name", "kubernetes.io/name":
		return "metadata.name"
	}
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		key = key[i+1:]
	}
	return strings.ToLower(key)
}

func sortedLabels(set labels.Set) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// String is a miss in one line, for tests and logs.
func (m Miss) String() string {
	return fmt.Sprintf("%s %s: want %s, got %s", m.Kind, m.Field, m.Want, m.Got)
}
