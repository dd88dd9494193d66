package walk

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// staleEndpoint finds addresses in slices that no living pod has. Only what a
// slice itself says is a pod's is judged: a hand-made slice may hold any
// address.
var staleEndpoint = &Check{
	Code:  diagnosis.StaleEndpoint,
	Needs: []snapshot.Resource{snapshot.EndpointSlices, snapshot.Pods},
	Applies: func(p *Pass) bool {
		return hasEndpointsLayer(p) && (len(p.Service.Spec.Selector) > 0 || slices.ContainsFunc(p.Endpoints(), p.refersToPod))
	},
	// A controller that is behind leaves the old in and the new out.
	Explains: []diagnosis.Code{diagnosis.StaleBackend, diagnosis.ReadyPodMissing},
	Run: func(p *Pass) {
		var stale []staleFound
		ready := 0
		for _, e := range p.Endpoints() {
			if why, ev := p.staleWhy(e); why != "" {
				stale = append(stale, staleFound{e, why, ev})
				if e.Ready {
					ready++
				}
			}
		}
		if len(stale) > 0 {
			p.reportStale(stale, ready)
		}
	},
}

type staleFound struct {
	ep       Endpoint
	why      string
	evidence []diagnosis.Evidence
}

func (p *Pass) refersToPod(e Endpoint) bool {
	ref := e.Slice.Endpoints[e.Index].TargetRef
	return ref != nil && ref.Kind == "Pod" && (ref.Namespace == "" || ref.Namespace == p.Service.Namespace)
}

// staleWhy says what is wrong with an endpoint's address, "" if nothing is. An
// endpoint that is marked as terminating is about to be taken out anyway.
func (p *Pass) staleWhy(e Endpoint) (string, []diagnosis.Evidence) {
	if !e.Addr.IsValid() || !p.refersToPod(e) || (e.Terminating && !e.Ready) {
		return "", nil
	}
	ref := e.Slice.Endpoints[e.Index].TargetRef
	pod := e.Pod
	switch {
	case pod == nil:
		why := fmt.Sprintf("pod %s is gone", ref.Name)
		ev := []diagnosis.Evidence{{
			Source: "pods in " + p.Service.Namespace, Ref: "pod/" + p.Service.Namespace + "/" + ref.Name, Quote: "no pod " + ref.Name,
			Command: kubectl("get", "pod", ref.Name, "-n", p.Service.Namespace),
		}}
		if other := p.otherHolder(e, ref.Name); other != nil {
			why += fmt.Sprintf(", and pod %s/%s has its address now", other.Namespace, other.Name)
			ev = append(ev, podEvidence(other, ".status.podIPs", e.Addr.String()))
		}
		return why, ev
	case ref.UID != "" && pod.UID != "" && ref.UID != pod.UID && !slices.Contains(podAddrs(pod), e.Addr):
		return fmt.Sprintf("pod %s was made anew with another address", ref.Name), []diagnosis.Evidence{podEvidence(pod, ".metadata.uid", string(pod.UID))}
	case ref.UID != "" && pod.UID != "" && ref.UID != pod.UID:
		return fmt.Sprintf("pod %s was made anew (its uid differs)", ref.Name), []diagnosis.Evidence{podEvidence(pod, ".metadata.uid", string(pod.UID))}
	case finished(pod):
		return fmt.Sprintf("pod %s has finished (%s)", ref.Name, pod.Status.Phase), []diagnosis.Evidence{podEvidence(pod, ".status.phase", string(pod.Status.Phase))}
	case len(podAddrs(pod)) > 0 && !slices.Contains(podAddrs(pod), e.Addr):
		return fmt.Sprintf("pod %s has another address", ref.Name), []diagnosis.Evidence{podEvidence(pod, ".status.podIPs", pod.Status.PodIP)}
	}
	return "", nil
}

// otherHolder is another pod that has the address now.
func (p *Pass) otherHolder(e Endpoint, name string) *corev1.Pod {
	for _, pod := range p.podsByIP[e.Addr] {
		if !pod.Spec.HostNetwork && (pod.Name != name || pod.Namespace != p.Service.Namespace) {
			return pod
		}
	}
	return nil
}

// isStale says whether a backend is but a leftover in a slice.
func (p *Pass) isStale(b backend) bool {
	if b.ep == nil || !p.Has(snapshot.Pods) {
		return false
	}
	why, _ := p.staleWhy(*b.ep)
	return why != ""
}

func (p *Pass) reportStale(stale []staleFound, ready int) {
	f := Finding{
		Title:    fmt.Sprintf("%s in the EndpointSlices that no living pod has", count(len(stale), "address")),
		Expected: "the addresses of living selected pods, and no others",
	}
	if all, _ := p.ReadyEndpoints(); ready == 0 && all > 0 {
		f.Severity = diagnosis.Warning // nothing new is sent there, and others serve
	}
	var found []string
	by := map[string]*discoveryv1.EndpointSlice{}
	for i, s := range stale {
		found = append(found, fmt.Sprintf("%s: %s", s.ep.Addr, s.why))
		by[s.ep.Slice.Name] = s.ep.Slice
		if i < 4 {
			f.Evidence = append(f.Evidence, sliceEvidence(s.ep.Slice, fmt.Sprintf(".endpoints[%d]", s.ep.Index), s.ep.Addr.String()))
			f.Evidence = append(f.Evidence, s.evidence...)
		}
	}
	f.Found = list(found)
	for _, name := range sortedKeys(by) {
		f.Fixes = append(f.Fixes, p.freshSlice(by[name]))
	}
	p.Report(f)
}

// freshSlice proposes to delete a slice: the controller makes it anew from the
// pods that live. One that a person made is theirs to correct.
func (p *Pass) freshSlice(sl *discoveryv1.EndpointSlice) Proposal {
	ns, service := p.Service.Namespace, p.Service.Name
	if missing, _ := p.unoffered(); len(missing) > 0 || !p.Has(snapshot.Pods) {
		// Ready pods are missing too, or may be, so the controller seems not to
		// run: deleting the slice would take the good endpoints away.
		return p.controllerFix()
	}
	if !controllerManaged(sl) || len(p.Service.Spec.Selector) == 0 {
		return Proposal{
			Fix: diagnosis.Fix{
				Title:       "take the address out of endpointslice/" + sl.Name + ", which is kept by hand or by another controller",
				Commands:    []string{kubectl("edit", "endpointslice", sl.Name, "-n", ns)},
				BlastRadius: "this Service alone",
				Undo:        []string{kubectl("edit", "endpointslice", sl.Name, "-n", ns)},
				Verify:      p.verify(),
			},
			NotSimulated: "what the slice's keeper wants in it is not among the facts",
		}
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "have the controller make endpointslice/" + sl.Name + " anew",
			Commands:    tried(kubectl("delete", "endpointslice", sl.Name, "-n", ns)),
			BlastRadius: fmt.Sprintf("new connections to the slice's %s fail until the controller has made it anew, usually within a second; if the controller does not run, they stay out", count(len(sl.Endpoints), "endpoint")),
			Undo:        []string{},
			Verify:      p.verify(),
		},
		Change: func(s *snapshot.Snapshot) error {
			svc := findService(s, ns, service)
			if svc == nil {
				return fmt.Errorf("service %s/%s is not in the snapshot", ns, service)
			}
			reconcileSlices(s, svc)
			return nil
		},
		Assuming: "the EndpointSlice controller runs",
	}
}
