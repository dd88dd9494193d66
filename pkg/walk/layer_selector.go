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
		return Summary{Status: diagnosis.OK, Text: "no selector: its endpoints are made by others"}
	}
	sel := selectorText(svc.Spec.Selector)
	if !p.Has(snapshot.Pods) {
		return Summary{Status: diagnosis.Unknown, Text: sel + ": pods were not read"}
	}
	text := fmt.Sprintf("%s selects %d of %s", sel, len(p.SelectedPods()), count(p.livePods(svc.Namespace), "pod"))
	for _, f := range p.findings {
		if f.code == diagnosis.WorkloadScaledToZero {
			text += ": " + f.Title
			break
		}
	}
	return Summary{Status: diagnosis.OK, Text: text}
}
