package iptables

import (
	"strings"
)

// part is a text that stood escaped in a line of the input: in a JSON string,
// or in a log.
type part struct {
	base int // offset of its first byte
	text string
	// line and col are where it stands in the input; raw is how it stands
	// there, one level of escapes deep, or "" where it is more or joined.
	line, col int
	raw       string
}

// mostParts bounds the escaped texts of one input.
const mostParts = 1 << 22

// column is the column of an offset in the line of the input.
func (p *part) column(at int) int {
	col, n := p.col, at-p.base
	for i := 0; i < len(p.raw) && n > 0; n-- {
		w := 1
		if p.raw[i] == '\\' && i+1 < len(p.raw) {
			w = 2
		}
		i, col = i+w, col+w
	}
	return col
}

// escaped says whether lines stand in s with their ends written as \n.
func escaped(s string) bool {
	for rest := s; ; {
		i := strings.Index(rest, `\n`)
		if i < 0 {
			return false
		}
		rest = rest[i+2:]
		for strings.HasPrefix(rest, `\n`) {
			rest = rest[2:]
		}
		if rest == "" || rest[0] == '"' || rest[0] == '\'' || strings.HasPrefix(rest, `\"`) || startsWithin(rest) {
			return true
		}
	}
}

// startsWithin says whether the line that s begins with, up to the next
// escaped end, may be one of iptables' own.
func startsWithin(s string) bool {
	for _, start := range []string{"-A ", ":", "*", "COMMIT", "# Completed", "# Generated", "-P ", "-N ", "Chain ", "target ", " pkts", "["} {
		if strings.HasPrefix(s, start) {
			return true
		}
	}
	return false
}

// unescape takes in the lines that stand escaped in one. What is outside of
// the quotes around them is not theirs.
func (x *indexer) unescape(s string, at, line int) {
	x.segments(s, line, x.column(at), true)
}

// segments takes in each quoted part of s that holds escaped lines. plain says
// that the columns of s are those of the line.
func (x *indexer) segments(s string, line, col int, plain bool) {
	for from := 0; from <= len(s); {
		to := closingQuote(s, from)
		if seg := s[from:to]; strings.Contains(seg, `\n`) {
			// Without a quote it may go on with the line before, or break off.
			x.segment(seg, line, col+from, from == 0, to == len(s), plain)
		}
		from = to + 1
	}
}

// closingQuote is where the next quote stands that isn't escaped.
func closingQuote(s string, from int) int {
	for i := from; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(s)
}

// segment takes in one escaped text. goesOn says that it may begin in the
// middle of a line of iptables, breaksOff that it may end in one.
func (x *indexer) segment(seg string, line, col int, goesOn, breaksOff, plain bool) {
	raw, text := seg, unescaped(seg)
	if escaped(text) { // a JSON string in a JSON string
		x.segments(text, line, col, false)
		return
	}
	if !plain {
		raw = ""
	}
	first, _, whole := strings.Cut(text, "\n")
	if torn := x.paste.torn; torn != "" {
		at := x.paste.tornAt
		x.paste.torn = ""
		if goesOn && !startsLine(strings.TrimSpace(first)+" ") {
			x.lines(torn+first, at, 1, "")
			text = strings.TrimPrefix(text[len(first):], "\n")
			raw = ""
		} else {
			x.lines(torn, at, 1, "")
		}
	}
	if i := strings.LastIndexByte(text, '\n'); breaksOff && whole && i+1 < len(text) {
		x.paste.torn, x.paste.tornAt = text[i+1:], line
		text = text[:i]
	}
	x.lines(text, line, col, raw)
}

// rejoin takes in what was left of an escaped text, when no more of it comes.
func (x *indexer) rejoin() {
	if torn := x.paste.torn; torn != "" {
		x.paste.torn = ""
		x.lines(torn, x.paste.tornAt, 1, "")
		x.paste.broken = x.paste.tornAt
	}
}

// lines takes in several lines that stand on one line of the input.
func (x *indexer) lines(text string, line, col int, raw string) {
	if strings.Trim(text, " \t\r\n\\") == "" {
		return
	}
	base, ok := x.nextOffset(len(text))
	if !ok || len(x.parts) >= mostParts {
		x.problem(UnknownLine, 0, line, "more escaped texts than are read")
		return
	}
	torn := x.paste.torn
	x.paste.torn = ""
	x.parts = append(x.parts, part{base: base, text: text, line: line, col: col, raw: raw})
	at := base
	for s := range strings.Lines(text) {
		x.line(strings.TrimRight(s, "\n"), at, line)
		at += len(s)
	}
	x.paste.torn = torn
}

// unescaped undoes one level of escapes, as JSON and Go have them.
func unescaped(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
