package nftables

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// printRule prints the rule object at an offset as nft's text form has it.
// problem says what of it can't be printed; the text is then the JSON.
func (t *tableIndex) printRule(at int) (text, problem string) {
	d := t.doc
	end := skip(d.text, at)
	if end < 0 {
		return d.excerpt(at), "the rule's JSON breaks off"
	}
	var n node
	r := jsonReader{text: d.text[:end], at: at}
	if !r.value(&n) {
		return short(d.text[at:end]), "the rule's JSON is broken"
	}
	rule := n.get("rule")
	p := &printer{}
	p.statements(rule.get("expr"))
	if c := rule.str("comment"); c != "" {
		p.words(`comment "` + c + `"`)
	}
	if p.err != nil {
		return short(d.text[at:end]), p.err.Error()
	}
	return p.b.String(), ""
}

// short keeps a quote of JSON to a readable length.
func short(s string) string {
	const most = 500
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// printElement prints the element of a set or map at an offset.
func printElement(text string, at int) (string, error) {
	var n node
	r := jsonReader{text: text, at: at}
	if !r.value(&n) {
		return "", errors.New("the JSON of an element is broken")
	}
	p := &printer{}
	p.element(&n)
	return p.b.String(), p.err
}

// printer writes nft's text form of JSON expressions.
type printer struct {
	b   strings.Builder
	err error
	// bare: the next word follows without a blank.
	bare bool
}

func (p *printer) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// words writes words with a blank before each.
func (p *printer) words(words ...string) {
	for _, w := range words {
		if w == "" {
			continue
		}
		if p.b.Len() > 0 && !p.bare {
			p.b.WriteByte(' ')
		}
		p.bare = false
		p.b.WriteString(w)
	}
}

// glue writes without a blank before or behind.
func (p *printer) glue(s string) {
	p.b.WriteString(s)
	p.bare = true
}

func (p *printer) statements(list *node) {
	if list == nil || list.kind != '[' {
		p.fail("the rule has no expressions")
		return
	}
	for i := range list.kids {
		p.statement(&list.kids[i])
	}
}

func (p *printer) statement(n *node) {
	m := n.only()
	if m == nil {
		p.fail("an expression that is none: %s", n.text)
		return
	}
	switch m.key {
	case "match":
		p.matching(m)
	case "vmap":
		p.expr(m.get("key"), "")
		p.words("vmap")
		p.expr(m.get("data"), hintOf(m.get("key")))
	case "mangle":
		p.expr(m.get("key"), "")
		p.words("set")
		p.expr(m.get("value"), hintOf(m.get("key")))
	case "accept", "drop", "return", "continue", "notrack":
		p.words(m.key)
	case "jump", "goto":
		p.words(m.key, m.str("target"))
	case "counter":
		p.counter(m)
	case "log":
		p.log(m)
	case "limit", "quota", "ct count", "last":
		p.limit(m)
	case "reject":
		p.reject(m)
	case "dnat", "snat", "masquerade", "redirect":
		p.nat(m)
	case "set":
		p.setStatement(m)
	case "queue":
		p.queue(m)
	case "flow":
		p.words("flow", m.str("op"), m.str("flowtable"))
	case "ct helper", "ct timeout", "ct expectation":
		p.words(m.key, "set", `"`+m.text+`"`)
	case "xt":
		p.words("xt", m.str("type"), `"`+m.str("name")+`"`)
	case "meter":
		p.words("meter", m.str("name"), "{")
		p.expr(m.get("key"), "")
		if s := m.get("stmt"); s != nil {
			p.statement(s)
		}
		p.words("}")
	case "tproxy", "synproxy", "fwd", "dup":
		p.words(m.key)
	case "comment":
	default:
		p.fail("the expression %q is not known", m.key)
	}
}

func (p *printer) matching(m *node) {
	left, right := m.get("left"), m.get("right")
	// tcp flags syn / fin,syn,rst,ack
	if a := left.get("&"); a != nil && a.kind == '[' && len(a.kids) == 2 && hintOf(&a.kids[0]) == "flags" {
		p.expr(&a.kids[0], "")
		if m.str("op") == "!=" {
			p.words("!=")
		}
		p.flags(right)
		p.words("/")
		p.flags(&a.kids[1])
		return
	}
	p.expr(left, "")
	if op := m.str("op"); op != "==" && op != "in" || op == "==" && p.explicit(left, right) {
		p.words(op)
	}
	p.expr(right, hintOf(left))
}

// explicit says whether "==" is printed: behind a mask, where a value alone
// would be read as a part of it.
func (p *printer) explicit(left, right *node) bool {
	for _, op := range []string{"&", "|", "^", "<<", ">>"} {
		if left.get(op) != nil {
			return true
		}
	}
	h := hintOf(left)
	return (h == "state" || h == "status" || h == "flags") && right != nil && (right.kind == '"' || right.kind == '[') && !strings.HasPrefix(right.text, "@")
}

// flags writes flags with commas between.
func (p *printer) flags(n *node) {
	switch {
	case n == nil:
		p.fail("flags are missing")
	case n.kind == '[':
		for i := range n.kids {
			if i > 0 {
				p.glue(",")
			}
			p.words(n.kids[i].text)
		}
	case n.get("|") != nil:
		p.flags(n.get("|"))
	default:
		p.words(n.text)
	}
}

// hintOf says how values that go with an operand are written: a mark in hex, an
// interface in quotes.
func hintOf(n *node) string {
	m := n.only()
	if m == nil {
		return ""
	}
	switch m.key {
	case "meta":
		switch key := m.str("key"); key {
		case "mark":
			return "mark"
		case "iifname", "oifname", "iif", "oif", "ibrname", "obrname":
			return "name"
		}
	case "ct":
		switch key := m.str("key"); key {
		case "mark", "state", "status":
			return key
		}
	case "payload":
		if m.str("field") == "flags" {
			return "flags"
		}
	case "fib":
		if strings.HasPrefix(m.str("result"), "oif") {
			return "exists"
		}
	case "&", "|", "^", "<<", ">>":
		if m.kind == '[' && len(m.kids) > 0 {
			return hintOf(&m.kids[0])
		}
	case "concat":
		if m.kind == '[' {
			hints := make([]string, len(m.kids))
			for i := range m.kids {
				hints[i] = hintOf(&m.kids[i])
			}
			return strings.Join(hints, ".")
		}
	}
	return ""
}

// expr writes a value, a set, or a part of a packet.
func (p *printer) expr(n *node, hint string) {
	switch {
	case n == nil:
		p.fail("a part of an expression is missing")
	case n.kind == '"', n.kind == '0':
		p.scalar(n, hint)
	case n.kind == 't' || n.kind == 'f':
		p.words(map[byte]string{'t': "exists", 'f': "missing"}[n.kind])
	case n.kind == '[':
		for i := range n.kids { // a list of flags
			if i > 0 {
				p.glue(",")
			}
			p.expr(&n.kids[i], hint)
		}
	case n.only() != nil:
		p.object(n.only(), hint)
	default:
		p.fail("an expression that is none")
	}
}

func (p *printer) scalar(n *node, hint string) {
	switch {
	case strings.HasPrefix(n.text, "@") && n.kind == '"':
		p.words(n.text)
	case hint == "mark" && n.kind == '0':
		v, err := strconv.ParseUint(n.text, 10, 64)
		if err != nil {
			p.fail("%q is not a mark", n.text)
		}
		p.words(fmt.Sprintf("0x%08x", v))
	case hint == "name" && n.kind == '"':
		p.words(`"` + n.text + `"`)
	case n.text == "":
		p.words(`""`)
	default:
		p.words(n.text)
	}
}

func (p *printer) object(m *node, hint string) {
	switch m.key {
	case "payload":
		p.payload(m)
	case "meta":
		p.meta(m)
	case "ct":
		p.words("ct", m.str("dir"), m.str("key"))
	case "fib":
		p.fib(m)
	case "rt":
		p.words("rt", m.str("family"), m.str("key"))
	case "socket":
		p.words("socket", m.str("key"))
	case "osf":
		p.words("osf", m.str("key"))
	case "ipsec":
		p.words("ipsec", m.str("dir"), m.str("key"))
	case "exthdr":
		p.words(m.str("name"), m.str("field"))
	case "tcp option", "sctp chunk", "ip option":
		p.words(m.key, m.str("name"), m.str("field"))
	case "numgen":
		p.words("numgen", m.str("mode"), "mod", m.str("mod"))
		p.offset(m)
	case "jhash":
		p.words("jhash")
		p.expr(m.get("expr"), "")
		p.words("mod", m.str("mod"))
		if seed := m.str("seed"); seed != "" {
			p.words("seed", seed)
		}
		p.offset(m)
	case "symhash":
		p.words("symhash", "mod", m.str("mod"))
		p.offset(m)
	case "prefix":
		p.expr(m.get("addr"), hint)
		p.glue("/" + m.str("len"))
		p.bare = false
	case "range":
		p.rangeOf(m, hint)
	case "set":
		p.set(m, hint)
	case "map":
		p.expr(m.get("key"), "")
		p.words("map")
		p.expr(m.get("data"), hintOf(m.get("key")))
	case "concat":
		p.concat(m, hint)
	case "elem":
		p.elem(m, hint)
	case "&", "|", "^", "<<", ">>":
		p.operator(m, hint)
	case "accept", "drop", "return", "continue":
		p.words(m.key)
	case "jump", "goto":
		p.words(m.key, m.str("target"))
	default:
		p.fail("the expression %q is not known", m.key)
	}
}

func (p *printer) offset(m *node) {
	if o := m.str("offset"); o != "" && o != "0" {
		p.words("offset", o)
	}
}

func (p *printer) payload(m *node) {
	if base := m.str("base"); base != "" {
		p.words("@" + base + "," + m.str("offset") + "," + m.str("len"))
		return
	}
	p.words(m.str("protocol"), m.str("field"))
}

// meta writes what nft writes without "meta" in front so.
func (p *printer) meta(m *node) {
	key := m.str("key")
	switch key {
	case "iif", "oif", "iifname", "oifname":
		p.words(key)
	default:
		p.words("meta", key)
	}
}

func (p *printer) fib(m *node) {
	p.words("fib")
	flags := m.get("flags")
	switch {
	case flags == nil:
	case flags.kind == '[':
		for i := range flags.kids {
			if i > 0 {
				p.words(".")
			}
			p.words(flags.kids[i].text)
		}
	default:
		p.words(flags.text)
	}
	p.words(m.str("result"))
}

func (p *printer) rangeOf(m *node, hint string) {
	if m.kind != '[' || len(m.kids) != 2 {
		p.fail("a range that is none")
		return
	}
	p.expr(&m.kids[0], hint)
	p.glue("-")
	p.expr(&m.kids[1], hint)
}

func (p *printer) set(m *node, hint string) {
	p.words("{")
	if m.kind == '[' {
		for i := range m.kids {
			if i > 0 {
				p.glue(",")
				p.bare = false
			}
			p.elementOf(&m.kids[i], hint)
		}
	} else {
		p.elementOf(m, hint)
	}
	p.words("}")
}

// element writes an element of a named set or map.
func (p *printer) element(n *node) { p.elementOf(n, "") }

// elementOf writes KEY, or KEY : DATA.
func (p *printer) elementOf(n *node, hint string) {
	if n.kind == '[' && len(n.kids) == 2 {
		p.expr(&n.kids[0], hint)
		p.words(":")
		p.expr(&n.kids[1], "")
		return
	}
	p.expr(n, hint)
}

func (p *printer) elem(m *node, hint string) {
	p.expr(m.get("val"), hint)
	for _, key := range []string{"timeout", "expires"} {
		if v := m.str(key); v != "" {
			p.words(key, duration(v))
		}
	}
	if c := m.str("comment"); c != "" {
		p.words("comment", `"`+c+`"`)
	}
}

// duration writes seconds as nft does: 1h59m30s.
func duration(seconds string) string {
	n, err := strconv.ParseUint(seconds, 10, 64)
	if err != nil || n == 0 {
		return seconds + "s"
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		secs uint64
	}{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}} {
		if v := n / u.secs; v > 0 {
			fmt.Fprintf(&b, "%d%s", v, u.name)
			n %= u.secs
		}
	}
	return b.String()
}

func (p *printer) concat(m *node, hint string) {
	if m.kind != '[' {
		p.fail("a concatenation that is none")
		return
	}
	hints := strings.Split(hint, ".")
	for i := range m.kids {
		if i > 0 {
			p.words(".")
		}
		h := ""
		if len(hints) == len(m.kids) {
			h = hints[i]
		}
		p.expr(&m.kids[i], h)
	}
}

// operator writes "A & B"; nft puts no parentheses around what it reads from
// left to right.
func (p *printer) operator(m *node, hint string) {
	if m.kind != '[' || len(m.kids) < 2 {
		p.fail("an operator without operands")
		return
	}
	hint = cmp.Or(hintOf(&m.kids[0]), hint)
	for i := range m.kids {
		if i > 0 {
			p.words(m.key)
		}
		p.operand(&m.kids[i], hint, m.key, i > 0)
	}
}

// precedence of operators, as nft and C have it.
var precedence = map[string]int{"<<": 4, ">>": 4, "&": 3, "^": 2, "|": 1}

func (p *printer) operand(n *node, hint, op string, right bool) {
	inner := n.only()
	list := n.kind == '[' && len(n.kids) > 1
	if list || inner != nil && precedence[inner.key] > 0 && (right || precedence[inner.key] < precedence[op]) {
		p.words("(")
		p.bare = true
		if list {
			for i := range n.kids {
				if i > 0 {
					p.words("|")
				}
				p.expr(&n.kids[i], hint)
			}
		} else {
			p.expr(n, hint)
		}
		p.glue(")")
		p.bare = false
		return
	}
	p.expr(n, hint)
}
