package walk

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// topologyNarrowed: topology hints send many nodes to few endpoints; or the
// Service asks to be kept near, and the hints are not heeded, which is only
// worth knowing. kube-proxy never lets hints leave a node without an endpoint.
var topologyNarrowed = &Check{
	Code: diagnosis.TopologyNarrowed, Needs: []snapshot.Resource{snapshot.EndpointSlices},
	Applies: func(p *Pass) bool {
		return p.Service != nil && HasVIP(p.Service) && !proxy.InternalLocal(p.Service) && (p.asksNear() != "" || p.hinted() > 0)
	},
	Run: func(p *Pass) {
		if !p.Has(snapshot.Nodes) {
			p.Note(diagnosis.LayerEndpoints, missingResource(p.read(snapshot.Nodes), ""))
			return
		}
		for _, f := range p.Frontends() {
			if f.Kind != proxy.ClusterIP {
				continue
			}
			s := p.spread(f)
			if s.crowded() {
				p.reportCrowded(s)
				return
			}
			if why := p.hintsIgnored(s); why != "" {
				p.reportHintsIgnored(s, why)
				return
			}
		}
	},
}

// asksNear is how the Service asks for endpoints that are near, as the field or
// the annotation reads; "" where it does not ask.
func (p *Pass) asksNear() string {
	if d := p.Service.Spec.TrafficDistribution; d != nil && *d != "" {
		return "trafficDistribution " + *d
	}
	if key, value := p.topologyAnnotation(); key != "" {
		return key + " " + value
	}
	return ""
}

// topologyAnnotations ask for hints: since 1.27 any value but Disabled, before
// that "auto".
var topologyAnnotations = []string{corev1.AnnotationTopologyMode, corev1.DeprecatedAnnotationTopologyAwareHints}

func (p *Pass) topologyAnnotation() (key, value string) {
	for _, k := range topologyAnnotations {
		if v := p.Service.Annotations[k]; v != "" && !strings.EqualFold(v, "Disabled") {
			return k, v
		}
	}
	return "", ""
}

// hinted counts the endpoints that carry hints.
func (p *Pass) hinted() int {
	n := 0
	for _, e := range p.Endpoints() {
		if hasHints(e.Slice.Endpoints[e.Index].Hints) {
			n++
		}
	}
	return n
}

func hasHints(h *discoveryv1.EndpointHints) bool {
	return h != nil && len(h.ForNodes)+len(h.ForZones) > 0
}

// spread is where the nodes that have clients send, for one frontend.
type spread struct {
	frontend proxy.Frontend
	groups   []nodeGroup
	nodes    int
	ready    int
	load     map[netip.AddrPort]float64
	// unzoned are the nodes without a zone.
	unzoned []string
}

// nodeGroup are nodes that hints send to the same endpoints: those of a zone,
// one node, or all the others (name is "" then).
type nodeGroup struct {
	name     string
	nodes    []string
	backends []proxy.Backend
	narrowed bool
}

// spread lets each node that has clients send one share, and adds up what each
// endpoint gets.
func (p *Pass) spread(f proxy.Frontend) *spread {
	s := &spread{frontend: f, load: map[netip.AddrPort]float64{}}
	for _, n := range p.clientNodes() {
		e := proxy.Expect(p.Service, p.Slices(), p.proxyNodeOf(n), proxy.PodClient, f)
		if e.Action != proxy.Forward {
			continue
		}
		s.nodes++
		s.ready = max(s.ready, e.Topology.Ready)
		if n.Labels[corev1.LabelTopologyZone] == "" {
			s.unzoned = append(s.unzoned, n.Name)
		}
		for _, b := range e.Backends {
			s.load[b.Addr] += 1 / float64(len(e.Backends))
		}
		name := ""
		if e.Topology.Node != "" {
			name = "node " + e.Topology.Node
		} else if e.Topology.Zone != "" {
			name = "zone " + e.Topology.Zone
		}
		i := slices.IndexFunc(s.groups, func(g nodeGroup) bool { return g.name == name })
		if i < 0 {
			i = len(s.groups)
			s.groups = append(s.groups, nodeGroup{name: name, backends: e.Backends, narrowed: e.Topology.Narrowed(len(e.Backends))})
		}
		s.groups[i].nodes = append(s.groups[i].nodes, n.Name)
	}
	return s
}

// clientNodes are the nodes on which pods run that may be clients: those that
// are ready and not set apart for the control plane; all of them where no other
// is left.
func (p *Pass) clientNodes() []*corev1.Node {
	var all, usual []*corev1.Node
	for i := range p.snap.Objects.Nodes {
		n := &p.snap.Objects.Nodes[i]
		all = append(all, n)
		apart := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == "node-role.kubernetes.io/control-plane" || t.Key == "node-role.kubernetes.io/master"
		})
		unready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
		if !apart && !unready {
			usual = append(usual, n)
		}
	}
	if len(usual) == 0 {
		return all
	}
	return usual
}

// crowd is how many times an even share makes hints a matter of overload. The
// EndpointSlice controller itself gives hints by zone up when a zone would be
// off by a fifth, with topology-mode; trafficDistribution has no such limit.
const crowd = 2

// busiest is the endpoint that gets most, and how many times an even share.
func (s *spread) busiest() (at netip.AddrPort, times float64) {
	for a, l := range s.load {
		t := l * float64(s.ready) / float64(s.nodes)
		if t > times+1e-9 || t > times-1e-9 && a.Compare(at) < 0 {
			at, times = a, t
		}
	}
	return at, times
}

// crowded says whether hints overload an endpoint.
func (s *spread) crowded() bool {
	if s.ready < 2 || s.nodes < 2 || !slices.ContainsFunc(s.groups, func(g nodeGroup) bool { return g.narrowed }) {
		return false
	}
	_, times := s.busiest()
	return times > crowd-1e-9
}

// tightest is the group of nodes that shares the fewest endpoints.
func (s *spread) tightest() nodeGroup {
	at, _ := s.busiest()
	var in []nodeGroup
	for _, g := range s.groups {
		if g.narrowed && slices.ContainsFunc(g.backends, func(b proxy.Backend) bool { return b.Addr == at }) {
			in = append(in, g)
		}
	}
	if len(in) == 0 {
		return s.groups[0]
	}
	return slices.MaxFunc(in, func(a, b nodeGroup) int {
		return cmp.Compare(float64(len(a.nodes))/float64(len(a.backends)), float64(len(b.nodes))/float64(len(b.backends)))
	})
}

func (p *Pass) reportCrowded(s *spread) {
	at, times := s.busiest()
	g := s.tightest()
	who := fmt.Sprintf("%s of %s", count(len(g.nodes), "node"), g.name)
	if strings.HasPrefix(g.name, "node ") {
		who = g.name
	}
	p.Report(Finding{
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("topology hints send %s to %d of %d ready endpoints: %s gets %.1f times an even share", who, len(g.backends), s.ready, at, times),
		Expected: fmt.Sprintf("about %s of the traffic at each endpoint, where each of %s calls as much", percent(1/float64(s.ready)), count(s.nodes, "node")),
		Found:    s.text(),
		Evidence: p.topologyEvidence(g),
		Fixes:    p.spreadFixes(),
	})
}

// text says which nodes send where.
func (s *spread) text() string {
	var out []string
	for _, g := range s.groups {
		switch {
		case g.name == "":
			out = append(out, fmt.Sprintf("%s: all %d ready endpoints", count(len(g.nodes), "other node"), len(g.backends)))
		case strings.HasPrefix(g.name, "node "):
			out = append(out, fmt.Sprintf("%s: %s", g.name, listBackends(g.backends)))
		default:
			out = append(out, fmt.Sprintf("%s (%s): %s", g.name, count(len(g.nodes), "node"), listBackends(g.backends)))
		}
	}
	const most = 4
	if len(out) > most+1 {
		out = append(out[:most], fmt.Sprintf("and %d more groups of nodes", len(out)-most))
	}
	return strings.Join(out, "; ")
}

// topologyEvidence quotes what asks for hints, the hints, and the zone's nodes.
func (p *Pass) topologyEvidence(g nodeGroup) []diagnosis.Evidence {
	out := append(p.asksNearEvidence(), p.hintsEvidence())
	if zone, ok := strings.CutPrefix(g.name, "zone "); ok {
		out = append(out, diagnosis.Evidence{
			Source: "nodes of zone " + zone, Ref: "nodes", Quote: list(g.nodes),
			Command: kubectl("get", "nodes", "-l", corev1.LabelTopologyZone+"="+zone, "-o", "name"),
		})
	}
	return out
}

func (p *Pass) asksNearEvidence() []diagnosis.Evidence {
	if d := p.Service.Spec.TrafficDistribution; d != nil && *d != "" {
		return []diagnosis.Evidence{p.serviceField(".spec.trafficDistribution", *d)}
	}
	if key, value := p.topologyAnnotation(); key != "" {
		return []diagnosis.Evidence{p.serviceField(".metadata.annotations."+strings.ReplaceAll(key, ".", `\.`), key+": "+value)}
	}
	return nil
}

// hintsEvidence quotes each ready endpoint's hints.
func (p *Pass) hintsEvidence() diagnosis.Evidence {
	var quotes []string
	for _, e := range p.Endpoints() {
		if !e.Ready || !e.Addr.IsValid() {
			continue
		}
		quotes = append(quotes, e.Addr.String()+" "+hintsText(e.Slice.Endpoints[e.Index].Hints))
	}
	slices.Sort(quotes)
	e := p.slicesEvidence(listed(slices.Compact(quotes)))
	if e.Quote == "" {
		e.Quote = "no ready endpoint"
	}
	e.Command = kubectl("get", "endpointslices", "-n", p.Service.Namespace, "-l", discoveryv1.LabelServiceName+"="+p.Service.Name,
		"-o", "jsonpath={range .items[*].endpoints[*]}{.addresses[0]} {.zone} {.hints}{\"\\n\"}{end}")
	return e
}

func hintsText(h *discoveryv1.EndpointHints) string {
	if !hasHints(h) {
		return "no hint"
	}
	var out []string
	for _, n := range h.ForNodes {
		out = append(out, "node "+n.Name)
	}
	for _, z := range h.ForZones {
		out = append(out, "zone "+z.Name)
	}
	return "for " + strings.Join(out, ", ")
}

// spreadFixes stop asking for hints; the controller takes them away then.
func (p *Pass) spreadFixes() []Proposal {
	const radius = "this Service alone: its clients send to every ready endpoint again, in other zones too, which may cost latency and money"
	if d := p.Service.Spec.TrafficDistribution; d != nil && *d != "" {
		return []Proposal{p.specFix("let every node send to every endpoint: no trafficDistribution", "trafficDistribution", nil, *d, radius,
			func(svc *corev1.Service) { svc.Spec.TrafficDistribution = nil })}
	}
	if key, value := p.topologyAnnotation(); key != "" {
		set := func(v any) any {
			return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: v}}}
		}
		return []Proposal{p.servicePatch("let every node send to every endpoint: no "+key, "merge", set(nil), set(value), radius,
			func(svc *corev1.Service) { delete(svc.Annotations, key) })}
	}
	return []Proposal{{
		Fix: diagnosis.Fix{
			Title:       "find out who gives the endpoints hints: the Service does not ask for them",
			Commands:    []string{kubectl("get", "endpointslices", "-n", p.Service.Namespace, "-l", discoveryv1.LabelServiceName+"="+p.Service.Name, "-o", "yaml")},
			BlastRadius: "this only looks",
			Undo:        []string{"nothing to undo: this only looks"},
			Verify:      p.verify(),
		},
		NotSimulated: "it only looks",
	}}
}

// hintsIgnored says why hints that the Service asks for do nothing, where that
// matters: more than one endpoint and more than one place. "" where they are
// heeded, or nobody asks.
func (p *Pass) hintsIgnored(s *spread) string {
	if p.asksNear() == "" || s.ready < 2 || s.nodes < 2 {
		return ""
	}
	narrowed := slices.ContainsFunc(s.groups, func(g nodeGroup) bool { return g.name != "" })
	with, ready := p.readyWithHints()
	switch {
	case with == 0 && len(p.zones()) < 2:
		return ""
	case with == 0:
		return "no ready endpoint carries a hint"
	case with < ready:
		return fmt.Sprintf("%d of %d ready endpoints carry no hint, and kube-proxy heeds all or none", ready-with, ready)
	case !narrowed:
		return "they are for no zone or node that has clients"
	case len(s.unzoned) > 0 && slices.ContainsFunc(s.groups, func(g nodeGroup) bool { return strings.HasPrefix(g.name, "zone ") }):
		return fmt.Sprintf("%s without the label %s: %s", count(len(s.unzoned), "node"), corev1.LabelTopologyZone, list(s.unzoned))
	}
	return ""
}

// readyWithHints counts ready endpoints, and those of them that carry hints.
func (p *Pass) readyWithHints() (with, ready int) {
	for _, e := range p.Endpoints() {
		if e.Ready && e.Addr.IsValid() {
			ready++
			if hasHints(e.Slice.Endpoints[e.Index].Hints) {
				with++
			}
		}
	}
	return with, ready
}

// zones are the zones of the nodes that have clients.
func (p *Pass) zones() []string {
	var out []string
	for _, n := range p.clientNodes() {
		if z := n.Labels[corev1.LabelTopologyZone]; z != "" && !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

func (p *Pass) reportHintsIgnored(s *spread, why string) {
	found := "sent to all " + count(s.ready, "ready endpoint")
	if len(s.unzoned) > 0 && strings.Contains(why, corev1.LabelTopologyZone) {
		found += " from there"
	}
	p.Report(Finding{
		Severity: diagnosis.Info,
		Title:    "the Service asks to be served nearby (" + p.asksNear() + "), and hints are not heeded: " + why,
		Expected: "clients sent to endpoints of their own zone or node",
		Found:    found,
		Evidence: append(p.asksNearEvidence(), p.hintsEvidence()),
	})
}
