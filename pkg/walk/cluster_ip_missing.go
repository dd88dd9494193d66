package walk

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// clusterIPMissing finds a Service that ought to have a virtual IP and has
// none. The API server gives one when it stores a Service, so that a manifest
// that was never applied has none either; that is not known, not wrong.
var clusterIPMissing = &Check{
	Code: diagnosis.ClusterIPMissing,
	Applies: func(p *Pass) bool {
		return p.Service != nil && HasVIP(p.Service) && p.Service.Spec.ClusterIP == "" && len(p.Service.Spec.ClusterIPs) == 0
	},
	Explains: []diagnosis.Code{diagnosis.VIPNotProgrammed},
	Run: func(p *Pass) {
		svc := p.Service
		if svc.UID == "" {
			p.Missing(diagnosis.LayerSelector, diagnosis.Missing{
				What:   "the ClusterIP of service " + svc.Name,
				Why:    "the object has no uid and no ClusterIP: it is a manifest, not what the API server stored",
				Supply: kubectl("get", "service", svc.Name, "-n", svc.Namespace, "-o", "yaml") + " > service.yaml   (then: --objects service.yaml)",
			})
			return
		}
		kind := string(svc.Spec.Type)
		if kind == "" {
			kind = string(corev1.ServiceTypeClusterIP)
		}
		p.Report(Finding{
			Title:    "the Service has no cluster IP, and its type needs one",
			Expected: "an address in spec.clusterIP, for type " + kind,
			Found:    "spec.clusterIP is empty",
			Evidence: []diagnosis.Evidence{p.serviceField(".spec.clusterIP", "(empty)"), p.serviceField(".spec.type", kind)},
			Fixes:    []Proposal{p.reallocate(kind)},
		})
	},
}

// reallocate makes the API server store the Service anew: it gives an address
// to one that lacks it.
func (p *Pass) reallocate(kind string) Proposal {
	cmd := p.patchCommand("merge", map[string]any{"spec": map[string]any{"type": kind}})
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "have the API server store the Service again, which gives it an address",
			Commands:    tried(cmd),
			BlastRadius: "this Service alone",
			Undo:        []string{},
			Verify:      p.verify(),
		},
		NotSimulated: "the API server chooses the address",
	}
}
