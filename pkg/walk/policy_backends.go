package walk

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// policyBackend is one endpoint on one port as policies see it: the pod's
// address and port, after DNAT.
type policyBackend struct {
	addr netip.AddrPort
	port policyPort
	pod  *corev1.Pod // nil for an endpoint that is no pod
	vip  netip.Addr
	// kind is alike for backends that policies cannot tell apart, whichever pod
	// calls. A call from a node is another matter: its own pods are open to it.
	kind string
}

// policyPort is one Service port.
type policyPort struct {
	number   int32
	protocol corev1.Protocol
}

func (b *policyBackend) label() string {
	if b.pod == nil {
		return fmt.Sprintf("%s/%s", b.addr, b.port.protocol)
	}
	if b.addr.Port() == 0 {
		return fmt.Sprintf("pod %s/%s", b.pod.Namespace, b.pod.Name)
	}
	return fmt.Sprintf("pod %s/%s on %s", b.pod.Namespace, b.pod.Name, b.portText())
}

// portText is the port that policies see: "8080/TCP".
func (b *policyBackend) portText() string {
	return fmt.Sprintf("%d/%s", b.addr.Port(), b.port.protocol)
}

func (b *policyBackend) peer() netpol.Peer {
	if b.pod != nil {
		return netpol.Peer{Pod: b.pod, IP: b.addr.Addr()}
	}
	return netpol.IPPeer(b.addr.Addr())
}

// policyBackends are the endpoints that clients may be sent to, on every port
// that was asked about.
func (p *Pass) policyBackends() []*policyBackend {
	if p.policy.listed {
		return p.policy.backends
	}
	p.policy.listed = true
	fronts := p.policyFrontends()
	svc, node := p.asClientsSee()
	for _, f := range fronts {
		for _, b := range proxy.Expect(svc, p.Slices(), node, proxy.PodClient, f).Backends {
			p.addBackend(b.Addr, policyPort{f.ServicePort, f.Protocol}, f.IP)
		}
	}
	if len(proxy.Frontends(p.Service)) == 0 && !isExternalName(p) {
		// Headless, or given to another proxy: every ready endpoint is drawn.
		p.everyReadyBackend()
	}
	return p.policy.backends
}

// policyFrontends are those by which the backends are looked up: the cluster
// IPs, or what else was asked about. Which it is makes no difference to who may
// be drawn, only to the source address (see namedPolicyClients).
func (p *Pass) policyFrontends() []proxy.Frontend {
	all := p.Frontends()
	fronts := slices.DeleteFunc(slices.Clone(all), func(f proxy.Frontend) bool { return f.Kind != proxy.ClusterIP })
	if len(fronts) == 0 {
		return all
	}
	return fronts
}

// asClientsSee is the Service and the node by which kube-proxy chooses
// backends. Without a client's node, a Local policy and hints narrow nothing:
// each endpoint is drawn on some node.
func (p *Pass) asClientsSee() (*corev1.Service, proxy.Node) {
	if name := p.clientNode(); name != "" {
		node := proxy.Node{Name: name, ZoneUnknown: true}
		if n := p.nodeByName[name]; n != nil {
			node.Zone, node.ZoneUnknown = n.Labels[corev1.LabelTopologyZone], false
		}
		return p.Service, node
	}
	svc := *p.Service
	svc.Spec.InternalTrafficPolicy = nil
	return &svc, proxy.Node{ZoneUnknown: true}
}

// everyReadyBackend lists the ready endpoints without kube-proxy: of a headless
// Service they are what its name resolves to. One without ports has backends
// whose port nobody knows: 0.
func (p *Pass) everyReadyBackend() {
	_, ports := p.askedPorts()
	for _, e := range p.Endpoints() {
		if !e.Ready || !e.Addr.IsValid() {
			continue
		}
		if len(p.Service.Spec.Ports) == 0 {
			p.addBackend(netip.AddrPortFrom(e.Addr, 0), policyPort{0, corev1.ProtocolTCP}, netip.Addr{})
		}
		for _, sp := range ports {
			if n, ok := slicePortFor(e.Slice, sp); ok && n > 0 && n <= 65535 {
				p.addBackend(netip.AddrPortFrom(e.Addr, uint16(n)), policyPort{sp.Port, protocolOf(sp)}, netip.Addr{})
			}
		}
	}
}

func (p *Pass) addBackend(addr netip.AddrPort, port policyPort, vip netip.Addr) {
	at := p.behind(addr.Addr())
	if at.stale || slices.ContainsFunc(p.policy.backends, func(have *policyBackend) bool { return have.addr == addr && have.port == port }) {
		return
	}
	b := &policyBackend{addr: addr, port: port, pod: at.pod, vip: vip}
	b.kind = p.policyKinds().sight.backend(b)
	p.policy.backends = append(p.policy.backends, b)
}

// behind is what has an endpoint's address.
type behind struct {
	pod *corev1.Pod
	// stale: the slice names a pod that is gone. That is layer 2's to tell; no
	// policy can be held against a pod that is not there.
	stale bool
}

// behind looks up the pod of an address: the one that the slice names, or else
// the only one that has it. Pods on their node's network share an address, so
// that only the slice can tell them apart.
func (p *Pass) behind(addr netip.Addr) behind {
	if p.policy.behind == nil {
		p.policy.behind = map[netip.Addr]behind{}
		for _, e := range p.Endpoints() {
			p.policy.behind[e.Addr] = p.behindEndpoint(&e)
		}
	}
	return p.policy.behind[addr]
}

func (p *Pass) behindEndpoint(e *Endpoint) behind {
	if e.Pod != nil {
		if have := podAddrs(e.Pod); len(have) == 0 || slices.Contains(have, e.Addr) {
			return behind{pod: e.Pod}
		}
	}
	if pods := p.podsByIP[e.Addr]; len(pods) == 1 {
		return behind{pod: pods[0]}
	}
	ref := e.Slice.Endpoints[e.Index].TargetRef
	return behind{stale: ref != nil && ref.Kind == "Pod" && len(p.podsByIP[e.Addr]) == 0}
}

// policyPorts are the Service ports that have backends.
func (p *Pass) policyPorts() []policyPort {
	var out []policyPort
	for _, b := range p.policyBackends() {
		if !slices.Contains(out, b.port) {
			out = append(out, b.port)
		}
	}
	return out
}
