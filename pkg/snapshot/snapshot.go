// Package snapshot holds the facts that a walk is made from: Kubernetes
// objects in their own types, the state of zero or more nodes as the ordinary
// tools print it, and a record of what was read, when, and what could not be
// and why. A Snapshot is plain data; nothing in it has been judged. It is
// written to and read from a bundle whole (see Write and Read).
package snapshot

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Snapshot is everything one walk may know.
type Snapshot struct {
	// TakenAt is when the facts were read; the walk has no other clock.
	TakenAt time.Time
	// Inputs lists the sources, for the report.
	Inputs []Input
	// Reads says of each resource whether it was read, and where.
	Reads   Reads
	Objects Objects
	// Nodes is sorted by name.
	Nodes []*NodeState
}

// Input is one source that was read, or could not be.
type Input struct {
	Kind  string    `json:"kind"`           // api, objects, node-state, bundle, local, exec
	Ref   string    `json:"ref"`            // a server, file or node
	Node  string    `json:"node,omitempty"` // for a node's state
	At    time.Time `json:"at,omitzero"`
	Error string    `json:"error,omitempty"`
}

// Objects are API objects in their own types, stripped to the fields that a
// walk reads (see Strip). Every slice is sorted by namespace and name. The
// walk never changes one in place.
type Objects struct {
	Services        []corev1.Service
	EndpointSlices  []discoveryv1.EndpointSlice
	Endpoints       []corev1.Endpoints //nolint:staticcheck // the legacy objects are compared with the slices
	Pods            []corev1.Pod
	Deployments     []appsv1.Deployment
	ReplicaSets     []appsv1.ReplicaSet
	StatefulSets    []appsv1.StatefulSet
	DaemonSets      []appsv1.DaemonSet
	Nodes           []corev1.Node
	Namespaces      []corev1.Namespace
	NetworkPolicies []networkingv1.NetworkPolicy
	Events          []corev1.Event
	ServiceCIDRs    []networkingv1.ServiceCIDR
	IPAddresses     []networkingv1.IPAddress
	// ConfigMaps holds kube-proxy's configuration, what says whether a network
	// plugin stands in for it, and nothing else.
	ConfigMaps []corev1.ConfigMap
}

// Node returns the state of the node with that name, or nil.
func (s *Snapshot) Node(name string) *NodeState {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}
