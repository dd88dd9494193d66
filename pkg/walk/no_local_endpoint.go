package walk

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// noLocalEndpointExternal finds the nodes that drop what comes from outside,
// because externalTrafficPolicy Local leaves them no endpoint.
var noLocalEndpointExternal = &Check{
	Code:    diagnosis.NoLocalEndpointExternal,
	Needs:   []snapshot.Resource{snapshot.EndpointSlices, snapshot.Nodes},
	Applies: func(p *Pass) bool { return p.Service != nil && HasVIP(p.Service) && proxy.ExternalLocal(p.Service) },
	Run: func(p *Pass) {
		outside := func(f proxy.Frontend) bool { return f.Kind != proxy.ClusterIP }
		n := p.nodesByLocalEndpoint(proxy.ExternalClient, outside)
		if len(n.without) == 0 {
			return // where no endpoint is usable at all, nobody drops: that is layer 2's
		}
		f := Finding{
			Severity: diagnosis.Warning,
			Title:    fmt.Sprintf("externalTrafficPolicy Local, and %d of %s without a ready endpoint: they drop what comes from outside", len(n.without), count(n.all(), "node")),
			Expected: "an endpoint on every node that gets traffic from outside",
			Found:    n.text(),
			Evidence: []diagnosis.Evidence{p.serviceField(".spec.externalTrafficPolicy", "Local"), p.endpointNodes()},
			Fixes: []Proposal{p.specFix("let every node serve: externalTrafficPolicy Cluster", "externalTrafficPolicy",
				corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal,
				"this Service alone; pods then see a node's address in place of the client's, and traffic may take one hop more"+p.healthPortNote(),
				func(svc *corev1.Service) {
					svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
				})},
		}
		// Pods and the nodes' own processes are let through to every endpoint, as
		// far as kube-proxy can tell them: for this client it may be no error.
		dropped := p.nodesByLocalEndpoint(p.kindOfClient(), outside).without
		switch asked := intersect(p.askedNodes(), dropped); {
		case len(asked) > 0:
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("externalTrafficPolicy Local, and node %s, which was asked, has no ready endpoint", list(asked))
		case n.none() && len(dropped) > 0:
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("externalTrafficPolicy Local, and no endpoint is on any of %s: all drop what comes from outside", count(n.all(), "node"))
		}
		p.Report(f)
	},
}

// noLocalEndpointInternal finds the client's node, or nodes where a client may
// be, that drop what is for the ClusterIP because internalTrafficPolicy Local
// leaves them no endpoint.
var noLocalEndpointInternal = &Check{
	Code:    diagnosis.NoLocalEndpointInternal,
	Needs:   []snapshot.Resource{snapshot.EndpointSlices, snapshot.Nodes},
	Applies: func(p *Pass) bool { return p.Service != nil && HasVIP(p.Service) && proxy.InternalLocal(p.Service) },
	Run: func(p *Pass) {
		n := p.nodesByLocalEndpoint(proxy.PodClient, func(f proxy.Frontend) bool { return f.Kind == proxy.ClusterIP })
		if len(n.without) == 0 {
			return
		}
		f := Finding{
			Severity: diagnosis.Warning,
			Title:    fmt.Sprintf("internalTrafficPolicy Local, and %d of %s without a ready endpoint: their pods reach nothing", len(n.without), count(n.all(), "node")),
			Expected: "an endpoint on every node that has clients",
			Found:    n.text(),
			Evidence: []diagnosis.Evidence{p.serviceField(".spec.internalTrafficPolicy", "Local"), p.endpointNodes()},
			Fixes: []Proposal{p.specFix("let clients reach every endpoint: internalTrafficPolicy Cluster", "internalTrafficPolicy",
				corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal,
				"this Service alone; its traffic may then leave the client's node",
				func(svc *corev1.Service) {
					cluster := corev1.ServiceInternalTrafficPolicyCluster
					svc.Spec.InternalTrafficPolicy = &cluster
				})},
		}
		client := p.clientNode()
		switch asked := intersect(p.askedNodes(), n.without); {
		case client != "" && !slices.Contains(n.without, client):
			return // this client is served
		case client != "":
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("internalTrafficPolicy Local, and no ready endpoint on the client's node %s", client)
			f.Evidence = append(f.Evidence, p.clientEvidence(client))
		case len(asked) > 0:
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("internalTrafficPolicy Local, and node %s, which was asked, has no ready endpoint", list(asked))
		case n.none():
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("internalTrafficPolicy Local, and no endpoint is on any of %s: all drop what their pods send", count(n.all(), "node"))
		}
		p.Report(f)
	},
}

// localNodes are the nodes by what a Local policy leaves them.
type localNodes struct {
	// serve by ready endpoints, draining by terminating ones that still serve;
	// without drop.
	serve, draining, without []string
}

func (n localNodes) all() int { return len(n.serve) + len(n.draining) + len(n.without) }

// none says whether no node serves at all.
func (n localNodes) none() bool { return len(n.serve)+len(n.draining) == 0 }

func (n localNodes) text() string {
	var out []string
	if len(n.serve) > 0 {
		out = append(out, "endpoints on "+list(n.serve))
	}
	if len(n.draining) > 0 {
		out = append(out, "terminating ones that still serve on "+list(n.draining))
	}
	return strings.Join(append(out, "none on "+list(n.without)), "; ")
}

// nodesByLocalEndpoint says which nodes forward a client's packet to every one
// of the frontends, and which drop it at one at least.
func (p *Pass) nodesByLocalEndpoint(client proxy.ClientKind, which func(proxy.Frontend) bool) localNodes {
	var out localNodes
	for i := range p.snap.Objects.Nodes {
		n := &p.snap.Objects.Nodes[i]
		node := p.proxyNodeOf(n)
		drops, ready, draining := false, false, false
		for _, f := range p.Frontends() {
			if !which(f) {
				continue
			}
			switch e := proxy.Expect(p.Service, p.Slices(), node, client, f); e.Action {
			case proxy.Drop:
				drops = true
			case proxy.Forward:
				ready = ready || e.Backends[0].Ready
				draining = draining || !e.Backends[0].Ready
			}
		}
		switch {
		case drops:
			out.without = append(out.without, n.Name)
		case draining:
			out.draining = append(out.draining, n.Name)
		case ready:
			out.serve = append(out.serve, n.Name)
		}
	}
	return out
}

// endpointNodes quotes the nodes that the endpoints name.
func (p *Pass) endpointNodes() diagnosis.Evidence {
	var names []string
	for _, e := range p.Endpoints() {
		name := e.Node
		if name == "" {
			name = "(none)"
		}
		if e.Ready || e.Serving && e.Terminating {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	e := p.slicesEvidence("nodeName " + list(slices.Compact(names)))
	e.Command = kubectl("get", "endpointslices", "-n", p.Service.Namespace, "-l", "kubernetes.io/service-name="+p.Service.Name,
		"-o", "jsonpath={.items[*].endpoints[*].nodeName}")
	return e
}

// kindOfClient is what kube-proxy takes the client for; whoever is not named is
// taken to come from outside.
func (p *Pass) kindOfClient() proxy.ClientKind {
	pod := p.clientPod()
	switch {
	case p.Client.Kind == OnNode, p.Target.Addr.IsLoopback(), pod != nil && pod.Spec.HostNetwork:
		return proxy.NodeClient
	case pod != nil, p.Client.Kind == OnePod:
		return proxy.PodClient
	case p.Client.Kind == FromAddress && p.nodeByAddress[p.Client.Addr] != nil:
		return proxy.NodeClient
	case p.Client.Kind == FromAddress && p.inPodRange(p.Client.Addr):
		return proxy.PodClient
	}
	return proxy.ExternalClient
}

// healthPortNote: a load balancer's health check port is given up with the
// policy, and a new one is allocated when it comes back.
func (p *Pass) healthPortNote() string {
	if p.Service.Spec.HealthCheckNodePort == 0 {
		return ""
	}
	return fmt.Sprintf("; the load balancer's health check port %d goes away", p.Service.Spec.HealthCheckNodePort)
}

// askedNodes are the nodes that the question is about: the one that the target
// or --nodes names, or those of --nodes to which a client from outside is sent.
func (p *Pass) askedNodes() []string {
	if p.Target.Node != "" {
		return []string{p.Target.Node}
	}
	if p.Client.Kind == FromExternal || len(p.opts.Nodes) == 1 {
		return p.opts.Nodes
	}
	return nil
}

func intersect(a, b []string) []string {
	var out []string
	for _, s := range a {
		if slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

func (p *Pass) clientEvidence(node string) diagnosis.Evidence {
	if pod := p.clientPod(); pod != nil {
		return podEvidence(pod, ".spec.nodeName", node)
	}
	return diagnosis.Evidence{Source: "node/" + node, Ref: "node/" + node, Quote: "the client is " + p.Client.String(), Command: kubectl("get", "node", node, "-o", "wide")}
}
