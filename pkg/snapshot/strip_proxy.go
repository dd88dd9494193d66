package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ProxyNamespace is where kubeadm, kind, kubespray, minikube and EKS put
// kube-proxy and its ConfigMap.
const ProxyNamespace = "kube-system"

// ProxyConfigMaps are the ConfigMaps in ProxyNamespace that may hold
// kube-proxy's configuration: kubeadm's and its kin's, then EKS's (which also
// has a "kube-proxy" that holds a kubeconfig alone), then VMware's.
var ProxyConfigMaps = []string{"kube-proxy", "kube-proxy-config", "kube-proxy-worker"}

// proxyConfigKeys are the keys under which the configuration stands; the
// others in these ConfigMaps are kubeconfigs.
var proxyConfigKeys = []string{"config.conf", "config"}

// proxyFields are the fields of KubeProxyConfiguration v1alpha1 that get in.
// nil stands for a scalar or a list of scalars.
var proxyFields = map[string][]string{
	"apiVersion": nil, "kind": nil,
	"bindAddress": nil, "bindAddressHardFail": nil, "clusterCIDR": nil, "configSyncPeriod": nil,
	"detectLocalMode": nil, "healthzBindAddress": nil, "hostnameOverride": nil, "metricsBindAddress": nil,
	"mode": nil, "nodePortAddresses": nil, "portRange": nil,
	"detectLocal": {"bridgeInterface", "interfaceNamePrefix"},
	"iptables":    {"localhostNodePorts", "masqueradeAll", "masqueradeBit", "minSyncPeriod", "syncPeriod"},
	"ipvs": {"excludeCIDRs", "minSyncPeriod", "scheduler", "strictARP", "syncPeriod",
		"tcpFinTimeout", "tcpTimeout", "udpTimeout", "masqueradeBit", "masqueradeAll"},
	"nftables": {"masqueradeAll", "masqueradeBit", "minSyncPeriod", "syncPeriod"},
	"conntrack": {"maxPerCore", "min", "tcpBeLiberal", "tcpCloseWaitTimeout", "tcpEstablishedTimeout",
		"udpStreamTimeout", "udpTimeout"},
}

// StripConfigMap keeps kube-proxy's configuration, parsed and written anew
// with the fields that a walk reads, and what says whether a network plugin
// stands in for it; false for any other ConfigMap. A configuration that is not
// YAML is replaced by a line that says so.
func StripConfigMap(in *corev1.ConfigMap) (corev1.ConfigMap, bool) {
	if in.Namespace == ProxyNamespace && contains(ReplacementConfigMaps, in.Name) {
		return stripReplacement(in), true
	}
	if in.Namespace != ProxyNamespace || !contains(ProxyConfigMaps, in.Name) {
		return corev1.ConfigMap{}, false
	}
	out := corev1.ConfigMap{ObjectMeta: meta(&in.ObjectMeta)}
	for _, k := range proxyConfigKeys {
		if text, ok := in.Data[k]; ok {
			if out.Data == nil {
				out.Data = map[string]string{}
			}
			out.Data[k] = stripProxyConfig(text)
		}
	}
	return out, true
}

const notYAML = "# not kept: this was not valid YAML\n"

func stripProxyConfig(text string) string {
	var in map[string]any
	if text == notYAML || yaml.Unmarshal([]byte(text), &in) != nil {
		return notYAML
	}
	out := map[string]any{}
	for field, subfields := range proxyFields {
		v, ok := in[field]
		if !ok {
			continue
		}
		if subfields == nil {
			keepPlain(out, field, v)
			continue
		}
		section, _ := v.(map[string]any)
		kept := map[string]any{}
		for _, sub := range subfields {
			if sv, ok := section[sub]; ok {
				keepPlain(kept, sub, sv)
			}
		}
		if len(kept) > 0 {
			out[field] = kept
		}
	}
	if gates := featureGates(in["featureGates"]); len(gates) > 0 {
		out["featureGates"] = gates
	}
	b, err := yaml.Marshal(out)
	if err != nil {
		return notYAML
	}
	return string(b)
}

// keepPlain keeps a scalar, or a list of scalars; anything deeper than the
// list of fields knows is left out.
func keepPlain(out map[string]any, field string, v any) {
	if list, ok := v.([]any); ok {
		for _, item := range list {
			if !scalar(item) {
				return
			}
		}
		out[field] = list
		return
	}
	if scalar(v) {
		out[field] = v
	}
}

func scalar(v any) bool {
	switch v.(type) {
	case nil, string, bool, float64, int64:
		return true
	}
	return false
}

func featureGates(v any) map[string]any {
	in, _ := v.(map[string]any)
	out := map[string]any{}
	for k, on := range in {
		if b, ok := on.(bool); ok {
			out[k] = b
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
