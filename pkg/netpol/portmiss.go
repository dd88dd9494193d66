package netpol

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/spelling"
)

// missPorts adds how the rule's ports fail; nothing where they don't.
func (q *query) missPorts(n *NearMiss, r *rule, f Flow) {
	if len(r.ports) == 0 {
		return
	}
	hasPort, hasProtocol := false, false
	for i := range r.ports {
		p := &r.ports[i]
		if p.match(q).grade >= contested {
			return
		}
		hasProtocol = hasProtocol || p.protocol == q.protocol
		hasPort = hasPort || q.as(p.protocol, p).grade >= contested
	}
	n.PortFailed = !hasPort
	n.ProtocolFailed = hasPort || !hasProtocol
	for i := range r.ports {
		m := q.missPort(&r.ports[i], f)
		m.Item, m.Only, m.Selects = i, true, -1
		n.Misses = append(n.Misses, m)
	}
}

// as matches the item as if the flow were of that protocol.
func (q *query) as(protocol corev1.Protocol, p *portItem) match {
	other := *q
	other.protocol = protocol
	return p.match(&other)
}

func (q *query) missPort(p *portItem, f Flow) Miss {
	m := Miss{
		Kind: MissPort, Field: p.field + ".port",
		Want: p.String(), Got: fmt.Sprintf("%d/%s", q.port, q.protocol),
	}
	switch {
	case p.match(q).grade == maybe:
		m.Kind, m.Field = MissUnknown, p.field
	case q.as(p.protocol, p).grade >= contested:
		m.Kind, m.Field, m.Near = MissProtocol, p.field+".protocol", true
	case p.name != "":
		q.missPortName(&m, p)
	case f.VIPPort != 0 && f.VIPPort != q.port && p.protocol == q.protocol && p.from <= f.VIPPort && f.VIPPort <= p.to:
		m.Kind, m.Near = MissServicePort, true
	}
	return m
}

// missPortName says what became of a named port in the destination pod.
func (q *query) missPortName(m *Miss, p *portItem) {
	if !q.to.selectable() {
		m.Kind = MissPortNameNoPod
		return
	}
	m.Kind, m.Distance = MissPortNameUndeclared, maxDistance
	var declared []string
	for _, np := range q.to.pod.ports {
		declared = append(declared, fmt.Sprintf("%s=%d/%s", np.name, np.number, np.protocol))
		if np.name == p.name && np.protocol == p.protocol {
			m.Kind, m.Distance = MissPortNameElsewhere, 0
		}
		// A name that the flow's own port almost has is a slip of the pen.
		if d := spelling.Distance(np.name, p.name); np.number == q.port && np.protocol == q.protocol {
			m.Near = m.Near || closeWords(np.name, p.name, d)
			m.Distance = min(m.Distance, d)
		}
	}
	m.Got = fmt.Sprintf("%d/%s, and the pod declares %s", q.port, q.protocol, orNone(declared))
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "no named port"
	}
	return strings.Join(words, ", ")
}

// String is the item as a reader would write it: "80/TCP", "8000-8080/TCP",
// "http/TCP", "*/UDP".
func (p *portItem) String() string {
	switch {
	case p.name != "":
		return fmt.Sprintf("%s/%s", p.name, p.protocol)
	case p.every || p.from == 0 && p.to == 0:
		return fmt.Sprintf("*/%s", p.protocol)
	case p.from != p.to:
		return fmt.Sprintf("%d-%d/%s", p.from, p.to, p.protocol)
	}
	return fmt.Sprintf("%d/%s", p.from, p.protocol)
}
