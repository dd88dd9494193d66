package walk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// proxyReplaced: something else than kube-proxy programs the Services. It is no
// fault; it says why the node's rules are not looked at, and what to look at in
// their place.
var proxyReplaced = &Check{
	Code: diagnosis.ProxyReplaced, Applies: hasFrontends,
	Run: func(p *Pass) {
		p.probes()
		var groups []replacedNodes
		for _, v := range p.node.views {
			r := v.seen.replacedBy
			if r == nil {
				continue
			}
			i := slices.IndexFunc(groups, func(g replacedNodes) bool { return g.kind == r.kind })
			if i < 0 {
				groups = append(groups, replacedNodes{replacement: *r})
				i = len(groups) - 1
			}
			groups[i].views = append(groups[i].views, v)
		}
		if len(p.node.views) == 0 {
			if r := p.replacedByObjects(); r != nil {
				groups = append(groups, replacedNodes{replacement: *r})
			}
		}
		for _, g := range groups {
			p.Report(p.replacedFinding(g))
		}
	},
}

// replacedNodes are the examined nodes on which one implementation stands in
// for kube-proxy; none where only objects tell of it.
type replacedNodes struct {
	replacement
	views []*nodeView
}

// replacementKind is an implementation that may stand in for kube-proxy.
type replacementKind struct {
	name string
	// means says what programs the Services then.
	means string
	// show is the read-only command that shows its state; NODE and POD stand for
	// what is not known.
	show string
	// pods have one of these labels, "key=value".
	pods []string
	// processes, interfaces and chains are what it has on a node.
	processes, interfaces, chains []string
	// also: it is also found beside kube-proxy, so that only its configuration,
	// or that there is no kube-proxy, tells.
	also bool
}

// replacementKinds are those of the facts of kube-proxy's replacement, as they
// document themselves.
var replacementKinds = []*replacementKind{
	{
		name: "Cilium", also: true,
		means:     "Services are maps of its eBPF programs: at the sockets of clients, and where packets enter the node; no iptables rule, nft table or IPVS server speaks of them",
		show:      "kubectl exec -n kube-system POD -c cilium-agent -- cilium-dbg service list -o json",
		pods:      []string{"k8s-app=cilium"},
		processes: []string{"cilium-agent"}, interfaces: []string{"cilium_host"}, chains: []string{"CILIUM_"},
	},
	{
		name: "Calico's eBPF dataplane", also: true,
		means:      "Services are maps of its eBPF programs, at every interface of pods and of the node; Felix may clear kube-proxy's rules away",
		show:       "kubectl exec -n calico-system POD -c calico-node -- calico-node -bpf nat dump",
		pods:       []string{"k8s-app=calico-node"},
		interfaces: []string{"bpfin.cali", "bpfout.cali", "bpfnatin"},
	},
	{
		name: "kube-router", also: true,
		means: "Services are virtual servers of IPVS with their addresses on kube-dummy-if, and ipsets kube-router-*; kube-ipvs0 and kube-proxy's chains are not there",
		show:  "kubectl exec -n kube-system POD -- ipvsadm -Ln",
		pods:  []string{"k8s-app=kube-router"}, processes: []string{"kube-router"}, interfaces: []string{"kube-dummy-if"},
	},
	{
		name: "Antrea", also: true,
		means: "Services are flows of Open vSwitch (AntreaProxy); with proxyAll they are for the node and for clients outside too, and kube-proxy is not needed",
		show:  "kubectl exec -n kube-system POD -c antrea-agent -- antctl get ovsflows -S SERVICE -n NAMESPACE",
		pods:  []string{"app=antrea"}, processes: []string{"antrea-agent"}, chains: []string{"ANTREA-PREROUTING", "ANTREA-OUTPUT"},
	},
	{
		name:  "OVN-Kubernetes",
		means: "Services are load balancers of OVN's logical switches and routers; chains OVN-KUBE-* of the node lead node ports and outside addresses there",
		show:  "kubectl exec -n ovn-kubernetes POD -c nb-ovsdb -- ovn-nbctl lb-list",
		pods:  []string{"app=ovnkube-node", "name=ovnkube-node"}, processes: []string{"ovnkube", "ovnkube-node"}, interfaces: []string{"ovn-k8s-mp0"}, chains: []string{"OVN-KUBE-"},
	},
	{
		name: "Kube-OVN", also: true,
		means: "Services may be load balancers of OVN's logical switches (enable-lb), beside kube-proxy or in its place",
		show:  "kubectl ko nbctl lb-list",
		pods:  []string{"app=kube-ovn-cni"}, processes: []string{"kube-ovn-daemon"},
	},
	{
		name:  "kpng",
		means: "the retired kpng project programs Services by one of its backends, in rules of its own",
		show:  "kubectl logs -n kube-system POD",
		pods:  []string{"app=kpng"},
	},
}

// replacement is what shows that one of the kinds stands in for kube-proxy.
type replacement struct {
	kind     *replacementKind
	evidence []diagnosis.Evidence
	// pod is its agent on the node, "" where it isn't known.
	pod, namespace string
	// leftover: chains of kube-proxy's are on the node all the same.
	leftover []diagnosis.Evidence
}

// command is the read-only command that shows its state.
func (r *replacement) command(p *Pass) string {
	s := r.kind.show
	if r.pod != "" {
		s = strings.Replace(s, " POD", " "+shellQuote(r.pod), 1)
	}
	if f := strings.Fields(s); r.namespace != "" {
		if i := slices.Index(f, "-n"); i > 0 && i+1 < len(f) {
			s = strings.Replace(s, "-n "+f[i+1], "-n "+shellQuote(r.namespace), 1)
		}
	}
	if p != nil && p.Service != nil {
		s = strings.Replace(s, " SERVICE -n NAMESPACE", " "+shellQuote(p.Service.Name)+" -n "+shellQuote(p.Service.Namespace), 1)
	}
	return s
}

// replacementOn says what stands in for kube-proxy on a node; nil where
// kube-proxy runs there, or nothing shows that something does.
func (w *world) replacementOn(v *nodeView, s *proxySeen) *replacement {
	if s.answered != "" || podRuns(s.pod) || crashLoops(s.pod) != nil || slices.ContainsFunc(s.processes, func(pr proxyProcess) bool { return pr.name == "kube-proxy" }) {
		return nil
	}
	byConfig := w.replacedByConfig(v.name)
	switch {
	case byConfig != nil:
		byConfig.leftover = v.kubeProxyChains()
		return byConfig
	case s.byRules != "" || v.host.Link(ipvsDevice) == netfilter.True:
		return nil // kube-proxy's own state is there: whoever else runs may run beside it
	}
	for _, k := range replacementKinds {
		if e := v.signsOf(k); len(e) > 0 {
			r := &replacement{kind: k, evidence: e}
			w.agentOf(r, v.name)
			return r
		}
	}
	return w.replacedByPods(v.name)
}

// replacedByObjects says what the API's objects alone show.
func (w *world) replacedByObjects() *replacement {
	if slices.ContainsFunc(w.podsByNS[snapshot.ProxyNamespace], func(p *corev1.Pod) bool { return isProxyPod(p) && !finished(p) }) {
		return nil
	}
	if r := w.replacedByConfig(""); r != nil {
		return r
	}
	return w.replacedByPods("")
}

// replacedUnseen is replacedByObjects where no node's state was read.
func (p *Pass) replacedUnseen() *replacement {
	if len(p.snap.Nodes) > 0 {
		return nil
	}
	return p.replacedByObjects()
}

// signsOf is what shows a kind on the node itself.
func (v *nodeView) signsOf(k *replacementKind) []diagnosis.Evidence {
	var out []diagnosis.Evidence
	if t := v.state.Text(snapshot.ProxyProcess); t.Status == snapshot.Done {
		n := 0
		for line := range strings.Lines(t.Content) {
			n++
			if f := strings.Fields(line); len(f) >= 3 && slices.Contains(k.processes, f[2]) {
				out = append(out, diagnosis.Evidence{
					Source: textName(t) + " of " + v.label(), Line: n, Quote: strings.TrimSpace(line),
					Command: v.onNodeCommand("ps -e -o pid,stat,comm | grep " + f[2]),
				})
				break
			}
		}
	}
	for _, dev := range k.interfaces {
		if v.host.Link(dev) == netfilter.True {
			out = append(out, diagnosis.Evidence{
				Source: textName(v.state.Text(snapshot.IPAddr)) + " of " + v.label(), Quote: "interface " + dev,
				Command: v.onNodeCommand("ip link show " + dev),
			})
		}
	}
	for _, prefix := range k.chains {
		if c, ok := v.chainWith(prefix); ok && len(out) == 0 {
			out = append(out, diagnosis.Evidence{
				Source: c.Source + " of " + v.label(), Ref: c.Table + " " + c.Name, Line: c.Line,
				Quote: fmt.Sprintf(":%s (%d rules)", c.Name, c.NumRules), Command: showBase(v, c),
			})
		}
	}
	if len(out) == 0 && k.name == "Cilium" {
		for _, t := range v.state.All(snapshot.CiliumServices) {
			if t.Status == snapshot.Done {
				out = append(out, diagnosis.Evidence{
					Source: textName(t) + " of " + v.label(), Quote: count(len(v.ciliumFrontends()), "frontend"), Command: k.show,
				})
				break
			}
		}
	}
	return out
}

// chainWith finds a chain by how its name begins.
func (v *nodeView) chainWith(prefix string) (netfilter.Chain, bool) {
	for _, table := range []string{"nat", "filter", "mangle", "raw"} {
		for c := range v.rules.AllChains(table) {
			if strings.HasPrefix(c.Name, prefix) {
				return c, true
			}
		}
	}
	return netfilter.Chain{}, false
}

// replacedByConfig is what a plugin's own configuration says.
func (w *world) replacedByConfig(node string) *replacement {
	for i := range w.snap.Objects.ConfigMaps {
		cm := &w.snap.Objects.ConfigMaps[i]
		quote, name := "", ""
		switch cm.Name {
		case "cilium-config":
			if v := cm.Data["kube-proxy-replacement"]; v == "true" || v == "strict" {
				name, quote = "Cilium", "kube-proxy-replacement: "+v
			}
		case "antrea-config":
			var conf struct {
				AntreaProxy struct {
					Enable   *bool `json:"enable"`
					ProxyAll bool  `json:"proxyAll"`
				} `json:"antreaProxy"`
			}
			if yaml.Unmarshal([]byte(cm.Data["antrea-agent.conf"]), &conf) == nil && conf.AntreaProxy.ProxyAll && (conf.AntreaProxy.Enable == nil || *conf.AntreaProxy.Enable) {
				name, quote = "Antrea", "antreaProxy: {proxyAll: true}"
			}
		}
		if name == "" {
			continue
		}
		r := &replacement{kind: replacementNamed(name), evidence: []diagnosis.Evidence{{
			Source: "configmap/" + cm.Name, Ref: "ConfigMap/" + cm.Namespace, Quote: quote,
			Command: kubectl("get", "configmap", cm.Name, "-n", cm.Namespace, "-o", "yaml"),
		}}}
		w.agentOf(r, node)
		return r
	}
	return nil
}

// replacedByPods takes a plugin's agents for what stands in, where pods were
// read and none of them is kube-proxy's. Calico's agents say nothing of which of
// its dataplanes they drive.
func (w *world) replacedByPods(node string) *replacement {
	if !w.snap.Reads.Has(snapshot.Pods, snapshot.ProxyNamespace) || w.anyProxyPod() || w.disowned() {
		return nil
	}
	for _, k := range replacementKinds {
		if k.name == "Calico's eBPF dataplane" || k.name == "Kube-OVN" {
			continue
		}
		if pods := w.agents(k); len(pods) > 0 {
			r := &replacement{kind: k, evidence: []diagnosis.Evidence{{
				Source: "pods in " + pods[0].Namespace, Ref: "Pod/" + pods[0].Namespace,
				Quote:   fmt.Sprintf("%s of %s (%s), and no kube-proxy", count(len(pods), "pod"), k.name, pods[0].Name),
				Command: kubectl("get", "pods", "-n", pods[0].Namespace, "-o", "wide"),
			}}}
			w.agentOf(r, node)
			return r
		}
	}
	return nil
}

func (w *world) anyProxyPod() bool {
	return slices.ContainsFunc(w.podsByNS[snapshot.ProxyNamespace], func(p *corev1.Pod) bool { return isProxyPod(p) && !finished(p) })
}

// disowned says whether Cilium's configuration says that it leaves Services to
// kube-proxy.
func (w *world) disowned() bool {
	for i := range w.snap.Objects.ConfigMaps {
		cm := &w.snap.Objects.ConfigMaps[i]
		if v := cm.Data["kube-proxy-replacement"]; cm.Name == "cilium-config" && (v == "false" || v == "disabled" || v == "partial" || v == "probe") {
			return true
		}
	}
	return false
}

func replacementNamed(name string) *replacementKind {
	return replacementKinds[slices.IndexFunc(replacementKinds, func(k *replacementKind) bool { return k.name == name })]
}

// agents are the pods of a kind, sorted by namespace and name.
func (w *world) agents(k *replacementKind) []*corev1.Pod {
	var out []*corev1.Pod
	for ns := range w.podsByNS {
		for _, label := range k.pods {
			key, value, _ := strings.Cut(label, "=")
			for _, pod := range w.podsByLabel[labelKey{ns, key, value}] {
				if !finished(pod) && !slices.Contains(out, pod) && !strings.Contains(pod.Name, "operator") && !strings.Contains(pod.Name, "controller") {
					out = append(out, pod)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// agentOf finds the agent on the node, or any where no node is meant.
func (w *world) agentOf(r *replacement, node string) {
	for _, pod := range w.agents(r.kind) {
		if r.namespace == "" {
			r.namespace = pod.Namespace
		}
		if pod.Spec.NodeName == node && node != "" {
			r.pod, r.namespace = pod.Name, pod.Namespace
			return
		}
	}
}

// kubeProxyChains is what there is of kube-proxy's rules on the node.
func (v *nodeView) kubeProxyChains() []diagnosis.Evidence {
	if modeByRules(v) == "" {
		return nil
	}
	return v.modeChains()
}

func (p *Pass) replacedFinding(g replacedNodes) Finding {
	names, where := []string{}, "in this cluster"
	for _, v := range g.views {
		names = append(names, v.label())
	}
	if len(names) > 0 {
		where = "on " + join(names, 3)
	}
	f := Finding{
		Title:    fmt.Sprintf("%s stands in for kube-proxy %s", g.kind.name, where),
		Expected: "a kube-proxy, or what stands in for it",
		Found:    g.kind.means,
		Evidence: slices.Clone(g.evidence),
		Fixes: []Proposal{{
			Fix: diagnosis.Fix{
				Title:       "look at its own list of Services",
				Commands:    []string{g.command(p)},
				BlastRadius: "it only looks",
				Undo:        []string{"nothing to undo: it only looks"},
				Verify:      []string{p.again()},
			},
			NotSimulated: "it changes nothing",
		}},
	}
	f.Subject = p.ServiceSubject()
	if len(g.views) == 1 {
		f.Subject.Node = g.views[0].name
	}
	if len(g.leftover) > 0 {
		f.Evidence = append(f.Evidence, g.leftover...)
		f.Found += "; chains of kube-proxy's are there all the same, left over: they follow no change, and nothing was concluded from them"
	}
	if slices.ContainsFunc(g.views, func(v *nodeView) bool { return v.cilium != nil }) {
		f.Found += "; its list of Services was read, and compared with the endpoints"
	}
	return f
}
