package proxy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// categories are the endpoints of one Service port as one node's kube-proxy
// sorts them (pkg/proxy/topology.go, CategorizeEndpoints).
type categories struct {
	// cluster are those that a Cluster policy may use, local those that a Local
	// policy may use. Each is the ready ones or, where there is none, those that
	// terminate but still serve (KEP-1669; since 1.26 by default).
	cluster, local []endpoint
	// usable: there is an endpoint somewhere. Without, the Service is refused;
	// with, an empty local list drops.
	usable bool
	// topology is what hints did to cluster.
	topology Topology
	// unsureTopology: hints would narrow it in some zone, and the zone is not known.
	unsureTopology bool
}

func categorize(all []endpoint, node Node) categories {
	var c categories
	ready := filter(all, func(e endpoint) bool { return e.Ready })
	draining := filter(all, func(e endpoint) bool { return e.Serving && e.Terminating })

	c.cluster, c.topology, c.unsureTopology = byHints(ready, node)
	if len(c.cluster) == 0 {
		c.cluster = draining
	}
	c.local = filter(ready, isLocal)
	if len(c.local) == 0 {
		c.local = filter(draining, isLocal)
	}
	c.usable = len(ready) > 0 || len(draining) > 0
	return c
}

func isLocal(e endpoint) bool { return e.Local }

// byHints narrows the ready endpoints to those meant for the node, or else for
// its zone. One endpoint without hints, or no endpoint for this node or zone,
// switches it off.
func byHints(ready []endpoint, node Node) (narrowed []endpoint, t Topology, unsure bool) {
	t.Ready = len(ready)
	if node.SameNodeHints != SettingOff && all(ready, func(e endpoint) bool { return e.hints != nil && len(e.hints.ForNodes) > 0 }) {
		if mine := filter(ready, func(e endpoint) bool { return forNode(e, node.Name) }); len(mine) > 0 {
			t.Node = node.Name
			return mine, t, false
		}
	}
	if all(ready, func(e endpoint) bool { return e.hints != nil && len(e.hints.ForZones) > 0 }) {
		if node.ZoneUnknown {
			return ready, t, true
		}
		if mine := filter(ready, func(e endpoint) bool { return forZone(e, node.Zone) }); len(mine) > 0 && node.Zone != "" {
			t.Zone = node.Zone
			return mine, t, false
		}
	}
	return ready, t, false
}

func forNode(e endpoint, name string) bool {
	for _, n := range e.hints.ForNodes {
		if n.Name == name {
			return true
		}
	}
	return false
}

func forZone(e endpoint, zone string) bool {
	for _, z := range e.hints.ForZones {
		if z.Name == zone {
			return true
		}
	}
	return false
}

func filter(in []endpoint, keep func(endpoint) bool) []endpoint {
	var out []endpoint
	for _, e := range in {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// all is false for an empty list: there is nothing that the hints say.
func all(in []endpoint, f func(endpoint) bool) bool {
	return len(in) > 0 && !slices.ContainsFunc(in, func(e endpoint) bool { return !f(e) })
}

// InternalLocal says whether internalTrafficPolicy Local is in force.
func InternalLocal(svc *corev1.Service) bool {
	p := svc.Spec.InternalTrafficPolicy
	return p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal
}

// ExternalLocal says whether externalTrafficPolicy Local is in force: only for
// a Service that is reached from outside at all.
func ExternalLocal(svc *corev1.Service) bool {
	if svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return false
	}
	switch svc.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeExternalName:
		return false
	}
	return len(svc.Spec.ExternalIPs) > 0
}

// String names the hints for a report; "" where they narrowed nothing.
func (t Topology) String() string {
	switch {
	case t.Node != "":
		return "topology hints for node " + t.Node
	case t.Zone != "":
		return "topology hints for zone " + t.Zone
	}
	return ""
}
