package walk

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vipwalk/vipwalk/pkg/spelling"
)

// nearMiss is a set of labels that a selector nearly matches, and the selector
// that would match it.
type nearMiss struct {
	// selector is the Service's, with the pairs that miss replaced.
	selector map[string]string
	// has are the pairs that are there in place of the selector's, each with how
	// it differs: "app=order-api (one letter differs)"; lacks are those of the
	// selector's that are not there in any form.
	has, lacks []string
	cost       int
	pods       []*corev1.Pod // those that the new selector selects
	workloads  []workload
}

// volatileLabels name one pod or one revision; no Service should select by
// them, so none is proposed.
var volatileLabels = []string{
	"pod-template-hash", "controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name",
	"apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid",
	"batch.kubernetes.io/job-completion-index", "job-name", "controller-uid",
}

// nearMisses finds what the selector may have been meant to select: the pods of
// the namespace and the templates of its workloads, the likeliest first. Two
// that lead to the same selector are one.
func (w *world) nearMisses(namespace string, selector map[string]string) []nearMiss {
	found := map[string]nearMiss{}
	try := func(candidate map[string]string) {
		m, ok := compareLabels(selector, candidate)
		if !ok {
			return
		}
		key := selectorText(m.selector)
		if old, dup := found[key]; !dup || m.cost < old.cost {
			found[key] = m
		}
	}
	for _, pod := range w.podsByNS[namespace] {
		if !finished(pod) {
			try(pod.Labels)
		}
	}
	for _, wl := range w.workloads(namespace) {
		try(wl.spec.Labels)
	}
	var out []nearMiss
	for _, key := range sortedKeys(found) {
		m := found[key]
		for _, pod := range w.podsMatching(namespace, m.selector) {
			if !finished(pod) {
				m.pods = append(m.pods, pod)
			}
		}
		m.workloads = w.matchingWorkloads(namespace, m.selector)
		out = append(out, m)
	}
	slices.SortStableFunc(out, func(a, b nearMiss) int {
		return cmp.Or(
			cmp.Compare(min(len(b.pods), 1), min(len(a.pods), 1)),
			cmp.Compare(a.cost, b.cost),
			cmp.Compare(countReady(b.pods), countReady(a.pods)),
		)
	})
	return out
}

// Costs of a difference, in tenths of an edit.
const (
	costFold     = 4  // case or separator only
	costEdit     = 10 // one letter
	costKey      = 8  // the value is there under another key
	costAlias    = 6  // ... under a key that means the same
	costAffix    = 24 // orders / orders-api
	costOneOther = 30 // one pair of several has an unrelated value, or is missing
	costMost     = 40
)

// compareLabels says how labels miss a selector, if they nearly match it.
func compareLabels(selector, have map[string]string) (nearMiss, bool) {
	m := nearMiss{selector: maps.Clone(selector)}
	strays := 0
	for _, k := range sortedKeys(selector) {
		v := selector[k]
		if got, ok := have[k]; ok && got == v {
			continue
		}
		cost, words := m.repair(k, v, have)
		got, ok := have[k]
		switch {
		case words != "":
			m.has = append(m.has, words)
		case ok && !slices.Contains(volatileLabels, k):
			// One pair of several may be wholly wrong, if the others fit.
			strays, cost = strays+1, costOneOther
			m.selector[k] = got
			m.has = append(m.has, k+"="+got)
		default:
			strays, cost = strays+1, costOneOther
			delete(m.selector, k)
			m.lacks = append(m.lacks, k+"="+v)
		}
		m.cost += cost
	}
	misses := len(m.has) + len(m.lacks)
	if strays > 1 || (strays == 1 && len(selector) == misses) || misses == 0 || len(m.selector) == 0 {
		return nearMiss{}, false
	}
	return m, m.cost <= costMost
}

// repair replaces one pair by its likeliest counterpart among the labels.
func (m *nearMiss) repair(k, v string, have map[string]string) (cost int, words string) {
	best := costMost + 1
	var bestKey, bestValue string
	for _, k2 := range sortedKeys(have) {
		if slices.Contains(volatileLabels, k2) {
			continue
		}
		c, ok := pairCost(k, v, k2, have[k2])
		if ok && c < best {
			best, bestKey, bestValue = c, k2, have[k2]
		}
	}
	if bestKey == "" {
		return 0, ""
	}
	delete(m.selector, k)
	m.selector[bestKey] = bestValue
	words = bestKey + "=" + bestValue
	switch {
	case bestKey == k:
		words += howNear(v, bestValue)
	case bestValue == v:
		words += fmt.Sprintf(" (not under %s)", k)
	}
	return best, words
}

// pairCost is how far one label is from another.
func pairCost(k, v, k2, v2 string) (int, bool) {
	key := 0
	switch {
	case k == k2:
	case sameMeaning(k, k2):
		key = costAlias
	default:
		if c, near := textCost(k, k2); near {
			key = c
		} else if v == v2 && len(v) > 2 && v != "true" && v != "false" {
			key = costKey
		} else {
			return 0, false
		}
	}
	if v == v2 {
		return key, true
	}
	value, near := textCost(v, v2)
	return key + value, near
}

// aliases are keys under which charts and manifests put the application's name.
var aliases = []string{
	"app", "app.kubernetes.io/name", "k8s-app", "name", "app.kubernetes.io/instance", "application", "run", "service",
	"component", "app.kubernetes.io/component", "app-name", "appname",
}

func sameMeaning(a, b string) bool { return slices.Contains(aliases, a) && slices.Contains(aliases, b) }

// textCost says how near two words are: case, separators, a few letters, or one
// with something behind a separator. Words that differ in a number only
// (shard-1, shard-2) are different on purpose.
func textCost(a, b string) (int, bool) {
	fa, fb := foldWord(a), foldWord(b)
	if fa == fb {
		return costFold, true
	}
	if da, db := dropDigits(fa), dropDigits(fb); da == db && da != fa && db != fb {
		return 0, false
	}
	if d := spelling.Distance(fa, fb); d <= allowedEdits(min(len(fa), len(fb))) {
		return costEdit * d, true
	}
	short, long := a, b
	if len(short) > len(long) {
		short, long = long, short
	}
	if len(short) > 2 && (strings.HasPrefix(long, short+"-") || strings.HasSuffix(long, "-"+short)) {
		return costAffix, true
	}
	return 0, false
}

func allowedEdits(n int) int {
	switch {
	case n < 3:
		return 0
	case n < 6:
		return 1
	case n < 12:
		return 2
	}
	return 3
}

func foldWord(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

func dropDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// howNear words the distance of two values.
func howNear(a, b string) string {
	switch d := spelling.Distance(a, b); {
	case strings.EqualFold(a, b):
		return " (upper and lower case differ)"
	case foldWord(a) == foldWord(b):
		return " (the separator differs)"
	case d == 1:
		return " (one letter differs)"
	case d <= allowedEdits(min(len(a), len(b))):
		return fmt.Sprintf(" (%d letters differ)", d)
	}
	return ""
}

// nearest returns the words nearest to one, the nearest first, up to three.
func nearest(word string, words []string) []string {
	type scored struct {
		word string
		cost int
	}
	var found []scored
	for _, w := range words {
		if w == word {
			continue
		}
		if c, near := textCost(word, w); near {
			found = append(found, scored{w, c})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.word, b.word)) })
	var out []string
	for _, f := range found[:min(len(found), 3)] {
		out = append(out, f.word)
	}
	return out
}

// namespacesSelecting are the other namespaces in which the selector matches
// pods, with how many.
func (w *world) namespacesSelecting(except string, selector map[string]string) map[string]int {
	sel := labels.SelectorFromSet(selector)
	out := map[string]int{}
	for ns, pods := range w.podsByNS {
		if ns == except {
			continue
		}
		for _, pod := range pods {
			if !finished(pod) && sel.Matches(labels.Set(pod.Labels)) {
				out[ns]++
			}
		}
	}
	return out
}
