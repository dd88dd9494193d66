package walk

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// noEndpointSlice finds ready pods for which nobody made a slice.
var noEndpointSlice = &Check{
	Code:     diagnosis.NoEndpointSlice,
	Needs:    []snapshot.Resource{snapshot.EndpointSlices, snapshot.Pods},
	Applies:  hasSelector,
	Explains: []diagnosis.Code{diagnosis.NoReadyEndpoint, diagnosis.ReadyPodMissing, diagnosis.SlicePortMismatch, diagnosis.RejectedAsEmpty},
	Run: func(p *Pass) {
		if len(p.Slices()) > 0 {
			return
		}
		missing := p.eligiblePods()
		if len(missing) == 0 {
			return
		}
		f := Finding{
			Title:    fmt.Sprintf("%s selected and ready, and no EndpointSlice exists", count(len(missing), "pod")),
			Expected: "an EndpointSlice with the label " + discoveryv1.LabelServiceName + "=" + p.Service.Name,
			Found:    "no slice with that label; ready pods: " + list(podNames(missing)),
			Evidence: []diagnosis.Evidence{
				p.slicesEvidence("none"),
				podsEvidence(p.Service.Namespace, selectorText(p.Service.Spec.Selector), fmt.Sprintf("%d ready: %s", len(missing), list(podNames(missing)))),
			},
			Fixes: []Proposal{p.controllerFix()},
		}
		for _, sl := range p.unlinkedSlices() {
			f.Found += fmt.Sprintf("; endpointslice/%s lacks the label", sl.Name)
			f.Evidence = append(f.Evidence, sliceEvidence(sl, ".metadata.labels", emptyAs(selectorText(sl.Labels), "(none)")))
			f.Fixes = append([]Proposal{p.linkFix(sl)}, f.Fixes...)
		}
		p.sliceEvents(&f)
		p.Report(f)
	},
}

// readyPodMissing finds selected pods that are ready and that no slice offers,
// though there are slices.
var readyPodMissing = &Check{
	Code:     diagnosis.ReadyPodMissing,
	Needs:    []snapshot.Resource{snapshot.EndpointSlices, snapshot.Pods},
	Applies:  hasSelector,
	Explains: []diagnosis.Code{diagnosis.NoReadyEndpoint, diagnosis.RejectedAsEmpty},
	Run: func(p *Pass) {
		if len(p.Slices()) == 0 {
			return
		}
		missing, said := p.unoffered()
		if len(missing) == 0 {
			return
		}
		f := Finding{
			Title:    fmt.Sprintf("%s ready, and no EndpointSlice offers %s", count(len(missing), "selected pod"), are(len(missing), "it", "them")),
			Expected: "each ready selected pod as a ready endpoint",
			Found:    fmt.Sprintf("%s: %s", list(podNames(missing)), said),
			Evidence: []diagnosis.Evidence{
				p.slicesEvidence(list(sliceNames(p.Slices()))),
				podsEvidence(p.Service.Namespace, selectorText(p.Service.Spec.Selector), "ready: "+list(podNames(missing))),
			},
			Fixes: []Proposal{p.controllerFix()},
		}
		if p.othersServe() {
			f.Severity = diagnosis.Warning
		}
		p.sliceEvents(&f)
		p.Report(f)
	},
}

// unoffered are the eligible pods that no slice offers, and how the slices
// have the last of them.
func (p *Pass) unoffered() (missing []*corev1.Pod, said string) {
	for _, pod := range p.eligiblePods() {
		e := p.endpointOf(pod)
		if e != nil && e.Ready {
			continue
		}
		missing, said = append(missing, pod), "in no slice"
		if e != nil {
			said = "not ready in endpointslice/" + e.Slice.Name
		}
	}
	return missing, said
}

// othersServe says whether a ready endpoint is a living pod's.
func (p *Pass) othersServe() bool {
	return slices.ContainsFunc(p.Endpoints(), func(e Endpoint) bool {
		why, _ := p.staleWhy(e)
		return e.Ready && e.Addr.IsValid() && why == ""
	})
}

// eligiblePods are the selected pods that ought to be ready endpoints by now.
func (p *Pass) eligiblePods() []*corev1.Pod {
	v4, v6 := serviceFamilies(p.Service)
	var out []*corev1.Pod
	for _, pod := range p.SelectedPods() {
		if !p.readyFor(pod, controllerLag) {
			continue
		}
		_, has4 := podAddr(pod, false)
		_, has6 := podAddr(pod, true)
		if v4 && has4 || v6 && has6 {
			out = append(out, pod)
		}
	}
	return out
}

// freshPods are those that are ready, but too young to be sure of an endpoint.
func (p *Pass) freshPods() int {
	n := 0
	for _, pod := range p.SelectedPods() {
		if p.readyFor(pod, 0) && !p.readyFor(pod, controllerLag) {
			if e := p.endpointOf(pod); e == nil || !e.Ready {
				n++
			}
		}
	}
	return n
}

// endpointOf is the pod's best endpoint, nil where no slice has it.
func (p *Pass) endpointOf(pod *corev1.Pod) *Endpoint {
	var found *Endpoint
	for _, i := range p.endpointsOf(pod) {
		if e := &p.Endpoints()[i]; found == nil || e.Ready {
			found = e
		}
	}
	return found
}

// sliceEvents quotes what the controller said of the Service.
func (p *Pass) sliceEvents(f *Finding) {
	for _, e := range p.eventsOf("Service", p.Service.Namespace, p.Service.Name) {
		if e.Type == corev1.EventTypeWarning {
			f.Found += "; event " + e.Reason + ": " + e.Message
			f.Evidence = append(f.Evidence, eventEvidence(e))
			return
		}
	}
}

// controllerFix: the EndpointSlice controller is part of the controller
// manager, which a cluster's own ways restart.
func (p *Pass) controllerFix() Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "see whether the EndpointSlice controller works: the controller manager's lease, pod and log",
			Commands: []string{
				kubectl("get", "lease", "kube-controller-manager", "-n", "kube-system", "-o", "yaml"),
				kubectl("get", "pods", "-n", "kube-system", "-l", "component=kube-controller-manager", "-o", "wide"),
				kubectl("logs", "-n", "kube-system", "-l", "component=kube-controller-manager", "--tail=200"),
			},
			BlastRadius: "none: it only reads; restarting the controller manager is the cluster's own affair",
			Undo:        []string{},
			Verify:      p.verify(),
		},
		NotSimulated: "the controller is not an API object",
	}
}
