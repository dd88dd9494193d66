package iptables

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// paste is what the lines so far tell of those that follow, in a text that a
// person put together.
type paste struct {
	command command // the last one that was typed
	file    string  // the name that grep put before each line
	chain   int32   // of the open table: the one that rows of a listing belong to, -1 for none
	layout  layout  // of the rows
	blank   bool    // since the last line of a listing
	// torn is the last line of an escaped text that broke off, on line tornAt.
	torn   string
	tornAt int
	broken int // line of the last rule that the text may break off in
}

// openLoose starts a table for lines that no "*table" line stands before. An
// excerpt has no COMMIT to miss.
func (x *indexer) openLoose(at, line int) {
	c := x.paste.command
	name := c.table
	if x.opt.Table != "" && name == "" {
		name = x.opt.Table
	}
	t := &tableIndex{
		TableInfo: netfilter.TableInfo{Source: x.opt.Source, Name: name, Line: line, Backend: x.header.backend, Family: x.header.family},
		from:      at, byName: map[string]int32{}, last: -1, lastLine: line,
		loose: true, committed: true, filtered: c.filtered,
	}
	if c.backend != netfilter.AnyBackend {
		t.Backend = c.backend
	}
	if c.family != 0 {
		t.Family = c.family
	}
	x.now = t
	x.tables = append(x.tables, t)
}

// ran takes note of a command: what follows is its output.
func (x *indexer) ran(c command) {
	if x.now != nil {
		x.close(len(x.text))
	}
	x.header = header{}
	x.paste.command, x.paste.chain, x.paste.file = c, -1, ""
}

// command reads the other forms that a line that begins with "-" may take:
// --append, the -N and -P of iptables -S, a line that a diff takes out.
func (x *indexer) command(s string, at, line int) {
	if escaped(s) {
		x.unescape(s, at, line)
		return
	}
	verb, rest := word(afterCounters(s))
	switch verb {
	case "-A", "--append":
		x.rule(rest, at, line)
	case "-P", "--policy":
		x.policy(rest, at, line)
	case "-N", "--new-chain":
		x.newChain(rest, at, line)
	default:
		if i := s[1:]; s[0] == '-' && i != "" && startsLine(i) {
			x.problem(Removed, at, line, "the diff takes this line out, so it is not walked")
			return
		}
		x.other(s, at, line)
	}
}

// policy reads "-P CHAIN POLICY". iptables -S prints those first, so that one
// after a rule begins another table.
func (x *indexer) policy(s string, at, line int) {
	name, rest := word(s)
	policy, _ := word(rest)
	if name == "" || policy == "" {
		x.problem(UnknownLine, at, line, "a policy without its chain or its value")
		return
	}
	if t := x.now; t != nil && t.loose && (t.last >= 0 || t.chains != nil && t.byName[name] != 0 || t.has(name)) {
		x.close(at)
	}
	t := x.table(at, line)
	c := &t.chains[t.chain(name)]
	if c.declared {
		x.problem(Duplicate, at, line, fmt.Sprintf("chain %s has two policies (first on line %d)", name, c.line))
		return
	}
	c.declared, c.line, c.policy = true, line, policy
}

func (t *tableIndex) has(chain string) bool {
	i, ok := t.byName[chain]
	return ok && t.chains[i].declared
}

// newChain reads "-N CHAIN".
func (x *indexer) newChain(s string, at, line int) {
	name, _ := word(s)
	if name == "" {
		x.problem(UnknownLine, at, line, "a chain's declaration without a name")
		return
	}
	t := x.table(at, line)
	c := &t.chains[t.chain(name)]
	if c.declared && !t.loose {
		x.problem(Duplicate, at, line, fmt.Sprintf("chain %s of table %s is declared again (first on line %d)", name, t.Name, c.line))
	}
	if !c.declared {
		c.declared, c.line = true, line
	}
}

// other reads a line that doesn't begin as one of iptables' own.
func (x *indexer) other(s string, at, line int) {
	if x.unsaid > mostUnsaid {
		x.unsaid++ // it has ceased to be worth a closer look
		return
	}
	if len(s) > longestLine {
		if strings.Contains(s, `\n`) && escaped(s) {
			x.unescape(s, at, line)
			return
		}
		x.problem(UnknownLine, at, line, fmt.Sprintf("a line of %d bytes, which no rule has", len(s)))
		return
	}
	switch {
	case x.listing(s, at, line):
	case ignored(s):
	case elided(s):
		x.elide(at, line)
	case escaped(s):
		x.unescape(s, at, line)
	case x.prompt(s):
	case x.peel(s, at, line):
	case x.row(s, at, line):
	default:
		x.problem(UnknownLine, at, line, "this is no line that iptables prints")
		x.paste.broken = line
	}
}

// ignored are lines around a paste that say nothing.
func ignored(s string) bool {
	return strings.HasPrefix(s, "```") || strings.HasPrefix(s, "~~~") || s == ">" || s == "--" ||
		strings.HasPrefix(s, "diff -") || strings.HasPrefix(s, "+++ ") || strings.HasPrefix(s, "--- ") || strings.HasPrefix(s, "index ")
}

// elided says whether the line stands for lines that were left out.
func elided(s string) bool {
	s = strings.TrimLeft(s, ">|+ \t")
	if strings.HasPrefix(s, "@@ ") {
		return true
	}
	s = strings.Trim(s, " \t<>[](){}*-_=")
	switch strings.ToLower(s) {
	case "...", "....", ".....", "......", "…", "……", ". . .", "snip", "snipped", "cut", "truncated", "omitted", "etc", "etc.":
		return true
	}
	return false
}

// elide notes that lines were left out: rules of the chain before it, or at
// the head of the one after it.
func (x *indexer) elide(at, line int) {
	x.problem(Elided, at, line, "lines were left out here")
	t := x.now
	if t == nil {
		return
	}
	p := place{uint32(at), uint32(line), omitted}
	switch {
	case x.paste.chain >= 0:
		x.add(t, x.paste.chain, p)
		t.chains[x.paste.chain].cut = ""
	case t.last >= 0:
		x.add(t, t.last, p)
		t.gap = &p
	default:
		t.gap = &p
	}
}

// startsLine says whether s begins as a line of iptables-save or iptables -S.
func startsLine(s string) bool {
	switch {
	case strings.HasPrefix(s, "-A "), strings.HasPrefix(s, "-I "):
		return len(s) > 3 && isNameByte(s[3])
	case s[0] == '[':
		return countedRule.MatchString(s)
	case strings.HasPrefix(s, "-P "), strings.HasPrefix(s, "-N "):
		return listedChain.MatchString(s)
	case s[0] == ':':
		return declaration.MatchString(s)
	case s[0] == '*':
		return tableLine.MatchString(s)
	case strings.HasPrefix(s, "Chain "):
		return chainHeader.MatchString(s)
	}
	return s == "COMMIT" || strings.HasPrefix(s, "# Generated by ip") || strings.HasPrefix(s, "# Warning: ip")
}

var (
	countedRule = lazyregexp.New(`^\[\d+:\d+\] -A \S`)
	listedChain = lazyregexp.New(`^(-P [A-Z]+ (ACCEPT|DROP|QUEUE)|-N \S+)( -c \d+ \d+)?$`)
	declaration = lazyregexp.New(`^:\S+ (-|ACCEPT|DROP|QUEUE)( \[\d+:\d+\])?$`)
	tableLine   = lazyregexp.New(`^\*(raw|mangle|nat|filter|security)$`)
	// around is what may stand before a line of iptables' own: quote marks,
	// diff marks, line numbers, the name and line that grep prints, a log's
	// prefix up to and with a time.
	around = lazyregexp.New(`^([>|+*\s]|\d+[:.|)\]-]?\s*)*$`)
	// listItem is what may stand before a string of a JSON or YAML list.
	listItem = lazyregexp.New(`^([-\[{,\s]|"[^"]*"\s*:)*$`)
	grepped  = lazyregexp.New(`^([^\s:]+?)[:-](\d+[:-])?$`)
	logged   = lazyregexp.New(`\d\d:\d\d(:\d\d)?|^[IWEF]\d{4} `)
)

func isNameByte(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// peel takes off what people and programs put before a line of iptables' own.
func (x *indexer) peel(s string, at, line int) bool {
	i := lineWithin(s)
	if i <= 0 {
		return false
	}
	before := s[:i]
	if open, ok := strings.CutSuffix(before, `"`); ok && listItem.MatchString(open) {
		raw := s[i:closingQuote(s, i)]
		x.lines(unescaped(raw), line, x.column(at+i), raw)
		return true
	}
	if !decoration(before) {
		return false // a command, or prose
	}
	switch m := grepped.FindStringSubmatch(before); {
	case around.MatchString(before):
	case m != nil:
		if x.paste.file == "" {
			x.paste.file = m[1]
		}
		if x.paste.file != m[1] {
			x.problem(OtherFile, at, line, fmt.Sprintf("a line of %s among those of %s: rules of two nodes don't make one ruleset", m[1], x.paste.file))
			return true
		}
	}
	s = strings.TrimRight(s[i:], "\"'`, \t")
	x.line(s, at+i, line)
	return true
}

// lineWithin is where a line of iptables' own starts within s; -1 if none does.
func lineWithin(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '-', '[', ':', '*', 'C', '#':
		default:
			continue
		}
		if c := s[i-1]; !isBlank(c) && !strings.ContainsRune(`>:|+"'-`, rune(c)) {
			continue
		}
		if startsLine(s[i:]) {
			return i
		}
	}
	return -1
}
