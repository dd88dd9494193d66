package walk

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// proxySeen is what is known of the service proxy of one node, and from what.
type proxySeen struct {
	// configured is the mode in kube-proxy's ConfigMap; an empty mode there
	// means iptables on Linux. "" where there is no such ConfigMap.
	configured string
	configRef  string
	// detectLocal and masqueradeAll are what it says of masquerading.
	detectLocal, masqueradeAll proxy.Setting
	// localCIDRs are the sources that it takes for pods, where it tells them by
	// the cluster's CIDR.
	localCIDRs []netip.Prefix
	// nodePortAddresses are the addresses at which it serves node ports, as they
	// are written there; empty is the mode's default.
	nodePortAddresses []string
	// localhostNodePorts is its setting of that name, of iptables mode.
	localhostNodePorts proxy.Setting
	// ofIPVS are its settings of IPVS mode.
	ofIPVS proxyIPVSConfig
	// gates are its feature gates, as far as they are set.
	gates map[string]bool
	// answered is what the running kube-proxy's /proxyMode says.
	answered string
	// byRules is the mode whose chains the node has: iptables, ipvs, nftables,
	// or "".
	byRules string
	// processes are the lines of the process list that name kube-proxy or what
	// contains it; processesRead says whether there was a list.
	processes     []proxyProcess
	processesRead bool
	// replacedBy is what stands in for kube-proxy; nil where nothing does, as
	// far as is known. replacement is its name.
	replacedBy  *replacement
	replacement string
	// pod is kube-proxy's pod on the node; podsElsewhere counts those of other
	// nodes.
	pod           *corev1.Pod
	podsElsewhere int
	podsRead      bool
}

type proxyProcess struct {
	pid, state, name, text string
	line                   int
}

// mode is the best knowledge of how the node's Services are programmed.
func (s proxySeen) mode() string {
	switch {
	// The rules of another mode are what that left behind.
	case s.answered != "":
		return s.answered
	case s.byRules != "":
		return s.byRules
	}
	return s.configured
}

func (w *world) proxySeen(v *nodeView) proxySeen {
	s := proxySeen{byRules: modeByRules(v)}
	w.readProxyConfig(&s)
	if t := v.state.Text(snapshot.ProxyMode); t.Status == snapshot.Done {
		// Anything else is an answer of something else, or an error.
		if mode := strings.TrimSpace(t.Content); slices.Contains(proxyModes, mode) {
			s.answered = mode
		}
	}
	if s.answered == "" && s.configured != s.byRules && v.showsMode(s.configured) {
		s.byRules = s.configured // the other's are what that left behind
	}
	s.readProcesses(v)
	w.proxyPods(v, &s)
	if s.replacedBy = w.replacementOn(v, &s); s.replacedBy != nil {
		s.replacement = s.replacedBy.kind.name
	}
	return s
}

// readProxyConfig reads kube-proxy's ConfigMap.
func (w *world) readProxyConfig(s *proxySeen) {
	for i := range w.snap.Objects.ConfigMaps {
		cm := &w.snap.Objects.ConfigMaps[i]
		for _, key := range []string{"config.conf", "config"} {
			text, ok := cm.Data[key]
			if !ok {
				continue
			}
			var conf proxyConfig
			if yaml.Unmarshal([]byte(text), &conf) != nil || conf.Kind != "KubeProxyConfiguration" {
				continue
			}
			s.configured, s.configRef = cmp.Or(conf.Mode, "iptables"), "configmap/"+cm.Name
			s.detectLocal, s.masqueradeAll = conf.settings()
			s.localCIDRs, s.nodePortAddresses = conf.localCIDRs(), conf.NodePortAddresses
			s.gates, s.ofIPVS = conf.FeatureGates, conf.IPVS
			if on := conf.IPTables.LocalhostNodePorts; on != nil && !*on {
				s.localhostNodePorts = proxy.SettingOff
			}
			return
		}
	}
}

// proxyConfig is the part of KubeProxyConfiguration (v1alpha1) that bears on
// the walk.
type proxyConfig struct {
	Kind            string `json:"kind"`
	Mode            string `json:"mode"`
	ClusterCIDR     string `json:"clusterCIDR"`
	DetectLocalMode string `json:"detectLocalMode"`

	NodePortAddresses []string        `json:"nodePortAddresses"`
	FeatureGates      map[string]bool `json:"featureGates"`

	IPTables proxyModeConfig `json:"iptables"`
	NFTables proxyModeConfig `json:"nftables"`
	IPVS     proxyIPVSConfig `json:"ipvs"`
}

type proxyIPVSConfig struct {
	Scheduler    string   `json:"scheduler"`
	StrictARP    bool     `json:"strictARP"`
	ExcludeCIDRs []string `json:"excludeCIDRs"`
}

type proxyModeConfig struct {
	MasqueradeAll      bool  `json:"masqueradeAll"`
	LocalhostNodePorts *bool `json:"localhostNodePorts"`
}

// localCIDRs are the ranges whose sources count as pods.
func (c proxyConfig) localCIDRs() []netip.Prefix {
	if c.DetectLocalMode != "" && c.DetectLocalMode != "ClusterCIDR" {
		return nil
	}
	var out []netip.Prefix
	for text := range strings.SplitSeq(c.ClusterCIDR, ",") {
		if r, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// settings: the default way of telling pods from others needs the cluster's
// CIDR, the others do not.
func (c proxyConfig) settings() (detectLocal, masqueradeAll proxy.Setting) {
	detectLocal, masqueradeAll = proxy.SettingOn, proxy.SettingOff
	if (c.DetectLocalMode == "" || c.DetectLocalMode == "ClusterCIDR") && c.ClusterCIDR == "" {
		detectLocal = proxy.SettingOff
	}
	if c.Mode == "nftables" && c.NFTables.MasqueradeAll || c.Mode != "nftables" && c.IPTables.MasqueradeAll {
		masqueradeAll = proxy.SettingOn
	}
	return detectLocal, masqueradeAll
}

// modeByRules tells iptables mode from IPVS mode by the chains that only one of
// them has: KUBE-NODEPORTS or KUBE-NODE-PORT (k8s.io/kubernetes pkg/proxy), and
// nftables mode by its table. What an earlier mode left behind may be there
// too; it is nftables mode then, unless kube-proxy itself says otherwise.
func modeByRules(v *nodeView) string {
	nft := v.rules.HasTable(netfilter.IPv4, kubeProxyTable) || v.rules.HasTable(netfilter.IPv6, kubeProxyTable)
	if answered := strings.TrimSpace(v.state.Text(snapshot.ProxyMode).Content); nft && (answered == "" || answered == "nftables") {
		return "nftables"
	}
	switch {
	case IPVSShape(v.rules):
		return "ipvs"
	case v.rules.HasChain("nat", "KUBE-SERVICES"):
		return "iptables"
	case v.virtual != nil && len(v.virtual.All()) > 0:
		return "ipvs"
	}
	return ""
}

// proxyModes are kube-proxy's on Linux; userspace was removed in 1.26.
var proxyModes = []string{"iptables", "ipvs", "nftables", "userspace"}

// containers of kube-proxy: these run it inside their own process.
var proxyProcessNames = []string{"kube-proxy", "k3s", "k3s-server", "k3s-agent", "rke2", "kubelite", "hyperkube"}

func (s *proxySeen) readProcesses(v *nodeView) {
	t := v.state.Text(snapshot.ProxyProcess)
	if t.Status != snapshot.Done {
		return
	}
	s.processesRead = true
	n := 0
	for line := range strings.Lines(t.Content) {
		n++
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		p := proxyProcess{pid: f[0], state: f[1], name: f[2], text: strings.TrimSpace(line), line: n}
		for _, name := range proxyProcessNames {
			if p.name == name || strings.HasPrefix(p.name, name+"-") {
				s.processes = append(s.processes, p)
				break
			}
		}
	}
}

// isProxyPod recognises kube-proxy's pods by the labels that kubeadm and its
// kin (k8s-app), and static pods of GKE, RKE2 and AKS (component) give them.
func isProxyPod(pod *corev1.Pod) bool {
	return pod.Labels["k8s-app"] == "kube-proxy" || pod.Labels["component"] == "kube-proxy"
}

func (w *world) proxyPods(v *nodeView, s *proxySeen) {
	s.podsRead = w.snap.Reads.Has(snapshot.Pods, snapshot.ProxyNamespace)
	for _, pod := range w.podsByNS[snapshot.ProxyNamespace] {
		if !isProxyPod(pod) || finished(pod) {
			continue
		}
		if v.name != "" && pod.Spec.NodeName == v.name {
			// While one is replaced there are two.
			if s.pod == nil || podRuns(pod) {
				s.pod = pod
			}
		} else {
			s.podsElsewhere++
		}
	}
}

// lackForMode says why rules of this node cannot be compared, where its
// Services are programmed in a form that is not read. nil where they can.
func (v *nodeView) lackForMode() *diagnosis.Missing {
	if v.cilium != nil {
		return nil
	}
	if m := v.lackForReplacement(); m != nil {
		return m
	}
	s := v.seen
	switch m := s.mode(); {
	case m == "nftables" && s.byRules != m && v.state.Text(snapshot.NftRuleset).Status != snapshot.Done:
		missing := diagnosis.Missing{
			What: "nft tables of " + v.label(), Why: "kube-proxy runs in nftables mode there, and the output of nft is not in the input",
			Supply: v.onNodeCommand("sudo nft -j list ruleset") + " > FILE   (then: --node-state FILE)",
		}
		if len(v.nftLack) > 0 {
			missing = v.nftLack[0]
		}
		return &missing
	case m == "ipvs":
		return v.lackForIPVS()
	}
	return nil
}
