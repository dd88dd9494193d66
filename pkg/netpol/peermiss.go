package netpol

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/labels"
)

// missPeers adds how the rule's peers fail; nothing where they don't.
func (q *query) missPeers(n *NearMiss, r *rule, f Flow) {
	if len(r.peers) == 0 {
		return
	}
	for i := range r.peers {
		if r.peers[i].match(q, n.Policy.Namespace).grade >= contested {
			return
		}
	}
	n.PeerFailed = true
	for i := range r.peers {
		misses := q.missPeer(&r.peers[i], n.Policy.Namespace, f)
		for j := range misses {
			misses[j].Item = i
			// A split is a remedy of the whole item beside its other misses.
			misses[j].Only = misses[j].Kind == MissSplitPeers || withoutSplit(misses) == 1
		}
		n.Misses = append(n.Misses, misses...)
	}
}

func withoutSplit(misses []Miss) (n int) {
	for _, m := range misses {
		if m.Kind != MissSplitPeers {
			n++
		}
	}
	return n
}

func (q *query) missPeer(p *peerItem, own string, f Flow) []Miss {
	switch {
	case p.match(q, own).grade == maybe:
		return []Miss{{Kind: MissUnknown, Field: p.field, Got: q.otherWord(), Selects: -1}}
	case p.block != nil:
		return []Miss{q.missBlock(p, f)}
	case !q.other.selectable():
		return []Miss{q.missNoPod(p, own)}
	}
	out := q.missSelectors(p, own)
	if m, ok := q.missSplit(p, own); ok {
		out = append(out, m)
	}
	selects := q.evaluator.selects(p, own)
	for i := range out {
		out[i].Selects = selects
		out[i].Near = out[i].near(q, p, own)
	}
	return out
}

func (q *query) otherWord() string {
	switch {
	case q.other.pod != nil:
		return fmt.Sprintf("pod %s/%s", q.other.pod.namespace, q.other.pod.object.Name)
	case q.other.node != "":
		return "node " + q.other.node
	case q.otherIP.IsValid():
		return q.otherIP.String()
	}
	return "an unknown peer"
}

// selects counts the pods that a peer of a policy in that namespace reaches.
// An item belongs to one policy, so that own goes with it.
func (e *Evaluator) selects(p *peerItem, own string) int {
	if n, known := e.reached.Load(p); known {
		return n.(int)
	}
	n := 0
	for _, candidate := range e.live {
		if p.matchNamespace(e, candidate.namespace, own).grade == yes && (p.pods == nil || p.pods.matches(candidate.labels)) {
			n++
		}
	}
	e.reached.Store(p, n)
	return n
}

// missNoPod: selectors can't reach what is no pod of its own network. Where
// the labels would fit it is near: somebody meant this pod.
func (q *query) missNoPod(p *peerItem, own string) Miss {
	m := Miss{Kind: MissNotAPod, Field: p.field, Want: "a pod", Got: q.otherWord(), Selects: q.evaluator.selects(p, own)}
	if pod := q.other.pod; pod != nil && pod.hostNetwork {
		m.Kind, m.Want = MissHostNetwork, "a pod with a network of its own"
		m.Near = p.matchNamespace(q.evaluator, pod.namespace, own).grade == yes && (p.pods == nil || p.pods.matches(pod.labels))
	}
	return m
}

func (q *query) missBlock(p *peerItem, f Flow) Miss {
	m := Miss{Kind: MissIPBlock, Field: p.field + ".ipBlock", Want: p.block.text, Got: q.otherIP.String(), Selects: -1}
	switch {
	case p.block.cidr.Addr().Is4() != q.otherIP.Is4():
		m.Kind = MissIPBlockFamily
	case p.block.cidr.Contains(q.otherIP):
		m.Kind = MissIPBlockExcept
	case q.direction == Egress && f.VIP.IsValid() && p.block.holds(f.VIP.Unmap()):
		m.Kind, m.Near = MissIPBlockVIP, true
	}
	return m
}

// holds: within the block, and in no exception that could be read.
func (b *ipBlock) holds(a netip.Addr) bool {
	if !b.cidr.Contains(a) {
		return false
	}
	for _, except := range b.except {
		if except.Contains(a) {
			return false
		}
	}
	return true
}

func (q *query) missSelectors(p *peerItem, own string) []Miss {
	var out []Miss
	other := q.other.pod
	if p.namespaces != nil {
		set, read := q.evaluator.namespaces[other.namespace]
		if !read {
			set = labels.Set{metadataName: other.namespace}
		}
		out = missLabels(p.namespaces, set, namespaceKinds)
	} else if other.namespace != own {
		out = append(out, Miss{
			Kind: MissNamespaceSelector, Field: p.field,
			Want: "a pod in namespace " + own + " (no namespaceSelector)", Got: "namespace " + other.namespace,
		})
	}
	if p.pods != nil {
		out = append(out, missLabels(p.pods, other.labels, podKinds)...)
	}
	return out
}

// missSplit: one item with both selectors asks for both. As two items, which
// is what a list with one more dash says, either would do.
func (q *query) missSplit(p *peerItem, own string) (Miss, bool) {
	if p.namespaces == nil || p.pods == nil {
		return Miss{}, false
	}
	other := q.other.pod
	byNamespace := p.matchNamespace(q.evaluator, other.namespace, own).grade == yes
	byPod := other.namespace == own && p.pods.matches(other.labels)
	if !byNamespace && !byPod {
		return Miss{}, false
	}
	m := Miss{Kind: MissSplitPeers, Field: p.field, Want: "namespaceSelector and podSelector both", Got: "namespaceSelector only"}
	if byPod {
		m.Got = "podSelector only"
	}
	return m, true
}

// near judges whether a miss looks like a mistake. A selector that reaches
// other pods as it stands is most likely meant for those.
func (m *Miss) near(q *query, p *peerItem, own string) bool {
	switch m.Kind {
	case MissNamespaceSelector:
		return p.pods != nil && !p.pods.empty() && p.pods.matches(q.other.pod.labels)
	case MissSplitPeers:
		return q.other.pod.namespace == own && p.pods.matches(q.other.pod.labels)
	case MissPodLabelValue, MissNamespaceLabelValue:
		return m.Near && m.Selects == 0
	case MissPodLabelKey, MissNamespaceLabelKey:
		return m.Near && (m.Selects == 0 || m.Distance == 0)
	case MissNamespaceLabelAbsent:
		return m.Selects == 0 && (p.pods == nil || p.pods.matches(q.other.pod.labels))
	}
	return false
}
