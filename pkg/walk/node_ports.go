package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// servesNodePorts says whether kube-proxy on the node serves node ports at that
// address of the node's: by nodePortAddresses of its configuration, or, where
// that was not read, by what its rules are written for.
func (v *nodeView) servesNodePorts(a netip.Addr) bool {
	switch {
	case a.IsLoopback() && !v.mayServeLoopback(a):
		return false
	case v.seen.configured == "" && v.inIPVS():
		return v.virtualServesNodePorts(a)
	case v.seen.configured == "":
		return v.rulesServeNodePorts(a)
	}
	addresses := v.seen.nodePortAddresses
	if len(addresses) == 0 && v.seen.mode() == "nftables" {
		addresses = []string{"primary"} // since 1.31
	}
	limited := false
	for _, text := range addresses {
		switch text {
		case "all":
			return true
		case "primary":
			if limited = true; v.primary(a) {
				return true
			}
		case "localhost":
			if limited = true; a.IsLoopback() {
				return true
			}
		default:
			r, err := netip.ParsePrefix(text)
			if err != nil || r.Addr().Is6() != a.Is6() {
				continue // ranges of one family leave the other as it is
			}
			if limited = true; r.Contains(a) {
				return true
			}
		}
	}
	return !limited
}

// mayServeLoopback: iptables mode alone serves node ports at loopback
// addresses, IPv4's alone, and only as long as nobody turns that off
// (iptables.localhostNodePorts, since 1.26).
func (v *nodeView) mayServeLoopback(a netip.Addr) bool {
	return a.Is4() && v.seen.mode() != "nftables" && !v.inIPVS() && v.seen.localhostNodePorts != proxy.SettingOff
}

// primary says whether the address is the one that the node has in the API;
// one whose Node was not read may be.
func (v *nodeView) primary(a netip.Addr) bool {
	if v.object == nil {
		return true
	}
	return slices.ContainsFunc(v.object.Status.Addresses, func(n corev1.NodeAddress) bool {
		ip, ok := proxy.ParseAddr(n.Address)
		return ok && ip == a && n.Type == corev1.NodeInternalIP
	})
}

// rulesServeNodePorts says whether the rules that lead to the node ports are
// written for any local address, or name this one.
func (v *nodeView) rulesServeNodePorts(a netip.Addr) bool {
	rules := v.rules.OnlyFamily(familyOf(a.Is6()))
	names := v.proxyChains()
	services, ok := rules.Chain(names.table, names.services)
	if !ok {
		return true
	}
	limited := false
	for _, r := range v.toNodePorts(services) {
		switch {
		case strings.Contains(r.Text, "@nodeport-ips"):
			if limited = true; slices.Contains(v.setAddresses("nodeport-ips"), a) {
				return true
			}
		case strings.Contains(r.Text, " -d "+a.String()+"/") || strings.Contains(r.Text, " -d "+a.String()+" "):
			return true
		case a.IsLoopback() && (strings.Contains(r.Text, "! -d ") || strings.Contains(r.Text, "daddr != ")):
			limited = true
		case strings.Contains(r.Text, " -d ") && !strings.Contains(r.Text, "! -d "):
			limited = true
		default:
			return true
		}
	}
	return !limited
}

// setAddresses are the addresses in a set of kube-proxy's nftables mode, in both
// families. They are looked for once.
func (v *nodeView) setAddresses(name string) []netip.Addr {
	if found, ok := v.addrsOf[name]; ok {
		return found
	}
	var out []netip.Addr
	for _, t := range v.state.All(snapshot.NftRuleset) {
		if t.Status == snapshot.Done {
			out = append(out, nftables.Addresses(t.Content, kubeProxyTable, name)...)
		}
	}
	if v.addrsOf == nil {
		v.addrsOf = map[string][]netip.Addr{}
	}
	v.addrsOf[name] = out
	return out
}

// toNodePorts are the rules that lead from the Services' chain, which may be
// long, to the node ports. They are looked for once.
func (v *nodeView) toNodePorts(services netfilter.Chain) []netfilter.Rule {
	if found, ok := v.nodePortRules[services.Family]; ok {
		return found
	}
	var found []netfilter.Rule
	for r := range services.Rules() {
		if r.Jump == "KUBE-NODEPORTS" || strings.Contains(r.Text, "@service-nodeports") {
			found = append(found, r)
		}
	}
	if v.nodePortRules == nil {
		v.nodePortRules = map[netfilter.Family][]netfilter.Rule{}
	}
	v.nodePortRules[services.Family] = found
	return found
}

// noteNodePort tells that node ports are not served at an address that nobody
// asked about.
func (p *Pass) noteNodePort(v *nodeView, dst netip.AddrPort) {
	p.Note(diagnosis.LayerNode, diagnosis.Missing{
		What:   fmt.Sprintf("node port %d at %s", dst.Port(), dst.Addr()),
		Why:    "kube-proxy on " + v.label() + " serves node ports at other addresses alone (nodePortAddresses)",
		Supply: "vipwalk " + fmt.Sprintf(":%d", dst.Port()) + "   (at an address that it serves)",
	})
}
