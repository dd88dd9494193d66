package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// serviceRangeOverlaps: a cluster IP lies in a network that the node is attached
// to, or in a node's range of pods. The rules take every packet to it, so a
// machine or pod that has the address is not reached; in nftables mode none of
// the range is, as far as no Service has the address.
var serviceRangeOverlaps = &Check{
	Code: diagnosis.ServiceRangeOverlaps, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		done := map[netip.Addr]bool{}
		for _, f := range p.Frontends() {
			if f.Kind != proxy.ClusterIP || done[f.IP] {
				continue
			}
			done[f.IP] = true
			for _, v := range p.node.views {
				if r, ok := p.attachedTo(v, f.IP); ok {
					p.reportOverlap(v, f.IP, fmt.Sprintf("the network %s, to which %s is attached by %s", r.Prefix, v.label(), r.Dev), v.routeEvidence(r, f.IP))
				}
			}
			p.reportOverlapWithPods(f.IP)
		}
	},
}

// onPurpose are devices to which networks lead the range of Services, or on
// which a cache of DNS has an address of its own.
func onPurpose(dev string) bool {
	return dev == ipvsDevice || dev == dnsCacheDevice || dev == "kube-dummy-if" ||
		slices.ContainsFunc([]string{"br-ex", "ovn", "antrea", "cilium", "br-int"}, func(p string) bool { return strings.HasPrefix(dev, p) })
}

// dnsCacheDevice is the dummy device of NodeLocal DNSCache, which has the
// cluster IP of kube-dns on purpose.
const dnsCacheDevice = "nodelocaldns"

// attachedTo finds a network of the node's own interfaces that has the address.
func (p *Pass) attachedTo(v *nodeView, a netip.Addr) (host.Route, bool) {
	r, ok := v.host.Lookup(a)
	if !ok || r.Type != "unicast" || r.Via.IsValid() || r.Dev == "" || r.Prefix.Bits() == 0 || r.Prefix.Bits() == a.BitLen() || onPurpose(r.Dev) {
		return r, false
	}
	for i := range p.snap.Objects.ServiceCIDRs {
		if slices.Contains(p.snap.Objects.ServiceCIDRs[i].Spec.CIDRs, r.Prefix.String()) {
			return r, false // a route that someone made for the very range
		}
	}
	return r, true
}

func (p *Pass) reportOverlapWithPods(a netip.Addr) {
	for i := range p.snap.Objects.Nodes {
		n := &p.snap.Objects.Nodes[i]
		if !inPodCIDR(n, a) {
			continue
		}
		p.reportOverlap(nil, a, "the range of the pods of "+n.Name, diagnosis.Evidence{
			Source: "node/" + n.Name + " .spec.podCIDRs", Ref: "node/" + n.Name, Quote: strings.Join(podCIDRs(n), ", "),
			Command: kubectl("get", "node", n.Name, "-o", "jsonpath={.spec.podCIDRs}"),
		})
		return
	}
}

func (p *Pass) reportOverlap(v *nodeView, a netip.Addr, in string, e diagnosis.Evidence) {
	f := Finding{
		Title:    fmt.Sprintf("the cluster IP %s lies in %s", a, in),
		Expected: "a range of Services that overlaps no network of the nodes, the pods or their neighbours",
		Found:    a.String() + " is in " + in + ": whoever has that address there is not reached from the nodes, and may be taken for the Service",
		Evidence: []diagnosis.Evidence{e, p.serviceField(".spec.clusterIPs", strings.Join(p.Service.Spec.ClusterIPs, ", "))},
		Fixes: []Proposal{p.look("see which ranges the cluster has, before anything is moved; a range of Services that is free is added as a ServiceCIDR, and Services are made anew in it",
			kubectl("get", "servicecidrs"), kubectl("get", "nodes", "-o", "custom-columns=NAME:.metadata.name,PODS:.spec.podCIDRs"))},
	}
	if v != nil {
		f.Subject = p.onNode(v)
	}
	p.Report(f)
}
