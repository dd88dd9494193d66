package walk

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// vipIsLocalAddress: an address of the Service is on an interface that it does
// not belong on, or, in IPVS mode, an address of a node's is on kube-ipvs0,
// which has every address of a Service: the node then takes packets to that
// node for its own.
//
// A load balancer's address on an interface is left alone: kube-vip and
// keepalived put it there, and servicelb gives the nodes' own.
var vipIsLocalAddress = &Check{
	Code: diagnosis.VIPIsLocalAddress, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			if !v.host.AddressesRead() {
				continue
			}
			p.reportBoundVIP(v)
			p.reportNodeOnDummy(v)
		}
	},
}

// reportBoundVIP reports a cluster IP on a real interface.
func (p *Pass) reportBoundVIP(v *nodeView) {
	var done []netip.Addr
	for _, f := range p.Frontends() {
		if f.Kind != proxy.ClusterIP || slices.Contains(done, f.IP) {
			continue
		}
		done = append(done, f.IP)
		for _, dev := range v.host.Interfaces(f.IP) {
			if onPurpose(dev) {
				continue
			}
			own := fmt.Sprintf("%s dev %s", netip.PrefixFrom(f.IP, f.IP.BitLen()), dev)
			p.Report(Finding{
				Subject:  p.onNode(v),
				Title:    fmt.Sprintf("the cluster IP %s is on interface %s of %s", f.IP, dev, v.label()),
				Expected: "no interface with it but " + ipvsDevice + ", in IPVS mode",
				Found:    "it is on " + dev + ": " + v.label() + " answers for it on that network, and what no rule takes, another port or a ping, reaches the node itself",
				Evidence: []diagnosis.Evidence{v.addressEvidence(f.IP, dev), p.serviceField(".spec.clusterIP", p.Service.Spec.ClusterIP)},
				Fixes: []Proposal{{
					Fix: diagnosis.Fix{
						Title:       "take the address off " + dev + ", once it is known who put it there",
						Commands:    []string{v.onNodeCommand("ip addr show dev " + shellQuote(dev)), v.onNodeCommand("sudo ip addr del " + own)},
						BlastRadius: "whatever listens on " + f.IP.String() + " on " + v.label(),
						Undo:        []string{v.onNodeCommand("sudo ip addr add " + own)},
						Verify:      []string{p.again()},
					},
					NotSimulated: changesNode,
				}},
			})
		}
	}
}

// reportNodeOnDummy reports addresses of nodes on kube-ipvs0: those that are the
// Service's own outside addresses, and those of the nodes of its backends.
func (p *Pass) reportNodeOnDummy(v *nodeView) {
	var seen []netip.Addr
	report := func(a netip.Addr, ofService bool) {
		n := p.nodeByAddress[a]
		if n == nil || slices.Contains(seen, a) || !slices.Contains(v.host.Interfaces(a), ipvsDevice) {
			return
		}
		seen = append(seen, a)
		f := Finding{
			Subject:  p.onNode(v),
			Expected: "on " + ipvsDevice + " the addresses of Services alone, and none that is a node's",
			Evidence: []diagnosis.Evidence{v.addressEvidence(a, ipvsDevice), {
				Source: "node/" + n.Name + " .status.addresses", Ref: "node/" + n.Name, Quote: a.String(),
				Command: kubectl("get", "node", n.Name, "-o", "jsonpath={.status.addresses}"),
			}},
		}
		if n.Name == v.name {
			f.Title = fmt.Sprintf("%s has its own address %s on %s too", v.label(), a, ipvsDevice)
			f.Found = "it is a Service's address: once that Service goes, kube-proxy takes the address off, and with it what hangs on it"
		} else {
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("%s has the address %s of %s on %s, and takes all packets to it for its own", v.label(), a, n.Name, ipvsDevice)
			f.Found = "whatever " + v.label() + " sends to " + n.Name + " stays at home: its kubelet, its tunnel, its pods on the node's network"
		}
		f.Fixes = p.freeNodeAddress(v, a, ofService)
		p.Report(f)
	}
	for _, f := range p.Frontends() {
		if f.IP.IsValid() && f.Kind != proxy.ClusterIP {
			report(f.IP, true)
		}
	}
	for _, s := range p.sentBy(v) {
		if n := p.nodeByName[s.backend.Node]; n != nil && n.Name != v.name {
			for _, at := range n.Status.Addresses {
				if a, err := netip.ParseAddr(at.Address); err == nil {
					report(a.Unmap(), false)
				}
			}
		}
	}
}

func (p *Pass) freeNodeAddress(v *nodeView, a netip.Addr, ofService bool) []Proposal {
	if ofService {
		svc := p.Service
		return []Proposal{p.look("give the Service an outside address that is no node's; in IPVS mode a node's own is reached by a node port",
			kubectl("get", "service", svc.Name, "-n", svc.Namespace, "-o", "jsonpath={.spec.externalIPs}{.status.loadBalancer}"))}
	}
	own := fmt.Sprintf("%s dev %s", netip.PrefixFrom(a, a.BitLen()), ipvsDevice)
	return []Proposal{p.look("find the Service that has the address", kubectl("get", "services", "-A", "-o", "wide")+" | grep -F "+shellQuote(a.String())), {
		Fix: diagnosis.Fix{
			Title:       "take the address off " + ipvsDevice + ", if no Service has it",
			Commands:    []string{v.onNodeCommand("sudo ip addr del " + own)},
			BlastRadius: "packets of " + v.label() + " to " + a.String() + "; kube-proxy puts it back if a Service has it",
			Undo:        []string{v.onNodeCommand("sudo ip addr add " + own)},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}}
}

// addressEvidence quotes an address on an interface.
func (v *nodeView) addressEvidence(a netip.Addr, dev string) diagnosis.Evidence {
	line, quote := findLine(v.state.Text(snapshot.IPAddr).Content, a.String()+"/")
	if line == 0 {
		quote = a.String() + " on " + dev
	}
	return v.lineEvidence(snapshot.IPAddr, line, quote, "ip addr show dev "+dev)
}
