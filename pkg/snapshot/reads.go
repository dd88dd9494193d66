package snapshot

import "slices"

// Resource is an API resource by the plural name that kubectl and RBAC use.
type Resource string

const (
	Services        Resource = "services"
	EndpointSlices  Resource = "endpointslices.discovery.k8s.io"
	Endpoints       Resource = "endpoints"
	Pods            Resource = "pods"
	Deployments     Resource = "deployments.apps"
	ReplicaSets     Resource = "replicasets.apps"
	StatefulSets    Resource = "statefulsets.apps"
	DaemonSets      Resource = "daemonsets.apps"
	Nodes           Resource = "nodes"
	Namespaces      Resource = "namespaces"
	NetworkPolicies Resource = "networkpolicies.networking.k8s.io"
	Events          Resource = "events"
	ServiceCIDRs    Resource = "servicecidrs.networking.k8s.io"
	IPAddresses     Resource = "ipaddresses.networking.k8s.io"
	ConfigMaps      Resource = "configmaps"
)

// Resources are all that a Snapshot can hold, in the order of Objects.
var Resources = []Resource{
	Services, EndpointSlices, Endpoints, Pods, Deployments, ReplicaSets, StatefulSets, DaemonSets,
	Nodes, Namespaces, NetworkPolicies, Events, ServiceCIDRs, IPAddresses, ConfigMaps,
}

// Namespaced says whether objects of the resource live in a namespace.
func (r Resource) Namespaced() bool {
	switch r {
	case Nodes, Namespaces, ServiceCIDRs, IPAddresses:
		return false
	}
	return true
}

// ReadStatus tells "read" (perhaps empty) from the two ways of not knowing.
type ReadStatus string

const (
	// NotRead: nobody asked for it. The zero value.
	NotRead ReadStatus = ""
	// Failed: it was asked for and could not be read; Why says so.
	Failed ReadStatus = "failed"
	// Done: it was read; what is not there does not exist.
	Done ReadStatus = "read"
)

// Read records one attempt to read a resource.
type Read struct {
	Resource Resource `json:"resource"`
	// Namespace is the one that was read; empty for all, or for a
	// cluster-scoped resource.
	Namespace string `json:"namespace,omitempty"`
	// Name is set where a single object was read; nothing is then known of
	// the others.
	Name string `json:"name,omitempty"`
	// Only restricts a read that was not of everything, in words a user knows
	// ("involvedObject.kind=Pod"); empty for everything.
	Only   string     `json:"only,omitempty"`
	Status ReadStatus `json:"status"`
	// Why says what came back, for Failed.
	Why string `json:"why,omitempty"`
	// Supply is the command, or the RBAC rule, that would make it readable.
	Supply string `json:"supply,omitempty"`
}

// Reads is the record of all attempts.
type Reads []Read

// Of says what is known of a resource in a namespace ("" means in all of
// them; pass "" for cluster-scoped resources too). A read of all namespaces
// answers for each one; a read of one namespace, or of one object, does not
// answer for all. Where nothing answers, a failed attempt is returned if there
// was one, because it says why.
func (rs Reads) Of(r Resource, namespace string) Read {
	failed := Read{Resource: r, Namespace: namespace}
	for _, rd := range rs {
		if rd.Resource != r || rd.Name != "" || (rd.Namespace != "" && rd.Namespace != namespace) {
			continue
		}
		switch rd.Status {
		case Done:
			return rd
		case Failed:
			failed = rd
		}
	}
	return failed
}

// Object says what is known of one object: a read of that object, or of
// everything where it would be.
func (rs Reads) Object(r Resource, namespace, name string) Read {
	all := rs.Of(r, namespace)
	if all.Status == Done {
		return all
	}
	for _, rd := range rs {
		if rd.Resource == r && rd.Name == name && rd.Namespace == namespace && rd.Status != NotRead {
			return rd
		}
	}
	return all
}

// Has says whether the resource was read in the namespace, perhaps empty.
func (rs Reads) Has(r Resource, namespace string) bool {
	return rs.Of(r, namespace).Status == Done
}

// Add appends an attempt, unless the same one is there.
func (rs *Reads) Add(r Read) {
	if !slices.Contains(*rs, r) {
		*rs = append(*rs, r)
	}
}
