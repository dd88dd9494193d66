package nftables

import (
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// chooser picks an action by looking up a key in a map; what it does with what
// it finds is up to act. A key that the map lacks ends the rule.
type chooser struct {
	key []*operand
	set *set
	act func(*element) netfilter.Action
}

// Choices gives each element that the packet may find, with its probability
// where that is known: numgen draws each number alike.
func (c *chooser) Choices(s *netfilter.State) []netfilter.Choice {
	if len(c.key) == 1 && c.key[0].random() {
		return c.drawn(c.key[0])
	}
	readings, whole := readAll(c.key, s)
	if !whole {
		return []netfilter.Choice{{P: 1, Skip: true}}
	}
	hits, lack := c.set.find(s, c.key, readings)
	if c.oneOf(hits) {
		hits[len(hits)-1].sure = netfilter.True // one of them it is
	}
	out := make([]netfilter.Choice, 0, len(hits)+1)
	for _, h := range hits {
		choice := netfilter.Choice{P: 1, Do: c.act(h.element)}
		if h.sure != netfilter.True {
			choice.Maybe = (&relation{key: c.key, set: c.set}).Why(s)
		} else {
			return append(out, choice)
		}
		out = append(out, choice)
	}
	if lack != "" {
		return append(out, netfilter.Choice{P: 1, Why: lack})
	}
	return append(out, netfilter.Choice{P: 1, Skip: true})
}

// oneOf says whether the elements are all that a hash may find.
func (c *chooser) oneOf(hits []hit) bool {
	if len(c.key) != 1 || c.key[0].span == 0 {
		return false
	}
	whole := operand{mod: c.key[0].span, offset: c.key[0].offset}
	sum := 0.0
	for _, h := range hits {
		sum += h.share(&whole)
	}
	return sum > 1-1e-9
}

func (c *chooser) drawn(o *operand) []netfilter.Choice {
	c.set.load()
	left := 1.0
	all := c.set.all()
	out := make([]netfilter.Choice, 0, len(all)+1)
	for i := range all {
		share := all[i].share(o)
		if share = min(share, left); share <= 0 {
			continue
		}
		left -= share
		out = append(out, netfilter.Choice{P: share, Do: c.act(&all[i])})
	}
	const rounding = 1e-9
	switch {
	case left > rounding && c.set.lack != "":
		out = append(out, netfilter.Choice{P: left, Why: c.set.lack})
	case left > rounding:
		out = append(out, netfilter.Choice{P: left, Skip: true})
	}
	return out
}

// mayFind matches unless the map certainly lacks the key, so that a look-up
// that finds nothing is a rule that does not match.
type mayFind struct{ *chooser }

// Eval looks the key up.
func (m mayFind) Eval(s *netfilter.State) netfilter.Tri {
	readings, whole := readAll(m.key, s)
	if !whole {
		return netfilter.False
	}
	hits, lack := m.set.find(s, m.key, readings)
	return netfilter.Of(len(hits) > 0 || lack != "")
}

// Why is not asked.
func (mayFind) Why(*netfilter.State) string { return "" }

// lookUp makes a chooser the rule's action.
func (p *ruleParser) lookUp(c *chooser) {
	if !c.key[0].random() {
		p.match(mayFind{c})
	}
	p.do(netfilter.Choose{By: c})
}

// vmap reads the map behind "vmap", and makes it the rule's action.
func (p *ruleParser) vmap(key []*operand) {
	p.rule.Target = "vmap"
	kinds := make([]kind, len(key))
	for i, o := range key {
		kinds[i] = o.kind
	}
	set := p.elements(kinds, []kind{kindVerdict}, true)
	if p.err != nil {
		return
	}
	p.lookUp(&chooser{key, set, func(e *element) netfilter.Action {
		if e.verdict == nil {
			return netfilter.Opaque{Why: "the map's element has no verdict"}
		}
		return e.verdict
	}})
}
