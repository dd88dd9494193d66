package iptables

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// place is where a rule's line stands in the text.
type place struct {
	offset uint32
	line   uint32
}

// span is a run of rules of one chain: indexes into indexer.rules. before is
// the number of the chain's rules ahead of it.
type span struct{ from, to, before uint32 }

// chainIndex is what the first pass learns of a chain.
type chainIndex struct {
	name     string
	line     int
	declared bool
	policy   string
	first    span
	more     []span
}

func (c *chainIndex) len() int {
	s := c.first
	if len(c.more) > 0 {
		s = c.more[len(c.more)-1]
	}
	return int(s.before + s.to - s.from)
}

// at is the index into indexer.rules of the chain's rule i.
func (c *chainIndex) at(i int) int {
	s := c.first
	if i >= int(s.to-s.from) {
		after := sort.Search(len(c.more), func(j int) bool { return int(c.more[j].before) > i })
		s = c.more[after-1]
	}
	return int(s.from) + i - int(s.before)
}

// tableIndex is what the first pass learns of a table.
type tableIndex struct {
	netfilter.TableInfo
	from, to  int // offsets of its text
	committed bool
	chains    []chainIndex
	byName    map[string]int32
	last      int32 // the chain of the last rule, -1 for none
	lastLine  int
	bodies    []body
}

type indexer struct {
	text     string
	opt      Options
	rules    []place
	tables   []*tableIndex
	now      *tableIndex // the table that is open, or nil
	header   header
	legacy   bool
	guess    *netfilter.Family // what the rules of the whole text tell
	problems []Problem
	parsers  sync.Pool // of *ruleParser
}

func newIndexer(text string, opt Options) *indexer {
	return &indexer{
		text: text, opt: opt,
		rules:   make([]place, 0, strings.Count(text, "\n")+1),
		parsers: sync.Pool{New: func() any { return &ruleParser{} }},
	}
}

// index is the one pass over the text.
func (x *indexer) index() {
	line := 0
	for at := 0; at < len(x.text); {
		end := strings.IndexByte(x.text[at:], '\n')
		if end < 0 {
			end = len(x.text)
		} else {
			end += at
		}
		line++
		x.line(at, end, line)
		at = end + 1
	}
	if x.now != nil {
		x.close(len(x.text))
	}
}

// trim gives the offsets of a line without the blanks around it.
func (x *indexer) trim(from, to int) (int, int) {
	for from < to && isBlank(x.text[from]) {
		from++
	}
	for to > from && isBlank(x.text[to-1]) {
		to--
	}
	return from, to
}

func (x *indexer) line(from, to, line int) {
	from, to = x.trim(from, to)
	if from == to {
		return
	}
	s := x.text[from:to]
	switch s[0] {
	case '-', '[':
		if rest, ok := strings.CutPrefix(afterCounters(s), "-A "); ok {
			x.rule(rest, from, line)
			return
		}
		x.command(s, from, line)
	case ':':
		x.declare(s[1:], from, line)
	case '*':
		x.open(strings.TrimSpace(s[1:]), from, line)
	case '#':
		x.comment(s, line)
	default:
		if s == "COMMIT" && x.now != nil {
			x.now.committed = true
			x.close(to)
			return
		}
		x.problem(UnknownLine, from, line, "this is no line of iptables-save output")
	}
}

// afterCounters cuts the "[packets:bytes] " that iptables-save -c puts first.
func afterCounters(s string) string {
	if s[0] != '[' {
		return s
	}
	if i := strings.IndexByte(s, ']'); i >= 0 {
		return strings.TrimLeft(s[i+1:], " \t")
	}
	return s
}

func (x *indexer) comment(s string, line int) {
	if h, ok := readHeader(s); ok {
		x.header = h
	}
	if warnsOfLegacy(s) {
		x.legacy = true
		x.problems = append(x.problems, Problem{LegacyPresent, line, 1, s, "the node also has iptables-legacy tables, which this text does not show"})
	}
}

// open starts a table. One that is still open lacks its COMMIT.
func (x *indexer) open(name string, from, line int) {
	if x.now != nil {
		x.close(from)
	}
	x.now = &tableIndex{
		TableInfo: netfilter.TableInfo{Source: x.opt.Source, Name: name, Line: line, Backend: x.header.backend, Family: x.header.family},
		from:      from, byName: map[string]int32{}, last: -1, lastLine: line,
	}
	if n := x.declarations(from); n > 64 {
		x.now.byName = make(map[string]int32, n)
		x.now.chains = make([]chainIndex, 0, n)
	}
	x.tables = append(x.tables, x.now)
}

// declarations counts the lines after from that declare chains, so that a
// large table's index need not grow.
func (x *indexer) declarations(from int) int {
	n := 0
	rest := x.text[from:]
	for {
		i := strings.IndexByte(rest, '\n')
		if i < 0 || i+1 >= len(rest) || rest[i+1] != ':' {
			return n
		}
		n++
		rest = rest[i+1:]
	}
}

func (x *indexer) close(to int) {
	t := x.now
	t.to, x.now = to, nil
	if !t.committed {
		t.CutAt = t.lastLine
		x.problems = append(x.problems, Problem{Truncated, t.lastLine, 1, "", fmt.Sprintf("table %s ends without COMMIT: rules may be cut off after line %d", t.Name, t.lastLine)})
	}
}

// table is the open table, or the one that Options name for lines before any.
func (x *indexer) table(from, line int) *tableIndex {
	if x.now == nil && x.opt.Table != "" && len(x.tables) == 0 {
		x.open(x.opt.Table, from, line)
		x.now.committed = true // an excerpt has no COMMIT to miss
	}
	if x.now == nil {
		x.problem(UnknownLine, from, line, "this line stands outside of a table: a line such as *nat should come before it")
		return nil
	}
	x.now.lastLine = line
	return x.now
}

// chain finds or makes a chain of the table.
func (t *tableIndex) chain(name string) int32 {
	if t.last >= 0 && t.chains[t.last].name == name {
		return t.last
	}
	i, ok := t.byName[name]
	if !ok {
		i = int32(len(t.chains))
		t.chains = append(t.chains, chainIndex{name: name})
		t.byName[name] = i
	}
	return i
}

// declare reads ":NAME POLICY [packets:bytes]" after its colon.
func (x *indexer) declare(s string, from, line int) {
	t := x.table(from, line)
	if t == nil {
		return
	}
	name, rest := word(s)
	policy, _ := word(rest)
	if name == "" {
		x.problem(UnknownLine, from, line, "a chain's declaration without a name")
		return
	}
	c := &t.chains[t.chain(name)]
	if c.declared {
		x.problem(Duplicate, from, line, fmt.Sprintf("chain %s of table %s is declared again (first on line %d)", name, t.Name, c.line))
		return
	}
	c.declared, c.line = true, line
	if policy != "-" {
		c.policy = policy
	}
}

// word splits off the first blank-separated word.
func word(s string) (first, rest string) {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// rule notes where a rule stands; s is its text after "-A ".
func (x *indexer) rule(s string, from, line int) {
	t := x.table(from, line)
	if t == nil {
		return
	}
	name, _ := word(s)
	if name == "" || strings.Contains(name, `"`) {
		x.problem(UnknownRule, from, line, "a rule without a chain name that iptables would take")
		return
	}
	t.last = t.chain(name)
	t.chains[t.last].add(uint32(len(x.rules)))
	x.rules = append(x.rules, place{uint32(from), uint32(line)})
}

// add gives the chain the next rule.
func (c *chainIndex) add(i uint32) {
	switch last := len(c.more) - 1; {
	case c.first.to == 0 && c.first.from == 0 && last < 0:
		c.first = span{i, i + 1, 0}
	case last < 0 && c.first.to == i:
		c.first.to++
	case last >= 0 && c.more[last].to == i:
		c.more[last].to++
	default:
		c.more = append(c.more, span{i, i + 1, uint32(c.len())})
	}
}

// command reads the other forms that a line may take: --append, and the -N
// and -P of iptables -S.
func (x *indexer) command(s string, from, line int) {
	verb, rest := word(afterCounters(s))
	switch verb {
	case "-A", "--append":
		x.rule(rest, from, line)
	case "-N", "--new-chain", "-P", "--policy":
		x.declare(rest, from, line)
	default:
		x.problem(UnknownLine, from, line, "this is no line of iptables-save output")
	}
}

func (x *indexer) problem(kind ProblemKind, from, line int, message string) {
	x.problems = append(x.problems, Problem{kind, line, x.column(from), x.lineAt(from), message})
}

// column is the column of an offset, from 1.
func (x *indexer) column(at int) int { return at - strings.LastIndexByte(x.text[:at], '\n') }

// lineAt is the text from an offset to the end of its line.
func (x *indexer) lineAt(at int) string {
	s := x.text[at:]
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return strings.TrimRight(s, " \t\r")
}
