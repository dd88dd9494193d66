package walk

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// selectorMatchesNoPod finds a selector that selects nothing, and what it was
// likely meant to select.
var selectorMatchesNoPod = &Check{
	Code:    diagnosis.SelectorMatchesNoPod,
	Needs:   []snapshot.Resource{snapshot.Pods},
	Applies: hasSelector,
	Explains: []diagnosis.Code{
		diagnosis.NoEndpointSlice, diagnosis.NoReadyEndpoint, diagnosis.ReadyPodMissing, diagnosis.SlicePortMismatch, diagnosis.RejectedAsEmpty,
	},
	Run: func(p *Pass) {
		if len(p.SelectedPods()) > 0 || p.Raised(diagnosis.WorkloadScaledToZero) {
			return
		}
		for _, r := range workloadResources {
			// A workload at zero would be the reason, and nobody could see it. The
			// selector selects no pod all the same.
			p.Need(diagnosis.LayerSelector, r)
		}
		p.reportNoMatch()
	},
}

func (p *Pass) reportNoMatch() {
	ns, sel := p.Service.Namespace, p.Service.Spec.Selector
	misses := p.nearMisses(ns, sel)
	live := p.livePods(ns)
	f := Finding{
		Title:    "the selector matches no pod",
		Expected: selectorText(sel),
		Found:    fmt.Sprintf("0 of %s in namespace %s", count(live, "pod"), ns),
		Evidence: []diagnosis.Evidence{
			p.serviceField(".spec.selector", selectorText(sel)),
			podsEvidence(ns, selectorText(sel), fmt.Sprintf("none of %s", count(live, "pod"))),
		},
	}
	p.finishedMatches(&f)
	for i, m := range misses[:min(len(misses), 3)] {
		f.Evidence = append(f.Evidence, m.evidence(ns)...)
		if i == 0 {
			f.Title += ": " + m.title()
			f.Found = m.found()
		}
		if i == 0 || m.cost < costAffix {
			f.Fixes = append(f.Fixes, p.selectorFix(m.fixTitle(), m.selector, m.radius()))
		}
	}
	p.elsewhere(&f)
	p.Report(f)
}

// livePods counts a namespace's pods that have not finished.
func (w *world) livePods(namespace string) int {
	n := 0
	for _, pod := range w.podsByNS[namespace] {
		if !finished(pod) {
			n++
		}
	}
	return n
}

// finishedMatches: pods that match but have ended, a Job's or evicted ones,
// are no endpoints.
func (p *Pass) finishedMatches(f *Finding) {
	var ended []*corev1.Pod
	for _, pod := range p.podsMatching(p.Service.Namespace, p.Service.Spec.Selector) {
		if finished(pod) {
			ended = append(ended, pod)
		}
	}
	if len(ended) == 0 {
		return
	}
	f.Found += fmt.Sprintf("; %s matched and %s finished", count(len(ended), "pod"), are(len(ended), "has", "have"))
	f.Evidence = append(f.Evidence, podEvidence(ended[0], ".status.phase", string(ended[0].Status.Phase)+" "+ended[0].Status.Reason))
}

func (p *Pass) elsewhere(f *Finding) {
	if !p.hasAll(snapshot.Pods) {
		return
	}
	other := p.namespacesSelecting(p.Service.Namespace, p.Service.Spec.Selector)
	var names []string
	for _, ns := range sortedKeys(other) {
		names = append(names, fmt.Sprintf("%s in %s", count(other[ns], "pod"), ns))
	}
	if len(names) == 0 {
		return
	}
	f.Found += "; a Service selects in its own namespace only, and these labels are on " + list(names)
	for i, ns := range sortedKeys(other) {
		if i < 3 {
			f.Evidence = append(f.Evidence, podsEvidence(ns, selectorText(p.Service.Spec.Selector), count(other[ns], "pod")))
		}
	}
}

// title words the nearest miss for a headline: "3 ready pods have app=order-api
// (one letter differs)".
func (m nearMiss) title() string {
	n := countReady(m.pods)
	who := count(n, "ready pod")
	if n == 0 {
		n = len(m.pods)
		who = count(n, "pod") + " that " + are(n, "is", "are") + " not ready"
	}
	if n == 0 && len(m.workloads) > 0 {
		n, who = 2, "the pods of "+m.workloads[0].String()
	}
	var what []string
	if len(m.has) > 0 {
		what = append(what, are(n, "has ", "have ")+strings.Join(m.has, ", "))
	}
	if len(m.lacks) > 0 {
		what = append(what, are(n, "lacks ", "lack ")+strings.Join(m.lacks, ", "))
	}
	return who + " " + strings.Join(what, " and ")
}

func (m nearMiss) found() string {
	s := selectorText(m.selector)
	if len(m.pods) > 0 {
		s += " on " + list(podNames(m.pods))
	}
	for _, wl := range m.workloads {
		s += fmt.Sprintf("; %s %d/%d", wl, wl.ready, wl.want)
	}
	return s
}

func podNames(pods []*corev1.Pod) []string {
	var out []string
	for _, pod := range pods {
		out = append(out, pod.Name)
	}
	return out
}

func (m nearMiss) evidence(namespace string) []diagnosis.Evidence {
	var out []diagnosis.Evidence
	if len(m.pods) > 0 {
		out = append(out, podsEvidence(namespace, selectorText(m.selector), fmt.Sprintf("%s, %d ready: %s", count(len(m.pods), "pod"), countReady(m.pods), list(podNames(m.pods)))))
	}
	for _, wl := range m.workloads {
		out = append(out, wl.field(".spec.template.metadata.labels", selectorText(wl.spec.Labels)))
	}
	return out
}

func (m nearMiss) fixTitle() string {
	if len(m.pods) == 0 {
		return "point the Service at the pods of " + m.workloads[0].String()
	}
	return fmt.Sprintf("point the Service at %s", are(len(m.pods), "this pod", fmt.Sprintf("these %d pods", len(m.pods))))
}

func (m nearMiss) radius() string {
	return "this Service alone; no pod restarts; clients get through within seconds " +
		"(changing the labels of a workload's template instead would replace its pods)"
}
