package nftables

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// load indexes the elements: those of single values by a hash of them, so that
// tens of thousands cost no memory but their places.
func (s *set) load() {
	s.once.Do(func() {
		if s.loaded || s.elemsEnd == 0 {
			return
		}
		if len(s.keys) == 0 {
			s.lack = cmp.Or(s.lack, "the type of its elements is not in the input")
			return
		}
		s.exact = make(map[uint64]uint32, int(s.elemsEnd-s.elems)/(24*len(s.keys))) // about as many as there are
		if s.table.doc.json {
			s.loadJSON()
		} else {
			s.loadText()
		}
	})
}

// keep files one element: by its hash where its key is of single values.
func (s *set) keep(at int, h uint64, single bool) {
	if single {
		if _, taken := s.exact[h]; !taken {
			s.exact[h] = uint32(at)
			return
		}
	}
	e, err := s.parseAt(at)
	if err != nil {
		s.lack = cmp.Or(s.lack, fmt.Sprintf("line %d: %s", s.table.doc.line(at), err))
		return
	}
	s.list = append(s.list, e)
}

// loadText goes through "KEY [OPTIONS] [: DATA], ..." up to the closing brace.
func (s *set) loadText() {
	text := s.table.doc.text[:s.elemsEnd]
	for at := int(s.elems); ; {
		for at < len(text) && (isBlank(text[at]) || text[at] == ',') {
			at++
		}
		if at >= len(text) {
			return
		}
		h, single := s.hashText(text, at)
		s.keep(at, h, single)
		at = elementEnd(text, at)
	}
}

// elementEnd is the offset of the comma behind an element.
func elementEnd(text string, at int) int {
	depth := 0
	for i := at; i < len(text); i++ {
		switch text[i] {
		case ',':
			if depth == 0 {
				return i
			}
		case '{':
			depth++
		case '}':
			depth--
		case '"':
			n := strings.IndexByte(text[i+1:], '"')
			if n < 0 {
				return len(text)
			}
			i += n + 1
		}
	}
	return len(text)
}

// hashText hashes the key of an element of the text form; single is false
// where it is not plainly one of single values.
func (s *set) hashText(text string, at int) (h uint64, single bool) {
	for i, k := range s.keys {
		if i > 0 {
			for at < len(text) && isBlank(text[at]) {
				at++
			}
			if at+1 >= len(text) || text[at] != '.' || !isBlank(text[at+1]) {
				return 0, false
			}
			at += 2
		}
		for at < len(text) && isBlank(text[at]) {
			at++
		}
		start := at
		for at < len(text) && !isBlank(text[at]) && !isSign(text[at]) {
			at++
		}
		d, ok := singleDatum(k, strings.Trim(text[start:at], `"`))
		if !ok {
			return 0, false
		}
		h = d.hash(h)
	}
	for at < len(text) && isBlank(text[at]) { // no more parts may follow
		at++
	}
	return h, at >= len(text) || text[at] != '.'
}

// singleDatum reads a value that is certainly one: no range, no prefix.
func singleDatum(k kind, s string) (datum, bool) {
	switch k {
	case kindAddr:
		a, err := netip.ParseAddr(s)
		return datum{addr: a}, err == nil && a.Zone() == ""
	case kindIface:
		return datum{name: s}, s != "" && !strings.ContainsAny(s, `*\`)
	case kindOther:
		return datum{}, false
	}
	d, err := parseDatum(k, s)
	return d, err == nil
}

// hash mixes a value into the hash of those before it.
func (d datum) hash(h uint64) uint64 {
	mix := func(x uint64) {
		h = (h ^ x) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	switch {
	case d.addr.IsValid():
		b := d.addr.As16()
		for i := 0; i < 16; i += 8 {
			x := uint64(0)
			for _, c := range b[i : i+8] {
				x = x<<8 | uint64(c)
			}
			mix(x)
		}
	case d.name != "":
		for i := range len(d.name) {
			mix(uint64(d.name[i]) + 1)
		}
	default:
		mix(d.num)
	}
	return h
}

// hashAll hashes a key that is wholly known.
func hashAll(key []reading) (h uint64, ok bool) {
	for _, r := range key {
		if r.has != present {
			return 0, false
		}
		h = r.hash(h)
	}
	return h, true
}

// parseAt parses the element that stands at an offset.
func (s *set) parseAt(at int) (element, error) {
	d := s.table.doc
	text := d.text[at:s.elemsEnd]
	if d.json {
		var err error
		if text, err = printElement(d.text[:s.elemsEnd], at); err != nil {
			return element{}, err
		}
	} else {
		text = text[:elementEnd(text, 0)]
	}
	toks, bad := lex(text, nil)
	p := &ruleParser{table: s.table, toks: toks, rule: netfilter.Rule{Text: text}}
	e := p.element(s.keys, s.data, s.isMap)
	switch {
	case bad >= 0:
		return e, fmt.Errorf("the element %q has a quote that is not closed", text)
	case p.err != nil:
		return e, fmt.Errorf("the element %q: %s", text, p.err.message)
	case p.at < len(p.toks):
		return e, fmt.Errorf("the element %q: %q is not understood", text, p.peek().text)
	}
	return e, nil
}

// declareJSON reads the types of a set in JSON: a name, several, or operands.
func (s *set) declareJSON(keys, data int) {
	s.keys = s.kindsAt(keys)
	if s.isMap {
		s.data = s.kindsAt(data)
	}
}

func (s *set) kindsAt(at int) []kind {
	if at < 0 {
		return nil
	}
	var n node
	r := jsonReader{text: s.table.doc.text, at: at}
	if !r.value(&n) {
		return nil
	}
	switch {
	case n.kind == '"' && strings.Contains(n.text, " . "):
		return typeNames(n.text)
	case n.kind == '"':
		return []kind{typeKinds[n.text]}
	case n.kind == '[':
		out := make([]kind, len(n.kids))
		for i := range n.kids {
			out[i] = typeKinds[n.kids[i].text]
		}
		return out
	}
	p := &printer{}
	if p.expr(cmp.Or(n.get("typeof"), &n), ""); p.err != nil {
		return nil
	}
	return s.typesOf(p.b.String())
}

// loadJSON goes through an array of elements.
func (s *set) loadJSON() {
	text := s.table.doc.text[:s.elemsEnd]
	r := jsonReader{text: text, at: int(s.elems)}
	if !r.sign('[') {
		s.lack = "its elements are no list"
		return
	}
	for !r.sign(']') {
		r.sign(',')
		r.blanks()
		at := r.at
		end := skip(text, at)
		if end <= at {
			s.lack = fmt.Sprintf("line %d: its elements break off", s.table.doc.line(min(at, len(s.table.doc.text)-1)))
			return
		}
		h, single := s.hashJSON(text[:end], at)
		s.keep(at, h, single)
		r.at = end
	}
}

// hashJSON hashes the key of an element: KEY, [KEY, DATA], a key that is
// wrapped in {"elem": {"val": KEY, ...}}, or one in parts, {"concat": [...]}.
func (s *set) hashJSON(text string, at int) (h uint64, single bool) {
	r := jsonReader{text: text, at: at}
	if s.isMap && !r.sign('[') {
		return 0, false
	}
	if r.peekWord(`{`, `"elem"`, `:`) && !r.peekWord(`{`, `"val"`, `:`) {
		return 0, false
	}
	if len(s.keys) == 1 {
		return r.hashScalar(0, s.keys[0])
	}
	if !r.peekWord(`{`, `"concat"`, `:`) || !r.sign('[') {
		return 0, false
	}
	for i, k := range s.keys {
		if i > 0 && !r.sign(',') {
			return 0, false
		}
		if h, single = r.hashScalar(h, k); !single {
			return 0, false
		}
	}
	return h, r.sign(']')
}

// peekWord takes words if all of them are next.
func (r *jsonReader) peekWord(words ...string) bool {
	back := r.at
	for _, w := range words {
		r.blanks()
		if !strings.HasPrefix(r.text[r.at:], w) {
			r.at = back
			return false
		}
		r.at += len(w)
	}
	return true
}

func (r *jsonReader) hashScalar(h uint64, k kind) (uint64, bool) {
	r.blanks()
	if r.at >= len(r.text) || r.text[r.at] == '{' || r.text[r.at] == '[' {
		return 0, false
	}
	var n node
	if !r.value(&n) {
		return 0, false
	}
	d, ok := singleDatum(k, n.text)
	return d.hash(h), ok
}
