package nftables

import (
	"fmt"
	"math"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// ofFamily matches packets of an address family, in tables that see both.
type ofFamily struct{ family netfilter.Family }

// Eval compares with the packet's.
func (m ofFamily) Eval(s *netfilter.State) netfilter.Tri {
	return netfilter.Of(isV4(s) == (m.family == netfilter.IPv4))
}

// Why is not asked.
func (ofFamily) Why(*netfilter.State) string { return "" }

// relation compares operands with the elements of a set, which may be a single
// one written in the rule.
type relation struct {
	key []*operand
	set *set
	not bool
	// flags, where set, asks whether any of the bits is on (none, with not).
	flags uint64
}

// Eval is False for a packet that has no such part, negated or not: the kernel
// ends the rule there.
func (m *relation) Eval(s *netfilter.State) netfilter.Tri {
	key, whole := readAll(m.key, s)
	if !whole {
		return netfilter.False
	}
	t := netfilter.False
	if m.flags != 0 {
		t = netfilter.Unknown
		if key[0].has == present {
			t = netfilter.Of(key[0].num&m.flags != 0)
		}
	} else {
		hits, lack := m.set.find(s, m.key, key)
		for _, h := range hits {
			t = t.Not().And(h.sure.Not()).Not()
		}
		if lack != "" && t == netfilter.False {
			t = netfilter.Unknown
		}
	}
	if m.not {
		return t.Not()
	}
	return t
}

// Why says what part of the packet isn't known, or what of the set.
func (m *relation) Why(s *netfilter.State) string {
	key, _ := readAll(m.key, s)
	for _, r := range key {
		if r.has == unknown {
			return r.why
		}
	}
	if _, lack := m.set.find(s, m.key, key); lack != "" {
		return lack
	}
	return "it can't be decided"
}

// readAll reads each operand; whole is false where the packet lacks one.
func readAll(key []*operand, s *netfilter.State) (readings []reading, whole bool) {
	readings = make([]reading, len(key))
	for i, o := range key {
		if readings[i] = o.read(s); readings[i].has == absent {
			return readings, false
		}
	}
	return readings, true
}

// concat reads operands with dots between, each with its operators.
func (p *ruleParser) concat() []*operand {
	var key []*operand
	for {
		o := p.masked()
		if p.err != nil {
			return nil
		}
		key = append(key, o)
		if !p.take(".") {
			return key
		}
	}
}

// masked reads an operand and "& MASK" or other operators behind it.
func (p *ruleParser) masked() *operand {
	start := p.peek()
	paren := p.take("(")
	o := p.selector()
	if o == nil {
		p.failf(start, "%q is not understood", start.text)
		return nil
	}
	for p.err == nil {
		t := p.peek()
		op, ok := bitOperators[t.text]
		if !ok || t.quoted {
			break
		}
		p.at++
		v := p.bits(o.kind)
		o = o.with(op, v)
	}
	if paren && !p.take(")") {
		p.failf(start, "a parenthesis is not closed")
	}
	return o
}

var bitOperators = map[string]byte{"&": '&', "and": '&', "|": '|', "or": '|', "^": '^', "xor": '^', "<<": '<', ">>": '>'}

func operate(op byte, a, b uint64) uint64 {
	switch op {
	case '&':
		return a & b
	case '|':
		return a | b
	case '^':
		return a ^ b
	case '<':
		return a << (b & 63)
	}
	return a >> (b & 63)
}

// with is the operand with an operator applied.
func (o *operand) with(op byte, v uint64) *operand {
	if o.random() && op == '&' && v < math.MaxUint32 && v&(v+1) == 0 && o.offset == 0 && o.mod > v {
		return &operand{kind: o.kind, read: o.read, mod: v + 1}
	}
	out := &operand{kind: o.kind, read: func(s *netfilter.State) reading {
		r := o.read(s)
		if r.has == present {
			r.num = operate(op, r.num, v)
		}
		return r
	}}
	if o.kind == kindAddr || o.kind == kindIface || o.kind == kindOther { // ip saddr & 0.0.0.255
		read := o.read
		out.kind = kindOther
		out.read = func(s *netfilter.State) reading {
			r := read(s)
			if r.has == present {
				r = notKnown("arithmetic on this part of the packet is not followed")
			}
			return r
		}
	}
	return out
}

// bits reads a number, a flag, or several flags in parentheses.
func (p *ruleParser) bits(k kind) uint64 {
	if k == kindAddr || k == kindOther {
		p.operandWord()
		return 0
	}
	if open := p.peek(); p.take("(") {
		var all uint64
		for p.err == nil {
			all |= p.flag(k)
			if p.take(")") {
				return all
			}
			if !p.take("|") && !p.take(",") {
				p.failf(open, "a parenthesis is not closed")
			}
		}
		return 0
	}
	return p.flag(k)
}

func (p *ruleParser) operandWord() {
	if t := p.next(); t.text == "" {
		p.failf(t, "a value is missing")
	}
}

func (p *ruleParser) flag(k kind) uint64 {
	t := p.next()
	d, err := parseDatum(k, t.text)
	if err != nil {
		p.failf(t, "%s", err)
	}
	return d.num
}

// comparison reads "OPERANDS [OP] VALUE", "OPERANDS vmap MAP" or "OPERAND set
// VALUE".
func (p *ruleParser) comparison() {
	start := p.peek()
	key := p.concat()
	if p.err != nil {
		return
	}
	op := p.peek()
	switch {
	case op.is("vmap"):
		p.at++
		p.vmap(key)
		return
	case op.is("set"):
		p.at++
		p.mangle(start)
		return
	}
	not, order := false, ""
	switch op.text {
	case "==", "eq":
		p.at++
	case "!=", "ne":
		p.at++
		not = true
	case "<", "<=", ">", ">=":
		p.at++
		order = op.text
	case "!":
		p.at++
		p.flagsOf(key, true)
		return
	default:
		if key[0].kind.isFlags() && len(key) == 1 && !p.peek().is("{") && !strings.HasPrefix(p.peek().text, "@") {
			p.flagsOf(key, false)
			return
		}
	}
	set := p.right(key)
	if p.err != nil {
		return
	}
	if order != "" {
		set = p.ordered(order, set, op)
	}
	if p.err != nil {
		return
	}
	if len(key) == 1 && key[0].random() {
		share := set.share(key[0])
		if not {
			share = 1 - share
		}
		p.match(netfilter.Random{P: share})
		return
	}
	p.match(&relation{key: key, set: set, not: not})
}

// flagsOf reads the flags of "ct state new,untracked" or "tcp flags syn / syn,ack".
func (p *ruleParser) flagsOf(key []*operand, not bool) {
	value := p.flagList(key[0].kind)
	if p.err != nil {
		return
	}
	if p.take("/") { // tcp flags syn / syn,ack: under that mask, exactly these
		o := key[0].with('&', p.flagList(key[0].kind))
		p.match(&relation{key: []*operand{o}, set: literal([]kind{o.kind}, []element{{key: []pattern{exactly(datum{num: value})}}}), not: not})
		return
	}
	if value == 0 {
		p.match(&relation{key: key, set: literal([]kind{key[0].kind}, []element{{key: []pattern{exactly(datum{})}}}), not: not})
		return
	}
	p.match(&relation{key: key, flags: value, not: not})
}

func (p *ruleParser) flagList(k kind) uint64 {
	var all uint64
	for p.err == nil {
		all |= p.flag(k)
		if !p.take(",") && !p.take("|") {
			break
		}
	}
	return all
}

// ordered makes the range of values that "< VALUE" asks for.
func (p *ruleParser) ordered(op string, s *set, at token) *set {
	if len(s.keys) == 1 && s.keys[0] == kindOther {
		return s // nothing is known of the value, whatever it is compared with
	}
	if len(s.list) != 1 || len(s.list[0].key) != 1 || !s.list[0].key[0].single() || s.list[0].key[0].first.name != "" {
		p.failf(at, "%s is not understood here", op)
		return s
	}
	v := s.list[0].key[0].first
	if v.addr.IsValid() {
		p.failf(at, "%s is not understood of addresses", op)
		return s
	}
	r := pattern{first: datum{}, last: datum{num: math.MaxUint64}}
	switch op {
	case "<":
		if v.num == 0 {
			return literal(s.keys, nil)
		}
		r.last.num = v.num - 1
	case "<=":
		r.last.num = v.num
	case ">":
		if v.num == math.MaxUint64 {
			return literal(s.keys, nil)
		}
		r.first.num = v.num + 1
	case ">=":
		r.first.num = v.num
	}
	return literal(s.keys, []element{{key: []pattern{r}}})
}

// right reads what operands are compared with: a value, a set in braces, a
// named set.
func (p *ruleParser) right(key []*operand) *set {
	kinds := make([]kind, len(key))
	for i, o := range key {
		kinds[i] = o.kind
	}
	return p.elements(kinds, nil, false)
}

// elements reads a set or map of those kinds: named, in braces, or one value.
func (p *ruleParser) elements(keys, data []kind, isMap bool) *set {
	t := p.peek()
	if name, ok := strings.CutPrefix(t.text, "@"); ok && !t.quoted {
		p.at++
		if s := p.table.sets[name]; s != nil {
			return s
		}
		return &set{name: name, keys: keys, lack: fmt.Sprintf("set %s is not in the input", name), loaded: true}
	}
	if !p.take("{") {
		key := p.keyPatterns(keys)
		return literal(keys, []element{{key: key}})
	}
	var list []element
	for p.err == nil && !p.take("}") {
		if p.peek().text == "" {
			p.failf(t, "a brace is not closed")
			break
		}
		list = append(list, p.element(keys, data, isMap))
		if !p.take(",") && !p.peek().is("}") {
			p.failf(p.peek(), "a comma is missing between elements")
		}
	}
	s := literal(keys, list)
	s.isMap = isMap
	return s
}

// keyPatterns reads the values of one element, with dots between.
func (p *ruleParser) keyPatterns(kinds []kind) []pattern {
	out := make([]pattern, 0, len(kinds))
	for i, k := range kinds {
		if i > 0 && !p.take(".") {
			if len(out) == 1 && out[0].any { // "*" stands for the whole key
				for len(out) < len(kinds) {
					out = append(out, out[0])
				}
				return out
			}
			p.failf(p.peek(), "a value is missing of a key of %d", len(kinds))
			return out
		}
		t := p.next()
		if t.text == "" && !t.quoted || isSign(firstByte(t)) && !t.quoted {
			p.failf(t, "a value is missing")
			return out
		}
		v, err := parsePattern(k, t)
		if err != nil {
			p.failf(t, "%s", err)
		}
		out = append(out, v)
	}
	return out
}

func firstByte(t token) byte {
	if t.text == "" {
		return 0
	}
	return t.text[0]
}
