package netpol

import (
	"fmt"
	"strings"
)

// Verdict is the answer to "may it". It has three values, because policies
// that can't be read, or facts that were not read, must never look open.
type Verdict string

const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied"
	Unknown Verdict = "unknown"
)

// Direction is one of the two that a NetworkPolicy isolates separately. A flow
// has to be allowed in both: Egress by the policies that select the client,
// Ingress by those that select the backend.
type Direction string

const (
	Ingress Direction = "Ingress"
	Egress  Direction = "Egress"
)

// rules and peers are the direction's fields in a NetworkPolicySpec.
func (d Direction) rules() string {
	if d == Egress {
		return "egress"
	}
	return "ingress"
}

func (d Direction) peers() string {
	if d == Egress {
		return "to"
	}
	return "from"
}

// Tier says which kind of policy a direction's verdict comes from.
type Tier string

const (
	// TierNetworkPolicy: policies of networking.k8s.io/v1 isolate the pod in
	// this direction (or might, where the verdict is unknown).
	TierNetworkPolicy Tier = "NetworkPolicy"
	// TierDefault: no policy isolates the pod in this direction.
	TierDefault Tier = "Default"
	// TierExempt: the flow is outside of what policies govern on this side: the
	// end is no pod, shares its node's network, or is the pod's own node.
	TierExempt Tier = "Exempt"
)

// PolicyRef names a NetworkPolicy.
type PolicyRef struct {
	Namespace, Name string
}

func (p PolicyRef) String() string { return p.Namespace + "/" + p.Name }

// RuleRef points at the rule of a policy that admitted a flow, and at the
// items of its lists that did.
type RuleRef struct {
	Policy    PolicyRef
	Direction Direction
	Rule      int // index in spec.ingress or spec.egress
	Peer      int // index in from or to; -1 where the rule lists none and so admits every peer
	Port      int // index in ports; -1 where the rule lists none and so admits every port
}

// String gives the reference as a reader can follow it:
// "ns/policy#ingress[0].from[1].ports[0]".
func (r RuleRef) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s#%s[%d]", r.Policy, r.Direction.rules(), r.Rule)
	if r.Peer >= 0 {
		fmt.Fprintf(&b, ".%s[%d]", r.Direction.peers(), r.Peer)
	}
	if r.Port >= 0 {
		fmt.Fprintf(&b, ".ports[%d]", r.Port)
	}
	return b.String()
}

// Result is the verdict in one direction and all that it rests on. The slices
// may be shared between results; don't change them.
type Result struct {
	Direction Direction
	Verdict   Verdict
	Tier      Tier
	// Isolated says that at least one policy certainly isolates the pod on this
	// side in this direction; Isolating lists all that do, in the order in which
	// they were given.
	Isolated  bool
	Isolating []PolicyRef
	// MayIsolate lists the policies of which that can't be said, because they
	// are invalid; the caveats say why.
	MayIsolate []PolicyRef
	// AllowedBy is the rule that admits the flow; nil unless Verdict is Allowed
	// and Tier is TierNetworkPolicy.
	AllowedBy *RuleRef
	Caveats   []Caveat
}

// Decision is the answer for one flow.
type Decision struct {
	// Verdict is Denied where either direction is, otherwise Unknown where
	// either is, otherwise Allowed.
	Verdict Verdict
	Egress  Result // by the policies that select the flow's From
	Ingress Result // by the policies that select the flow's To
}

// Caveats are those of both directions, egress first, each once.
func (d Decision) Caveats() []Caveat {
	var out []Caveat
	for _, r := range []Result{d.Egress, d.Ingress} {
		for _, c := range r.Caveats {
			if !hasCaveat(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

func hasCaveat(in []Caveat, c Caveat) bool {
	for _, have := range in {
		if have == c {
			return true
		}
	}
	return false
}

func combine(egress, ingress Verdict) Verdict {
	switch {
	case egress == Denied || ingress == Denied:
		return Denied
	case egress == Unknown || ingress == Unknown:
		return Unknown
	}
	return Allowed
}

// Caveat is something a reader of the verdict has to know.
type Caveat struct {
	Kind CaveatKind
	// Contested says that conformant network plugins differ here, or that the
	// API leaves it undefined: another verdict than this one is possible.
	Contested bool
	// Policy is set where the caveat is about one policy.
	Policy PolicyRef
	Text   string
}

// CaveatKind is what a caveat is about; a plain word, stable for callers.
type CaveatKind string

const (
	// CaveatHostNetworkSubject: the pod shares its node's network, so that the
	// policies that would select it by its labels are not enforced on it by
	// most plugins; NetworkPolicy leaves it undefined.
	CaveatHostNetworkSubject CaveatKind = "HostNetworkSubject"
	// CaveatHostNetworkPeer: the other end shares its node's network; selectors
	// don't reach it, it is seen as its node's address.
	CaveatHostNetworkPeer CaveatKind = "HostNetworkPeer"
	// CaveatLoopback: a pod always reaches its own address.
	CaveatLoopback CaveatKind = "Loopback"
	// CaveatHairpin: a pod that reaches itself through a Service; undefined.
	CaveatHairpin CaveatKind = "Hairpin"
	// CaveatLocalNode: a pod's own node always reaches it.
	CaveatLocalNode CaveatKind = "LocalNode"
	// CaveatToLocalNode: egress to the pod's own node, on which the API's
	// reference and the documentation disagree.
	CaveatToLocalNode CaveatKind = "ToLocalNode"
	// CaveatIPBlockInCluster: an ipBlock decides about a pod's or a node's
	// address.
	CaveatIPBlockInCluster CaveatKind = "IPBlockInCluster"
	// CaveatSidecarPort: a named port that only a native sidecar declares.
	CaveatSidecarPort CaveatKind = "SidecarPort"
	// CaveatSplitPeers: admitted by a namespaceSelector alone, beside a
	// podSelector alone in the same list: two items (or) where one (and) may
	// have been meant.
	CaveatSplitPeers CaveatKind = "SplitPeers"
	// CaveatInvalidPolicy: the API server would not take this policy; what it
	// would do is not known.
	CaveatInvalidPolicy CaveatKind = "InvalidPolicy"
	// CaveatNamespaceUnread: a namespace's labels are not known.
	CaveatNamespaceUnread CaveatKind = "NamespaceUnread"
	// CaveatAddressUnknown: the peer has no address (yet) in this family.
	CaveatAddressUnknown CaveatKind = "AddressUnknown"
	// CaveatPeerUnknown: nothing is known of an end of the flow.
	CaveatPeerUnknown CaveatKind = "PeerUnknown"
	// CaveatPortUnknown: the flow's port is not known.
	CaveatPortUnknown CaveatKind = "PortUnknown"
	// CaveatProtocol: NetworkPolicy defines only TCP, UDP and SCTP.
	CaveatProtocol CaveatKind = "Protocol"
	// CaveatFamily: the verdict differs between IPv4 and IPv6, or the flow's
	// ends have no family in common.
	CaveatFamily CaveatKind = "Family"
	// CaveatPodFinished: the pod has run to its end (Succeeded or Failed): it
	// has no address and no policy holds for it.
	CaveatPodFinished CaveatKind = "PodFinished"
)
