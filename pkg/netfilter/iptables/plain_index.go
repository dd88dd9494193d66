package iptables

import (
	"hash/maphash"
	"io"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

const (
	// plainFrom is the size from which on a text is tried as a plain one. The
	// other index costs less than a millisecond below.
	plainFrom = 64 << 10
	// splitFrom is the size from which on rules are gone through by two.
	splitFrom = 4 << 20
)

// SkimText indexes a text if it is plainly iptables-save's; false for any other,
// which Parse can read all the same. Whatever is unusual in it makes it not
// plain: a line that is none of iptables-save's, blanks around one, escaped line
// ends, a chain without a declaration or whose rules stand apart, a table
// without COMMIT.
func SkimText(text string) (*Skim, bool) { return skim(text, nil, splitFrom) }

// SkimFile is SkimText for a text that is a file's, mapped: it is indexed by
// reading the file, so that little of the mapping is touched.
func SkimFile(text string, file io.ReaderAt) (*Skim, bool) { return skim(text, file, splitFrom) }

// skim is SkimFile; split is the size from which on the rules of a table are
// gone through by two goroutines.
func skim(text string, file io.ReaderAt, split int) (*Skim, bool) {
	if uint64(len(text)) > math.MaxUint32 {
		return nil, false
	}
	p := &Skim{
		text: text, seed: maphash.MakeSeed(),
		parsers: sync.Pool{New: func() any { return &ruleParser{} }},
		ends:    make([]uint32, len(text)/plainBlock+2),
	}
	s := plainScan{feed: feed{of: p, file: file, lookTo: len(text)}, split: split}
	var h header
	for s.at < len(text) {
		line, next := s.line(s.at)
		switch {
		case next == s.at, s.odd:
			return nil, false
		case line == "":
		case line[0] == '#':
			if !s.comment(line, &h) {
				return nil, false
			}
		case line[0] == '*':
			t := s.table(strings.Clone(line[1:]), next, h)
			if t == nil {
				return nil, false
			}
			p.tables = append(p.tables, t)
			continue
		default:
			return nil, false
		}
		s.at = next
	}
	if len(p.tables) == 0 || s.odd {
		return nil, false
	}
	p.sumEnds()
	if p.legacy != nil {
		p.legacy.Line = p.lineNumber(p.legacy.Line)
	}
	return p, true
}

// sumEnds makes of the line ends in each block those ahead of it.
func (p *Skim) sumEnds() {
	sum := uint32(0)
	for i, n := range p.ends {
		p.ends[i] = sum
		sum += n
	}
}

// plainScan goes through a plain text.
type plainScan struct {
	feed
	at    int // a line begins here
	split int
}

// comment reads a comment outside of tables; false for one that says more than
// iptables-save's own.
func (s *plainScan) comment(line string, h *header) bool {
	if len(line) > plainBlock || strings.Trim(line, " \t\r") != line {
		return false
	}
	if _, ok := readCommand(line); ok {
		return false
	}
	if now, ok := readHeader(line); ok {
		*h = now
	} else if warnsOfLegacy(line) {
		if s.of.legacy != nil {
			return false
		}
		s.of.legacy = &Problem{LegacyPresent, s.at, 1, strings.Clone(line), legacyPresent}
	}
	return true
}

// table goes through the table of that name, whose first line begins at an
// offset; nil where it isn't plain. It leaves s behind its COMMIT.
func (s *plainScan) table(name string, from int, h header) *plainTable {
	if !isTableName(name) || strings.IndexByte(name, '\r') >= 0 {
		return nil
	}
	t := &plainTable{of: s.of, name: name, header: h, declared: from}
	if !s.declarations(t) {
		return nil
	}
	t.rules = s.at
	if !s.ruleLines(t) {
		return nil
	}
	t.rulesEnd = s.at
	line, next := s.line(s.at)
	if line != "COMMIT" {
		return nil
	}
	s.at = next
	return t
}

// declarations goes through the lines that declare the table's chains, again
// with more room where they are more than was thought.
func (s *plainScan) declarations(t *plainTable) bool {
	size := 16
	for n := s.countDeclarations(t.declared); size*7/8 <= n; {
		size *= 2
	}
	for {
		s.at = t.declared
		if s.at < s.base {
			s.seek(s.at)
		}
		t.makeRoom(size)
		if full, ok := s.declare(t); !full {
			return ok
		}
		size *= 2
	}
}

func (t *plainTable) makeRoom(size int) {
	t.count = 0
	t.hashes, t.names = make([]uint32, size), make([]uint32, size)
	t.firsts = make([]atomic.Uint32, size)
	t.defs = make([]atomic.Pointer[netfilter.ChainDef], size)
}

// declare takes in the declarations from s.at on; full where there is no more
// room.
func (s *plainScan) declare(t *plainTable) (full, ok bool) {
	for {
		line, next := s.line(s.at)
		if s.odd {
			return false, false
		}
		if line == "" || line[0] != ':' {
			return false, true
		}
		i := strings.IndexByte(line, ' ')
		if i < 2 || !isNameByte(line[1]) || line[len(line)-1] != ']' {
			return false, false
		}
		name := line[1:i]
		if strings.IndexByte(name, '"') >= 0 || strings.IndexByte(name, '\t') >= 0 {
			return false, false
		}
		if t.count >= len(t.names)*7/8 {
			return true, false
		}
		slot, hash, twice := t.place(name)
		if twice {
			return false, false
		}
		t.names[slot], t.hashes[slot] = uint32(s.at+1), hash
		t.count++
		s.at = next
	}
}

// countDeclarations estimates how many declarations begin at an offset: from
// how long they are together, and each on average.
func (s *plainScan) countDeclarations(from int) int {
	to := s.declarationsEnd(from)
	const samples = 16
	lines, size := 1, 1
	for i := range samples {
		at := from + (to-from)/samples*i
		sample := s.of.text[at:min(at+1024, to)]
		lines += strings.Count(sample, "\n")
		size += len(sample)
	}
	return int(float64(to-from) * float64(lines) / float64(size) * 1.02)
}

// declarationsEnd estimates where the declarations end: at a line that is none,
// with one before it that is. In a plain text there is one such place, which is
// found without reading all that lies before.
func (s *plainScan) declarationsEnd(from int) int {
	text := s.of.text
	isOne := func(at int) (int, bool) { // the first line that begins after at
		i := strings.IndexByte(text[at:min(at+plainBlock, len(text))], '\n')
		if i < 0 || at+i+1 >= len(text) {
			return len(text), false
		}
		return at + i + 1, text[at+i+1] == ':'
	}
	yes, no := from, from
	for step := 512; ; step *= 2 {
		no = min(from+step, len(text))
		if _, ok := isOne(no); !ok {
			break
		}
		yes = no
	}
	for no-yes > 512 {
		mid := yes + (no-yes)/2
		if _, ok := isOne(mid); ok {
			yes = mid
		} else {
			no = mid
		}
	}
	return no
}

// ruleLines goes through the table's rules, up to the first line that is none.
func (s *plainScan) ruleLines(t *plainTable) bool {
	if len(s.of.text)-s.at >= s.split {
		if done, ok := s.ruleLinesByTwo(t); done {
			return ok
		}
	}
	end, ok := t.scan(&s.feed, s.at, len(s.of.text), nil)
	s.at = end
	return ok
}

// ruleLinesByTwo has a second goroutine begin in the middle of what is left of
// the text. It is done if the rules of this table go on up to there.
func (s *plainScan) ruleLinesByTwo(t *plainTable) (done, ok bool) {
	size := len(s.of.text)
	mid := (s.at + (size-s.at)/2) / feedSize * feedSize
	start, found := runAfter(s.of.text, mid)
	if !found || mid <= s.pos {
		return false, false
	}
	second := feed{of: s.of, file: s.file, lookTo: size}
	second.seek(mid)
	var stop atomic.Bool
	var end2 int
	var ok2 bool
	joined := make(chan any, 1)
	go func() {
		defer guarded(joined)()
		end2, ok2 = t.scan(&second, start, size, &stop)
	}()
	s.lookTo = mid
	end, ok := t.scan(&s.feed, s.at, start, nil)
	s.lookTo = size
	ok = ok && end == start && s.pos >= mid
	stop.Store(!ok)
	if r := <-joined; r != nil {
		panic(r)
	}
	if !ok || !ok2 {
		// The table may have ended before: what the second found is not its.
		for i := range t.firsts {
			t.firsts[i].Store(0)
		}
		s.odd = false
		s.seek(s.at)
		return false, false
	}
	s.feed, s.at = second, end2
	return true, true
}

// guarded makes a goroutine hand on what it panics with, and panic where it
// reads memory that is gone: a text may be a file that is mapped, and was cut
// short since. The function that it gives is to be deferred.
func guarded(done chan<- any) func() {
	debug.SetPanicOnFault(true)
	return func() { done <- recover() }
}

// runAfter is where, after an offset, the first rule stands of another chain
// than the one before it; false where that is not found near.
func runAfter(text string, at int) (int, bool) {
	text = text[at:min(at+(1<<20), len(text))]
	before := ""
	for i := strings.IndexByte(text, '\n'); i >= 0; {
		at, text = at+i+1, text[i+1:]
		i = strings.IndexByte(text, '\n')
		if i < 0 {
			break
		}
		_, name := ruleChain(text[:i])
		if name == "" {
			return 0, false
		}
		if before != "" && name != before {
			return at, true
		}
		before = name
	}
	return 0, false
}

// ruleChain is the chain that a line adds a rule to, and where its name stands
// in the line; "" for a line that is no plain rule.
func ruleChain(line string) (at int, name string) {
	rest := afterPlainCounters(line)
	at = len(line) - len(rest)
	if len(rest) < 4 || rest[:3] != "-A " {
		return 0, ""
	}
	rest = rest[3:]
	i := strings.IndexByte(rest, ' ')
	if i <= 0 {
		return 0, ""
	}
	return at + 3, rest[:i]
}

// afterPlainCounters cuts "[packets:bytes] " off.
func afterPlainCounters(line string) string {
	if line != "" && line[0] == '[' {
		if i := strings.IndexByte(line, ']'); i >= 0 && i+2 < len(line) && line[i+1] == ' ' {
			return line[i+2:]
		}
	}
	return line
}

// scan goes through rules from an offset to the first line from limit on, or to
// one that is no rule; end is where that begins. It notes where the rules of
// each chain begin.
func (t *plainTable) scan(f *feed, from, limit int, stop *atomic.Bool) (end int, ok bool) {
	prefix := make([]byte, 0, 64) // "-A CHAIN " of the line before
	pos := f.pos
	for at := from; at < limit; {
		line, next := f.line(at)
		if pos != f.pos {
			if pos = f.pos; stop != nil && stop.Load() {
				return at, false
			}
		}
		if f.odd {
			return at, false
		}
		rest := afterPlainCounters(line)
		if len(prefix) == 0 || len(rest) < len(prefix) || rest[:len(prefix)] != string(prefix) {
			i, name := ruleChain(line)
			if name == "" {
				return at, true
			}
			slot, _, known := t.place(name)
			if !known || !t.firsts[slot].CompareAndSwap(0, uint32(at)) {
				return at, false
			}
			prefix = append(prefix[:0], line[i-3:i+len(name)+1]...)
		}
		at = next
	}
	return limit, true
}
