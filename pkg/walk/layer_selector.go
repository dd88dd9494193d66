package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// selectorChecks are layer 1: the Service and its selector.
var selectorChecks = []*Check{
	serviceNotFound,
	workloadScaledToZero,
	selectorMatchesNoPod,
	noSelectorNoEndpoints,
	targetPortNameUnknown,
	headlessHasNoVIP,
	externalNameHasNoVIP,
	clusterIPMissing,
	loadBalancerPending,
	noLocalEndpointExternal,
	noLocalEndpointInternal,
	portNotExposed,
}

func summariseSelector(p *Pass) Summary {
	svc := p.Service
	switch {
	case isExternalName(p):
		return Summary{Status: diagnosis.Skipped, Text: "a DNS alias for " + svc.Spec.ExternalName + ": no selector"}
	case len(svc.Spec.Selector) == 0:
		return Summary{Status: diagnosis.OK, Text: "no selector: its endpoints are made by others" + p.briefly(diagnosis.LayerSelector)}
	}
	sel := selectorText(svc.Spec.Selector)
	if !p.Has(snapshot.Pods) {
		return Summary{Status: diagnosis.Unknown, Text: sel + ": pods were not read"}
	}
	text := fmt.Sprintf("%s selects %d of %s", sel, len(p.SelectedPods()), count(p.livePods(svc.Namespace), "pod"))
	return Summary{Status: diagnosis.OK, Text: text + p.briefly(diagnosis.LayerSelector)}
}

// briefs say for a layer's line what is wrong, where its numbers do not show it.
var briefs = map[diagnosis.Code]string{
	diagnosis.WorkloadScaledToZero:    "its workload runs none",
	diagnosis.TargetPortNameUnknown:   "targetPort's name is unknown",
	diagnosis.HeadlessHasNoVIP:        "headless, and nothing maps its port",
	diagnosis.ClusterIPMissing:        "no cluster IP",
	diagnosis.LoadBalancerPending:     "no load balancer address",
	diagnosis.NoLocalEndpointExternal: "nodes without an endpoint drop (external Local)",
	diagnosis.NoLocalEndpointInternal: "nodes without an endpoint drop (internal Local)",
	diagnosis.PortNotExposed:          "the port asked for is not exposed",
	diagnosis.StaleEndpoint:           "an address is no pod's any more",
	diagnosis.ReadyPodMissing:         "a ready pod is missing",
	diagnosis.SlicePortMismatch:       "a port does not fit",
	diagnosis.TopologyNarrowed:        "topology hints crowd few of them",
}

// briefly names the gravest thing that was reported of a layer, but for what is
// only worth knowing.
func (p *Pass) briefly(l diagnosis.Layer) string {
	worst, text := diagnosis.Info.Rank(), ""
	for _, f := range p.findings {
		if b := briefs[f.code]; b != "" && f.code.Layer() == l && f.severity().Rank() > worst {
			worst, text = f.severity().Rank(), "; "+b
		}
	}
	return text
}
