package node

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// IsNode says which of the cluster's nodes a state was read on, if any: the
// one whose name (or kubernetes.io/hostname label, or Hostname address) is the
// state's hostname and one of whose InternalIPs is an address of the state's;
// or else the only one that has such an address. A name alone is not enough:
// any laptop may be called worker-1.
func IsNode(state *snapshot.NodeState, nodes []corev1.Node) (name string, ok bool) {
	own := Addresses(state.Text(snapshot.IPAddr).Content)
	host := strings.TrimSpace(state.Text(snapshot.Hostname).Content)
	var byAddress, byBoth []string
	for i := range nodes {
		if !hasAddress(&nodes[i], own) {
			continue
		}
		byAddress = append(byAddress, nodes[i].Name)
		if hasHostname(&nodes[i], host) {
			byBoth = append(byBoth, nodes[i].Name)
		}
	}
	switch {
	case len(byBoth) == 1:
		return byBoth[0], true
	case len(byAddress) == 1:
		return byAddress[0], true
	}
	return "", false
}

func hasAddress(n *corev1.Node, own map[netip.Addr]bool) bool {
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && own[ip.Unmap()] {
			return true
		}
	}
	return false
}

func hasHostname(n *corev1.Node, host string) bool {
	if host == "" {
		return false
	}
	if strings.EqualFold(n.Name, host) || strings.EqualFold(n.Labels[corev1.LabelHostname], host) {
		return true
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeHostName && strings.EqualFold(a.Address, host) {
			return true
		}
	}
	return false
}

// Addresses are the addresses in the output of `ip addr`, without those that
// every machine has (loopback, link-local).
func Addresses(ipAddr string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for line := range strings.Lines(ipAddr) {
		fields := strings.Fields(line)
		if len(fields) < 2 || (fields[0] != "inet" && fields[0] != "inet6") {
			continue
		}
		text, _, _ := strings.Cut(fields[1], "/")
		ip, err := netip.ParseAddr(text)
		if err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() {
			out[ip.Unmap()] = true
		}
	}
	return out
}
