package walk

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// TakeInventory lists what there is that Services hang on: versions, nodes and
// their proxies, ranges, the network, and each virtual IP with how it walks. It
// says what of this was not read. Options choose the Services.
func TakeInventory(s *snapshot.Snapshot, o Options) *diagnosis.Inventory {
	w := newWorld(s, o)
	inv := &inventory{world: w, out: &diagnosis.Inventory{
		APIVersion: diagnosis.APIVersion, Kind: "Inventory", Tool: diagnosis.Tool{Version: o.Version}, TakenAt: s.TakenAt, Inputs: inputs(s),
		ServiceCIDRs: []diagnosis.Fact{}, PodCIDRs: []diagnosis.Fact{}, Networks: []diagnosis.Fact{}, LoadBalancer: []diagnosis.Fact{},
		Nodes: []diagnosis.InventoryNode{}, VIPs: []diagnosis.InventoryVIP{}, Missing: []diagnosis.Missing{},
	}}
	inv.nodes()
	inv.versions()
	inv.configured()
	inv.ranges()
	inv.network()
	inv.loadBalancers()
	inv.vips()
	return inv.out
}

type inventory struct {
	*world
	out *diagnosis.Inventory
}

// lacks records that a resource was not read; what is what it would have told.
func (inv *inventory) lacks(r snapshot.Resource, namespace, what string) bool {
	rd := inv.snap.Reads.Of(r, namespace)
	if rd.Status == snapshot.Done {
		return false
	}
	flag := ""
	switch {
	case namespace != "":
		flag = " -n " + shellQuote(namespace)
	case r.Namespaced():
		flag = " -A"
	}
	m := missingResource(rd, flag)
	m.What = what
	inv.missing(m)
	return true
}

func (inv *inventory) missing(m diagnosis.Missing) {
	if !slices.Contains(inv.out.Missing, m) {
		inv.out.Missing = append(inv.out.Missing, m)
	}
}

// nodes lists the Nodes, and states of nodes that no Node was read for.
func (inv *inventory) nodes() {
	inv.lacks(snapshot.Nodes, "", "nodes, their addresses and kubelets")
	views := map[string]*nodeView{}
	for _, v := range inv.nodeViews() {
		views[v.name] = v
	}
	names := make([]string, 0, len(inv.nodeByName)+len(views))
	for name := range inv.nodeByName {
		names = append(names, name)
	}
	for name := range views {
		if inv.nodeByName[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	unread := 0
	for _, name := range names {
		n := inv.node(name, views[name])
		if !n.StateRead {
			unread++
		}
		inv.out.Nodes = append(inv.out.Nodes, n)
	}
	if unread > 0 {
		inv.missing(diagnosis.Missing{
			What: fmt.Sprintf("the proxy mode seen on %s", count(unread, "node")), Why: "their state was not read",
			Supply: "ssh NODE sudo vipwalk node-state > NODE.txt   (then: --node-state NODE=NODE.txt)",
		})
	}
}

func (inv *inventory) node(name string, v *nodeView) diagnosis.InventoryNode {
	out := diagnosis.InventoryNode{Name: cmp.Or(name, "(not named)"), Addresses: []string{}, PodCIDRs: []string{}, StateRead: v != nil}
	if n := inv.nodeByName[name]; n != nil {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				out.Ready = string(c.Status)
			}
		}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				out.Addresses = append(out.Addresses, a.Address)
			}
		}
		out.PodCIDRs = append(out.PodCIDRs, podCIDRs(n)...)
		out.Kubelet, out.Kernel = n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.KernelVersion
	}
	if v == nil {
		v = &nodeView{name: name}
		inv.proxyPods(v, &v.seen)
		if v.seen.pod == nil {
			v.seen.replacedBy = inv.replacedByObjects()
		}
	} else {
		out.ModeSeen = cmp.Or(v.seen.answered, v.seen.byRules)
	}
	out.Proxy = proxyText(v.seen)
	return out
}

// proxyText names what programs the Services of a node; "" where it isn't known.
func proxyText(s proxySeen) string {
	switch {
	case s.replacedBy != nil:
		return s.replacedBy.kind.name
	case s.pod != nil:
		for _, c := range s.pod.Spec.Containers {
			if tag := imageTag(c.Image); tag != "" {
				return "kube-proxy " + tag
			}
		}
		return "kube-proxy"
	case s.container() != "":
		return "kube-proxy in " + s.container()
	case len(s.processes) > 0 || s.answered != "":
		return "kube-proxy"
	}
	return ""
}

func (inv *inventory) versions() {
	kubelets, proxies, servers := map[string]int{}, map[string]int{}, map[string]int{}
	for _, n := range inv.out.Nodes {
		if n.Kubelet != "" {
			kubelets[n.Kubelet]++
		}
		if tag, ok := strings.CutPrefix(n.Proxy, "kube-proxy "); ok && parseRelease(tag) >= 0 {
			proxies[tag]++
		}
	}
	for _, pod := range inv.podsByNS[snapshot.ProxyNamespace] {
		if pod.Labels["component"] != "kube-apiserver" || finished(pod) {
			continue
		}
		for _, c := range pod.Spec.Containers {
			if tag := imageTag(c.Image); parseRelease(tag) >= 0 {
				servers[tag]++
			}
		}
	}
	inv.out.Versions = diagnosis.Versions{APIServer: versionCounts(servers), Kubelet: versionCounts(kubelets), Proxy: versionCounts(proxies)}
	if len(servers) == 0 {
		inv.missing(diagnosis.Missing{What: "the API server's version", Why: "no pod of kube-apiserver was read: it runs elsewhere, or pods of kube-system were not read", Supply: "kubectl version"})
	}
}

// versionCounts sorts releases, the newest first.
func versionCounts(counts map[string]int) []diagnosis.VersionCount {
	out := []diagnosis.VersionCount{}
	for v, n := range counts {
		out = append(out, diagnosis.VersionCount{Version: v, Count: n})
	}
	slices.SortFunc(out, func(a, b diagnosis.VersionCount) int {
		return cmp.Or(cmp.Compare(parseRelease(b.Version), parseRelease(a.Version)), cmp.Compare(a.Version, b.Version))
	})
	return out
}

// configured reads kube-proxy's configuration.
func (inv *inventory) configured() {
	var s proxySeen
	inv.readProxyConfig(&s)
	switch {
	case s.configured != "":
		inv.out.ProxyMode = diagnosis.Fact{Value: s.configured, Source: s.configRef + " in " + snapshot.ProxyNamespace}
	case inv.snap.Reads.Object(snapshot.ConfigMaps, snapshot.ProxyNamespace, snapshot.ProxyConfigMaps[0]).Status != snapshot.Done:
		inv.missing(diagnosis.Missing{
			What: "kube-proxy's configuration", Why: "its ConfigMap was not read",
			Supply: kubectl("get", "configmap", "kube-proxy", "-n", snapshot.ProxyNamespace, "-o", "yaml") + " > kube-proxy.yaml   (then: --objects kube-proxy.yaml)",
		})
	default:
		inv.missing(diagnosis.Missing{
			What: "kube-proxy's configuration", Why: "there is no such ConfigMap: it is configured by flags, or there is no kube-proxy",
			Supply: "curl -s http://127.0.0.1:10249/configz   (on a node)",
		})
	}
	if s.configured != "" && len(s.localCIDRs) > 0 {
		for _, c := range s.localCIDRs {
			inv.out.PodCIDRs = append(inv.out.PodCIDRs, diagnosis.Fact{Value: c.String(), Source: "clusterCIDR of " + s.configRef})
		}
	}
}

func (inv *inventory) ranges() {
	if !inv.lacks(snapshot.ServiceCIDRs, "", "the ranges of cluster IPs") {
		for i := range inv.snap.Objects.ServiceCIDRs {
			c := &inv.snap.Objects.ServiceCIDRs[i]
			for _, r := range c.Spec.CIDRs {
				inv.out.ServiceCIDRs = append(inv.out.ServiceCIDRs, diagnosis.Fact{Value: r, Source: "servicecidr/" + c.Name})
			}
		}
		if len(inv.out.ServiceCIDRs) == 0 {
			inv.missing(diagnosis.Missing{
				What: "the ranges of cluster IPs", Why: "the cluster has no ServiceCIDR objects, as those before 1.33 have none",
				Supply: "kubectl get pods -n kube-system -l component=kube-apiserver -o yaml | grep service-cluster-ip-range",
			})
		}
	}
	for i := range inv.snap.Objects.ConfigMaps {
		cm := &inv.snap.Objects.ConfigMaps[i]
		for _, key := range []string{"cluster-pool-ipv4-cidr", "cluster-pool-ipv6-cidr"} {
			for _, r := range strings.Fields(strings.ReplaceAll(cm.Data[key], ",", " ")) {
				inv.out.PodCIDRs = append(inv.out.PodCIDRs, diagnosis.Fact{Value: r, Source: key + " of configmap/" + cm.Name})
			}
		}
	}
	if len(inv.out.PodCIDRs) > 0 {
		return
	}
	for _, n := range inv.out.Nodes {
		for _, r := range n.PodCIDRs {
			if c, err := netip.ParsePrefix(r); err == nil {
				inv.out.PodCIDRs = append(inv.out.PodCIDRs, diagnosis.Fact{Value: c.String(), Source: "node/" + n.Name})
			}
		}
	}
}

// enforces says which plugins enforce NetworkPolicies by themselves.
var enforces = map[string]bool{
	"Calico": true, "Canal": true, "Cilium": true, "Weave Net": true, "Antrea": true, "kube-router": true, "OVN-Kubernetes": true, "Kube-OVN": true,
}

func (inv *inventory) network() {
	inv.out.PodsRead = !inv.lacks(snapshot.Pods, "", "the network's agents, and what gives addresses to load balancers, outside of what was read")
	for i, pods := range inv.networkAgents() {
		if len(pods) == 0 {
			continue
		}
		name := cniAgents[i].name
		ready := 0
		for _, pod := range pods {
			if podReady(pod) {
				ready++
			}
		}
		f := diagnosis.Fact{Value: name, Source: fmt.Sprintf("%d of %s ready in %s", ready, count(len(pods), "pod"), pods[0].Namespace)}
		inv.out.Networks = append(inv.out.Networks, f)
		if enforces[name] && inv.out.PolicyEngine.Value == "" {
			inv.out.PolicyEngine = f
		}
	}
	if inv.out.PolicyEngine.Value == "" && inv.out.PodsRead {
		why := "no agent of a plugin that is known to enforce NetworkPolicies runs as a pod"
		inv.missing(diagnosis.Missing{What: "what enforces NetworkPolicies", Why: why, Supply: "kubectl get pods -A -o wide"})
	}
}

func (inv *inventory) loadBalancers() {
	for _, im := range implementations {
		found, ready, ns := 0, 0, ""
		for i := range inv.snap.Objects.Pods {
			pod := &inv.snap.Objects.Pods[i]
			if finished(pod) || !strings.Contains(pod.Name, im.part) && !(im.part == "metallb" && strings.HasPrefix(pod.Namespace, "metallb")) {
				continue
			}
			found++
			ns = cmp.Or(ns, pod.Namespace)
			if podReady(pod) {
				ready++
			}
		}
		if found > 0 {
			inv.out.LoadBalancer = append(inv.out.LoadBalancer, diagnosis.Fact{Value: im.name, Source: fmt.Sprintf("%d of %s ready in %s", ready, count(found, "pod"), ns)})
		}
	}
}

// vips walks each Service that has a virtual IP.
func (inv *inventory) vips() {
	inv.lacks(snapshot.Services, inv.onlyNamespace(), "Services that are not listed")
	for _, q := range inv.resolve() {
		if q.service == nil || !HasVIP(q.service) {
			continue
		}
		p := inv.pass(q)
		p.run()
		s := p.report()
		v := diagnosis.InventoryVIP{
			Namespace: s.Namespace, Name: s.Name, Type: s.Type, Frontends: s.Frontends, Verdict: s.Verdict,
			Layers: []diagnosis.InventoryTier{}, Diagnoses: []diagnosis.Code{},
		}
		for _, l := range s.Layers {
			v.Layers = append(v.Layers, diagnosis.InventoryTier{Layer: l.Layer, Status: l.Status})
		}
		for _, d := range s.Diagnoses {
			if len(d.CausedBy) == 0 && !d.Ignored && !slices.Contains(v.Diagnoses, d.Code) {
				v.Diagnoses = append(v.Diagnoses, d.Code)
			}
		}
		inv.out.VIPs = append(inv.out.VIPs, v)
	}
}

// onlyNamespace is the one namespace that was asked for, "" for all.
func (inv *inventory) onlyNamespace() string {
	if len(inv.opts.Namespaces) == 1 {
		return inv.opts.Namespaces[0]
	}
	return ""
}
