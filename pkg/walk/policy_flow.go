package walk

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// policyBackend is one endpoint on one port as policies see it: the pod's
// address and port, after DNAT.
type policyBackend struct {
	addr        netip.AddrPort
	protocol    corev1.Protocol
	pod         *corev1.Pod // nil for an endpoint that is no pod
	servicePort int32
	vip         netip.Addr
}

func (b policyBackend) label() string {
	if b.pod != nil {
		return fmt.Sprintf("pod %s/%s on %d/%s", b.pod.Namespace, b.pod.Name, b.addr.Port(), b.protocol)
	}
	return fmt.Sprintf("%s/%s", b.addr, b.protocol)
}

func (b policyBackend) peer() netpol.Peer {
	if b.pod != nil {
		return netpol.Peer{Pod: b.pod, IP: b.addr.Addr()}
	}
	return netpol.IPPeer(b.addr.Addr())
}

// policyClient is one client, or one that stands for several that policies
// cannot tell apart.
type policyClient struct {
	label string
	peer  netpol.Peer
	pod   *corev1.Pod
	alike int
	// madeUp: it stands for pods of a namespace of which none was read.
	madeUp bool
}

// policyFlow is one client's flow to one backend, and the verdict.
type policyFlow struct {
	client   policyClient
	backend  policyBackend
	flow     netpol.Flow
	decision netpol.Decision
}

func (f policyFlow) result(d netpol.Direction) netpol.Result {
	if d == netpol.Egress {
		return f.decision.Egress
	}
	return f.decision.Ingress
}

func (f policyFlow) denied(d netpol.Direction) bool { return f.result(d).Verdict == netpol.Denied }

// maxPolicyClients bounds how many kinds of client are judged where none is
// named; those of the Service's own namespace come first.
const maxPolicyClients = 400

// policyBackends are the endpoints that clients may be sent to, on every port
// that was asked about. Of a headless Service they are those that its name
// resolves to.
func (p *Pass) policyBackends() []policyBackend {
	if p.policy.done {
		return p.policy.backends
	}
	p.policy.done = true
	var fronts []proxy.Frontend
	for _, f := range p.Frontends() {
		if f.Kind == proxy.ClusterIP {
			fronts = append(fronts, f)
		}
	}
	if len(fronts) == 0 {
		fronts = p.Frontends()
	}
	for _, f := range fronts {
		for _, b := range proxy.Expect(p.Service, p.Slices(), proxy.Node{}, proxy.PodClient, f).Backends {
			p.addBackend(b.Addr, f.Protocol, f.ServicePort, f.IP)
		}
	}
	if p.Service.Spec.ClusterIP == corev1.ClusterIPNone {
		p.headlessBackends()
	}
	return p.policy.backends
}

func (p *Pass) headlessBackends() {
	for _, e := range p.Endpoints() {
		if !e.Ready || !e.Addr.IsValid() {
			continue
		}
		for _, port := range e.Slice.Ports {
			if port.Port == nil {
				continue
			}
			proto := corev1.ProtocolTCP
			if port.Protocol != nil {
				proto = *port.Protocol
			}
			name := ""
			if port.Name != nil {
				name = *port.Name
			}
			for _, sp := range p.Service.Spec.Ports {
				if sp.Name == name && portMatches(p.opts.Port, sp.Name, sp.Port) && (p.Target.Port == 0 || p.Target.Port == sp.Port) {
					p.addBackend(netip.AddrPortFrom(e.Addr, uint16(*port.Port)), proto, sp.Port, netip.Addr{})
				}
			}
		}
	}
}

func (p *Pass) addBackend(addr netip.AddrPort, proto corev1.Protocol, servicePort int32, vip netip.Addr) {
	b := policyBackend{addr: addr, protocol: proto, servicePort: servicePort, vip: vip}
	for _, e := range p.Endpoints() {
		if e.Addr == addr.Addr() && e.Pod != nil {
			b.pod = e.Pod
		}
	}
	if b.pod == nil {
		if pods := p.podsByIP[addr.Addr()]; len(pods) == 1 {
			b.pod = pods[0]
		}
	}
	p.policy.backends = append(p.policy.backends, b)
}

// policies is the evaluator over everything that was read, made once a walk.
func (w *world) policies() *netpol.Evaluator {
	if w.evaluator == nil {
		o := &w.snap.Objects
		w.evaluator = netpol.New(netpol.Objects{Pods: o.Pods, Namespaces: o.Namespaces, Policies: o.NetworkPolicies, Nodes: o.Nodes})
	}
	return w.evaluator
}

// policyFlows judges every client's flow to every backend.
func (p *Pass) policyFlows() []policyFlow {
	if p.policy.flows != nil {
		return p.policy.flows
	}
	p.policy.flows = []policyFlow{}
	p.policy.clients = p.policyClients()
	for _, c := range p.policy.clients {
		for _, b := range p.policyBackends() {
			if c.pod != nil && b.pod == c.pod {
				continue // a pod to itself: policies leave it open, or undefined
			}
			f := policyFlow{client: c, backend: b, flow: netpol.Flow{
				From: c.peer, To: b.peer(), Port: int32(b.addr.Port()), Protocol: b.protocol, VIP: b.vip, VIPPort: b.servicePort,
			}}
			f.decision = p.policies().Evaluate(f.flow)
			p.policy.flows = append(p.policy.flows, f)
		}
	}
	return p.policy.flows
}

// reach is how much of a Service a client gets to.
type reach struct{ allowed, denied, all int }

func (p *Pass) reachOf(c policyClient) reach {
	var r reach
	for _, f := range p.policyFlows() {
		if f.client.label != c.label {
			continue
		}
		r.all++
		switch f.decision.Verdict {
		case netpol.Allowed:
			r.allowed++
		case netpol.Denied:
			r.denied++
		}
	}
	return r
}

// policyClients are the callers to judge: the one that --from names, or every
// kind of pod that was read.
func (p *Pass) policyClients() []policyClient {
	if p.Client.Kind != AnyPod {
		return p.namedPolicyClient()
	}
	if !p.anythingIsolated() {
		return []policyClient{{label: "any pod", peer: netpol.PodPeer(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Service.Namespace}}), madeUp: true}}
	}
	groups := map[string]*policyClient{}
	for i := range p.snap.Objects.Pods {
		pod := &p.snap.Objects.Pods[i]
		if finished(pod) || pod.Spec.HostNetwork {
			continue
		}
		k := pod.Namespace + "\x00" + labelText(pod.Labels)
		if g := groups[k]; g != nil {
			g.alike++
			continue
		}
		groups[k] = &policyClient{label: "pod " + pod.Namespace + "/" + pod.Name, peer: netpol.PodPeer(pod), pod: pod, alike: 1}
	}
	out := slices.Collect(maps.Values(groups))
	out = append(out, p.madeUpClients()...)
	slices.SortFunc(out, func(a, b *policyClient) int {
		return cmp.Or(cmp.Compare(p.foreign(a), p.foreign(b)), strings.Compare(a.label, b.label))
	})
	p.policy.groups = len(out)
	if len(out) > maxPolicyClients {
		p.policy.left = len(out) - maxPolicyClients
		out = out[:maxPolicyClients]
	}
	clients := make([]policyClient, len(out))
	for i, c := range out {
		clients[i] = *c
	}
	return clients
}

// foreign orders clients: the Service's own namespace before the others.
func (p *Pass) foreign(c *policyClient) int {
	if ns, _, _ := strings.Cut(strings.TrimPrefix(c.label, "pod "), "/"); ns == p.Service.Namespace {
		return 0
	}
	return 1
}

// madeUpClients stand for pods of namespaces whose pods were not read: a pod
// with no labels, by which only selectors of namespaces can admit it.
func (p *Pass) madeUpClients() []*policyClient {
	var out []*policyClient
	for i := range p.snap.Objects.Namespaces {
		ns := p.snap.Objects.Namespaces[i].Name
		if p.snap.Reads.Has(snapshot.Pods, ns) {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns}}
		out = append(out, &policyClient{label: "pod " + ns + "/(any, without labels)", peer: netpol.PodPeer(pod), alike: 1, madeUp: true})
	}
	return out
}

// anythingIsolated says whether any policy could matter to the Service: one
// that isolates a backend, or a pod of its namespace as a client.
func (p *Pass) anythingIsolated() bool {
	e := p.policies()
	for _, b := range p.policyBackends() {
		if b.pod != nil && len(e.Isolating(b.pod, netpol.Ingress)) > 0 {
			return true
		}
	}
	for _, pod := range p.podsByNS[p.Service.Namespace] {
		if len(e.Isolating(pod, netpol.Egress)) > 0 {
			return true
		}
	}
	return len(e.Issues()) > 0
}

func (p *Pass) namedPolicyClient() []policyClient {
	c := policyClient{label: p.Client.String(), alike: 1}
	switch p.Client.Kind {
	case OnePod, FromAddress:
		if pod := p.clientPod(); pod != nil {
			c.label, c.pod, c.peer = "pod "+pod.Namespace+"/"+pod.Name, pod, netpol.PodPeer(pod)
			if !p.snap.Reads.Has(snapshot.NetworkPolicies, pod.Namespace) {
				p.needPoliciesOf(pod.Namespace)
			}
			return []policyClient{c}
		}
		if p.Client.Kind == OnePod {
			return nil
		}
		c.peer = netpol.IPPeer(p.Client.Addr)
		if n := p.nodeByAddress[p.Client.Addr]; n != nil {
			c.peer = netpol.NodePeer(n.Name, p.Client.Addr)
		}
	case OnNode:
		if p.nodeByName[p.Client.Name] == nil {
			return nil
		}
		c.peer = netpol.NodePeer(p.Client.Name, netip.Addr{})
	case FromExternal:
		c.peer = p.outsidePeer()
	}
	return []policyClient{c}
}

// outsidePeer is a client outside the cluster as the backends see it: by its
// own address where the policy is Local, and by that of the node that it came
// in at where it is Cluster, which masquerades.
func (p *Pass) outsidePeer() netpol.Peer {
	if p.Service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		for i := range p.snap.Objects.Nodes {
			n := &p.snap.Objects.Nodes[i]
			hosts := false
			for _, b := range p.policyBackends() {
				hosts = hosts || b.pod != nil && b.pod.Spec.NodeName == n.Name
			}
			if !hosts || i == len(p.snap.Objects.Nodes)-1 {
				return netpol.NodePeer(n.Name, netip.Addr{})
			}
		}
	}
	for _, b := range p.policyBackends() {
		return netpol.IPPeer(outside(b.addr.Addr().Is6()))
	}
	return netpol.IPPeer(outside4)
}

func labelText(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if volatileLabel(k) {
			continue
		}
		fmt.Fprintf(&b, "%s=%s,", k, labels[k])
	}
	return b.String()
}

// volatileLabel says whether a label tells apart pods of one workload, so that
// no policy should go by it.
func volatileLabel(key string) bool {
	switch key {
	case "pod-template-hash", "controller-revision-hash", "pod-template-generation", "batch.kubernetes.io/controller-uid", "controller-uid":
		return true
	}
	return false
}
