package walk

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// ruleFrontend is a frontend as a node's rules name it, without any object.
type ruleFrontend struct {
	proxy.Frontend
	// namespace and name are what the writer of the rules noted beside them;
	// "" where nothing was. They are for naming alone.
	namespace, name string
	// hash is what the chains of one port of a Service have in common; "" where
	// the rules lead to none of kube-proxy's.
	hash string
	// sure: the kind is told by the rules, not taken for want of better.
	sure bool
	// first of the cluster IPs of its family, in the order of the report.
	first bool
}

// frontendKey is what tells frontends apart.
type frontendKey struct {
	kind     proxy.Kind // of node ports alone
	addr     netip.AddrPort
	v6       bool
	protocol corev1.Protocol
}

func (f *ruleFrontend) key() frontendKey {
	k := frontendKey{addr: netip.AddrPortFrom(f.IP, uint16(f.Port)), v6: f.V6, protocol: f.Protocol}
	if f.Kind == proxy.NodePort {
		k.kind = proxy.NodePort
	}
	return k
}

// frontendChains are the chains in which kube-proxy names its frontends, in
// every era, in the order in which they are believed: where nat says what kind
// of address it is, the filter table's word is not asked. From
// k8s.io/kubernetes pkg/proxy/iptables, and pkg/proxy/userspace up to 1.25.
var frontendChains = []struct {
	table, chain string
	kind         proxy.Kind // of an address, where nothing else tells
	sure         bool
}{
	{"nat", "KUBE-SERVICES", proxy.ClusterIP, false},
	{"nat", "KUBE-NODEPORTS", proxy.NodePort, true},
	{"filter", "KUBE-PROXY-FIREWALL", proxy.LoadBalancer, true},
	{"filter", "KUBE-SERVICES", proxy.ClusterIP, false},
	{"filter", "KUBE-EXTERNAL-SERVICES", proxy.ExternalIP, false},
	{"nat", "KUBE-PORTALS-CONTAINER", proxy.ClusterIP, false},
	{"nat", "KUBE-PORTALS-HOST", proxy.ClusterIP, false},
	{"nat", "KUBE-NODEPORT-CONTAINER", proxy.NodePort, true},
	{"nat", "KUBE-NODEPORT-HOST", proxy.NodePort, true},
}

// ruleFrontends are the frontends that the node's rules serve or turn away.
func (v *nodeView) ruleFrontends() *found {
	out := &found{byKey: map[frontendKey]int{}}
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		rules := v.rules.OnlyFamily(fam)
		for _, at := range frontendChains {
			for _, c := range rules.Chains(at.table, at.chain) {
				out.chains++
				for d := range c.Destinations() {
					out.iptables(d, fam, at.kind, at.sure)
				}
			}
		}
		out.nft(rules, fam)
	}
	return out
}

// found gathers frontends, each once.
type found struct {
	list  []ruleFrontend
	byKey map[frontendKey]int
	// chains counts those of kube-proxy's that name frontends: 0 is a node that
	// has no rule of it.
	chains int
	// portless are rules for an address that name no port: what a tool that is
	// older than the rules' writer leaves of them.
	portless []netfilter.Destination
	// nodeAddrs are addresses at which alone node ports are served.
	nodeAddrs []netip.Addr
}

// iptables takes what a rule of one of frontendChains names.
func (fs *found) iptables(d netfilter.Destination, fam netfilter.Family, kind proxy.Kind, sure bool) {
	if d.Port == 0 {
		switch {
		case !d.Addr.IsValid():
		case d.Leads == "KUBE-NODEPORTS":
			fs.nodeAddrs = append(fs.nodeAddrs, d.Addr)
		case d.Protocol != 0:
			fs.portless = append(fs.portless, d)
		}
		return
	}
	note := comment(d.Text)
	f, ok := frontendOf(d, fam)
	if !ok {
		return
	}
	f.namespace, f.name, f.PortName = serviceOf(note)
	f.hash = chainHash(d.Leads)
	switch {
	case f.Kind == proxy.NodePort:
	case sure:
		f.Kind, f.sure = kind, true
	default:
		f.Kind, f.sure = kindOf(d.Leads, note, kind)
	}
	fs.add(f)
}

// kindOf tells what kind of address it is by where the rule leads, and where
// that leaves it open, by what its writer noted.
func kindOf(leads, note string, otherwise proxy.Kind) (kind proxy.Kind, sure bool) {
	switch {
	case strings.HasPrefix(leads, "KUBE-FW-"), strings.HasSuffix(note, " loadbalancer IP"):
		return proxy.LoadBalancer, true
	case strings.HasSuffix(note, " external IP"):
		return proxy.ExternalIP, true
	case strings.HasPrefix(leads, "KUBE-EXT-"), strings.HasPrefix(leads, "KUBE-XLB-"):
		return proxy.ExternalIP, false
	}
	return otherwise, strings.HasSuffix(note, " cluster IP")
}

// frontendOf is a destination as a frontend: of an address, or of every one of
// the node's.
func frontendOf(d netfilter.Destination, fam netfilter.Family) (ruleFrontend, bool) {
	f := ruleFrontend{Frontend: proxy.Frontend{Port: int32(d.Port), V6: fam == netfilter.IPv6}}
	switch d.Protocol {
	case 6:
		f.Protocol = corev1.ProtocolTCP
	case 17:
		f.Protocol = corev1.ProtocolUDP
	case 132:
		f.Protocol = corev1.ProtocolSCTP
	default:
		return f, false
	}
	switch {
	case !d.Addr.IsValid(), d.Addr.IsLoopback():
		f.Kind, f.sure = proxy.NodePort, true // loopback is one of the node's own
	case d.Addr.Is6() != f.V6:
		return f, false
	default:
		f.IP = d.Addr
	}
	return f, true
}

// nft takes what the maps of kube-proxy's table name: whichever of its chains
// look a destination up, but for those of single Services. The maps are named
// alike since 1.29, the chains are not.
func (fs *found) nft(rules *netfilter.Ruleset, fam netfilter.Family) {
	clusterIPs := map[netip.Addr]bool{}
	firewalled := map[netip.Addr]bool{}
	for c := range rules.AllChains(kubeProxyTable) {
		if strings.Contains(c.Name, "/") {
			continue
		}
		for d := range c.Destinations() {
			switch {
			case d.Port == 0 && strings.Contains(d.Text, "@cluster-ips"):
				clusterIPs[d.Addr] = true
			case d.Port == 0 && strings.Contains(d.Text, "@nodeport-ips"):
				fs.nodeAddrs = append(fs.nodeAddrs, d.Addr)
			case d.Port != 0:
				if strings.Contains(d.Text, "@firewall-ips") {
					firewalled[d.Addr] = true
				}
				fs.element(d, fam)
			}
		}
	}
	if rules.HasTable(fam, kubeProxyTable) {
		fs.chains++
	}
	for i := range fs.list {
		f := &fs.list[i]
		switch {
		case f.V6 != (fam == netfilter.IPv6) || f.Kind == proxy.NodePort:
		case clusterIPs[f.IP]:
			f.Kind, f.sure = proxy.ClusterIP, true
		case firewalled[f.IP]:
			f.Kind, f.sure = proxy.LoadBalancer, true
		}
	}
}

// element takes one element of a map of kube-proxy's table. Where the element
// sends to a Service's chain, that is named after the Service.
func (fs *found) element(d netfilter.Destination, fam netfilter.Family) {
	// A set of one address is as good as the address in front of the map.
	if strings.Contains(d.Text, "nodeports") && d.Addr.IsValid() {
		fs.nodeAddrs = append(fs.nodeAddrs, d.Addr)
		d.Addr = netip.Addr{}
	}
	f, ok := frontendOf(d, fam)
	if !ok {
		return
	}
	if f.Kind != proxy.NodePort {
		f.Kind = proxy.ExternalIP
		if strings.HasPrefix(d.Leads, "service-") || strings.HasPrefix(d.Leads, "local-") {
			f.Kind, f.sure = proxy.ClusterIP, true
		}
	}
	f.hash, f.namespace, f.name, f.PortName = nftServiceOf(d.Leads)
	if f.name == "" {
		f.namespace, f.name, f.PortName = serviceOf(d.Comment)
	}
	fs.add(f)
}

// add keeps a frontend, or adds to what is known of it.
func (fs *found) add(f ruleFrontend) {
	key := f.key()
	i, ok := fs.byKey[key]
	if !ok {
		fs.byKey[key] = len(fs.list)
		fs.list = append(fs.list, f)
		return
	}
	have := &fs.list[i]
	if !have.sure && f.sure {
		have.Kind, have.sure = f.Kind, true
	}
	if have.name == "" {
		have.namespace, have.name, have.PortName = f.namespace, f.name, f.PortName
	}
	have.hash = cmp.Or(have.hash, f.hash)
}

// compareFrontends orders as a reader looks for them: named before unnamed, by
// name and port, by the kind of address, by address.
func compareFrontends(a, b *ruleFrontend) int {
	return cmp.Or(
		compareBool(a.name == "", b.name == ""),
		cmp.Compare(a.namespace, b.namespace),
		cmp.Compare(a.name, b.name),
		compareBool(a.Kind == proxy.NodePort, b.Kind == proxy.NodePort),
		cmp.Compare(slices.Index(kindOrder, a.Kind), slices.Index(kindOrder, b.Kind)),
		a.IP.Compare(b.IP),
		cmp.Compare(a.Port, b.Port),
		cmp.Compare(a.Protocol, b.Protocol),
		compareBool(a.V6, b.V6),
	)
}

var kindOrder = []proxy.Kind{proxy.ClusterIP, proxy.ExternalIP, proxy.LoadBalancer, proxy.NodePort}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
