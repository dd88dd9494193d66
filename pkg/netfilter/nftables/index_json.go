package nftables

import (
	"strings"
)

// indexJSON is the one pass over nft's JSON: where each object stands, and
// what its head says.
func (d *document) indexJSON() error {
	d.json = true
	r := jsonReader{text: d.text}
	array := r.sign('[') // the list alone, as jq '.nftables' prints it
	if !array && !r.listOf("nftables") {
		return ErrJSON
	}
	for first := true; ; first = false {
		r.blanks()
		at := r.at
		if r.sign(']') {
			break
		}
		if !first && !r.sign(',') {
			d.jsonBreaksOff(at)
			break
		}
		r.blanks()
		at = r.at
		if at < len(d.text) && d.text[at] == '{' && d.object(&r) {
			continue
		}
		if r.at = skip(d.text, at); r.at < at || at == len(d.text) || r.at == at {
			d.jsonBreaksOff(at)
			break
		}
		d.problem(UnknownLine, at, "this is no object of nft's")
	}
	if len(d.tables) == 0 && array {
		return ErrJSON
	}
	if len(d.tables) == 0 && d.cutAt > 0 {
		return ErrNoTable
	}
	return nil
}

// listOf goes to the first element of a top-level object's array of that name.
func (r *jsonReader) listOf(name string) bool {
	if !r.sign('{') {
		return false
	}
	for {
		r.blanks()
		if r.at >= len(r.text) || r.text[r.at] != '"' {
			return false
		}
		key, ok := r.string()
		if !ok || !r.sign(':') {
			return false
		}
		if key == name {
			return r.sign('[')
		}
		r.blanks()
		if r.at = skip(r.text, r.at); r.at < 0 || !r.sign(',') {
			return false
		}
	}
}

func (d *document) jsonBreaksOff(at int) {
	d.cutAt = max(min(at, len(d.text)-1), 1)
	for _, t := range d.tables {
		t.cut = true
	}
	d.problem(Truncated, d.cutAt, "the JSON breaks off or is broken here: what follows is not known")
}

// head is what the index keeps of an object.
type head struct {
	family, table, name, chain string
	kind, hook, prio, policy   string
	dormant                    bool
	handle                     int
	at                         int // of the object
	keys, data, elems          int // offsets of a set's types and elements
	elemsEnd                   int
	flags                      string
}

// object reads one element of the list; false where the text ends in it.
func (d *document) object(r *jsonReader) bool {
	at := r.at
	r.at++
	r.blanks()
	if r.at >= len(r.text) || r.text[r.at] != '"' {
		return false
	}
	what, ok := r.string()
	if !ok || !r.sign(':') {
		return false
	}
	r.blanks()
	if r.at >= len(r.text) {
		return false
	}
	h := head{at: at, elems: -1, keys: -1, data: -1}
	if r.text[r.at] != '{' {
		if r.at = skip(r.text, r.at); r.at < 0 {
			r.at = len(r.text)
			return false
		}
	} else if !h.read(r) {
		return false
	}
	if !r.sign('}') {
		return false
	}
	d.take(what, h)
	return true
}

// read reads the members of an object that the index wants, and passes over
// the others.
func (h *head) read(r *jsonReader) bool {
	r.at++
	if r.sign('}') {
		return true
	}
	for {
		r.blanks()
		if r.at >= len(r.text) || r.text[r.at] != '"' {
			return false
		}
		key, ok := r.string()
		if !ok || !r.sign(':') {
			return false
		}
		r.blanks()
		start := r.at
		end := skip(r.text, start)
		if end < 0 {
			r.at = len(r.text)
			return false
		}
		h.member(r.text, key, start, end)
		r.at = end
		if r.sign('}') {
			return true
		}
		if !r.sign(',') {
			return false
		}
	}
}

func (h *head) member(text, key string, start, end int) {
	value := text[start:end]
	if len(value) > 1 && value[0] == '"' {
		value = value[1 : len(value)-1]
		if strings.IndexByte(value, '\\') >= 0 {
			r := jsonReader{text: text, at: start}
			value, _ = r.string()
		}
	}
	switch key {
	case "family":
		h.family = value
	case "table":
		h.table = value
	case "name":
		h.name = value
	case "chain":
		h.chain = value
	case "hook":
		h.hook = value
	case "prio":
		h.prio = strings.TrimSpace(value)
	case "policy":
		h.policy = value
	case "type":
		h.kind, h.keys = value, start
	case "map":
		h.data = start
	case "flags":
		h.flags = value
	case "handle":
		h.handle = handleOf(value)
	case "elem":
		h.elems, h.elemsEnd = start, end
	}
}

// take puts an object where it belongs.
func (d *document) take(what string, h head) {
	switch what {
	case "metainfo", "counter", "quota", "limit", "secmark", "synproxy", "ct helper", "ct timeout", "ct expectation", "tunnel":
		return
	case "table":
		t := d.table(h.family, h.name, h.at)
		t.dormant, t.handle = strings.Contains(h.flags, "dormant"), h.handle
		return
	}
	if h.family == "" || h.table == "" {
		d.problem(UnknownLine, h.at, "an object %q that is none of a ruleset's", what)
		return
	}
	t := d.table(h.family, h.table, h.at)
	switch what {
	case "chain":
		if i, twice := t.byName[h.name]; twice && int(t.chains[i].at) != h.at {
			d.problem(Duplicate, h.at, "chain %s of table %s is here twice", h.name, t.name)
		}
		t.last = -1
		t.hook(t.chain(h.name, h.at), baseChain{h.kind, h.hook, h.policy, h.prio, h.prio != ""}, h.at)
	case "rule":
		t.rule(t.chain(h.chain, h.at), h.at)
	case "set", "map":
		s := newSet(t, h.name, h.at)
		s.isMap = what == "map"
		s.dynamic = strings.Contains(h.flags, "dynamic")
		s.declareJSON(h.keys, h.data)
		if h.elems >= 0 {
			s.elems, s.elemsEnd = uint32(h.elems), uint32(h.elemsEnd)
		}
		t.sets[h.name] = s
	case "element": // nft -j list set prints none, but a script may
		d.problem(UnknownLine, h.at, "elements apart from their set are not read")
		if s := t.sets[h.name]; s != nil {
			s.lack = "some of its elements stand apart from it in the input"
		}
	case "flowtable":
		d.problem(Flowtable, h.at, "packets of connections that flowtable %s has taken over bypass the rules", h.name)
	default:
		d.problem(UnknownLine, h.at, "an object %q that is none of a ruleset's", what)
	}
}
