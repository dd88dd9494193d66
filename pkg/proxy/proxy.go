// Package proxy says what kube-proxy ought to do for a Service on a node, from
// the API objects alone: the frontends it serves, and for each the endpoints it
// may send a given client to. The walk compares this with what the node's rules
// do. It follows k8s.io/kubernetes pkg/proxy (1.20 to 1.37): CategorizeEndpoints
// for readiness, terminating fallback, traffic policies and topology.
package proxy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Kind is where a frontend's address comes from.
type Kind string

const (
	ClusterIP    Kind = "clusterIP"
	NodePort     Kind = "nodePort"
	ExternalIP   Kind = "externalIP"
	LoadBalancer Kind = "loadBalancer"
)

// Frontend is one address and port at which kube-proxy serves a Service.
type Frontend struct {
	Kind Kind
	// IP is the invalid Addr for a NodePort: any of the node's addresses.
	IP   netip.Addr
	Port int32
	// ServicePort is spec.ports[].port; Port differs from it for a NodePort only.
	ServicePort int32
	Protocol    corev1.Protocol // never empty
	PortName    string
	TargetPort  intstr.IntOrString
	// V6 is the family; a NodePort has one Frontend for each family of the Service.
	V6 bool
}

// Node is the node whose kube-proxy is asked about.
type Node struct {
	Name string
	// Zone is the label topology.kubernetes.io/zone, "" where there is none.
	Zone string
	// ZoneUnknown: the Node object was not read; Zone says nothing then.
	ZoneUnknown bool
	// SameNodeHints says whether kube-proxy heeds hints that name nodes (feature
	// gate PreferSameTrafficDistribution: alpha in 1.33, on since 1.34). Not known
	// counts as on.
	SameNodeHints Setting
	Addresses     []netip.Addr
	// PodCIDRs of the node; empty where not known.
	PodCIDRs []netip.Prefix
	// DetectLocal says whether kube-proxy can tell pods from others
	// (detectLocalMode, and the clusterCIDR that its default mode needs).
	DetectLocal Setting
	// MasqueradeAll is kube-proxy's setting of that name.
	MasqueradeAll Setting
	// IPVS: kube-proxy is in IPVS mode there, where a Local policy without a local
	// endpoint does not drop, and every client of an address is served alike.
	IPVS bool
}

// Setting is one of kube-proxy's switches, as far as it is known.
type Setting string

const (
	SettingUnknown Setting = ""
	SettingOn      Setting = "on"
	SettingOff     Setting = "off"
)

// ClientKind is what kube-proxy can tell of who is calling.
type ClientKind string

const (
	// PodClient: a pod of this cluster, by its own address.
	PodClient ClientKind = "pod"
	// NodeClient: a process on this node, in its network namespace.
	NodeClient ClientKind = "node"
	// ExternalClient: anything else, arriving at this node.
	ExternalClient ClientKind = "external"
)

// Action is what kube-proxy does with the packet.
type Action string

const (
	// Forward: sends it to one of Backends.
	Forward Action = "forward"
	// Reject: answers with an error, because there is no usable endpoint anywhere.
	Reject Action = "reject"
	// Drop: drops it, because a Local traffic policy leaves this node none.
	Drop Action = "drop"
	// Ignore: kube-proxy programs nothing for it, on purpose; Why says why.
	Ignore Action = "ignore"
)

// Backend is one endpoint on one port.
type Backend struct {
	Addr netip.AddrPort
	// Local: its nodeName is this node's name.
	Local bool
	// Node is the endpoint's nodeName, "" where the slice has none.
	Node string
	// TargetRef is kind/namespace/name of what is behind it ("pod/shop/web-1"),
	// "" where the slice does not say.
	TargetRef string
	// Slice is the EndpointSlice's name.
	Slice       string
	Ready       bool
	Serving     bool
	Terminating bool
}

// Expectation is what ought to happen to a packet of one client kind to one
// frontend on one node.
type Expectation struct {
	Frontend Frontend
	Action   Action
	// Backends are the ones that may be drawn, sorted by address; for Forward only.
	Backends []Backend
	// Masquerade says whether the source must be rewritten for replies to come
	// back: MasqYes, MasqNo, or MasqMaybe where it hangs on kube-proxy's
	// configuration (cluster CIDR, masqueradeAll). Hairpin is apart: a backend
	// that draws itself always needs it.
	Masquerade Masquerade
	// Why explains anything but a plain Forward to every ready endpoint, in
	// words for a report: "no ready endpoint", "internalTrafficPolicy Local and
	// none on worker-2", "topology hints for zone a".
	Why string
	// Topology is what hints did to Backends.
	Topology Topology
	// Unsure says what was not known though the expectation hangs on it, in
	// words for a report; empty where it is certain.
	Unsure string
}

// Topology says what the hints that endpoints carry did to the list of them.
type Topology struct {
	// Node and Zone say for what it was narrowed; one of them, or neither where
	// every ready endpoint may be drawn.
	Node, Zone string
	// Ready is how many endpoints are ready, near or far.
	Ready int
}

// Narrowed says whether hints left endpoints out.
func (t Topology) Narrowed(chosen int) bool { return t.Node+t.Zone != "" && chosen < t.Ready }

// Masquerade is whether kube-proxy rewrites the source.
type Masquerade string

const (
	MasqYes   Masquerade = "yes"
	MasqNo    Masquerade = "no"
	MasqMaybe Masquerade = "maybe"
)
