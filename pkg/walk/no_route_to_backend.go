package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// noRouteToBackend: kube-proxy's rules send the packet to a backend, and the
// node's routing has no way there, or one that leads nowhere.
var noRouteToBackend = &Check{
	Code: diagnosis.NoRouteToBackend, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			if lost := p.lostWays(v); len(lost) > 0 {
				p.reportLostWays(v, lost)
			}
		}
	},
}

// lostWay is a backend that a node does not reach.
type lostWay struct {
	sent
	route host.Route
	// why completes "to 10.244.2.6": "there is no route".
	why  string
	more []diagnosis.Evidence
}

func (p *Pass) lostWays(v *nodeView) []lostWay {
	var out []lostWay
	for _, s := range p.sentBy(v) {
		if v.host.Local(s.to.Addr()) == netfilter.True || slices.ContainsFunc(out, func(l lostWay) bool { return l.to.Addr() == s.to.Addr() }) {
			continue
		}
		ways, ok := v.host.Ways(s.query())
		if !ok {
			continue
		}
		var first *lostWay
		bad := 0
		for _, w := range ways {
			if l := p.lostWay(v, s, w); l != nil {
				bad++
				if first == nil {
					first = l
				}
			}
		}
		if bad == len(ways) {
			out = append(out, *first)
		}
	}
	return out
}

// lostWay says what is wrong with a way; nil where nothing is seen to be.
func (p *Pass) lostWay(v *nodeView, s sent, w host.Way) *lostWay {
	l := &lostWay{sent: s, route: w.Route}
	dev := w.Route.Dev
	switch {
	case w.None():
		l.why = "there is no route"
	case w.Rule != nil:
		l.why = "a rule of policy routing turns it away"
		kind := snapshot.IPRule
		command := "ip rule"
		if s.to.Addr().Is6() {
			kind, command = snapshot.IP6Rule, "ip -6 rule"
		}
		l.more = []diagnosis.Evidence{v.lineEvidence(kind, w.Rule.Line, w.Rule.Text, command)}
	case w.Refused():
		l.why = "its route is " + aRoute(w.Route.Type)
	case w.Route.Type != "unicast":
		return nil // to the node itself
	case dev != "" && v.host.Link(dev) == netfilter.False:
		l.why = "its route leads to device " + dev + ", which is not there"
	case dev != "" && v.host.Up(dev) == netfilter.False:
		l.why = "its route leads to device " + dev + ", which is down"
	case w.Route.LinkDown:
		l.why = "its route leads to device " + dev + ", which has no carrier"
	case w.Route.Prefix.Bits() == 0:
		why, evidence := p.ownRouteLost(v, s)
		if why == "" {
			return nil
		}
		l.why, l.more = why, evidence
	default:
		return nil
	}
	return l
}

func aRoute(typ string) string {
	if typ == "unreachable" {
		return "an unreachable one"
	}
	return "a " + typ
}

// ownRouteLost says why a backend that only the default route leads to ought to
// have a route of its own; "" where it may well be reached by the default route,
// as with a cloud's own routes to pods.
func (p *Pass) ownRouteLost(v *nodeView, s sent) (why string, evidence []diagnosis.Evidence) {
	at := p.nodeByName[s.backend.Node]
	if at == nil || v.object == nil || !inPodCIDR(at, s.to.Addr()) {
		return "", nil
	}
	if s.backend.Local {
		return "only the default route leads to it, away from this node, where its pod is", nil
	}
	if backend := at.Annotations[flannelBackend]; backend == "host-gw" || backend == "vxlan" || backend == "wireguard" {
		return "only the default route leads to it, and flannel makes a route to the pods of each node", []diagnosis.Evidence{{
			Source: "node/" + at.Name + " .metadata.annotations", Ref: "node/" + at.Name, Quote: flannelBackend + "=" + backend,
			Command: kubectl("get", "node", at.Name, "-o", "jsonpath={.metadata.annotations}"),
		}}
	}
	for i := range p.snap.Objects.Nodes {
		other := &p.snap.Objects.Nodes[i]
		if other.Name == at.Name || other.Name == v.name {
			continue
		}
		if r, ok := v.podRoute(other, s.to.Addr().Is6()); ok {
			return "only the default route leads to it, while the pods of " + other.Name + " have a route of their own", []diagnosis.Evidence{v.routeEvidence(r, r.Prefix.Addr())}
		}
	}
	for _, other := range p.nodeViews() {
		if other == v || other.object == nil {
			continue
		}
		if r, ok := other.podRoute(v.object, s.to.Addr().Is6()); ok {
			return "only the default route leads to it, while " + other.label() + " has a route to the pods of " + v.label(), []diagnosis.Evidence{other.routeEvidence(r, r.Prefix.Addr())}
		}
	}
	for _, dev := range overlayDevices {
		if v.host.Link(dev) == netfilter.True {
			return "only the default route leads to it, not the CNI's device " + dev, []diagnosis.Evidence{v.lineEvidence(snapshot.IPAddr, 0, "device "+dev, "ip addr show "+dev)}
		}
	}
	return "", nil
}

// flannelBackend is flannel's note of how it reaches the node's pods.
const flannelBackend = "flannel.alpha.coreos.com/backend-type"

// overlayDevices are made by CNIs that reach every other node's pods by them.
var overlayDevices = []string{"flannel.1", "flannel-wg", "vxlan.calico", "weave", "antrea-gw0", "cilium_vxlan", "cilium_geneve"}

// podRoute is the node's route to another's pods, if it has one besides the
// default route.
func (v *nodeView) podRoute(of *corev1.Node, v6 bool) (host.Route, bool) {
	for _, text := range podCIDRs(of) {
		c, err := netip.ParsePrefix(text)
		if err != nil || c.Addr().Is6() != v6 {
			continue
		}
		ways, ok := v.host.Ways(host.Query{Dst: lastAddr(c).Prev()})
		if ok && len(ways) == 1 && ways[0].Route.Type == "unicast" && ways[0].Route.Prefix.Bits() > 0 && !ways[0].Route.LinkDown {
			return ways[0].Route, true
		}
	}
	return host.Route{}, false
}

func inPodCIDR(n *corev1.Node, a netip.Addr) bool {
	return slices.ContainsFunc(podCIDRs(n), func(text string) bool {
		c, err := netip.ParsePrefix(text)
		return err == nil && c.Contains(a)
	})
}

func (p *Pass) reportLostWays(v *nodeView, lost []lostWay) {
	var to, found []string
	var evidence []diagnosis.Evidence
	callers := nodeFault{view: v}
	for _, l := range lost {
		name := l.to.Addr().String()
		if n := l.backend.Node; n != "" && n != v.name {
			name += " on " + n
		}
		to = append(to, name)
		found = append(found, l.to.Addr().String()+": "+l.why)
		if len(evidence) < 4 {
			evidence = append(append(evidence, v.routeEvidence(l.route, l.to.Addr())), l.more...)
		}
		callers.probes = append(callers.probes, l.pr)
	}
	title := fmt.Sprintf("%s sends to %s, and %s", v.label(), join(to, 2), lost[0].why)
	if len(lost) > 1 {
		title = fmt.Sprintf("%s sends to %s, and its routing has no way there", v.label(), join(to, 2))
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    title,
		Expected: "a route from " + v.label() + " to each backend that its rules send to",
		Found:    strings.Join(found[:min(len(found), 4)], "; ") + "; concerns " + callers.affected(),
		Evidence: evidence,
		Fixes:    p.mendRoute(v, lost[0]),
	})
}

// mendRoute proposes to find out about the network's agent, which makes the
// routes, and, where the backend's node is a neighbour, the route by hand.
func (p *Pass) mendRoute(v *nodeView, l lostWay) []Proposal {
	look := p.look("see whether the network's agent on "+v.label()+" runs, which makes these routes",
		kubectl("get", "pods", "-A", "-o", "wide", "--field-selector", "spec.nodeName="+v.name),
		v.onNodeCommand("ip route get "+l.to.Addr().String()))
	if v.name == "" {
		look.Fix.Commands = look.Fix.Commands[1:]
	}
	at := p.nodeByName[l.backend.Node]
	if at == nil || l.backend.Local || !inPodCIDR(at, l.to.Addr()) {
		return []Proposal{look}
	}
	var via netip.Addr
	for _, a := range at.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Is6() == l.to.Addr().Is6() {
			via = ip
		}
	}
	ways, ok := v.host.Ways(host.Query{Dst: via})
	if !via.IsValid() || !ok || len(ways) != 1 || ways[0].Route.Via.IsValid() || ways[0].Route.Prefix.Bits() == 0 || ways[0].Route.Type != "unicast" {
		return []Proposal{look}
	}
	for _, text := range podCIDRs(at) {
		c, err := netip.ParsePrefix(text)
		if err != nil || !c.Contains(l.to.Addr()) || slices.Contains(overlayDevices, l.route.Dev) {
			continue
		}
		route := fmt.Sprintf(" %s via %s", c, via)
		verb := "add"
		undo := "del" + route
		if l.route.Prefix == c {
			verb, undo = "replace", "replace "+quoteWords(l.route.Text)
		}
		return []Proposal{look, {
			Fix: diagnosis.Fix{
				Title:       "make the route to the pods of " + at.Name + " by hand, if the network has no tunnel",
				Commands:    []string{v.onNodeCommand("sudo ip route " + verb + route)},
				BlastRadius: "packets of " + v.label() + " to " + c.String() + "; gone when it starts anew, so mend what lost the route too",
				Undo:        []string{v.onNodeCommand("sudo ip route " + undo)},
				Verify:      []string{p.again()},
			},
			NotSimulated: changesNode,
		}}
	}
	return []Proposal{look}
}

// quoteWords quotes each word of a line for a shell.
func quoteWords(line string) string {
	words := strings.Fields(line)
	for i := range words {
		words[i] = shellQuote(words[i])
	}
	return strings.Join(words, " ")
}
