package walk

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// noSelectorNoEndpoints finds a Service that leaves its endpoints to somebody
// else, who made none.
var noSelectorNoEndpoints = &Check{
	Code:  diagnosis.NoSelectorNoEndpoints,
	Needs: []snapshot.Resource{snapshot.EndpointSlices},
	Applies: func(p *Pass) bool {
		return p.Service != nil && len(p.Service.Spec.Selector) == 0 && p.Service.Spec.Type != corev1.ServiceTypeExternalName
	},
	Explains: []diagnosis.Code{diagnosis.NoReadyEndpoint, diagnosis.SlicePortMismatch, diagnosis.RejectedAsEmpty},
	Run: func(p *Pass) {
		for _, e := range p.Endpoints() {
			if e.Addr.IsValid() {
				return
			}
		}
		p.reportNoEndpoints()
	},
}

func (p *Pass) reportNoEndpoints() {
	svc := p.Service
	f := Finding{
		Title:    "the Service has no selector, and no EndpointSlice with an address",
		Expected: "an EndpointSlice with the label " + discoveryv1.LabelServiceName + "=" + svc.Name + ", made by hand or by another controller",
		Found:    fmt.Sprintf("%s with that label, no address", count(len(p.Slices()), "EndpointSlice")),
		Evidence: []diagnosis.Evidence{
			p.serviceField(".spec.selector", "(none)"),
			p.slicesEvidence(emptyAs(list(sliceNames(p.Slices())), "none")),
		},
	}
	p.unmirrored(&f)
	for _, sl := range p.unlinkedSlices() {
		f.Found += fmt.Sprintf("; endpointslice/%s has %s, but not the label", sl.Name, count(len(sl.Endpoints), "endpoint"))
		f.Evidence = append(f.Evidence, sliceEvidence(sl, ".metadata.labels", emptyAs(selectorText(sl.Labels), "(none)")))
		f.Fixes = append(f.Fixes, p.linkFix(sl))
	}
	if len(f.Fixes) == 0 {
		p.selectorGone(&f)
	}
	if len(f.Fixes) == 0 {
		f.Fixes = append(f.Fixes, p.createSliceFix())
	}
	p.Report(f)
}

func sliceNames(sls []*discoveryv1.EndpointSlice) []string {
	var out []string
	for _, sl := range sls {
		out = append(out, sl.Name)
	}
	return out
}

// unmirrored: a legacy Endpoints object that no slice mirrors.
func (p *Pass) unmirrored(f *Finding) {
	for i := range p.snap.Objects.Endpoints {
		ep := &p.snap.Objects.Endpoints[i]
		if ep.Namespace != p.Service.Namespace || ep.Name != p.Service.Name || len(ep.Subsets) == 0 {
			continue
		}
		f.Found += "; an Endpoints object exists, but no EndpointSlice mirrors it, and kube-proxy reads slices only"
		f.Evidence = append(f.Evidence, diagnosis.Evidence{
			Source: "endpoints/" + ep.Name, Ref: "endpoints/" + ep.Namespace + "/" + ep.Name, Quote: count(len(ep.Subsets), "subset"),
			Command: kubectl("get", "endpoints", ep.Name, "-n", ep.Namespace, "-o", "yaml"),
		})
	}
}

// unlinkedSlices are slices of the namespace that belong to no Service and go
// by this one's name.
func (p *Pass) unlinkedSlices() []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for i := range p.snap.Objects.EndpointSlices {
		sl := &p.snap.Objects.EndpointSlices[i]
		if sl.Namespace != p.Service.Namespace || sl.Labels[discoveryv1.LabelServiceName] != "" || len(sl.Endpoints) == 0 {
			continue
		}
		if sl.Name == p.Service.Name || strings.HasPrefix(sl.Name, p.Service.Name+"-") {
			out = append(out, sl)
		}
	}
	return out
}

func (p *Pass) linkFix(sl *discoveryv1.EndpointSlice) Proposal {
	ns, name, service := sl.Namespace, sl.Name, p.Service.Name
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "give endpointslice/" + name + " the label that ties it to the Service",
			Commands:    tried(kubectl("label", "endpointslice", name, "-n", ns, discoveryv1.LabelServiceName+"="+service)),
			BlastRadius: "this Service alone: its clients reach the slice's addresses",
			Undo:        []string{kubectl("label", "endpointslice", name, "-n", ns, discoveryv1.LabelServiceName+"-")},
			Verify:      p.verify(),
		},
		Change: func(s *snapshot.Snapshot) error {
			for i := range s.Objects.EndpointSlices {
				if sl := &s.Objects.EndpointSlices[i]; sl.Namespace == ns && sl.Name == name {
					sl.Labels = maps.Clone(sl.Labels)
					if sl.Labels == nil {
						sl.Labels = map[string]string{}
					}
					sl.Labels[discoveryv1.LabelServiceName] = service
					return nil
				}
			}
			return fmt.Errorf("endpointslice %s/%s is not in the snapshot", ns, name)
		},
	}
}

// selectorGone: a workload of the Service's own name suggests that the selector
// was forgotten.
func (p *Pass) selectorGone(f *Finding) {
	for _, wl := range p.workloads(p.Service.Namespace) {
		if wl.meta.Name != p.Service.Name || wl.selector == nil || len(wl.selector.MatchLabels) == 0 {
			continue
		}
		f.Found += fmt.Sprintf("; %s has the Service's name, so the selector may have been forgotten", wl)
		f.Evidence = append(f.Evidence, wl.field(".spec.selector.matchLabels", selectorText(wl.selector.MatchLabels)))
		f.Fixes = append(f.Fixes, p.selectorFix("select the pods of "+wl.String(), wl.selector.MatchLabels,
			"this Service alone; the EndpointSlice controller takes over its endpoints"))
	}
}

// createSliceFix shows the form; only a person knows the address.
func (p *Pass) createSliceFix() Proposal {
	svc := p.Service
	_, v6 := serviceFamilies(svc)
	v4, _ := serviceFamilies(svc)
	family := "IPv4"
	if v6 && !v4 {
		family = "IPv6"
	}
	ports := []any{}
	for i := range svc.Spec.Ports {
		sp := &svc.Spec.Ports[i]
		n, ok := targetPort(&corev1.PodSpec{}, sp)
		if !ok {
			n = sp.Port
		}
		ports = append(ports, map[string]any{"name": sp.Name, "protocol": protocolOf(sp), "port": n})
	}
	name := svc.Name + "-manual"
	slice := map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
		"metadata":  map[string]any{"name": name, "namespace": svc.Namespace, "labels": map[string]string{discoveryv1.LabelServiceName: svc.Name}},
		"ports":     ports,
		"endpoints": []any{map[string]any{"addresses": []string{"ADDRESS"}}},
	}
	create := "printf '%s' " + shellQuote(compactJSON(slice)) + " | kubectl create -f -"
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "make an EndpointSlice; put the backend's address in place of ADDRESS (each port's name must be the Service port's)",
			Commands:    tried(create),
			BlastRadius: "this Service alone: its clients reach the address given",
			Undo:        []string{kubectl("delete", "endpointslice", name, "-n", svc.Namespace)},
			Verify:      p.verify(),
		},
		NotSimulated: "the backend's address is not among the facts",
	}
}
