package walk

import (
	"fmt"
	"slices"

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
		serve, without := p.nodesByLocalEndpoint(proxy.ExternalClient, func(f proxy.Frontend) bool { return f.Kind != proxy.ClusterIP })
		if len(serve) == 0 || len(without) == 0 {
			return // none at all is layer 2's
		}
		f := Finding{
			Severity: diagnosis.Warning,
			Title:    fmt.Sprintf("externalTrafficPolicy Local, and %d of %s without a ready endpoint: they drop what comes from outside", len(without), count(len(serve)+len(without), "node")),
			Expected: "an endpoint on every node that gets traffic from outside",
			Found:    fmt.Sprintf("endpoints on %s; none on %s", list(serve), list(without)),
			Evidence: []diagnosis.Evidence{p.serviceField(".spec.externalTrafficPolicy", "Local"), p.endpointNodes(serve)},
			Fixes: []Proposal{p.specFix("let every node serve: externalTrafficPolicy Cluster", "externalTrafficPolicy",
				corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal,
				"this Service alone; pods then see a node's address in place of the client's, and traffic may take one hop more"+p.healthPortNote(),
				func(svc *corev1.Service) {
					svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
				})},
		}
		if asked := p.askedNodes(); slices.ContainsFunc(asked, func(n string) bool { return slices.Contains(without, n) }) {
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("externalTrafficPolicy Local, and node %s, which was asked, has no ready endpoint", list(intersect(asked, without)))
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
		serve, without := p.nodesByLocalEndpoint(proxy.PodClient, func(f proxy.Frontend) bool { return f.Kind == proxy.ClusterIP })
		if len(serve) == 0 || len(without) == 0 {
			return
		}
		f := Finding{
			Severity: diagnosis.Warning,
			Title:    fmt.Sprintf("internalTrafficPolicy Local, and %d of %s without a ready endpoint: their pods reach nothing", len(without), count(len(serve)+len(without), "node")),
			Expected: "an endpoint on every node that has clients",
			Found:    fmt.Sprintf("endpoints on %s; none on %s", list(serve), list(without)),
			Evidence: []diagnosis.Evidence{p.serviceField(".spec.internalTrafficPolicy", "Local"), p.endpointNodes(serve)},
			Fixes: []Proposal{p.specFix("let clients reach every endpoint: internalTrafficPolicy Cluster", "internalTrafficPolicy",
				corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal,
				"this Service alone; its traffic may then leave the client's node",
				func(svc *corev1.Service) {
					cluster := corev1.ServiceInternalTrafficPolicyCluster
					svc.Spec.InternalTrafficPolicy = &cluster
				})},
		}
		if n := p.clientNode(); n != "" {
			if !slices.Contains(without, n) {
				return // this client is served
			}
			f.Severity = diagnosis.Error
			f.Title = fmt.Sprintf("internalTrafficPolicy Local, and no ready endpoint on the client's node %s", n)
			f.Evidence = append(f.Evidence, p.clientEvidence(n))
		}
		p.Report(f)
	},
}

// nodesByLocalEndpoint says which nodes forward a client's packet to every one
// of the frontends, and which drop it at one at least.
func (p *Pass) nodesByLocalEndpoint(client proxy.ClientKind, which func(proxy.Frontend) bool) (serve, without []string) {
	for i := range p.snap.Objects.Nodes {
		n := &p.snap.Objects.Nodes[i]
		node := proxy.Node{Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone]}
		drops, forwards := false, false
		for _, f := range p.Frontends() {
			if !which(f) {
				continue
			}
			switch proxy.Expect(p.Service, p.Slices(), node, client, f).Action {
			case proxy.Drop:
				drops = true
			case proxy.Forward:
				forwards = true
			}
		}
		switch {
		case drops:
			without = append(without, n.Name)
		case forwards:
			serve = append(serve, n.Name)
		}
	}
	return serve, without
}

func (p *Pass) endpointNodes(serve []string) diagnosis.Evidence {
	e := p.slicesEvidence("nodeName " + list(serve))
	e.Command = kubectl("get", "endpointslices", "-n", p.Service.Namespace, "-l", "kubernetes.io/service-name="+p.Service.Name,
		"-o", "jsonpath={.items[*].endpoints[*].nodeName}")
	return e
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
// names, or those that --nodes gives for a client outside.
func (p *Pass) askedNodes() []string {
	if p.Target.Node != "" {
		return []string{p.Target.Node}
	}
	if p.Client.Kind == FromExternal {
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
