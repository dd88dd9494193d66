package proxy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// What follows is of kube-proxy's IPVS mode (k8s.io/kubernetes pkg/proxy/ipvs,
// 1.26 to 1.37): where it differs from the other modes.

// VirtualServer is one that kube-proxy in IPVS mode ought to have for a
// frontend: it is there even with no endpoint, and serves every client alike.
type VirtualServer struct {
	Frontend Frontend
	Addr     netip.AddrPort
	// Backends are its real servers, each by masquerading and of one weight,
	// sorted by address. An endpoint that is no more may stay at weight 0 until
	// its last connection is over.
	Backends []Backend
	// Timeout is for how many seconds a client stays with what it drew (session
	// affinity ClientIP); 0 for not at all.
	Timeout int32
	// Why and Unsure are those of an Expectation.
	Why, Unsure string
}

// VirtualServers lists those that a Service ought to have on a node. Node ports
// are served at the addresses that are given: all of the node's but loopback,
// IPv6 link-local and those of kube-ipvs0, unless nodePortAddresses says less.
func VirtualServers(svc *corev1.Service, sls []*discoveryv1.EndpointSlice, node Node, nodePortAddresses []netip.Addr) []VirtualServer {
	node.IPVS = true
	var out []VirtualServer
	for _, f := range Frontends(svc) {
		if ignored(svc, f) != "" {
			continue
		}
		e := Expectation{Frontend: f}
		e.chooseIPVS(svc, categorize(endpointsOf(svc, sls, node.Name, f), node), node)
		v := VirtualServer{Frontend: f, Backends: e.Backends, Timeout: affinity(svc), Why: e.Why, Unsure: e.Unsure}
		if f.Kind != NodePort {
			v.Addr = netip.AddrPortFrom(f.IP, uint16(f.Port))
			out = append(out, v)
			continue
		}
		for _, a := range nodePortAddresses {
			if a.Is6() == f.V6 {
				v.Addr = netip.AddrPortFrom(a, uint16(f.Port))
				out = append(out, v)
			}
		}
	}
	return out
}

// affinity is the time-out of session affinity; the API server fills in 3 hours.
func affinity(svc *corev1.Service) int32 {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return *c.ClientIP.TimeoutSeconds
	}
	return corev1.DefaultClientIPServiceAffinitySeconds
}

// expectIPVS is ExpectFrom for IPVS mode. The firewall of source ranges stands
// before the virtual servers, whatever endpoints there are.
func (e *Expectation) expectIPVS(svc *corev1.Service, c categories, node Node, client ClientKind, addr netip.Addr) {
	if e.Frontend.Kind == LoadBalancer {
		admitted, unsure := rangesAdmit(svc, node, client, addr, e.Frontend)
		if !admitted {
			e.Action, e.Why = Drop, "loadBalancerSourceRanges do not admit the client"
			return
		}
		e.Unsure = unsure
	}
	e.chooseIPVS(svc, c, node)
	if e.Action == Forward {
		e.Masquerade = masqueradeIPVS(svc, node, client, addr, e.Frontend)
	}
}

// chooseIPVS takes the list that the traffic policy calls for. A Local policy
// without a local endpoint falls back to the cluster's (kubernetes#97081), which
// are none where nothing but that policy is in force.
func (e *Expectation) chooseIPVS(svc *corev1.Service, c categories, node Node) {
	local, policy := ExternalLocal(svc), "externalTrafficPolicy"
	if e.Frontend.Kind == ClusterIP {
		local, policy = InternalLocal(svc), "internalTrafficPolicy"
	}
	list := c.cluster
	if InternalLocal(svc) && !externallyAccessible(svc) {
		list = nil
	}
	switch {
	case !c.usable:
		e.Why = "no ready endpoint"
	case local && len(c.local) > 0:
		list, e.Why = c.local, policy+" Local: endpoints on "+node.Name+" only"
	case local && len(list) == 0:
		e.Why = policy + " Local and no endpoint on " + node.Name
	case local:
		e.Why = policy + " Local and no endpoint on " + node.Name + ": IPVS mode falls back to all of them"
	default:
		e.Topology, e.Why = c.topology, c.topology.String()
	}
	if c.unsureTopology && !(local && len(c.local) > 0) {
		e.Unsure = "the endpoints carry topology hints, and the zone of " + node.Name + " is not known"
	}
	if e.Action = Reject; len(list) == 0 {
		return
	}
	if !list[0].Ready {
		e.Why = also(e.Why, "only terminating endpoints that still serve are left")
	}
	e.Action = Forward
	for _, ep := range list {
		e.Backends = append(e.Backends, ep.Backend)
	}
}

// externallyAccessible says whether the Service has an address for clients
// outside.
func externallyAccessible(svc *corev1.Service) bool {
	return slices.ContainsFunc(Frontends(svc), func(f Frontend) bool { return f.Kind != ClusterIP })
}

// masqueradeIPVS is masquerade for IPVS mode, which marks by sets: under a Local
// policy nobody's packets, the node's own included.
func masqueradeIPVS(svc *corev1.Service, node Node, client ClientKind, addr netip.Addr, f Frontend) Masquerade {
	switch {
	case addr.IsValid() && addr.IsLoopback():
		return MasqNo
	case f.Kind != ClusterIP && ExternalLocal(svc):
		return MasqNo
	case f.Kind != ClusterIP, node.MasqueradeAll == SettingOn:
		return MasqYes
	case client == PodClient:
		return MasqNo
	}
	switch node.DetectLocal {
	case SettingOn:
		return MasqYes
	case SettingOff:
		// Then it goes by the address of the Service as the source, which a node
		// that has it gives its own packets.
		if client == NodeClient && addr == f.IP {
			return MasqYes
		}
		return MasqNo
	}
	return MasqMaybe
}

// DummyAddresses are those that kube-ipvs0 ought to have of a Service: all but
// node ports' ones. One that another interface has is left to that.
func DummyAddresses(svc *corev1.Service) []netip.Addr {
	var out []netip.Addr
	for _, f := range Frontends(svc) {
		if f.Kind != NodePort && ignored(svc, f) == "" && !slices.Contains(out, f.IP) {
			out = append(out, f.IP)
		}
	}
	return out
}

// SetMember is an element that one of kube-proxy's ipsets ought to have.
type SetMember struct {
	// Set is its name as ipset has it, of the family.
	Set string
	// Member is written as `ipset save` prints it.
	Member   string
	Frontend Frontend
}

// SetMembers lists the elements that a Service ought to have in the sets of IPVS
// mode. nodePortAddresses are as for VirtualServers.
func SetMembers(svc *corev1.Service, sls []*discoveryv1.EndpointSlice, node Node, nodePortAddresses []netip.Addr) []SetMember {
	m := members{seen: map[SetMember]bool{}}
	for _, f := range Frontends(svc) {
		if ignored(svc, f) != "" {
			continue
		}
		proto := strings.ToLower(string(f.Protocol))
		port := strconv.Itoa(int(f.Port))
		at := func(a netip.Addr) string { return a.String() + "," + proto + ":" + port }
		for _, e := range endpointsOf(svc, sls, node.Name, f) {
			if a := e.Addr; e.Local {
				m.add(f, "LOOP-BACK", a.Addr().String()+","+proto+":"+strconv.Itoa(int(a.Port()))+","+a.Addr().String())
			}
		}
		if f.Kind != NodePort {
			m.add(f, "IPVS-IPS", f.IP.String())
		}
		switch f.Kind {
		case ClusterIP:
			m.add(f, "CLUSTER-IP", at(f.IP))
		case ExternalIP:
			m.add(f, "EXTERNAL-IP"+localSuffix(svc), at(f.IP))
		case LoadBalancer:
			m.loadBalancer(svc, node, f, at(f.IP))
		case NodePort:
			m.nodePort(svc, f, nodePortAddresses, at)
		}
	}
	if p := svc.Spec.HealthCheckNodePort; p != 0 && ExternalLocal(svc) && svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, f := range Frontends(svc) {
			if f.Kind == ClusterIP {
				m.add(f, "HEALTH-CHECK-NODE-PORT", strconv.Itoa(int(p)))
			}
		}
	}
	return m.list
}

type members struct {
	list []SetMember
	seen map[SetMember]bool
}

// add adds a member to the set of a family; of frontends that share one, the
// first has it.
func (m *members) add(f Frontend, set, member string) {
	s := SetMember{Set: SetName(set, f.V6), Member: member}
	if m.seen[s] {
		return
	}
	m.seen[s] = true
	s.Frontend = f
	m.list = append(m.list, s)
}

func localSuffix(svc *corev1.Service) string {
	if ExternalLocal(svc) {
		return "-LOCAL"
	}
	return ""
}

func (m *members) loadBalancer(svc *corev1.Service, node Node, f Frontend, at string) {
	m.add(f, "LOAD-BALANCER", at)
	if ExternalLocal(svc) {
		m.add(f, "LOAD-BALANCER-LOCAL", at)
	}
	ranges := sourceRanges(svc, f.V6)
	if len(ranges) == 0 {
		return
	}
	m.add(f, "LOAD-BALANCER-FW", at)
	self := false
	for _, r := range ranges {
		m.add(f, "LOAD-BALANCER-SOURCE-CIDR", at+","+r.String())
		self = self || slices.ContainsFunc(node.Addresses, r.Contains)
	}
	if self {
		m.add(f, "LOAD-BALANCER-SOURCE-IP", at+","+f.IP.String())
	}
}

// nodePort: without an address to serve them at, node ports are in no set.
func (m *members) nodePort(svc *corev1.Service, f Frontend, addresses []netip.Addr, at func(netip.Addr) string) {
	if !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is6() == f.V6 }) {
		return
	}
	suffixes := []string{""}
	if ExternalLocal(svc) {
		suffixes = append(suffixes, "LOCAL-")
	}
	for _, local := range suffixes {
		if f.Protocol != corev1.ProtocolSCTP {
			m.add(f, "NODE-PORT-"+local+string(f.Protocol), strconv.Itoa(int(f.Port)))
			continue
		}
		for _, a := range addresses {
			if a.Is6() == f.V6 {
				m.add(f, "NODE-PORT-"+local+"SCTP-HASH", at(a))
			}
		}
	}
}

// SetName is the name of one of IPVS mode's sets for a family: KUBE-CLUSTER-IP
// or KUBE-6-CLUSTER-IP for CLUSTER-IP, cut to the 31 characters that ipset takes.
func SetName(name string, v6 bool) string {
	if !v6 {
		return "KUBE-" + name
	}
	s := "KUBE-6-" + name
	return s[:min(len(s), 31)]
}
