package walk

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// noRouteToVIP: the kernel looks up a route to the VIP before the packet of a
// process of the node's meets any rule in OUTPUT. Without one, not so much as a
// default route, connecting fails there. Packets of pods are rewritten first.
var noRouteToVIP = &Check{
	Code: diagnosis.NoRouteToVIP, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		var seen []string
		for _, pr := range p.probes() {
			v, dst := pr.view, pr.dst.Addr()
			key := v.name + " " + dst.String()
			if pr.hairpin || pr.caller.kind != proxy.NodeClient || pr.expect.Action != proxy.Forward || v.host.Local(dst) == netfilter.True || slices.Contains(seen, key) {
				continue
			}
			ways, ok := v.host.Ways(host.Query{Src: netip.Addr{}, Dst: dst, LocalProcess: true})
			if !ok || slices.ContainsFunc(ways, func(w host.Way) bool { return !w.None() && !w.Refused() }) {
				continue
			}
			seen = append(seen, key)
			p.reportNoRouteToVIP(pr, ways[0])
		}
	},
}

func (p *Pass) reportNoRouteToVIP(pr *probe, w host.Way) {
	v, dst := pr.view, pr.dst.Addr()
	found := "there is none, and no default route"
	if w.Refused() {
		found = "its route is " + aRoute(w.Route.Type)
		if w.Rule != nil {
			found = "a rule of policy routing turns it away"
		}
	}
	f := Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s has no route to %s, so that its own processes cannot connect, whatever its rules say", v.label(), dst),
		Expected: "any route to " + dst.String() + ", the default route as a rule: the rules rewrite the packet after that",
		Found:    found + "; concerns " + nodeFault{v, []*probe{pr}}.affected() + ", and pods on the node's network",
		Evidence: []diagnosis.Evidence{v.routeEvidence(w.Route, dst)},
		Fixes:    []Proposal{p.look("see which routes "+v.label()+" has, and why there is no default route", v.onNodeCommand("ip route show"), v.onNodeCommand("ip route get "+dst.String()))},
	}
	if own, ok := v.address(pr.frontend.V6); ok && w.None() {
		if dev := v.host.Interface(own); dev != "" {
			route := fmt.Sprintf("%s dev %s", netip.PrefixFrom(dst, dst.BitLen()), dev)
			f.Fixes = append(f.Fixes, Proposal{
				Fix: diagnosis.Fix{
					Title:       "give " + v.label() + " a route to the address; the range of Services is better, where it is known",
					Commands:    []string{v.onNodeCommand("sudo ip route add " + route)},
					BlastRadius: "packets of " + v.label() + " to " + dst.String() + " alone; gone when it starts anew",
					Undo:        []string{v.onNodeCommand("sudo ip route del " + route)},
					Verify:      []string{p.again()},
				},
				NotSimulated: changesNode,
			})
		}
	}
	p.Report(f)
}
