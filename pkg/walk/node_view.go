package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/cilium"
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/conntrack"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/netfilter/ipset"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nodeView is one node's state as a packet walk needs it: rules parsed, own
// addresses and routes known as far as they were read.
type nodeView struct {
	state *snapshot.NodeState
	// name is the Node's, "" where neither the state nor its addresses tell.
	name string
	// object is the Node, nil where it was not read.
	object *corev1.Node
	host   *host.Host
	// rules of both families and backends; nil where no text could be read.
	rules *netfilter.Ruleset
	// nftSources are the texts that nft printed, by the name that evidence has
	// for them.
	nftSources map[string]bool
	// nftTables are the tables of nf_tables, in the order in which they were
	// made, as far as that is known.
	nftTables listedTables
	// nftLack says why tables of nft were not read.
	nftLack []diagnosis.Missing
	// rulesLack says why the rules are missing or not whole; by family.
	rulesLack map[netfilter.Family][]diagnosis.Missing
	seen      proxySeen
	// sameNodeHints: see world.sameNodeHints.
	sameNodeHints proxy.Setting
	// podAddrs are the addresses of the node's pods that have a network
	// namespace of their own, sorted; of all pods where the node has no name.
	podAddrs []netip.Addr
	// rivals: see backends.
	rivals rivals
	// own: see ownWay.
	own *netfilter.Ruleset
	// addrsOf are the addresses in sets of kube-proxy's; see setAddresses.
	addrsOf  map[string][]netip.Addr
	timeouts map[string]time.Duration // see setTimeouts
	// virtual are the node's virtual servers, nil where none were read;
	// virtualLack says why.
	virtual     *netfilter.VirtualServers
	virtualLack []diagnosis.Missing
	// sets are the contents of its ipsets, nil where none were read.
	sets *ipset.Sets
	// cilium is Cilium's list of Services, nil where it was not read or Cilium
	// does not stand in for kube-proxy; ciliumLack says why it is not used.
	cilium     *cilium.Services
	ciliumLack *diagnosis.Missing
	// flows are its tracked connections, nil where none were read.
	flows map[flowKey][]*conntrack.Flow
	// sockets are those of its pods that listen.
	sockets podSockets
	// nodePortRules: see toNodePorts.
	nodePortRules map[netfilter.Family][]netfilter.Rule
}

// label names the node in reports.
func (v *nodeView) label() string {
	if v.name != "" {
		return v.name
	}
	return "the node"
}

// views are the nodes whose state may be used, sorted by name.
func (w *world) nodeViews() []*nodeView {
	var out []*nodeView
	for i, st := range w.snap.Nodes {
		v := w.view(i, st)
		if len(w.opts.Nodes) == 0 || slices.Contains(w.opts.Nodes, v.name) {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b *nodeView) int { return strings.Compare(a.name, b.name) })
	return out
}

// view parses a node's state once for the whole walk.
func (w *world) view(i int, st *snapshot.NodeState) *nodeView {
	key := fmt.Sprint(i)
	if v := w.views[key]; v != nil {
		return v
	}
	v := &nodeView{state: st, name: st.Name, host: &host.Host{}, rulesLack: map[netfilter.Family][]diagnosis.Missing{}}
	for _, t := range st.All(snapshot.IPAddr) {
		v.host.ParseAddr(t.Content)
	}
	for _, t := range st.All(snapshot.IPRoute) {
		v.host.ParseRoute(t.Content)
	}
	for _, t := range st.All(snapshot.IPRule, snapshot.IP6Rule) {
		v.host.ParseRule(t.Content, t.Kind == snapshot.IP6Rule)
	}
	for _, t := range st.All(snapshot.Sysctl) {
		v.host.ParseSysctl(t.Content)
	}
	v.flows, v.sockets = readFlows(st), readSockets(st)
	v.object = w.nodeByName[v.name]
	if v.object == nil {
		w.nameByAddress(v)
	}
	v.host.Fallback = func(a netip.Addr) netfilter.Tri { return w.localByObjects(v, a) }
	v.podAddrs = w.podAddrsOn(v)
	if v.object != nil {
		v.sameNodeHints = w.sameNodeHints(v.object)
	}
	v.parseRules(w.texts)
	v.seen = w.proxySeen(v)
	v.readCilium()
	w.views[key] = v
	return v
}

func (w *world) podAddrsOn(v *nodeView) []netip.Addr {
	var out []netip.Addr
	for a, pods := range w.podsByIP {
		for _, pod := range pods {
			if !pod.Spec.HostNetwork && (v.name == "" || pod.Spec.NodeName == v.name) {
				out = append(out, a)
				break
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// nameByAddress finds which Node a state belongs to when its name does not
// say: a state read over SSH may carry a host name that is not the Node's.
func (w *world) nameByAddress(v *nodeView) {
	for _, a := range v.host.Addresses() {
		if n := w.nodeByAddress[a]; n != nil && !v.onDummy(a) {
			v.object, v.name = n, n.Name
			return
		}
	}
}

// localByObjects answers whether an address is the node's own from the API
// objects alone, when `ip addr` was not read. Addresses of pods with a network
// namespace of their own are not; nothing is said of what no object names.
func (w *world) localByObjects(v *nodeView, a netip.Addr) netfilter.Tri {
	if n := w.nodeByAddress[a]; n != nil && v.name != "" {
		return netfilter.Of(n.Name == v.name)
	}
	for _, pod := range w.podsByIP[a] {
		if !pod.Spec.HostNetwork {
			return netfilter.False
		}
	}
	return netfilter.Unknown
}

// parseRules reads every text of rules of the node into one ruleset: those of
// iptables, then those of nft, which come in this order where the kernel's own
// is not known.
func (v *nodeView) parseRules(texts *parsedTexts) {
	var parts []*netfilter.Ruleset
	nft := v.parseNft()
	kinds := map[netfilter.Family][]snapshot.TextKind{
		netfilter.IPv4: {snapshot.IptablesSave, snapshot.IptablesLegacySave},
		netfilter.IPv6: {snapshot.Ip6tablesSave, snapshot.Ip6tablesLegacySave},
	}
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		read := false
		for _, t := range v.state.All(kinds[fam]...) {
			if t.Status != snapshot.Done {
				if !nft.shows(t.Kind, fam) {
					v.lackRules(fam, t.Why, t.Supply)
				}
				continue
			}
			read = true
			if strings.TrimSpace(t.Content) == "" {
				// Read and empty: no table exists.
				parts = append(parts, netfilter.New([]netfilter.Contents{{Whole: true, Family: fam}}))
				continue
			}
			part, problems, err := texts.iptables(t.Content, iptables.Options{Source: textName(t), Family: fam, Backend: backendOf(t), Saved: true, Skim: skimmed(t)})
			if err != nil {
				v.lackRules(fam, fmt.Sprintf("%s: %v", textName(t), err), "")
				continue
			}
			if len(part.Partial()) > 0 {
				v.lackRules(fam, partialWhy(t, problems), "")
			}
			parts = append(parts, part)
			nft.withoutView(part, fam)
		}
		if !read && nft.covers(v, fam) {
			continue
		}
		if !read && len(v.rulesLack[fam]) == 0 {
			v.lackRules(fam, "not read", "")
		}
	}
	v.rules = nftables.Rank(netfilter.Merge(append(parts, nft.rules)...), v.nftTables.list)
	if v.sets = parseSets(v.state); v.sets != nil {
		v.rules = v.rules.WithSets(v.sets)
	}
	v.readVirtualServers()
}

// backendOf is the backend of a text that its kind tells and its header does
// not: older tools print no more than their version.
func backendOf(t snapshot.Text) netfilter.Backend {
	first, _, _ := strings.Cut(strings.TrimSpace(t.Content), "\n")
	if legacy := t.Kind == snapshot.IptablesLegacySave || t.Kind == snapshot.Ip6tablesLegacySave; legacy && !strings.Contains(first, "nf_tables") {
		return netfilter.Legacy
	}
	return netfilter.AnyBackend
}

// parseSets reads the contents of the node's sets; nil where none was read. A
// set that isn't understood answers nothing, as one that was not read.
func parseSets(st *snapshot.NodeState) *ipset.Sets {
	var parts []*ipset.Sets
	for _, t := range st.All(snapshot.IpsetSave) {
		if t.Status != snapshot.Done {
			continue
		}
		if s, _, err := ipset.Parse(t.Content, textName(t)); err == nil {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return ipset.Merge(parts...)
}

// skimmed is the text's index, where who read it made one.
func skimmed(t snapshot.Text) *iptables.Skim {
	s, _ := t.Skimmed.(*iptables.Skim)
	return s
}

func partialWhy(t snapshot.Text, problems []iptables.Problem) string {
	why := textName(t) + " is not whole"
	if len(problems) > 0 {
		last := problems[len(problems)-1]
		why += fmt.Sprintf(" (line %d: %s)", last.Line, last.Message)
	}
	return why
}

// textName is how evidence names a text.
func textName(t snapshot.Text) string {
	if t.Ref != "" {
		return t.Ref
	}
	return string(t.Kind)
}

func (v *nodeView) lackRules(fam netfilter.Family, why, supply string) {
	tool := "iptables-save"
	if fam == netfilter.IPv6 {
		tool = "ip6tables-save"
	}
	if supply == "" {
		supply = v.supply()
	}
	v.rulesLack[fam] = append(v.rulesLack[fam], diagnosis.Missing{
		What: tool + " of " + v.label(), Why: why, Supply: supply,
	})
}

// supply is the command that reads the node's state whole.
func (v *nodeView) supply() string {
	if v.name == "" {
		return "sudo vipwalk node-state > node.txt   (then: --node-state node.txt)"
	}
	file := shellQuote(v.name + ".txt")
	return fmt.Sprintf("ssh %s sudo vipwalk node-state > %s   (then: --node-state %s=%[2]s)", sshHost(v.name), file, shellQuote(v.name))
}

// proxyNode is the node as the expectation needs it.
func (v *nodeView) proxyNode() proxy.Node {
	n := proxy.Node{
		Name: v.name, Addresses: slices.DeleteFunc(v.host.Addresses(), v.onDummy), ZoneUnknown: v.object == nil, IPVS: v.inIPVS(),
		DetectLocal: v.seen.detectLocal, MasqueradeAll: v.seen.masqueradeAll,
	}
	if v.object == nil {
		return n
	}
	n.Zone, n.SameNodeHints = v.object.Labels[corev1.LabelTopologyZone], v.sameNodeHints
	for _, s := range podCIDRs(v.object) {
		if c, err := netip.ParsePrefix(s); err == nil {
			n.PodCIDRs = append(n.PodCIDRs, c)
		}
	}
	for _, a := range v.object.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && !slices.Contains(n.Addresses, ip.Unmap()) {
			n.Addresses = append(n.Addresses, ip.Unmap())
		}
	}
	return n
}

func podCIDRs(n *corev1.Node) []string {
	if len(n.Spec.PodCIDRs) > 0 {
		return n.Spec.PodCIDRs
	}
	if n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return nil
}
