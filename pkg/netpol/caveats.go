package netpol

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// caveats adds what has to be known whichever rule decided.
func (q *query) caveats(r *Result) {
	if !definedProtocol(q.protocol) && r.Tier == TierNetworkPolicy {
		r.unknown(Caveat{Kind: CaveatProtocol, Contested: true, Text: fmt.Sprintf("NetworkPolicy defines TCP, UDP and SCTP only; what becomes of %s from or to an isolated pod depends on the plugin", q.protocol)})
	}
	other := q.other.pod
	if other != nil && other.finished {
		r.caveat(Caveat{Kind: CaveatPodFinished, Text: fmt.Sprintf("pod %s/%s has finished (%s): no selector reaches it, and its address may be another pod's", other.namespace, other.object.Name, other.object.Status.Phase)})
	}
	if other != nil && other.hostNetwork {
		r.caveat(Caveat{Kind: CaveatHostNetworkPeer, Contested: true, Text: fmt.Sprintf("pod %s/%s is on its node's network: most plugins see the node's address, which no selector matches; NetworkPolicy leaves it undefined", other.namespace, other.object.Name)})
	}
	if q.direction == Egress && r.Verdict == Denied && q.subject.pod.onNode(q.other) {
		r.caveat(Caveat{Kind: CaveatToLocalNode, Contested: true, Text: "the documentation says that a pod always reaches its own node, the API's reference does not; plugins differ"})
	}
}

// explain words a match that is neither no nor yes.
func (q *query) explain(m match, p *policy, at RuleRef) Caveat {
	c := Caveat{Kind: m.why, Policy: p.ref}
	switch m.why {
	case CaveatInvalidPolicy:
		c.Text = m.issue.String()
	case CaveatIPBlockInCluster:
		c.Contested = true
		c.Text = fmt.Sprintf("%s matches the address %s of a pod or node by ipBlock: the conformance tests ask for it, but not every plugin does so (Cilium by default does not)", at, q.otherIP)
	case CaveatSidecarPort:
		c.Contested = true
		c.Text = fmt.Sprintf("%s names a port that only a native sidecar (an init container with restartPolicy Always) declares: a Service resolves it, not every policy engine does", at)
	case CaveatNamespaceUnread:
		c.Text = fmt.Sprintf("%s: the labels of namespace %s are not known", at, q.other.pod.namespace)
	case CaveatAddressUnknown:
		c.Text = fmt.Sprintf("%s has an ipBlock, and the peer's address is not known", at)
	case CaveatPeerUnknown:
		c.Text = fmt.Sprintf("%s: nothing is known of the peer", at)
	case CaveatPortUnknown:
		c.Text = fmt.Sprintf("%s restricts ports, and the flow's port is not known", at)
	}
	return c
}

// explainUnknown names all that kept the verdict from being known.
func (q *query) explainUnknown(r *Result, iso *isolation) {
	for _, p := range iso.perhaps {
		if i := p.subject.issue; i != nil {
			r.caveat(Caveat{Kind: CaveatInvalidPolicy, Policy: p.ref, Text: i.String()})
		}
		if i := p.half(q.direction).typesBad; i != nil {
			r.caveat(Caveat{Kind: CaveatInvalidPolicy, Policy: p.ref, Text: i.String()})
		}
	}
	for _, p := range iso.by {
		rules := p.half(q.direction).rules
		for i := range rules {
			m := rules[i].match(q, p.ref.Namespace)
			if m.grade != maybe {
				continue
			}
			at := RuleRef{Policy: p.ref, Direction: q.direction, Rule: i, Peer: m.peer, Port: m.port}
			for _, part := range []match{m.peerMatch, m.portMatch} {
				if part.grade == maybe {
					r.caveat(q.explain(part, p, at))
				}
			}
		}
	}
}

// splitPeers notices a rule that admits the peer by its namespace alone while
// another item of the same list asks for labels that it does not have: an
// "or" that may have been meant as an "and".
func (q *query) splitPeers(at ruleAt, m ruleMatch) (Caveat, bool) {
	if m.peer < 0 || !q.other.selectable() {
		return Caveat{}, false
	}
	items := at.policy.half(q.direction).rules[at.index].peers
	by := &items[m.peer]
	if by.namespaces == nil || by.pods != nil || by.namespaces.empty() {
		return Caveat{}, false
	}
	for i := range items {
		o := &items[i]
		if o.namespaces != nil || o.pods == nil || o.pods.match(q.other.pod.labels).grade != no {
			continue
		}
		field := "spec." + q.direction.rules()
		return Caveat{Kind: CaveatSplitPeers, Policy: at.policy.ref, Text: fmt.Sprintf(
			"%s admits every pod of the namespaces that %s[%d].%s[%d] selects; the podSelector of %s[%d] is a separate item, so it does not narrow that down",
			at.policy.ref, field, at.index, q.direction.peers(), m.peer, q.direction.peers(), i)}, true
	}
	return Caveat{}, false
}

func (s *selector) empty() bool {
	return s.issue == nil && s.parsed.Empty()
}

func (s *selector) matches(set labels.Set) bool {
	return s.issue == nil && s.parsed.Matches(set)
}

func refList(refs []PolicyRef) string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	return strings.Join(names, ", ")
}
