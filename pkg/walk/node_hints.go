package walk

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// sameNodeGate makes kube-proxy heed hints that name nodes: off in 1.33, on
// since 1.34.
const sameNodeGate = "PreferSameTrafficDistribution"

// proxyNodeOf is a Node as what kube-proxy expects hangs on it, where no state
// of the node is at hand.
func (w *world) proxyNodeOf(n *corev1.Node) proxy.Node {
	return proxy.Node{
		Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], SameNodeHints: w.sameNodeHints(n),
		DetectLocal: w.configured().detectLocal, MasqueradeAll: w.configured().masqueradeAll,
	}
}

// configured is what kube-proxy's ConfigMap says, read once.
func (w *world) configured() *proxySeen {
	if w.proxyConf == nil {
		w.proxyConf = &proxySeen{}
		w.readProxyConfig(w.proxyConf)
	}
	return w.proxyConf
}

// sameNodeHints says whether the kube-proxy of a node heeds hints for nodes: by
// its feature gate, or else by its version, or the kubelet's beside it.
func (w *world) sameNodeHints(n *corev1.Node) proxy.Setting {
	if on, set := w.configured().gates[sameNodeGate]; set && on {
		return proxy.SettingOn
	} else if set {
		return proxy.SettingOff
	}
	version := n.Status.NodeInfo.KubeletVersion
	for _, pod := range w.podsByNS[snapshot.ProxyNamespace] {
		if !isProxyPod(pod) || pod.Spec.NodeName != n.Name {
			continue
		}
		for i := range pod.Spec.Containers {
			if _, tag, ok := strings.Cut(pod.Spec.Containers[i].Image, "kube-proxy:"); ok {
				version = tag
			}
		}
	}
	switch minor, ok := minorVersion(version); {
	case !ok:
		return proxy.SettingUnknown
	case minor < 34:
		return proxy.SettingOff
	}
	return proxy.SettingOn
}

// minorVersion is the 34 of v1.34.2.
func minorVersion(version string) (int, bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), "1.")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	n, err := strconv.Atoi(rest)
	return n, ok && err == nil
}
