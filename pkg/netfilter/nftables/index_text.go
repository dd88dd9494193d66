package nftables

import (
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// block is what a brace opened.
type block uint8

const (
	outside block = iota
	inTable
	inChain
	inSet
	inObject // a counter, a helper, ...: nothing of it matters
)

// textIndexer goes through the lines of nft's text form.
type textIndexer struct {
	*document
	in    block
	table *tableIndex
	chain int32
	set   *set
	depth int // of braces inside an object
	next  int // offset to go on at: the next line, or what follows on this one
	// inside: the part that is being read does not begin its line.
	inside bool
	warned map[string]bool
}

// indexText is the one pass over the text form.
func (d *document) indexText() error {
	x := &textIndexer{document: d, warned: map[string]bool{}}
	end := -1 // of the present line
	for at := 0; at < len(d.text); at = x.next {
		x.inside = at <= end
		if !x.inside {
			end = d.lineEnd(at)
		}
		x.next = end + 1
		x.line(at, end)
	}
	if len(d.tables) == 0 {
		return ErrNoTable
	}
	if x.in != outside && x.table.name != "" {
		d.breaksOff(x.table)
	}
	return nil
}

// lineEnd is the offset of the newline that ends the line of an offset.
func (d *document) lineEnd(at int) int {
	if n := strings.IndexByte(d.text[at:], '\n'); n >= 0 {
		return at + n
	}
	return len(d.text)
}

// breaksOff notes that the text has no end.
func (d *document) breaksOff(t *tableIndex) {
	d.cutAt = max(len(strings.TrimRight(d.text, " \t\r\n"))-1, 0)
	t.cut = true
	d.problem(Truncated, d.cutAt, "the text breaks off in table %s %s: what follows is not known", t.family, t.name)
}

// line reads one line, or the rest of one. Where only a part of it is read,
// next tells where to go on.
func (x *textIndexer) line(from, to int) {
	for from < to && (isBlank(x.text[from]) || x.text[from] == ';') {
		from++
	}
	for to > from && isBlank(x.text[to-1]) {
		to--
	}
	switch {
	case from == to:
		return
	case x.text[from] == '#':
		x.comment(x.text[from:to])
		return
	case x.text[from] == '}':
		x.close()
		x.next = from + 1
		return
	case x.in == inChain:
		x.inChain(from, to)
		return
	}
	part := x.partEnd(from, to)
	if x.next = part; part < to && x.text[part] == '#' {
		x.next = to
	}
	switch x.in {
	case outside:
		x.outside(from, part)
	case inTable:
		x.inTable(from, part)
	case inSet:
		x.inSet(from, part)
	case inObject:
		if x.opens(part) {
			x.depth++
		}
	}
	if x.next == part && part < to && x.text[part] == '{' {
		x.next++ // a brace where none belongs
	}
}

// partEnd is the end of a part of a line: a brace, a semicolon, a comment.
func (x *textIndexer) partEnd(from, to int) int {
	for i := from; i < to; i++ {
		switch x.text[i] {
		case '{', '}', ';', '#':
			return i
		case '"':
			n := strings.IndexByte(x.text[i+1:to], '"')
			if n < 0 {
				return to
			}
			i += n + 1
		}
	}
	return to
}

func (x *textIndexer) close() {
	if x.in == inObject && x.depth > 0 {
		x.depth--
		return
	}
	switch x.in {
	case inChain, inSet, inObject:
		x.in = inTable
		if x.table.name == "" {
			x.in = outside
		}
	case inTable:
		x.in = outside
	}
}

// comment reads the warning that nft prints of tables of iptables-nft, and
// behind a table's brace the handle that nft -a prints.
func (x *textIndexer) comment(s string) {
	if n, ok := strings.CutPrefix(s, "# handle "); ok && x.in == inTable && x.inside && x.table.handle == 0 {
		x.table.handle = handleOf(n)
		return
	}
	rest, ok := strings.CutPrefix(s, "# Warning: table ")
	if !ok || !strings.Contains(rest, "managed by iptables-nft") {
		return
	}
	if f := strings.Fields(rest); len(f) > 2 {
		x.warned[f[0]+" "+f[1]] = true
	}
}

// opens says whether a part of a line ends at an opening brace, and goes on
// behind it.
func (x *textIndexer) opens(part int) bool {
	if part >= len(x.text) || x.text[part] != '{' {
		return false
	}
	x.next = part + 1
	return true
}

func (x *textIndexer) outside(from, to int) {
	ok := x.opens(to)
	f := strings.Fields(x.text[from:to])
	switch {
	case ok && len(f) == 3 && f[0] == "table":
		x.table = x.document.table(f[1], f[2], from)
	case ok && len(f) == 2 && f[0] == "table":
		x.table = x.document.table("ip", f[1], from)
	case ok && len(f) > 1 && (f[0] == "chain" || f[0] == "set" || f[0] == "map"):
		// A chain pasted without its table. What it was of is not known.
		x.table = x.document.table("ip", "", from)
		x.problem(UnknownLine, from, "%s %s stands outside of a table: which table and family it is of is not known", f[0], f[1])
		x.inTable(from, to)
		return
	default:
		x.problem(UnknownLine, from, "this is no line of nft list ruleset")
		x.next = x.lineEnd(from) + 1
		return
	}
	x.table.compat = x.table.compat || x.warned[x.table.family+" "+x.table.name]
	x.in = inTable
}

func (x *textIndexer) inTable(from, to int) {
	words := strings.TrimSpace(x.text[from:to])
	if !x.opens(to) {
		s := words
		switch {
		case strings.HasPrefix(s, "comment "):
		case strings.HasPrefix(s, "flags "):
			x.table.dormant = strings.Contains(s, "dormant")
		default:
			x.problem(UnknownLine, from, "this is no line of a table")
		}
		return
	}
	what, name, _ := strings.Cut(words, " ")
	name = strings.Trim(strings.TrimSpace(name), `"`)
	switch what {
	case "chain":
		if i, twice := x.table.byName[name]; twice && x.table.name != "" {
			x.problem(Duplicate, from, "chain %s of table %s is here twice (first on line %d)", name, x.table.name, x.document.line(int(x.table.chains[i].at)))
		}
		x.table.last = -1
		x.chain = x.table.chain(name, from)
		x.in = inChain
	case "set", "map":
		x.set = newSet(x.table, name, from)
		x.set.isMap = what == "map"
		x.table.sets[name] = x.set
		x.in = inSet
	default:
		if what == "flowtable" {
			x.problem(Flowtable, from, "packets of connections that flowtable %s has taken over bypass the rules", name)
		}
		x.in, x.depth = inObject, 0
	}
}

func (x *textIndexer) inChain(from, to int) {
	s := x.text[from:to]
	switch {
	case strings.HasPrefix(s, "type ") && hookWord(s):
		x.header(from, to)
		return
	case strings.HasPrefix(s, `comment "`):
		x.next = x.ruleEnd(from)
		return
	}
	x.table.rule(x.chain, from)
	if !x.inside && wholeLine(s) {
		return
	}
	if end := x.ruleEnd(from); end >= len(x.text) || x.text[end] == '#' {
		x.next = x.lineEnd(end) + 1
	} else {
		x.next = end
	}
}

// hookWord says whether "hook" comes soon, as in the head of a base chain.
func hookWord(s string) bool { return strings.Contains(s[:min(len(s), 64)], " hook ") }

// wholeLine says whether a rule certainly ends with its line, as all do that
// nft prints.
func wholeLine(s string) bool {
	return strings.Count(s, "{") == strings.Count(s, "}") && strings.IndexByte(s, ';') < 0 && strings.IndexByte(s, '"') < 0
}

// ruleEnd is the offset behind a rule: the end of its line, or the line on
// which the last brace is closed; a semicolon, or the chain's own brace.
func (d *document) ruleEnd(at int) int {
	depth, end := 0, -1 // end of the line that i is on
	for i := at; i < len(d.text); i++ {
		switch d.text[i] {
		case '"':
			if i > end {
				end = d.lineEnd(i)
			}
			n := strings.IndexByte(d.text[i+1:end], '"')
			if n < 0 {
				return end
			}
			i += n + 1
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case ';', '#', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(d.text)
}

// header reads "type TYPE hook HOOK [device DEV] priority PRIO; policy POLICY;".
func (x *textIndexer) header(from, to int) {
	var h baseChain
	// The policy stands behind the first semicolon; a chain on one line goes on.
	const longest = 512
	if to > from+longest {
		to = from + longest
	}
	if i := strings.IndexByte(x.text[from:to], ';'); i >= 0 {
		end := from + i + 1
		rest := strings.TrimLeft(x.text[end:to], " \t")
		if strings.HasPrefix(rest, "policy ") {
			if j := strings.IndexAny(rest, ";}"); j >= 0 {
				end = to - len(rest) + j
			} else {
				end = to
			}
		}
		to, x.next = end, end
	} else if i := strings.IndexByte(x.text[from:to], '}'); i >= 0 {
		to, x.next = from+i, from+i
	}
	tokens, _ := lex(x.text[from:to], nil)
	for i := 0; i+1 < len(tokens); i++ {
		v := tokens[i+1].text
		switch tokens[i].text {
		case "type":
			h.kind = v
		case "hook":
			h.hook = v
		case "policy":
			h.policy = v
		case "priority":
			h.prio, h.priority = v, true
			if i+3 < len(tokens) && (tokens[i+2].is("+") || tokens[i+2].is("-")) {
				h.prio += " " + tokens[i+2].text + " " + tokens[i+3].text
			}
		}
	}
	x.table.hook(x.chain, h, from)
}

// baseChain is how a base chain says that it is hooked.
type baseChain struct {
	kind, hook, policy string
	// prio is a number, a name, or "NAME + N".
	prio     string
	priority bool
}

var hookNames = map[string]netfilter.Hook{
	"prerouting": netfilter.Prerouting, "input": netfilter.Input, "forward": netfilter.Forward,
	"output": netfilter.Output, "postrouting": netfilter.Postrouting,
}

// priorities are the names that nft has for them, in the IP families.
var priorities = map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}

func (h baseChain) priorityValue() (int, bool) {
	name, rest, more := strings.Cut(h.prio, " ")
	n, ok := priorities[name]
	if !ok {
		var err error
		n, err = strconv.Atoi(name)
		ok = err == nil
	}
	if more && ok {
		m, err := strconv.Atoi(strings.ReplaceAll(rest, " ", ""))
		return n + m, err == nil
	}
	return n, ok
}

// hook makes a chain a base chain.
func (t *tableIndex) hook(chain int32, h baseChain, at int) {
	c := &t.chains[chain]
	if h.policy != "" {
		c.policy = strings.ToUpper(h.policy)
	}
	if h.hook == "" {
		return
	}
	if t.families() == nil || h.hook == "ingress" || h.hook == "egress" {
		return // seen before IP is, and only noted
	}
	hook, known := hookNames[h.hook]
	prio, ok := h.priorityValue()
	kind := netfilter.Filtering
	switch {
	case h.kind == "nat":
		kind = netfilter.NAT
	case h.kind == "route", hook == netfilter.Prerouting, hook == netfilter.Postrouting:
		kind = netfilter.Preparing
	}
	if !known || !ok || h.kind != "nat" && h.kind != "route" && h.kind != "filter" {
		t.doc.problem(UnknownChain, at, "where chain %s is hooked is not understood", c.name)
		return
	}
	c.base = &netfilter.Base{Hook: hook, Priority: prio, Kind: kind}
	if c.policy == "" {
		c.policy = "ACCEPT" // what the kernel takes where none is given
	}
}

func (x *textIndexer) inSet(from, to int) {
	s := x.text[from:to]
	word, rest, _ := strings.Cut(s, " ")
	switch word {
	case "type", "typeof":
		x.set.declare(strings.TrimRight(rest, "; \t}"), word == "typeof")
	case "elements":
		if !x.opens(to) {
			x.set.lack = "its elements are not in the input"
			return
		}
		x.elements(to + 1)
	case "flags":
		x.set.dynamic = strings.Contains(rest, "dynamic")
	case "timeout":
		x.set.timeout = rest
	}
}

// elements skips a set's elements, up to their closing brace.
func (x *textIndexer) elements(from int) {
	x.set.at, x.set.elems = uint32(from), uint32(from)
	for at, depth, quoted := from, 1, false; ; {
		n := strings.IndexByte(x.text[at:], '}')
		if n < 0 {
			x.set.elemsEnd, x.set.lack = uint32(len(x.text)), "the input breaks off in its elements"
			x.next = len(x.text)
			return
		}
		passed := x.text[at : at+n]
		if strings.Count(passed, `"`)%2 == 1 {
			quoted = !quoted
		}
		if at += n + 1; quoted {
			continue
		}
		if depth += strings.Count(passed, "{") - 1; depth <= 0 {
			x.set.elemsEnd, x.next = uint32(at-1), at
			return
		}
	}
}
