package walk

import (
	"fmt"
	"net/netip"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// endpointsChecks are layer 2: EndpointSlices and readiness.
var endpointsChecks = []*Check{
	noEndpointSlice,
	noReadyEndpoint,
	someEndpointsNotReady,
	staleEndpoint,
	readyPodMissing,
	slicePortMismatch,
	topologyNarrowed,
}

func summariseEndpoints(p *Pass) Summary {
	if isExternalName(p) {
		return Summary{Status: diagnosis.Skipped, Text: "a DNS alias has no endpoints"}
	}
	if !p.Need(diagnosis.LayerEndpoints, snapshot.EndpointSlices) {
		return Summary{Status: diagnosis.Unknown, Text: "EndpointSlices were not read"}
	}
	ready, all := p.ReadyEndpoints()
	all = max(all, len(staying(p.SelectedPods())))
	usable := p.usableEndpoints()
	because := p.becauseOf(diagnosis.LayerSelector)
	switch {
	case usable > 0:
		return Summary{Status: diagnosis.OK, Text: fmt.Sprintf("%d/%d ready", ready, all) + p.briefly(diagnosis.LayerEndpoints)}
	case ready > 0:
		return Summary{Status: diagnosis.Fail, Text: fmt.Sprintf("%d/%d ready, but on no port that the Service asks for", ready, all), Because: because}
	case p.draining() > 0:
		return Summary{Status: diagnosis.Warn, Text: fmt.Sprintf("none ready; %s still %s", count(p.draining(), "terminating endpoint"), are(p.draining(), "serves", "serve")), Because: because}
	case p.freshPods() > 0 && len(because) == 0 && !p.Raised(diagnosis.NoReadyEndpoint, diagnosis.ReadyPodMissing, diagnosis.NoEndpointSlice):
		p.Missing(diagnosis.LayerEndpoints, diagnosis.Missing{
			What:   "the endpoints of pods that have just become ready",
			Why:    fmt.Sprintf("the EndpointSlice controller may need up to %s", controllerLag),
			Supply: kubectl("vipwalk", p.Service.Name, "-n", p.Service.Namespace, "--wait", "30s"),
		})
		return Summary{Status: diagnosis.Unknown, Text: fmt.Sprintf("none ready yet: %s just became ready", count(p.freshPods(), "pod"))}
	case all == 0:
		return Summary{Status: diagnosis.Fail, Text: "no endpoint", Because: because}
	}
	return Summary{Status: diagnosis.Fail, Text: fmt.Sprintf("none of %d ready", all), Because: because}
}

// becauseOf names a layer if an error of it was reported: what layer 2 shows
// then follows from it.
func (p *Pass) becauseOf(l diagnosis.Layer) []diagnosis.Layer {
	for _, f := range p.findings {
		switch f.code {
		case diagnosis.SelectorMatchesNoPod, diagnosis.WorkloadScaledToZero, diagnosis.NoSelectorNoEndpoints, diagnosis.TargetPortNameUnknown:
			if f.code.Layer() == l && f.severity() == diagnosis.Error {
				return []diagnosis.Layer{l}
			}
		}
	}
	return nil
}

// usableEndpoints counts the ready addresses that have every one of the ports
// that were asked about; of the port that has fewest, that is. Without ports (a
// headless Service may have none) every ready address is usable.
func (p *Pass) usableEndpoints() int {
	_, ports := p.askedPorts()
	if len(ports) == 0 {
		ready, _ := p.ReadyEndpoints()
		return ready
	}
	fewest := -1
	for _, sp := range ports {
		addrs := map[netip.Addr]bool{}
		for _, e := range p.Endpoints() {
			if !e.Ready || !e.Addr.IsValid() {
				continue
			}
			if n, ok := slicePortFor(e.Slice, sp); ok && n != 0 {
				addrs[e.Addr] = true
			}
		}
		if fewest < 0 || len(addrs) < fewest {
			fewest = len(addrs)
		}
	}
	return fewest
}
