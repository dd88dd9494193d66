package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ReplacementConfigMaps are the ConfigMaps in ProxyNamespace that say whether a
// network plugin stands in for kube-proxy: Cilium's and Antrea's.
var ReplacementConfigMaps = []string{"cilium-config", "antrea-config"}

// ciliumFields are the keys of cilium-config that get in: switches, modes and
// ranges of addresses.
var ciliumFields = []string{
	"bpf-lb-mode", "bpf-lb-sock", "bpf-lb-sock-hostns-only", "cluster-pool-ipv4-cidr", "cluster-pool-ipv6-cidr",
	"enable-bpf-masquerade", "enable-external-ips", "enable-host-port", "enable-ipv4", "enable-ipv6", "enable-node-port",
	"enable-policy", "enable-session-affinity", "ipam", "kube-proxy-replacement", "routing-mode", "service-no-backend-response", "tunnel", "tunnel-protocol",
}

// antreaAgent is the key under which Antrea's agent has its configuration, and
// antreaProxy the section of that which gets in.
const (
	antreaAgent = "antrea-agent.conf"
	antreaProxy = "antreaProxy"
)

// stripReplacement keeps what one of ReplacementConfigMaps says of Services.
func stripReplacement(in *corev1.ConfigMap) corev1.ConfigMap {
	out := corev1.ConfigMap{ObjectMeta: meta(&in.ObjectMeta)}
	keep := func(key, value string) {
		if out.Data == nil {
			out.Data = map[string]string{}
		}
		out.Data[key] = value
	}
	if in.Name == "antrea-config" {
		if text, ok := in.Data[antreaAgent]; ok {
			keep(antreaAgent, stripAntrea(text))
		}
		return out
	}
	for _, key := range ciliumFields {
		if v, ok := in.Data[key]; ok {
			keep(key, RedactText(v))
		}
	}
	return out
}

func stripAntrea(text string) string {
	var in map[string]any
	if text == notYAML || yaml.Unmarshal([]byte(text), &in) != nil {
		return notYAML
	}
	section, _ := in[antreaProxy].(map[string]any)
	kept := map[string]any{}
	for _, field := range []string{"enable", "proxyAll"} {
		if on, ok := section[field].(bool); ok {
			kept[field] = on
		}
	}
	b, err := yaml.Marshal(map[string]any{antreaProxy: kept})
	if err != nil {
		return notYAML
	}
	return string(b)
}
