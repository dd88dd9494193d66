package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/ipvs"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// ipvsTable is what steps through IPVS have for a table.
const ipvsTable = "ipvs"

// IPVSShape says whether rules are those that kube-proxy writes around IPVS: by
// the chains that only its IPVS mode has in table nat.
func IPVSShape(rules *netfilter.Ruleset) bool {
	return rules.HasChain("nat", "KUBE-NODE-PORT") || rules.HasChain("nat", "KUBE-LOAD-BALANCER")
}

// VirtualServersUnread is why a walk through rules of that shape can't go on
// where no virtual servers were read.
const VirtualServersUnread = "the virtual servers of IPVS were not read; ipvsadm -Ln prints them, and /proc/net/ip_vs holds them"

// readVirtualServers reads every text of virtual servers of the node, and tells
// the rules of them, or that they were not read.
func (v *nodeView) readVirtualServers() {
	var parts []*netfilter.VirtualServers
	for _, t := range v.state.All(snapshot.Ipvsadm, snapshot.ProcIPVS) {
		if t.Status != snapshot.Done {
			v.virtualLack = append(v.virtualLack, diagnosis.Missing{What: "virtual servers of " + v.label(), Why: t.Why, Supply: t.Supply})
			continue
		}
		parse := ipvs.Parse
		if strings.TrimSpace(t.Content) == "" {
			parse = ipvs.ParseSaved // read and empty: there is none
		}
		part, _, err := parse(t.Content, textName(t))
		if err != nil {
			v.virtualLack = append(v.virtualLack, diagnosis.Missing{What: "virtual servers of " + v.label(), Why: err.Error(), Supply: v.showVirtual()})
			continue
		}
		parts = append(parts, part)
	}
	v.virtual = ipvs.Merge(parts...)
	answered := strings.TrimSpace(v.state.Text(snapshot.ProxyMode).Content)
	switch {
	case v.virtual != nil:
		v.rules = v.rules.WithVirtualServers(v.virtual)
	case IPVSShape(v.rules) && (answered == "ipvs" || !slices.Contains(proxyModes, answered)):
		v.rules = v.rules.WithoutVirtualServers(VirtualServersUnread)
	}
}

// showVirtual is the command that reads the virtual servers and loads nothing.
func (v *nodeView) showVirtual() string {
	return v.onNodeCommand("cat /proc/net/ip_vs") + " > FILE   (then: --node-state FILE)"
}

// inIPVS says whether the node's Services are programmed in IPVS, and its
// virtual servers were read.
func (v *nodeView) inIPVS() bool { return v.virtual != nil && v.seen.mode() == "ipvs" }

// lackForIPVS says what is missing of a node in IPVS mode; nil where nothing is.
func (v *nodeView) lackForIPVS() *diagnosis.Missing {
	if v.virtual != nil {
		return nil
	}
	if len(v.virtualLack) > 0 {
		return &v.virtualLack[0]
	}
	return &diagnosis.Missing{
		What: "virtual servers of " + v.label(), Why: "kube-proxy runs in ipvs mode there, and " + VirtualServersUnread, Supply: v.showVirtual(),
	}
}

// ipvsForms are the codes whose faults have another code in IPVS mode: there is
// no rule for each Service, but a virtual server, and sets.
var ipvsForms = []diagnosis.Code{
	diagnosis.VIPNotProgrammed, diagnosis.StaleBackend, diagnosis.BackendMissing, diagnosis.RejectedAsEmpty, diagnosis.WrongBackendPort,
	diagnosis.UnevenOdds, diagnosis.NodePortNotProgrammed, diagnosis.ExternalIPNotProgrammed, diagnosis.AffinityNotProgrammed,
}

// leftToIPVS says whether the running check leaves the node to those of IPVS,
// which need the objects.
func (p *Pass) leftToIPVS(v *nodeView) bool {
	return v.inIPVS() && p.Service != nil && p.running != nil && slices.Contains(ipvsForms, p.running.Code)
}

// dummyAddresses are those that kube-ipvs0 has.
func (v *nodeView) onDummy(a netip.Addr) bool { return v.host.Interface(a) == ipvsDevice }

// servedAddresses are the node's own at which IPVS mode serves node ports.
func (v *nodeView) servedAddresses() []netip.Addr {
	var out []netip.Addr
	for _, a := range v.host.Addresses() {
		if !a.IsLoopback() && !(a.Is6() && a.IsLinkLocalUnicast()) && !v.onDummy(a) && v.servesNodePorts(a) {
			out = append(out, a)
		}
	}
	if !v.host.AddressesRead() {
		for _, v6 := range []bool{false, true} {
			if a, ok := v.address(v6); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

// virtualServesNodePorts says whether virtual servers for node ports are at an
// address, or at none at all, where the configuration was not read.
func (v *nodeView) virtualServesNodePorts(a netip.Addr) bool {
	any := false
	for _, s := range v.virtual.All() {
		at := s.Addr.Addr()
		if s.Mark != 0 || at.Is6() != a.Is6() || v.onDummy(at) || v.host.Interface(at) == "" {
			continue
		}
		if any = true; at == a {
			return true
		}
	}
	return !any
}

// ownSource is the source that the node gives its packets to a destination: an
// address of its own is reached from that address.
func (v *nodeView) ownSource(dst, other netip.Addr) netip.Addr {
	if v.inIPVS() && v.host.Local(dst) == netfilter.True {
		return dst
	}
	return other
}

// serverEvidence quotes a virtual server, or one of its real servers.
func (v *nodeView) serverEvidence(s *netfilter.VirtualServer, line int, text string) diagnosis.Evidence {
	return diagnosis.Evidence{Source: s.Source + " of " + v.label(), Ref: ipvsTable + " " + s.Name(), Line: line, Quote: text, Command: v.showServer(s.Name())}
}

// showServer is the command that prints one virtual server, by its name in a
// walk's steps. It is for a node that has IPVS loaded.
func (v *nodeView) showServer(name string) string {
	addr, proto, ok := strings.Cut(strings.TrimPrefix(name, netfilter.VirtualChain), "/")
	flag := map[string]string{"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}[proto]
	if !ok || flag == "" {
		return v.onNodeCommand("sudo ipvsadm -Ln")
	}
	return v.onNodeCommand("sudo ipvsadm -Ln " + flag + " " + shellQuote(addr))
}

// noServer is the evidence that there is no virtual server.
func (v *nodeView) noServer(w proxy.VirtualServer) diagnosis.Evidence {
	source := "ipvsadm -Ln"
	if all := v.virtual.All(); len(all) > 0 {
		source = all[0].Source
	} else if t := v.state.Text(snapshot.Ipvsadm); t.Status == snapshot.Done {
		source = textName(t)
	}
	name := serverName(w)
	return diagnosis.Evidence{
		Source: source + " of " + v.label(), Ref: ipvsTable, Quote: fmt.Sprintf("%s, none for %s", count(len(v.virtual.All()), "virtual server"), name),
		Command: v.showServer(name),
	}
}

// serverName is the name of the virtual server that ought to be there.
func serverName(w proxy.VirtualServer) string {
	return w.Addr.String() + "/" + strings.ToLower(string(w.Frontend.Protocol))
}
