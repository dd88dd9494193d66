package iptables

import (
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

var (
	chainHeader = lazyregexp.New(`^Chain (\S+) \((?:policy ([A-Z]+)(?: \d+[KMGTPE]? packets, \d+[KMGTPE]? bytes)?|-?\d+ references?)\)`)
	columns     = lazyregexp.New(`^(num\s+)?(pkts\s+bytes\s+)?target\s+prot\s+(opt\s+)?(in\s+out\s+)?source\s+destination`)
	number      = lazyregexp.New(`^\d+[KMGTPE]?$`)
)

// listing reads a line of iptables -L: a chain's header, the names of the
// columns, or a row of a chain whose header came before.
func (x *indexer) listing(s string, at, line int) bool {
	bare := strings.TrimLeft(s, ">|+ \t")
	at += len(s) - len(bare)
	if strings.HasPrefix(bare, "Chain ") {
		if m := chainHeader.FindStringSubmatchIndex(bare); m != nil {
			x.listedChain(bare, m, at, line)
			return true
		}
	}
	if m := columns.FindStringSubmatchIndex(bare); m != nil {
		x.columns(bare, m, at, line)
		return true
	}
	if x.paste.chain < 0 || x.now == nil || !x.now.loose {
		return false
	}
	if _, ok := splitRow(bare, x.paste.layout); !ok {
		return false
	}
	x.now.lastLine = line
	x.add(x.now, x.paste.chain, place{uint32(at), uint32(line), x.paste.layout | listed})
	return true
}

// listedChain begins a chain. The kernel's own chains come first, so that one
// after another kind of chain, or a chain that is there already, is of another
// table.
func (x *indexer) listedChain(s string, m []int, at, line int) {
	name, policy := s[m[2]:m[3]], ""
	if m[4] >= 0 {
		policy = s[m[4]:m[5]]
	}
	if t := x.now; t != nil && (!t.loose || t.has(name) || policy != "" && t.jumpedTo()) {
		x.close(at)
	}
	t := x.table(at, line)
	i := t.chain(name)
	c := &t.chains[i]
	c.declared, c.line, c.policy = true, line, policy
	x.paste.chain, x.paste.layout, x.paste.blank = i, 0, false
	if rest := strings.TrimSpace(s[m[1]:]); rest != "" {
		x.mangled(at+m[1], line)
	}
}

// jumpedTo says whether the table has a chain that only jumps lead to.
func (t *tableIndex) jumpedTo() bool {
	for i := range t.chains {
		if t.chains[i].declared && t.chains[i].policy == "" {
			return true
		}
	}
	return false
}

func (x *indexer) columns(s string, m []int, at, line int) {
	x.paste.layout = 0
	if m[2] >= 0 {
		x.paste.layout |= numbered
	}
	if m[4] >= 0 {
		x.paste.layout |= counted
	}
	if strings.TrimSpace(s[m[1]:]) != "" {
		x.mangled(at+m[1], line)
	}
}

// mangled notes that a listing has several of its lines in one: which column
// is which can no longer be told, and a rule may be lost.
func (x *indexer) mangled(at, line int) {
	for s := x.rest(at); s != "" && isBlank(s[0]); s = s[1:] {
		at++
	}
	x.problem(Mangled, at, line, "lines of the listing are run together here, so rules are lost: iptables-save prints each on a line of its own")
	if t := x.now; t != nil && x.paste.chain >= 0 {
		x.add(t, x.paste.chain, place{uint32(at), uint32(line), garbled})
	}
}

// row takes a row of a listing whose chain's header is not in the paste, or a
// line of a listed chain that is no row.
func (x *indexer) row(s string, at, line int) bool {
	bare := strings.TrimLeft(s, ">|+ \t")
	at += len(s) - len(bare)
	if x.paste.chain >= 0 && x.now != nil && !x.paste.blank {
		x.problem(UnknownRule, at, line, "this is no row of the listing: expected "+rowShape(x.paste.layout))
		x.add(x.now, x.paste.chain, place{uint32(at), uint32(line), garbled})
		x.paste.broken = line
		return true
	}
	for _, l := range []layout{0, counted, numbered, numbered | counted} {
		r, ok := splitRow(bare, l)
		if !ok || r.opt.text == "" {
			continue
		}
		t := x.table(at, line)
		t.filtered = true
		x.problem(UnknownChain, at, line, "a row of a listing whose chain is not in the input: a line such as Chain NAME (1 references) should come before it")
		x.add(t, t.chain(""), place{uint32(at), uint32(line), l | listed})
		return true
	}
	return false
}

func rowShape(l layout) string {
	switch {
	case l&counted != 0:
		return "pkts bytes target prot opt in out source destination"
	}
	return "target prot opt source destination"
}

// splitRow tells the columns of a row apart. The target may be blank, and in
// old listings of ip6tables opt always is.
func splitRow(s string, l layout) (r listedRow, ok bool) {
	return splitFields(fields(s, nil), l)
}

// listedRow is the columns of a row. Those that are blank are "".
type listedRow struct {
	target, prot, opt, in, out, src, dst token
	rest                                 []token
}

// fields splits a row at blanks.
func fields(s string, buf []token) []token {
	for i := 0; i < len(s); {
		if isBlank(s[i]) {
			i++
			continue
		}
		from := i
		for i < len(s) && !isBlank(s[i]) {
			i++
		}
		buf = append(buf, token{text: s[from:i], col: from + 1})
	}
	return buf
}

func splitFields(f []token, l layout) (r listedRow, ok bool) {
	if l&numbered != 0 {
		if len(f) == 0 || !number.MatchString(f[0].text) {
			return r, false
		}
		f = f[1:]
	}
	if l&counted != 0 {
		if len(f) < 2 || !number.MatchString(f[0].text) || !number.MatchString(f[1].text) {
			return r, false
		}
		f = f[2:]
	}
	at := func(i int) string {
		if i < len(f) {
			return f[i].text
		}
		return ""
	}
	switch {
	case isOpt(at(1)) && isProt(at(0)):
		r.prot, r.opt, f = f[0], f[1], f[2:]
	case isOpt(at(2)) && isProt(at(1)):
		r.target, r.prot, r.opt, f = f[0], f[1], f[2], f[3:]
	case isProt(at(1)) && !isOpt(at(2)):
		r.target, r.prot, f = f[0], f[1], f[2:]
	case isProt(at(0)) && !isOpt(at(1)):
		r.prot, f = f[0], f[1:]
	default:
		return r, false
	}
	need := 2
	if l&counted != 0 {
		need = 4
	}
	if len(f) < need {
		return r, false
	}
	if l&counted != 0 {
		r.in, r.out, f = f[0], f[1], f[2:]
	}
	r.src, r.dst, r.rest = f[0], f[1], f[2:]
	if r.opt.text == "" && !(isListedAddr(r.src.text) && isListedAddr(r.dst.text)) {
		return r, false // prose, more likely than a listing without the column opt
	}
	return r, true
}

func isOpt(s string) bool { return s == "--" || s == "-f" || s == "!f" }

func isProt(s string) bool {
	s = strings.TrimPrefix(s, "!")
	if s == "all" {
		return true
	}
	_, ok := netfilter.Protocol(s).Number()
	return ok
}

// isListedAddr says whether the word looks like an address column's.
func isListedAddr(s string) bool {
	s = strings.TrimPrefix(s, "!")
	return s == "anywhere" || strings.ContainsAny(s, ".:")
}
