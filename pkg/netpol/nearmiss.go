package netpol

import (
	"sort"
)

// NearMiss is one rule of an isolating policy that does not admit a flow, and
// what in it fails.
type NearMiss struct {
	Policy    PolicyRef
	Direction Direction
	Rule      int // index in spec.ingress or spec.egress
	// PeerFailed: no item of from or to matches. PortFailed: no item of ports
	// has the port. ProtocolFailed: none that has the port, or none at all
	// where PortFailed is set too, has the protocol.
	PeerFailed, PortFailed, ProtocolFailed bool
	// Misses say how each item fails: those of ports first, in the order of
	// the lists. Items of a part that did not fail are not in it.
	Misses []Miss
}

// Near says that one of the misses looks like a mistake.
func (n NearMiss) Near() bool {
	for _, m := range n.Misses {
		if m.Near {
			return true
		}
	}
	return false
}

// Miss is one thing in one item of a rule's lists that keeps it from matching.
type Miss struct {
	Kind MissKind
	// Field is its place in the policy: "spec.ingress[0].from[1].podSelector.matchLabels[app]".
	Field string
	// Item is the index in ports, or in from or to.
	Item int
	// Want is what the policy names and Got what the flow has: "8080/TCP" and
	// "80/TCP", "app=web" and "app=wbe".
	Want, Got string
	// Key is the label's key where it is about one, and GotKey the key under
	// which the object has the value (or nearly it).
	Key, GotKey string
	// Distance is the edit distance where two words were compared.
	Distance int
	// Selects is how many pods the item's selectors reach as it stands; -1
	// where the item has none.
	Selects int
	// Only: mending this alone lets the item match.
	Only bool
	// Near: it looks like a mistake rather than a rule for somebody else.
	Near bool
}

// MissKind is the manner of a miss; a plain word, stable for callers.
type MissKind string

const (
	// The item names other ports.
	MissPort MissKind = "Port"
	// It names the Service's port (Flow.VIPPort) and not the pod's.
	MissServicePort MissKind = "ServicePort"
	// It has the port, but for another protocol.
	MissProtocol MissKind = "Protocol"
	// It names a port that the destination declares nowhere under that name and
	// protocol.
	MissPortNameUndeclared MissKind = "PortNameUndeclared"
	// The destination declares that name, as another number.
	MissPortNameElsewhere MissKind = "PortNameElsewhere"
	// It names a port, and the destination is no pod that a name could be
	// looked up in.
	MissPortNameNoPod MissKind = "PortNameNoPod"

	// The pod has the label with another value.
	MissPodLabelValue MissKind = "PodLabelValue"
	// The pod has the value under another key.
	MissPodLabelKey MissKind = "PodLabelKey"
	// The pod has no such label.
	MissPodLabelAbsent MissKind = "PodLabelAbsent"
	// The pod has a label that the selector excludes.
	MissPodLabelExcluded MissKind = "PodLabelExcluded"
	// The same four of the namespace's labels.
	MissNamespaceLabelValue    MissKind = "NamespaceLabelValue"
	MissNamespaceLabelKey      MissKind = "NamespaceLabelKey"
	MissNamespaceLabelAbsent   MissKind = "NamespaceLabelAbsent"
	MissNamespaceLabelExcluded MissKind = "NamespaceLabelExcluded"
	// A podSelector without namespaceSelector means the policy's own
	// namespace, and the peer is in another.
	MissNamespaceSelector MissKind = "NamespaceSelector"
	// Both selectors in one item (and), where as two items (or) they would
	// admit the peer.
	MissSplitPeers MissKind = "SplitPeers"

	// The address is not within the ipBlock.
	MissIPBlock MissKind = "IPBlock"
	// It is within one of the ipBlock's exceptions.
	MissIPBlockExcept MissKind = "IPBlockExcept"
	// It is of the other address family.
	MissIPBlockFamily MissKind = "IPBlockFamily"
	// The ipBlock holds the Service's address (Flow.VIP), which policies don't
	// see, and not the backend's.
	MissIPBlockVIP MissKind = "IPBlockVIP"
	// Selectors reach no pod on its node's network.
	MissHostNetwork MissKind = "HostNetwork"
	// Selectors reach pods, and the peer is none that runs.
	MissNotAPod MissKind = "NotAPod"
	// It can't be said, because the item is invalid or a fact is missing.
	MissUnknown MissKind = "Unknown"
)

// NearMisses explains a denied direction of a flow: every rule of every policy
// that isolates there, nearest first: rules of which only the port fails, then
// those of which only the peer does, then the rest; in each of these, those
// that look like a mistake first. It is empty where the direction is not
// denied, and where the policies have no rules at all.
func (e *Evaluator) NearMisses(f Flow, d Direction) []NearMiss {
	from, to := e.endpoint(f.From), e.endpoint(f.To)
	for _, pair := range addrPairs(from, to) {
		decision := e.decide(f, from, to, pair)
		q, ingress := e.queries(f, from, to, pair)
		result := decision.Egress
		if d == Ingress {
			q, result = ingress, decision.Ingress
		}
		if result.Verdict == Denied {
			return q.nearMisses(f)
		}
	}
	return nil
}

func (q *query) nearMisses(f Flow) []NearMiss {
	var out []NearMiss
	for _, p := range q.subject.pod.isolation(q.direction).by {
		rules := p.half(q.direction).rules
		for i := range rules {
			n := NearMiss{Policy: p.ref, Direction: q.direction, Rule: i}
			q.missPorts(&n, &rules[i], f)
			q.missPeers(&n, &rules[i], f)
			out = append(out, n)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].before(out[j]) })
	return out
}

func (n NearMiss) before(o NearMiss) bool {
	if a, b := n.rank(), o.rank(); a != b {
		return a < b
	}
	if n.Near() != o.Near() {
		return n.Near()
	}
	return n.distance() < o.distance()
}

// rank orders by what fails: only the port or protocol, only the peer, both.
func (n NearMiss) rank() int {
	switch {
	case !n.PeerFailed:
		return 0
	case !n.PortFailed && !n.ProtocolFailed:
		return 1
	}
	return 2
}

// distance is the smallest among the misses that look like mistakes.
func (n NearMiss) distance() int {
	least := maxDistance
	for _, m := range n.Misses {
		if m.Near && m.Distance < least {
			least = m.Distance
		}
	}
	return least
}
