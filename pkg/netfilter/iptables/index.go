package iptables

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"sync"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// place is where a rule's line stands in the text.
type place struct {
	offset uint32
	line   uint32
	layout layout
}

// layout says how a rule is written. The zero layout is that of iptables-save
// and iptables -S.
type layout uint8

const (
	listed   layout = 1 << iota // a row of iptables -L
	counted                     // with the columns pkts and bytes (-v)
	numbered                    // with the column num (--line-numbers)
	omitted                     // no rule: lines were left out here
	garbled                     // something that is no rule stands here
)

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
	// cut says why rules may be missing; "" where nothing tells so.
	cut string
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

	// loose: no "*table" line opened it. Its Name is "" until concluded.
	loose bool
	// filtered: the command line, or what is missing, says that lines were
	// taken out.
	filtered bool
	// gap: lines were left out ahead of the next rule.
	gap *place
}

type indexer struct {
	text     string
	parts    []part // texts that were unescaped; their offsets follow text's
	opt      Options
	rules    []place
	tables   []*tableIndex
	now      *tableIndex // the table that is open, or nil
	header   header
	legacy   bool
	guess    *netfilter.Family // what the rules of the whole text tell
	problems []Problem
	unsaid   int // problems beyond mostProblems
	paste    paste
	tooLarge bool      // mostPasted
	parsers  sync.Pool // of *ruleParser
}

const (
	// mostRulesAhead bounds the memory that is set aside by the number of lines.
	mostRulesAhead = 1 << 20
	// A text of which nothing was understood after so many bytes is given up.
	mostGarbage = 4 << 20
	// mostProblems bounds the problems that are told one by one.
	mostProblems = 1000
	// After so many more, lines that don't begin as iptables' own are not looked
	// at.
	mostUnsaid = 100_000
	// mostPasted bounds a text that is not plainly iptables-save's: each of its
	// rules takes memory.
	mostPasted = 64 << 20
	// longestLine is that of a line that may be a rule. The kernel takes no
	// rule as long as that.
	longestLine = 1 << 20
)

// legacyPresent is the message of that Problem.
const legacyPresent = "the node also has iptables-legacy tables, which this text does not show"

func newIndexer(text string, opt Options) *indexer {
	return &indexer{
		text: text, opt: opt,
		rules:   make([]place, 0, min(strings.Count(text, "\n")+1, mostRulesAhead)),
		paste:   paste{chain: -1},
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
		x.line(x.text[at:end], at, line)
		at = end + 1
		if at > mostGarbage && len(x.tables) == 0 {
			break // nothing will come of it
		}
		if at > mostPasted && len(x.tables) > 0 {
			x.tooLarge = true
			return
		}
	}
	x.rejoin()
	if x.now != nil {
		x.close(len(x.text))
	}
	x.conclude()
	if x.unsaid > 0 {
		x.problems = append(x.problems, Problem{UnknownLine, line, 1, "", fmt.Sprintf("%d more lines are not understood", x.unsaid)})
	}
}

// trimmed is a line without the blanks around it, and where it then starts.
func trimmed(s string, at int) (string, int) {
	for s != "" && isBlank(s[0]) {
		s, at = s[1:], at+1
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s, at
}

// line takes in one line; at is its offset.
func (x *indexer) line(s string, at, line int) {
	s, at = trimmed(s, at)
	if s == "" {
		x.paste.blank = true
		return
	}
	if x.paste.torn != "" && !escaped(s) {
		x.rejoin()
	}
	switch s[0] {
	case '-', '[':
		if rest, ok := strings.CutPrefix(afterCounters(s), "-A "); ok && !escaped(rest) {
			x.rule(rest, at, line)
			return
		}
		x.command(s, at, line)
	case ':':
		if escaped(s) {
			x.unescape(s, at, line)
			return
		}
		x.declare(s[1:], at, line)
	case '*':
		if !escaped(s) && isTableName(strings.TrimSpace(s[1:])) {
			x.open(strings.TrimSpace(s[1:]), at, line)
			return
		}
		x.other(s, at, line)
	case '#':
		x.comment(s, at, line)
	default:
		if s == "COMMIT" && x.now != nil {
			x.now.committed = true
			x.close(at + len(s))
			return
		}
		x.other(s, at, line)
	}
}

// isTableName says whether a "*" line opens a table: a name alone.
func isTableName(s string) bool {
	return s != "" && !strings.ContainsAny(s, " \t*")
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

func (x *indexer) comment(s string, at, line int) {
	if escaped(s) {
		x.unescape(s, at, line)
		return
	}
	if h, ok := readHeader(s); ok {
		x.header = h
		return
	}
	if warnsOfLegacy(s) {
		x.legacy = true
		x.problems = append(x.problems, Problem{LegacyPresent, line, 1, s, legacyPresent})
		return
	}
	if c, ok := readCommand(s); ok {
		x.ran(c)
	}
}

// open starts a table. One that is still open lacks its COMMIT.
func (x *indexer) open(name string, at, line int) {
	if x.now != nil {
		x.close(at)
	}
	x.paste.chain = -1
	x.now = &tableIndex{
		TableInfo: netfilter.TableInfo{Source: x.opt.Source, Name: name, Line: line, Backend: x.header.backend, Family: x.header.family},
		from:      at, byName: map[string]int32{}, last: -1, lastLine: line,
	}
	if x.now.Backend == netfilter.AnyBackend {
		x.now.Backend = x.paste.command.backend
	}
	if x.now.Family == 0 {
		x.now.Family = x.paste.command.family
	}
	if n := x.declarations(at); n > 64 {
		x.now.byName = make(map[string]int32, n)
		x.now.chains = make([]chainIndex, 0, n)
	}
	x.tables = append(x.tables, x.now)
}

// declarations counts the lines after from that declare chains, so that a
// large table's index need not grow.
func (x *indexer) declarations(from int) int {
	n := 0
	for rest := x.rest(from); ; n++ {
		i := strings.IndexByte(rest, '\n')
		if i < 0 || i+1 >= len(rest) || rest[i+1] != ':' {
			return n
		}
		rest = rest[i+1:]
	}
}

func (x *indexer) close(to int) {
	t := x.now
	t.to, x.now = to, nil
	x.paste.chain = -1
	if !t.committed {
		t.CutAt = t.lastLine
		x.problems = append(x.problems, Problem{Truncated, t.lastLine, 1, "", fmt.Sprintf("table %s ends without COMMIT: rules may be cut off after line %d", t.Name, t.lastLine)})
	}
}

// table is the open table, or one that is opened for lines that stand in none.
func (x *indexer) table(at, line int) *tableIndex {
	if x.now == nil {
		x.openLoose(at, line)
	}
	x.now.lastLine = line
	return x.now
}

// chain finds or makes a chain of the table.
func (t *tableIndex) chain(name string) int32 {
	// Rules come chain by chain, in the order of the declarations.
	for i := max(t.last, 0); i < int32(len(t.chains)) && i < t.last+4; i++ {
		if t.chains[i].name == name {
			return i
		}
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
func (x *indexer) declare(s string, at, line int) {
	name, rest := word(s)
	policy, _ := word(rest)
	if name == "" {
		x.problem(UnknownLine, at, line, "a chain's declaration without a name")
		return
	}
	t := x.table(at, line)
	c := &t.chains[t.chain(name)]
	if t.loose && t.Name == "" {
		t.filtered = true // only a table without its "*table" line looks so
	}
	if c.declared {
		if !t.loose {
			x.problem(Duplicate, at, line, fmt.Sprintf("chain %s of table %s is declared again (first on line %d)", name, t.Name, c.line))
		}
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
func (x *indexer) rule(s string, at, line int) {
	name := s
	if i := strings.IndexByte(s, ' '); i >= 0 {
		name = s[:i]
	}
	if name == "" || !isNameByte(name[0]) || strings.IndexByte(name, '"') >= 0 || strings.IndexByte(name, '\t') >= 0 {
		if name, _ = word(s); elided(name) {
			x.elide(at, line)
			return
		}
		if name == "" || strings.Contains(name, `"`) {
			x.problem(UnknownRule, at, line, "a rule without a chain name that iptables would take")
			return
		}
	}
	t := x.table(at, line)
	x.add(t, t.chain(name), place{uint32(at), uint32(line), 0})
}

// add gives chain c of the table its next rule.
func (x *indexer) add(t *tableIndex, c int32, p place) {
	t.last = c
	if t.gap != nil {
		gap := *t.gap
		t.gap = nil
		x.add(t, c, gap)
	}
	t.chains[c].add(uint32(len(x.rules)))
	x.rules = append(x.rules, p)
}

func (x *indexer) problem(kind ProblemKind, at, line int, message string) {
	if len(x.problems) >= mostProblems {
		x.unsaid++
		return
	}
	x.problems = append(x.problems, Problem{kind, line, x.column(at), quoted(x.lineAt(at)), message})
}

// quoted shortens what a Problem quotes.
func quoted(s string) string {
	const most = 1000
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// rest is the text from an offset on.
func (x *indexer) rest(at int) string {
	if at <= len(x.text) {
		return x.text[at:]
	}
	p := x.part(at)
	return p.text[at-p.base:]
}

// part is the unescaped text that an offset beyond the text is in.
func (x *indexer) part(at int) *part {
	i := sort.Search(len(x.parts), func(i int) bool { return x.parts[i].base > at })
	return &x.parts[i-1]
}

// column is the column of an offset in the line of the input, from 1.
func (x *indexer) column(at int) int {
	if at <= len(x.text) {
		return at - strings.LastIndexByte(x.text[:at], '\n')
	}
	return x.part(at).column(at)
}

// lineAt is the text from an offset to the end of its line.
func (x *indexer) lineAt(at int) string {
	s := x.rest(at)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return strings.TrimRight(s, " \t\r")
}

// nextOffset is where the next part's offsets may start; false where offsets
// are used up.
func (x *indexer) nextOffset(size int) (int, bool) {
	at := len(x.text) + 1
	if n := len(x.parts); n > 0 {
		at = x.parts[n-1].base + len(x.parts[n-1].text) + 1
	}
	return at, uint64(at)+uint64(size) < math.MaxUint32
}
