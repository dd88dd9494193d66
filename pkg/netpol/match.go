package netpol

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// grade is how well something matches. Within a list the highest counts,
// between the lists of one rule the lowest.
type grade int8

const (
	no        grade = iota
	maybe           // a fact is missing, or the policy is invalid
	contested       // by the API's letter, but not in every network plugin
	yes
)

// match is a grade with the reason for it being neither no nor yes.
type match struct {
	grade grade
	why   CaveatKind
	issue *Issue
}

func invalid(i *Issue) match { return match{maybe, CaveatInvalidPolicy, i} }

func matchIf(b bool) match {
	if b {
		return match{grade: yes}
	}
	return match{grade: no}
}

// query is one direction of a flow over one pair of addresses.
type query struct {
	evaluator *Evaluator
	direction Direction
	subject   endpoint // whose policies are asked
	other     endpoint // the peer that their rules have to name
	otherIP   netip.Addr
	to        endpoint // whose port it is: named ports are the destination's
	port      int32
	protocol  corev1.Protocol
}

// ruleMatch is how a rule matches a query, by which items (-1: lists none).
type ruleMatch struct {
	grade      grade
	peer, port int
	peerMatch  match
	portMatch  match
}

func (r *rule) match(q *query, namespace string) ruleMatch {
	m := ruleMatch{peer: -1, port: -1, peerMatch: match{grade: yes}, portMatch: match{grade: yes}}
	for i := range r.ports {
		if got := r.ports[i].match(q); i == 0 || got.grade > m.portMatch.grade {
			m.portMatch, m.port = got, i
		}
		if m.portMatch.grade == yes {
			break
		}
	}
	if m.portMatch.grade == no {
		return m
	}
	for i := range r.peers {
		if got := r.peers[i].match(q, namespace); i == 0 || got.grade > m.peerMatch.grade {
			m.peerMatch, m.peer = got, i
		}
		if m.peerMatch.grade == yes {
			break
		}
	}
	m.grade = min(m.portMatch.grade, m.peerMatch.grade)
	return m
}

func (p *portItem) match(q *query) match {
	if p.issue != nil {
		if definedProtocol(p.protocol) && p.protocol != q.protocol {
			return match{grade: no}
		}
		return invalid(p.issue)
	}
	switch {
	case p.protocol != q.protocol:
		return match{grade: no}
	case p.every:
		return match{grade: yes}
	case q.port < 1 || q.port > 65535:
		return match{maybe, CaveatPortUnknown, nil}
	case p.name != "":
		return p.matchName(q)
	}
	return matchIf(p.from <= q.port && q.port <= p.to)
}

// matchName resolves the name in the destination pod, with its protocol: the
// same name may be another number in each pod, and means nothing on an
// address that is no pod's.
func (p *portItem) matchName(q *query) match {
	if !q.to.known() {
		return match{maybe, CaveatPeerUnknown, nil}
	}
	if !q.to.selectable() {
		return match{grade: no}
	}
	best := match{grade: no}
	for _, np := range q.to.pod.ports {
		if np.name != p.name || np.protocol != p.protocol || np.number != q.port {
			continue
		}
		if !np.sidecar {
			return match{grade: yes}
		}
		best = match{contested, CaveatSidecarPort, nil}
	}
	return best
}

func (p *peerItem) match(q *query, namespace string) match {
	switch {
	case p.issue != nil:
		return invalid(p.issue)
	case !q.other.known():
		return match{maybe, CaveatPeerUnknown, nil}
	case p.block != nil:
		return p.block.match(q)
	case !q.other.selectable():
		return match{grade: no}
	}
	m := p.matchNamespace(q.evaluator, q.other.pod.namespace, namespace)
	if m.grade == no || p.pods == nil {
		return m
	}
	if pods := p.pods.match(q.other.pod.labels); pods.grade < m.grade {
		return pods
	}
	return m
}

func (p *peerItem) matchNamespace(e *Evaluator, other, own string) match {
	if p.namespaces == nil {
		return matchIf(other == own)
	}
	set, read := e.namespaces[other]
	if read {
		return p.namespaces.match(set)
	}
	return p.namespaces.matchNamed(other)
}

func (s *selector) match(set labels.Set) match {
	if s.issue != nil {
		return invalid(s.issue)
	}
	return matchIf(s.parsed.Matches(set))
}

// matchNamed matches a namespace of which only the name is known, and so the
// one label that the API server always sets.
func (s *selector) matchNamed(namespace string) match {
	if s.issue != nil {
		return invalid(s.issue)
	}
	m := match{grade: yes}
	for i := range s.requirements {
		r := &s.requirements[i]
		if r.Key() != corev1.LabelMetadataName {
			m = match{maybe, CaveatNamespaceUnread, nil}
		} else if !r.Matches(labels.Set{corev1.LabelMetadataName: namespace}) {
			return match{grade: no}
		}
	}
	return m
}

// match: an ipBlock holds for any address, also a pod's (the conformance tests
// require it); but not every plugin does so, hence contested there.
func (b *ipBlock) match(q *query) match {
	if b.cidrBad != nil {
		return invalid(b.cidrBad)
	}
	if !q.otherIP.IsValid() {
		return match{maybe, CaveatAddressUnknown, nil}
	}
	if !b.cidr.Contains(q.otherIP) {
		return match{grade: no}
	}
	for _, except := range b.except {
		if except.Contains(q.otherIP) {
			return match{grade: no}
		}
	}
	if b.exceptBad != nil {
		return invalid(b.exceptBad)
	}
	if q.other.pod != nil || q.other.host {
		return match{contested, CaveatIPBlockInCluster, nil}
	}
	return match{grade: yes}
}
