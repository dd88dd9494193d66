package proxy

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"
)

// ChainNames are the chains that kube-proxy in iptables mode has for one port
// of a Service. The names are the same for IPv4 and IPv6, and have been since
// Kubernetes 1.1; which of the chains exist hangs on the version and on the
// Service. They can be told from the Service alone, where rules have no
// comments, or to say of which Service a chain is that is left over.
type ChainNames struct {
	// Service balances over all endpoints (KUBE-SVC-), Local over those of the
	// node (KUBE-SVL-, from 1.24 on).
	Service, Local string
	// External takes traffic from outside (KUBE-EXT-, from 1.24 on; KUBE-XLB-
	// up to 1.23, for externalTrafficPolicy Local).
	External, LoadBalancerLocal string
	// Firewall is for loadBalancerSourceRanges; up to 1.23 for every load
	// balancer IP (KUBE-FW-).
	Firewall string
}

// PortName is how kube-proxy names a port of a Service: ns/name:port, without
// the colon where the port has no name.
func PortName(namespace, name, port string) string {
	if port == "" {
		return namespace + "/" + name
	}
	return namespace + "/" + name + ":" + port
}

// OldPortName is how kube-proxy named it up to about 1.19, in comments and in
// what it hashed: with the colon, whether the port has a name or not.
func OldPortName(namespace, name, port string) string { return namespace + "/" + name + ":" + port }

// ServiceChains names the chains of a Service's port, given by PortName, or
// OldPortName, and its protocol (TCP, UDP, SCTP).
// From k8s.io/kubernetes pkg/proxy/iptables: portProtoHash.
func ServiceChains(portName, protocol string) ChainNames {
	h := chainHash(portName + strings.ToLower(protocol))
	return ChainNames{
		Service: "KUBE-SVC-" + h, Local: "KUBE-SVL-" + h, External: "KUBE-EXT-" + h,
		LoadBalancerLocal: "KUBE-XLB-" + h, Firewall: "KUBE-FW-" + h,
	}
}

// EndpointChain names the chain of one endpoint of a Service's port.
// From k8s.io/kubernetes pkg/proxy/iptables: servicePortEndpointChainName.
func EndpointChain(portName, protocol string, endpoint netip.AddrPort) string {
	return "KUBE-SEP-" + chainHash(portName+strings.ToLower(protocol)+endpoint.String())
}

// Has says whether a chain is one of these.
func (c ChainNames) Has(chain string) bool {
	switch chain {
	case c.Service, c.Local, c.External, c.LoadBalancerLocal, c.Firewall:
		return true
	}
	return false
}

// IsServiceChain says whether a chain bears a name that kube-proxy gives to
// one port of a Service or to one endpoint.
func IsServiceChain(chain string) bool {
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-FW-", "KUBE-SEP-"} {
		if h, ok := strings.CutPrefix(chain, prefix); ok {
			_, err := base32.StdEncoding.DecodeString(h)
			return len(h) == hashLen && err == nil
		}
	}
	return false
}

// hashLen is the length of the hash in a chain's name. The kernel takes names
// of up to 28 characters.
const hashLen = 16

func chainHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base32.StdEncoding.EncodeToString(sum[:])[:hashLen]
}
