package diagnosis

import (
	"fmt"
	"strings"
)

// Code identifies a diagnosis for ever; a retired code is never used again.
type Code string

// Entry declares one diagnosis. The catalogue page, `vipwalk explain` and the
// tests that every code has a page, an incident and a healthy twin all go by
// this table.
type Entry struct {
	Code     Code
	Name     string   // UpperCamelCase, as fixed in the catalogue
	Severity Severity // the usual one; a finding may be milder or graver
	Title    string   // one line for lists, lower case, no stop
}

// Layer is the layer that a code belongs to, by its first digit; 0 for none.
func (c Code) Layer() Layer {
	if len(c) == 6 && c[3] >= '1' && c[3] <= '4' {
		return Layer(c[3] - '0')
	}
	return 0
}

// Docs is the path of the code's page in the repository.
func (c Code) Docs() string { return fmt.Sprintf("docs/codes/%s.md", string(c)) }

const (
	ServiceNotFound         Code = "VIP101"
	SelectorMatchesNoPod    Code = "VIP102"
	WorkloadScaledToZero    Code = "VIP103"
	NoSelectorNoEndpoints   Code = "VIP106"
	TargetPortNameUnknown   Code = "VIP107"
	HeadlessHasNoVIP        Code = "VIP110"
	ExternalNameHasNoVIP    Code = "VIP111"
	ClusterIPMissing        Code = "VIP112"
	LoadBalancerPending     Code = "VIP116"
	NoLocalEndpointExternal Code = "VIP119"
	NoLocalEndpointInternal Code = "VIP120"
	PortNotExposed          Code = "VIP122"

	NoEndpointSlice       Code = "VIP201"
	NoReadyEndpoint       Code = "VIP202"
	SomeEndpointsNotReady Code = "VIP203"
	StaleEndpoint         Code = "VIP204"
	ReadyPodMissing       Code = "VIP205"
	SlicePortMismatch     Code = "VIP206"
	TopologyNarrowed      Code = "VIP211"

	VIPNotProgrammed      Code = "VIP301"
	StaleBackend          Code = "VIP302"
	BackendMissing        Code = "VIP303"
	RejectedAsEmpty       Code = "VIP304"
	WrongBackendPort      Code = "VIP305"
	UnevenOdds            Code = "VIP306"
	HookMissing           Code = "VIP307"
	CapturedByForeignRule Code = "VIP308"
	MasqueradeMissing     Code = "VIP309"
	DroppedAfterDNAT      Code = "VIP310"
	FirewallChainDrops    Code = "VIP311"
	TwoIptablesBackends   Code = "VIP312"
	LeftoverProxyMode     Code = "VIP313"
	VirtualServerMissing  Code = "VIP314"
	VIPNotOnDummy         Code = "VIP315"
	KernelModuleMissing   Code = "VIP316"
	VIPIsLocalAddress     Code = "VIP317"
	IPVSUnsupported       Code = "VIP318"
	ForwardingOff         Code = "VIP321"
	BridgeNfCallOff       Code = "VIP322"
	ConntrackNearlyFull   Code = "VIP323"
	ConntrackStale        Code = "VIP324"
	SysctlSuspicious      Code = "VIP325"
	NoRouteToBackend      Code = "VIP326"
	CNIAgentNotReady      Code = "VIP327"
	NothingListens        Code = "VIP328"
	ListensOnLoopbackOnly Code = "VIP329"
	ProxyNotRunning       Code = "VIP330"
	ProxyCrashing         Code = "VIP331"
	ProxyUnhealthy        Code = "VIP332"
	ProxySyncStale        Code = "VIP333"
	ProxyLogErrors        Code = "VIP334"
	ProxyModeDiffers      Code = "VIP335"
	ProxyReplaced         Code = "VIP336"
	NodesDisagree         Code = "VIP337"

	NodePortNotProgrammed   Code = "VIP340"
	ExternalIPNotProgrammed Code = "VIP341"
	AffinityNotProgrammed   Code = "VIP342"
	NoRouteToVIP            Code = "VIP343"
	ServiceRangeOverlaps    Code = "VIP344"

	IngressBlocked         Code = "VIP401"
	EgressBlocked          Code = "VIP402"
	PolicyNamesServicePort Code = "VIP404"
	PeerNearlyMatches      Code = "VIP406"
	SomeBackendsBlocked    Code = "VIP410"
)

// Catalogue lists every code that this release can raise, in order.
var Catalogue = []Entry{
	{ServiceNotFound, "ServiceNotFound", Error, "no such Service, or no Service owns the address"},
	{SelectorMatchesNoPod, "SelectorMatchesNoPod", Error, "the selector matches no pod in the namespace"},
	{WorkloadScaledToZero, "WorkloadScaledToZero", Error, "the workload behind the Service runs no pod"},
	{NoSelectorNoEndpoints, "NoSelectorNoEndpoints", Error, "no selector, and nobody made endpoints by hand"},
	{TargetPortNameUnknown, "TargetPortNameUnknown", Error, "targetPort is a name that the selected pods do not declare"},
	{HeadlessHasNoVIP, "HeadlessHasNoVIP", Info, "a headless Service has no virtual IP"},
	{ExternalNameHasNoVIP, "ExternalNameHasNoVIP", Info, "an ExternalName Service has no virtual IP"},
	{ClusterIPMissing, "ClusterIPMissing", Error, "a Service that needs a virtual IP has none"},
	{LoadBalancerPending, "LoadBalancerPending", Error, "the load balancer has no address yet"},
	{NoLocalEndpointExternal, "NoLocalEndpointExternal", Warning, "externalTrafficPolicy Local, and nodes without a ready endpoint"},
	{NoLocalEndpointInternal, "NoLocalEndpointInternal", Error, "internalTrafficPolicy Local, and no ready endpoint on the client's node"},
	{PortNotExposed, "PortNotExposed", Error, "the port asked about is none of the Service's"},

	{NoEndpointSlice, "NoEndpointSlice", Error, "ready pods are selected, but there is no EndpointSlice"},
	{NoReadyEndpoint, "NoReadyEndpoint", Error, "endpoints exist, and none is ready"},
	{SomeEndpointsNotReady, "SomeEndpointsNotReady", Warning, "some endpoints are not ready"},
	{StaleEndpoint, "StaleEndpoint", Error, "an EndpointSlice names an address that no living pod has"},
	{ReadyPodMissing, "ReadyPodMissing", Error, "a ready selected pod is in no EndpointSlice"},
	{SlicePortMismatch, "SlicePortMismatch", Error, "the EndpointSlice's port is not what targetPort resolves to"},
	{TopologyNarrowed, "TopologyNarrowed", Warning, "topology hints send many nodes to few endpoints, or are not heeded"},

	{VIPNotProgrammed, "VIPNotProgrammed", Error, "the packet passes the node's rules untouched: nothing there knows the VIP"},
	{StaleBackend, "StaleBackend", Error, "the node sends to an address that is no endpoint any more"},
	{BackendMissing, "BackendMissing", Error, "the node sends nothing to a usable endpoint"},
	{RejectedAsEmpty, "RejectedAsEmpty", Error, "the node refuses the Service as one without endpoints"},
	{WrongBackendPort, "WrongBackendPort", Error, "the node sends to the right pod on the wrong port"},
	{UnevenOdds, "UnevenOdds", Warning, "the node does not share new connections out evenly"},
	{HookMissing, "HookMissing", Error, "kube-proxy's chains are there, but no hook jumps to them"},
	{CapturedByForeignRule, "CapturedByForeignRule", Error, "a rule that is not kube-proxy's takes the packet first"},
	{MasqueradeMissing, "MasqueradeMissing", Error, "the packet needs its source rewritten, and the node does not do it"},
	{DroppedAfterDNAT, "DroppedAfterDNAT", Error, "a rule drops the packet after kube-proxy rewrote it rightly"},
	{FirewallChainDrops, "FirewallChainDrops", Error, "a firewall chain of kube-proxy's or the kubelet's drops the packet"},
	{TwoIptablesBackends, "TwoIptablesBackends", Warning, "kube-proxy's rules are in iptables-legacy and in iptables-nft"},
	{LeftoverProxyMode, "LeftoverProxyMode", Warning, "the node has what another proxy mode left behind"},
	{VirtualServerMissing, "VirtualServerMissing", Error, "IPVS lacks the virtual server, or has other real servers than the objects ask for"},
	{VIPNotOnDummy, "VIPNotOnDummy", Error, "in IPVS mode the VIP is on no interface, or a set of kube-proxy's lacks it"},
	{KernelModuleMissing, "KernelModuleMissing", Error, "the kernel lacks a part that kube-proxy's mode needs"},
	{VIPIsLocalAddress, "VIPIsLocalAddress", Warning, "an address of the Service is on an interface where it does not belong"},
	{IPVSUnsupported, "IPVSUnsupported", Warning, "IPVS mode does not do this, or not as it is set up"},
	{ForwardingOff, "ForwardingOff", Error, "the node does not forward packets"},
	{BridgeNfCallOff, "BridgeNfCallOff", Error, "what crosses a bridge passes no rules, so backends on the client's node answer wrongly"},
	{ConntrackNearlyFull, "ConntrackNearlyFull", Warning, "the table of connections is full, or soon will be"},
	{ConntrackStale, "ConntrackStale", Error, "tracked connections lead to an address that is no endpoint any more"},
	{SysctlSuspicious, "SysctlSuspicious", Warning, "a setting of the kernel drops some of the Service's packets"},
	{NoRouteToBackend, "NoRouteToBackend", Error, "the node's routing has no way to a backend, or one that leads nowhere"},
	{CNIAgentNotReady, "CNIAgentNotReady", Error, "the network's agent is absent, crashes or is not ready on a node that matters"},
	{NothingListens, "NothingListens", Error, "nothing in the backend's pod listens on the port"},
	{ListensOnLoopbackOnly, "ListensOnLoopbackOnly", Error, "the backend listens on the port, and not at the address that packets go to"},
	{ProxyNotRunning, "ProxyNotRunning", Error, "the node runs no kube-proxy, and no known replacement"},
	{ProxyCrashing, "ProxyCrashing", Error, "kube-proxy of a node ends again and again"},
	{ProxyModeDiffers, "ProxyModeDiffers", Warning, "the configured proxy mode is not the one seen on the node"},
	{ProxyReplaced, "ProxyReplaced", Info, "something else than kube-proxy programs the Services"},
	{NodesDisagree, "NodesDisagree", Error, "some nodes do otherwise with the Service than the rest"},
	{NodePortNotProgrammed, "NodePortNotProgrammed", Error, "the node serves the cluster IP, and not the Service's node port"},
	{ExternalIPNotProgrammed, "ExternalIPNotProgrammed", Error, "the node serves the cluster IP, and not the Service's outside address"},
	{AffinityNotProgrammed, "AffinityNotProgrammed", Warning, "the node does not keep clients at their backend as sessionAffinity asks"},
	{NoRouteToVIP, "NoRouteToVIP", Error, "the node has no route to the VIP, so its own processes cannot connect"},
	{ServiceRangeOverlaps, "ServiceRangeOverlaps", Warning, "the cluster IP lies in a network of the nodes or pods"},

	{IngressBlocked, "IngressBlocked", Error, "a NetworkPolicy isolates the backend, and no rule admits the client"},
	{EgressBlocked, "EgressBlocked", Error, "a NetworkPolicy isolates the client, and no rule lets it out to the backend"},
	{PolicyNamesServicePort, "PolicyNamesServicePort", Error, "a policy names the Service's port where policies see the pod's"},
	{PeerNearlyMatches, "PeerNearlyMatches", Error, "a policy's peer misses the client by a near miss"},
	{SomeBackendsBlocked, "SomeBackendsBlocked", Error, "policy lets the client reach some of the backends, not all"},
}

// Lookup finds a catalogue entry by its code or name, in any case.
func Lookup(s string) (Entry, bool) {
	for _, e := range Catalogue {
		if strings.EqualFold(string(e.Code), s) || strings.EqualFold(e.Name, s) {
			return e, true
		}
	}
	return Entry{}, false
}
