package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// set is a set or a map: one that the table names, or one written in a rule.
type set struct {
	table *tableIndex
	name  string
	at    uint32
	isMap bool
	// dynamic: packets add elements. The contents are those of the moment at
	// which they were listed.
	dynamic bool
	// timeout is how long elements stay, as the text form has it; "" for ever,
	// and in JSON.
	timeout string
	keys    []kind
	data    []kind
	// elems to elemsEnd is where the elements stand in the text.
	elems, elemsEnd uint32
	// lack says why what the set holds is not wholly known; only what it is
	// known to hold is then certain.
	lack string

	once   sync.Once
	loaded bool
	// exact finds elements of single values by the hash of their key: where
	// they stand in the text.
	exact map[uint64]uint32
	// list are all other elements.
	list []element

	allOnce sync.Once
	whole   []element
}

// element is one element, parsed.
type element struct {
	key []pattern
	// verdict is a verdict map's, data another map's.
	verdict netfilter.Action
	data    []pattern
	// comment is what its writer noted on it.
	comment string
}

func newSet(t *tableIndex, name string, at int) *set {
	return &set{table: t, name: name, at: uint32(at)}
}

// literal makes a set of elements that are parsed already.
func literal(keys []kind, list []element) *set {
	return &set{keys: keys, list: list, loaded: true}
}

// declare reads "ipv4_addr . inet_service : verdict", or with typeof the
// operands in place of the types.
func (s *set) declare(text string, typeof bool) {
	key, data := text, ""
	if i := strings.LastIndex(text, " : "); i >= 0 {
		key, data = text[:i], text[i+3:]
	}
	if typeof {
		s.keys = s.typesOf(key)
	} else {
		s.keys = typeNames(key)
	}
	switch {
	case strings.TrimSpace(data) == "verdict":
		s.data = []kind{kindVerdict}
	case data != "" && typeof:
		s.data = s.typesOf(data)
	case data != "":
		s.data = typeNames(data)
	}
}

func typeNames(text string) []kind {
	var out []kind
	for name := range strings.SplitSeq(text, ".") {
		out = append(out, typeKinds[strings.TrimSpace(name)])
	}
	return out
}

// typesOf gives the kinds of operands.
func (s *set) typesOf(text string) []kind {
	text = strings.TrimPrefix(strings.TrimSpace(text), "interval ")
	toks, _ := lex(text, nil)
	p := &ruleParser{table: s.table, toks: toks, rule: netfilter.Rule{Text: text}}
	key := p.concat()
	if p.err != nil {
		s.lack = fmt.Sprintf("its type %q is not understood", text)
		return nil
	}
	out := make([]kind, len(key))
	for i, o := range key {
		out[i] = o.kind
	}
	return out
}

// element reads one element of a set or map: KEY [OPTIONS] [: DATA].
func (p *ruleParser) element(keys, data []kind, isMap bool) element {
	e := element{key: p.keyPatterns(keys)}
	p.elementOptions(&e)
	if !isMap {
		return e
	}
	if colon := p.next(); !colon.is(":") {
		p.failf(colon, "an element of a map without its value")
		return e
	}
	if len(data) == 1 && data[0] == kindVerdict {
		e.verdict = p.elementVerdict()
	} else {
		e.data = p.keyPatterns(data)
	}
	p.elementOptions(&e)
	return e
}

// elementOptions keeps a comment, and passes over timeout, expires, counter and
// the like.
func (p *ruleParser) elementOptions(e *element) {
	for p.err == nil {
		switch t := p.peek(); {
		case t.is("comment"):
			e.comment = p.peekAt(1).text
			p.at += 2
		case t.is("timeout"), t.is("expires"):
			p.at += 2
		case t.is("counter"):
			p.at++
			if p.take("packets") {
				p.at++
			}
			if p.take("bytes") {
				p.at++
			}
		case t.is("limit"), t.is("quota"), t.is("ct"), t.is("last"):
			for p.at < len(p.toks) && !p.peek().is(":") && !p.peek().is(",") && !p.peek().is("}") {
				p.at++
			}
		default:
			return
		}
	}
}

func (p *ruleParser) elementVerdict() netfilter.Action {
	switch t := p.next(); {
	case t.is("accept"):
		return netfilter.Accepted{}
	case t.is("drop"):
		return netfilter.Dropped{}
	case t.is("return"):
		return netfilter.Returned{}
	case t.is("continue"):
		return netfilter.Noted{}
	case t.is("jump"), t.is("goto"):
		return netfilter.JumpTo{Chain: p.next().text, Goto: t.is("goto")}
	case t.is("queue"):
		for p.at < len(p.toks) && !p.peek().is(",") && !p.peek().is("}") {
			p.at++
		}
		return netfilter.Opaque{Why: "the packet is queued to a program, which decides"}
	default:
		p.failf(t, "%q is no verdict", t.text)
		return netfilter.Opaque{Why: "the verdict is not understood"}
	}
}

// hit is an element that holds a key, or may.
type hit struct {
	*element
	sure netfilter.Tri // True or Unknown
}

// find gives the elements that hold the key, or may. lack says why more of
// them may: what the set holds is then not wholly known.
func (s *set) find(st *netfilter.State, key []*operand, readings []reading) (hits []hit, lack string) {
	s.load()
	if len(key) != len(s.keys) {
		return nil, fmt.Sprintf("the elements of set %s are of %d parts, not of %d", s.name, len(s.keys), len(key))
	}
	all := s.list
	if s.exact != nil {
		if h, ok := hashAll(readings); ok {
			if at, ok := s.exact[h]; ok {
				if e, err := s.parseAt(int(at)); err == nil && holdsAll(st, key, readings, e.key) == netfilter.True {
					return []hit{{&e, netfilter.True}}, ""
				}
			}
		} else {
			all = s.all()
		}
	}
	for i := range all {
		switch holdsAll(st, key, readings, all[i].key) {
		case netfilter.True:
			return append(hits, hit{&all[i], netfilter.True}), ""
		case netfilter.Unknown:
			hits = append(hits, hit{&all[i], netfilter.Unknown})
		}
	}
	return hits, s.lack
}

func holdsAll(st *netfilter.State, key []*operand, readings []reading, patterns []pattern) netfilter.Tri {
	if len(patterns) != len(key) {
		return netfilter.False
	}
	t := netfilter.True
	for i, o := range key {
		if t = t.And(o.holds(st, readings[i], patterns[i])); t == netfilter.False {
			break
		}
	}
	return t
}

// Addresses are the single addresses of a named set, in every table of that
// name; nothing where the text holds no such set, or is none of nft's.
func Addresses(text, table, name string) []netip.Addr {
	if strings.TrimSpace(text) == "" || !strings.Contains(text, table) {
		return nil
	}
	d := &document{text: text, byKey: map[tableKey]*tableIndex{}}
	index := d.indexText
	if looksJSON(text) {
		index = d.indexJSON
	}
	if index() != nil {
		return nil
	}
	var out []netip.Addr
	for _, t := range d.tables {
		s := t.sets[name]
		if t.name != table || s == nil {
			continue
		}
		s.load()
		for _, e := range s.all() {
			if len(e.key) == 1 && e.key[0].single() && e.key[0].first.addr.IsValid() {
				out = append(out, e.key[0].first.addr)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// all parses every element, once.
func (s *set) all() []element {
	s.allOnce.Do(func() {
		s.whole = append(s.whole, s.list...)
		for _, at := range s.exact {
			if e, err := s.parseAt(int(at)); err == nil {
				s.whole = append(s.whole, e)
			}
		}
	})
	return s.whole
}

// share is how probable it is that a random number is in the set.
func (s *set) share(o *operand) float64 {
	s.load()
	sum := 0.0
	for _, e := range s.all() {
		sum += e.share(o)
	}
	return min(sum, 1)
}

// share is how probable it is that a random number is in the element.
func (e *element) share(o *operand) float64 {
	if len(e.key) != 1 {
		return 0
	}
	lo, hi := max(e.key[0].first.num, o.offset), min(e.key[0].last.num, o.offset+o.mod-1)
	if e.key[0].any {
		lo, hi = o.offset, o.offset+o.mod-1
	}
	if lo > hi {
		return 0
	}
	return float64(hi-lo+1) / float64(o.mod)
}
