package iptables

import (
	"hash/maphash"
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
	// plainStride is how much of the text is looked over at once, while the
	// processor has it at hand. It is a multiple of plainBlock.
	plainStride = 32 << 10
)

// SkimText indexes a text if it is plainly iptables-save's; false for any other,
// which Parse can read all the same. Whatever is unusual in it makes it not
// plain: a line that is none of iptables-save's, blanks around one, escaped line
// ends, a chain without a declaration or whose rules stand apart, a table
// without COMMIT.
func SkimText(text string) (*Skim, bool) { return skim(text, splitFrom) }

// skim is SkimText; split is the size from which on the rules of a table are
// gone through by two goroutines.
func skim(text string, split int) (*Skim, bool) {
	if uint64(len(text)) > math.MaxUint32 {
		return nil, false
	}
	p := &Skim{
		text: text, seed: maphash.MakeSeed(),
		parsers: sync.Pool{New: func() any { return &ruleParser{} }},
		ends:    make([]uint32, len(text)/plainBlock+2),
	}
	s := plainScan{Skim: p, split: split, lookTo: len(text)}
	var h header
	for s.at < len(text) {
		line, next := s.line()
		switch {
		case line == "":
		case line[0] == '#':
			if !s.comment(line, &h) {
				return nil, false
			}
		case line[0] == '*':
			t := s.table(line[1:], h)
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
	if !s.look(len(text)) || len(p.tables) == 0 {
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
	*Skim
	at     int // a line begins here
	looked int // up to here the text was looked over
	lookTo int // and up to here it is to be
	split  int
}

// line is the line at s.at, and where the next one begins.
func (s *plainScan) line() (line string, next int) {
	rest := s.text[s.at:]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		return rest[:i], s.at + i + 1
	}
	return rest, len(s.text)
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
		if s.legacy != nil {
			return false
		}
		s.legacy = &Problem{LegacyPresent, s.at, 1, line, legacyPresent}
	}
	return true
}

// table goes through a table from the line that opens it, whose text after "*"
// is name; nil where it isn't plain. It leaves s behind its COMMIT.
func (s *plainScan) table(name string, h header) *plainTable {
	if !isTableName(name) || strings.IndexByte(name, '\r') >= 0 {
		return nil
	}
	_, next := s.line()
	t := &plainTable{of: s.Skim, name: name, header: h, declared: next}
	s.at = next
	if !s.declarations(t) {
		return nil
	}
	t.rules = s.at
	if !s.ruleLines(t) {
		return nil
	}
	t.rulesEnd = s.at
	line, next := s.line()
	if line != "COMMIT" {
		return nil
	}
	s.at = next
	if !s.look(s.at) {
		return nil
	}
	return t
}

// look looks over the text in whole strides, at least as far as to.
func (s *plainScan) look(to int) bool {
	for ; s.looked < to; s.looked = min(s.looked+plainStride, len(s.text)) {
		if !s.lookOver(s.looked) {
			return false
		}
	}
	return true
}

// lookOver counts the line ends of one stride, and says whether it is free of
// what no plain text has: zero bytes, and line ends written as \n.
func (p *Skim) lookOver(from int) bool {
	to := min(from+plainStride, len(p.text))
	stride := p.text[from:to]
	if strings.IndexByte(stride, 0) >= 0 {
		return false
	}
	if i := strings.IndexByte(stride, '\\'); i >= 0 && strings.Contains(p.text[from+i:min(to+1, len(p.text))], `\n`) {
		return false
	}
	for at := from; at < to; at += plainBlock {
		p.ends[at/plainBlock] = uint32(strings.Count(p.text[at:min(at+plainBlock, to)], "\n"))
	}
	return true
}

// declarations goes through the lines that declare the table's chains.
func (s *plainScan) declarations(t *plainTable) bool {
	n := strings.Count(s.text[s.at:s.declarationsEnd()], "\n") + 1
	size := 16
	for size*7/8 < n {
		size *= 2
	}
	t.slots, t.tags = make([]plainSlot, size), make([]uint8, size)
	t.defs = make([]atomic.Pointer[netfilter.ChainDef], size)
	for s.at < len(s.text) && s.text[s.at] == ':' {
		line, next := s.line()
		if next > s.looked && !s.look(next) {
			return false
		}
		i := strings.IndexByte(line, ' ')
		if i < 2 || !isNameByte(line[1]) || line[len(line)-1] != ']' || t.count >= size*7/8 {
			return false
		}
		name := line[1:i]
		if strings.IndexByte(name, '"') >= 0 || strings.IndexByte(name, '\t') >= 0 {
			return false
		}
		slot, tag, twice := t.slot(name)
		if twice {
			return false
		}
		t.slots[slot].name, t.tags[slot] = uint32(s.at+1), tag
		t.count++
		s.at = next
	}
	return true
}

// declarationsEnd estimates where the declarations end that begin here: a line
// that is none, with one before it that is. In a plain text there is one such
// place, which is found without reading all that lies before.
func (s *plainScan) declarationsEnd() int {
	isOne := func(at int) (int, bool) { // the first line that begins after at
		i := strings.IndexByte(s.text[at:], '\n')
		if i < 0 || at+i+1 >= len(s.text) {
			return len(s.text), false
		}
		return at + i + 1, s.text[at+i+1] == ':'
	}
	yes, no := s.at, s.at
	for step := 512; ; step *= 2 {
		no = min(s.at+step, len(s.text))
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
	end, _ := isOne(no)
	return end
}

// ruleLines goes through the table's rules, up to the first line that is none.
func (s *plainScan) ruleLines(t *plainTable) bool {
	if len(s.text)-s.at < s.split {
		end, ok := t.scan(s, s.at, len(s.text), nil)
		s.at = end
		return ok
	}
	return s.ruleLinesByTwo(t)
}

// ruleLinesByTwo has a second goroutine begin in the middle of what is left of
// the text. Its part counts if the rules of this table go on up to there.
func (s *plainScan) ruleLinesByTwo(t *plainTable) bool {
	from, end, ok := s.at, 0, false
	mid := (from + (len(s.text)-from)/2) / plainStride * plainStride
	if start, found := s.runAfter(mid); found && mid > s.looked {
		second := &plainScan{Skim: s.Skim, looked: mid, lookTo: len(s.text)}
		var stop atomic.Bool
		var end2 int
		var ok2 bool
		done := make(chan any, 1)
		go func() {
			defer guarded(done)()
			end2, ok2 = t.scan(second, start, len(s.text), &stop)
		}()
		s.lookTo = mid
		end, ok = t.scan(s, from, start, nil)
		s.lookTo = len(s.text)
		ok = ok && end == start && s.look(mid)
		stop.Store(!ok)
		if r := <-done; r != nil {
			panic(r)
		}
		if ok && ok2 {
			s.at, s.looked = end2, max(s.looked, second.looked)
			return true
		}
		// The table may have ended before: what the second found is not its.
		for i := range t.slots {
			t.slots[i].rule.Store(0)
		}
	}
	end, ok = t.scan(s, from, len(s.text), nil)
	s.at = end
	return ok
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
func (s *plainScan) runAfter(at int) (int, bool) {
	text := s.text[at:min(at+(1<<20), len(s.text))]
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
	rest := line
	if line != "" && line[0] == '[' { // [packets:bytes] -A CHAIN
		i := strings.IndexByte(line, ']')
		if i < 0 || i+1 >= len(line) || line[i+1] != ' ' {
			return 0, ""
		}
		at, rest = i+2, line[i+2:]
	}
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

// scan goes through rules from an offset to the first line from limit on, or to
// one that is no rule; end is where that begins. It notes where the rules of
// each chain begin.
func (t *plainTable) scan(s *plainScan, from, limit int, stop *atomic.Bool) (end int, ok bool) {
	text := s.text
	prefix := "" // "-A CHAIN " of the line before
	for at := from; at < limit; {
		if at > s.looked-plainBlock && s.looked < s.lookTo {
			if stop != nil && stop.Load() {
				return at, false
			}
			if !s.lookOver(s.looked) {
				return at, false
			}
			s.looked = min(s.looked+plainStride, len(text))
		}
		nl := strings.IndexByte(text[at:], '\n')
		if nl < 0 {
			return at, at < len(text)
		}
		line := text[at : at+nl]
		rest := line
		if nl > 0 && line[0] == '[' {
			if i := strings.IndexByte(line, ']'); i+2 < len(line) && line[i+1] == ' ' {
				rest = line[i+2:]
			}
		}
		if prefix == "" || len(rest) < len(prefix) || rest[:len(prefix)] != prefix {
			i, name := ruleChain(line)
			if name == "" {
				return at, true
			}
			slot, _, known := t.slot(name)
			if !known || !t.slots[slot].rule.CompareAndSwap(0, uint32(at)) {
				return at, false
			}
			prefix = line[i-3 : i+len(name)+1]
		}
		at += nl + 1
	}
	return limit, true
}
