package netpol

import (
	"fmt"
)

// Evaluate says whether the flow may pass, in each direction and altogether.
// Where both ends have addresses of both families and neither is given, it
// answers for both; a verdict that differs between them is Unknown.
func (e *Evaluator) Evaluate(f Flow) Decision {
	from, to := e.endpoint(f.From), e.endpoint(f.To)
	pairs := addrPairs(from, to)
	d := e.decide(f, from, to, pairs[0])
	for _, pair := range pairs[1:] {
		other := e.decide(f, from, to, pair)
		d.Egress = mergeFamilies(d.Egress, other.Egress, pairs[0], pair)
		d.Ingress = mergeFamilies(d.Ingress, other.Ingress, pairs[0], pair)
		d.Verdict = combine(d.Egress.Verdict, d.Ingress.Verdict)
	}
	return d
}

func (e *Evaluator) decide(f Flow, from, to endpoint, pair addrPair) Decision {
	egress, ingress := e.queries(f, from, to, pair)
	d := Decision{Egress: egress.judge(), Ingress: ingress.judge()}
	if from.pod != nil && to.pod != nil && from.pod.same(to.pod) {
		loopback(&d.Egress, f)
		loopback(&d.Ingress, f)
	}
	if pair.mixed() {
		text := fmt.Sprintf("%s and %s have no address family in common: there is no such flow", pair.from, pair.to)
		for _, r := range []*Result{&d.Egress, &d.Ingress} {
			r.unknown(Caveat{Kind: CaveatFamily, Text: text})
		}
	}
	d.Verdict = combine(d.Egress.Verdict, d.Ingress.Verdict)
	return d
}

// queries are the flow's two directions over one pair of addresses.
func (e *Evaluator) queries(f Flow, from, to endpoint, pair addrPair) (egress, ingress query) {
	egress = query{
		evaluator: e, direction: Egress,
		subject: from, other: to, otherIP: pair.to,
		to: to, port: f.Port, protocol: f.protocol(),
	}
	ingress = egress
	ingress.direction = Ingress
	ingress.subject, ingress.other, ingress.otherIP = to, from, pair.from
	return egress, ingress
}

// judge is the verdict of one direction.
func (q *query) judge() Result {
	r := Result{Direction: q.direction, Verdict: Allowed, Tier: TierExempt}
	if !q.subject.known() {
		r.unknown(Caveat{Kind: CaveatPeerUnknown, Text: "nothing is known of the " + q.subjectWord() + ", so neither of the policies that may select it"})
		return r
	}
	if !q.subject.selectable() {
		q.exemptSubject(&r)
		return r
	}
	iso := q.subject.pod.isolation(q.direction)
	r.Isolated = len(iso.by) > 0
	r.Isolating, r.MayIsolate = iso.byRefs, iso.perhapsRefs
	if len(iso.by)+len(iso.perhaps) == 0 {
		r.Tier = TierDefault
		return r
	}
	if q.direction == Ingress && q.subject.pod.onNode(q.other) {
		r.caveat(Caveat{Kind: CaveatLocalNode, Text: "a pod's own node always reaches it, whatever the policies say"})
		q.caveats(&r)
		return r
	}
	r.Tier = TierNetworkPolicy
	q.judgeRules(&r, iso)
	q.caveats(&r)
	return r
}

func (q *query) subjectWord() string {
	if q.direction == Egress {
		return "client"
	}
	return "backend"
}

// exemptSubject: only pods with a network of their own are subject to policies.
func (q *query) exemptSubject(r *Result) {
	p := q.subject.pod
	switch {
	case p == nil:
	case p.finished:
		r.caveat(Caveat{Kind: CaveatPodFinished, Text: fmt.Sprintf("pod %s/%s has finished (%s): no policy holds for it, and its address may be another pod's", p.namespace, p.object.Name, p.object.Status.Phase)})
	case p.hostNetwork:
		would := q.evaluator.isolation(p, q.direction)
		if refs := append(append([]PolicyRef(nil), would.byRefs...), would.perhapsRefs...); len(refs) > 0 {
			r.caveat(Caveat{Kind: CaveatHostNetworkSubject, Contested: true, Text: fmt.Sprintf("pod %s/%s is on its node's network, where most plugins enforce no policy: %s would select it", p.namespace, p.object.Name, refList(refs))})
		}
	}
}

// judgeRules asks every policy's rules. Policies add up: one rule that admits
// the flow is enough, whichever policy has it.
func (q *query) judgeRules(r *Result, iso *isolation) {
	best, found := q.best(iso.by)
	switch {
	case found.grade >= contested:
		r.allow(q, best, found)
	case len(iso.by) == 0 && q.allAdmit(iso.perhaps):
		// Whichever of them turn out to hold, each admits the flow.
		best, found = q.best(iso.perhaps)
		r.allow(q, best, found)
	case found.grade == maybe || len(iso.by) == 0 || q.anyAdmit(iso.perhaps):
		r.Verdict = Unknown
		q.explainUnknown(r, iso)
	default:
		r.Verdict = Denied
	}
}

// ruleAt is a rule's place.
type ruleAt struct {
	policy *policy
	index  int
}

// best is the rule that matches best; the first of those that match alike.
func (q *query) best(policies []*policy) (ruleAt, ruleMatch) {
	var at ruleAt
	var found ruleMatch
	for _, p := range policies {
		rules := p.half(q.direction).rules
		for i := range rules {
			m := rules[i].match(q, p.ref.Namespace)
			if m.grade > found.grade {
				at, found = ruleAt{p, i}, m
			}
			if found.grade == yes {
				return at, found
			}
		}
	}
	return at, found
}

func (q *query) allAdmit(policies []*policy) bool {
	for _, p := range policies {
		if _, m := q.best([]*policy{p}); m.grade < contested {
			return false
		}
	}
	return len(policies) > 0
}

func (q *query) anyAdmit(policies []*policy) bool {
	_, m := q.best(policies)
	return m.grade >= maybe
}

func (r *Result) caveat(c Caveat) {
	if !hasCaveat(r.Caveats, c) {
		r.Caveats = append(r.Caveats, c)
	}
}

func (r *Result) unknown(c Caveat) {
	r.Verdict, r.AllowedBy = Unknown, nil
	r.caveat(c)
}

func (r *Result) allow(q *query, at ruleAt, m ruleMatch) {
	r.Verdict = Allowed
	r.AllowedBy = &RuleRef{Policy: at.policy.ref, Direction: q.direction, Rule: at.index, Peer: m.peer, Port: m.port}
	for _, part := range []match{m.peerMatch, m.portMatch} {
		if part.grade == contested {
			r.caveat(q.explain(part, at.policy, *r.AllowedBy))
		}
	}
	if c, ok := q.splitPeers(at, m); ok {
		r.caveat(c)
	}
}

// loopback: a pod can't be kept from its own address; through a Service it
// depends on the proxy and the plugin (kubernetes/kubernetes#95879).
func loopback(r *Result, f Flow) {
	if r.Tier != TierNetworkPolicy {
		return
	}
	if !f.throughService() {
		r.Verdict, r.Tier, r.AllowedBy = Allowed, TierExempt, nil
		r.Caveats = []Caveat{{Kind: CaveatLoopback, Text: "a pod always reaches its own address, whatever the policies say"}}
		return
	}
	c := Caveat{Kind: CaveatHairpin, Contested: true, Text: "a pod that reaches itself through a Service: NetworkPolicy leaves it undefined, and the source may be masqueraded"}
	if r.Verdict == Denied {
		r.unknown(c)
		return
	}
	r.caveat(c)
}

func mergeFamilies(a, b Result, pa, pb addrPair) Result {
	if a.Verdict == b.Verdict {
		for _, c := range b.Caveats {
			a.caveat(c)
		}
		return a
	}
	a.unknown(Caveat{Kind: CaveatFamily, Text: fmt.Sprintf("%s from %s to %s, %s from %s to %s: it depends on the address family used",
		a.Verdict, pa.from, pa.to, b.Verdict, pb.from, pb.to)})
	return a
}
