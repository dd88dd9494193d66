package walk

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// slicePortMismatch finds Service ports that the slices lack, or for which they
// have another number than targetPort resolves to in the pods. kube-proxy joins
// the two by the port's name and protocol, never by its number.
var slicePortMismatch = &Check{
	Code:     diagnosis.SlicePortMismatch,
	Needs:    []snapshot.Resource{snapshot.EndpointSlices},
	Applies:  hasEndpointsLayer,
	Explains: []diagnosis.Code{diagnosis.RejectedAsEmpty, diagnosis.VIPNotProgrammed, diagnosis.WrongBackendPort},
	Run: func(p *Pass) {
		if len(p.Service.Spec.Selector) > 0 {
			// Without pods the numbers cannot be compared; that a port is missing
			// is seen all the same.
			p.Need(diagnosis.LayerEndpoints, snapshot.Pods)
		}
		if len(p.populated()) == 0 {
			return
		}
		index, ports := p.askedPorts()
		for i, sp := range ports {
			p.checkSlicePort(index[i], sp)
		}
	},
}

// populated are the slices that have an address.
func (p *Pass) populated() []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, sl := range p.Slices() {
		if len(sl.Endpoints) > 0 && sl.AddressType != discoveryv1.AddressTypeFQDN {
			out = append(out, sl)
		}
	}
	return out
}

// slicePortFor finds the slice's port that belongs to a Service port; number is
// 0 where it is unset.
func slicePortFor(sl *discoveryv1.EndpointSlice, sp *corev1.ServicePort) (number int32, found bool) {
	for _, ep := range sl.Ports {
		name, proto := "", corev1.ProtocolTCP
		if ep.Name != nil {
			name = *ep.Name
		}
		if ep.Protocol != nil && *ep.Protocol != "" {
			proto = *ep.Protocol
		}
		if name == sp.Name && proto == protocolOf(sp) {
			if ep.Port == nil {
				return 0, true
			}
			return *ep.Port, true
		}
	}
	return 0, false
}

func (p *Pass) checkSlicePort(index int, sp *corev1.ServicePort) {
	var lacking []*discoveryv1.EndpointSlice
	have := 0
	for _, sl := range p.populated() {
		number, found := slicePortFor(sl, sp)
		if !found || number == 0 {
			lacking = append(lacking, sl)
			continue
		}
		have++
		if pod, want := p.wrongNumber(sl, sp, number); pod != nil {
			p.reportWrongNumber(index, sp, sl, number, pod, want)
		}
	}
	if have == 0 && len(lacking) > 0 {
		p.reportNoSlicePort(index, sp, lacking)
	}
}

// wrongNumber finds a pod of the slice in which the Service port's target is
// another number than the slice's. Only the controller's own slices promise
// that they are the same.
func (p *Pass) wrongNumber(sl *discoveryv1.EndpointSlice, sp *corev1.ServicePort, number int32) (*corev1.Pod, int32) {
	if len(p.Service.Spec.Selector) == 0 || !controllerManaged(sl) {
		return nil, 0
	}
	for _, e := range p.Endpoints() {
		if e.Slice != sl || e.Pod == nil || finished(e.Pod) {
			continue
		}
		if want, ok := targetPort(&e.Pod.Spec, sp); ok && want != number {
			return e.Pod, want
		}
	}
	return nil, 0
}

func (p *Pass) reportWrongNumber(index int, sp *corev1.ServicePort, sl *discoveryv1.EndpointSlice, number int32, pod *corev1.Pod, want int32) {
	p.Report(Finding{
		Title:    fmt.Sprintf("endpointslice/%s gives %s the number %d, and targetPort is %d in its pods", sl.Name, portLabel(sp), number, want),
		Expected: fmt.Sprintf("port %d, what targetPort %s is in pod %s", want, sp.TargetPort.String(), pod.Name),
		Found:    fmt.Sprintf("port %d", number),
		Evidence: []diagnosis.Evidence{
			p.serviceField(fmt.Sprintf(".spec.ports[%d].targetPort", index), sp.TargetPort.String()),
			sliceEvidence(sl, ".ports", slicePortsText(sl)),
			podEvidence(pod, ".spec.containers[*].ports", declaredText([]*corev1.Pod{pod})),
		},
		Fixes: []Proposal{p.freshSlice(sl)},
	})
}

func (p *Pass) reportNoSlicePort(index int, sp *corev1.ServicePort, lacking []*discoveryv1.EndpointSlice) {
	f := Finding{
		Title:    fmt.Sprintf("no EndpointSlice has a port for %s, so its %s count for nothing", portLabel(sp), count(endpointsIn(lacking), "endpoint")),
		Expected: fmt.Sprintf("a slice port with name %q and protocol %s, as the Service's", sp.Name, protocolOf(sp)),
		Found:    fmt.Sprintf("endpointslice/%s has %s", lacking[0].Name, slicePortsText(lacking[0])),
		Evidence: []diagnosis.Evidence{p.serviceField(fmt.Sprintf(".spec.ports[%d]", index), portsText(p.Service))},
	}
	for _, sl := range lacking[:min(len(lacking), 3)] {
		f.Evidence = append(f.Evidence, sliceEvidence(sl, ".ports", slicePortsText(sl)))
	}
	sl := lacking[0]
	switch {
	case p.Raised(diagnosis.TargetPortNameUnknown):
		// The cause has the fix.
	case controllerManaged(sl) && len(p.Service.Spec.Selector) > 0:
		f.Fixes = append(f.Fixes, p.freshSlice(sl))
	default:
		if pr, ok := p.renamePortFix(sl, sp); ok {
			f.Fixes = append(f.Fixes, pr)
		}
	}
	p.Report(f)
}

func endpointsIn(sls []*discoveryv1.EndpointSlice) int {
	n := 0
	for _, sl := range sls {
		n += len(sl.Endpoints)
	}
	return n
}

func slicePortsText(sl *discoveryv1.EndpointSlice) string {
	var out []string
	for _, ep := range sl.Ports {
		s := `""`
		if ep.Name != nil && *ep.Name != "" {
			s = *ep.Name
		}
		if ep.Port != nil {
			s += fmt.Sprintf(" %d", *ep.Port)
		} else {
			s += " (no number)"
		}
		if ep.Protocol != nil {
			s += "/" + string(*ep.Protocol)
		}
		out = append(out, s)
	}
	return emptyAs(list(out), "no port")
}

// renamePortFix gives a hand-made slice's only port of that protocol the
// Service port's name.
func (p *Pass) renamePortFix(sl *discoveryv1.EndpointSlice, sp *corev1.ServicePort) (Proposal, bool) {
	at := -1
	for i, ep := range sl.Ports {
		if ep.Port == nil || (ep.Protocol != nil && *ep.Protocol != protocolOf(sp)) || (ep.Protocol == nil && protocolOf(sp) != corev1.ProtocolTCP) {
			continue
		}
		if at >= 0 {
			return Proposal{}, false
		}
		at = i
	}
	if at < 0 {
		return Proposal{}, false
	}
	from := ""
	if sl.Ports[at].Name != nil {
		from = *sl.Ports[at].Name
	}
	ns, name, to := sl.Namespace, sl.Name, sp.Name
	path := fmt.Sprintf("/ports/%d/name", at)
	patch := func(from, to string) string {
		return kubectl("patch", "endpointslice", name, "-n", ns, "--type=json", "-p", compactJSON([]jsonOp{{"test", path, from}, {"replace", path, to}}))
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       fmt.Sprintf("call the port of endpointslice/%s %q, as the Service does", name, to),
			Commands:    tried(patch(from, to)),
			BlastRadius: "this Service alone; clients get through within seconds",
			Undo:        []string{patch(to, from)},
			Verify:      p.verify(),
		},
		Change: func(s *snapshot.Snapshot) error {
			i := slices.IndexFunc(s.Objects.EndpointSlices, func(sl discoveryv1.EndpointSlice) bool { return sl.Namespace == ns && sl.Name == name })
			if i < 0 || at >= len(s.Objects.EndpointSlices[i].Ports) {
				return fmt.Errorf("endpointslice %s/%s is not in the snapshot", ns, name)
			}
			s.Objects.EndpointSlices[i].Ports[at].Name = &to
			return nil
		},
	}, true
}
