package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// sysctlSuspicious: a node with several interfaces drops what comes in by
// another than the one over which it would answer: rp_filter is strict. Only
// clients outside are looked at, and only the interface that has the address
// that they ask.
//
// Other settings have their own checks: forwarding (VIP321), what crosses a
// bridge (VIP322), route_localnet (VIP340), net.ipv4.vs.conntrack (VIP309).
var sysctlSuspicious = &Check{
	Code: diagnosis.SysctlSuspicious, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		var seen []string
		for _, pr := range p.probes() {
			v := pr.view
			dev := v.host.Interface(pr.dst.Addr())
			if pr.hairpin || pr.caller.kind != proxy.ExternalClient || pr.frontend.V6 || dev == "" || dev == "lo" || onPurpose(dev) || slices.Contains(seen, v.name+dev) {
				continue
			}
			name, strict := v.strictFilter(dev)
			if !strict {
				continue
			}
			q := host.Query{Dst: pr.caller.addr, In: dev}
			if len(pr.expect.Backends) > 0 {
				q.Src = pr.expect.Backends[0].Addr.Addr() // it is rewritten by then
			}
			ways, ok := v.host.Ways(q)
			if !ok || slices.ContainsFunc(ways, func(w host.Way) bool { return w.Route.Dev == dev || w.Route.Dev == "" }) {
				continue
			}
			seen = append(seen, v.name+dev)
			p.reportReversePath(pr, dev, name, ways[0].Route)
		}
	},
}

// strictFilter says whether rp_filter of an interface is strict, and which
// setting makes it so: the greater of the interface's and that of all counts.
func (v *nodeView) strictFilter(dev string) (name string, strict bool) {
	const all = "net.ipv4.conf.all.rp_filter"
	own := "net.ipv4.conf." + dottedName(dev) + ".rp_filter"
	a, read1 := v.host.Sysctl(all)
	b, read2 := v.host.Sysctl(own)
	switch {
	case !read1 || !read2 || a == "2" || b == "2":
		return "", false
	case b == "1":
		return own, true
	}
	return all, a == "1"
}

func (p *Pass) reportReversePath(pr *probe, dev, name string, back host.Route) {
	v := pr.view
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s drops clients outside that come in by %s: it would answer by %s, and %s is strict", v.label(), dev, back.Dev, name),
		Expected: "that it answers by " + dev + ", or rp_filter loose (2) there",
		Found:    fmt.Sprintf("%s = 1, and the way to %s is by %s; concerns %s, but for clients on %s's own network", name, pr.caller.addr, back.Dev, nodeFault{v, []*probe{pr}}.affected(), dev),
		Evidence: []diagnosis.Evidence{v.sysctlEvidence(name), v.routeEvidence(back, pr.caller.addr), v.addressEvidence(pr.dst.Addr(), dev)},
		Fixes: []Proposal{
			p.turn(v, "let "+dev+" take packets that it would answer by another interface", "net.ipv4.conf."+dottedName(dev)+".rp_filter", valueOf(v, dev), "2",
				"what comes in by "+dev+" of "+v.label()+": sources that are forged, but have a route, are no longer dropped there"),
		},
	})
}

func valueOf(v *nodeView, dev string) string {
	value, _ := v.host.Sysctl("net.ipv4.conf." + dottedName(dev) + ".rp_filter")
	return value
}
