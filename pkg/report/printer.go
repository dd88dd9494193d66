package report

import (
	"bufio"
	"io"
	"strings"
	"unicode/utf8"
)

// labelWidth is the column at which the text of a labelled row begins.
const labelWidth = 12

// printer writes lines and keeps the first error, so that the code that
// describes a page reads straight down. Text that is handed to it is escaped
// already.
type printer struct {
	palette
	w     *bufio.Writer
	width int
	opts  Options
}

func newPrinter(w io.Writer, o Options) *printer {
	return &printer{palette: newPalette(o.Color), w: bufio.NewWriter(w), width: o.width(), opts: o}
}

// close flushes and returns the first error of all writes.
func (p *printer) close() error { return p.w.Flush() }

// line writes one line as it is.
func (p *printer) line(parts ...string) {
	for _, s := range parts {
		p.w.WriteString(s) //nolint:errcheck // sticky; Flush returns it
	}
	p.w.WriteByte('\n') //nolint:errcheck // sticky; Flush returns it
}

// row writes wrapped prose under a label. An empty label continues the row
// above.
func (p *printer) row(label, text string) {
	p.wrapped(p.head(label), labelWidth, text)
}

// head is a label, coloured and padded to labelWidth.
func (p *printer) head(label string) string {
	return "  " + p.label.Sprint(label) + strings.Repeat(" ", max(labelWidth-2-len(label), 1))
}

// verbatim writes a quote or a command under a label, however long. Its own
// newlines make lines of their own.
func (p *printer) verbatim(label, text string, extra int) {
	head := p.head(label)
	indent := strings.Repeat(" ", extra)
	for _, l := range strings.Split(text, "\n") {
		p.line(head, indent, p.quote.Sprint(Escape(l)))
		head = strings.Repeat(" ", labelWidth)
	}
}

// wrapped writes prose after a head that takes indent columns, and continues
// at indent.
func (p *printer) wrapped(head string, indent int, text string) {
	for i, l := range Wrap(text, p.width-indent) {
		if i > 0 {
			head = strings.Repeat(" ", indent)
		}
		p.line(head, l)
	}
}

// Wrap breaks text at spaces into lines of at most width columns; a word that
// is longer than that is cut. It returns at least one line.
func Wrap(text string, width int) []string {
	width = max(width, 10)
	var lines []string
	var cur string
	for _, word := range strings.Split(text, " ") {
		switch {
		case cur == "":
			cur = word
		case columns(cur)+1+columns(word) <= width:
			cur += " " + word
		default:
			lines = append(lines, strings.TrimRight(cur, " "))
			cur = word
		}
		for columns(cur) > width {
			head, tail := cut(cur, width)
			lines = append(lines, head)
			cur = tail
		}
	}
	return append(lines, strings.TrimRight(cur, " "))
}

// columns counts what a terminal shows of escaped text. Wide characters count
// as one: names and rules are ASCII, and a message in another script may only
// wrap late.
func columns(s string) int { return utf8.RuneCountInString(s) }

func cut(s string, n int) (head, tail string) {
	for i := range s {
		if n == 0 {
			return s[:i], s[i:]
		}
		n--
	}
	return s, ""
}

// clip shortens text to n columns, marking the cut.
func clip(s string, n int) string {
	if columns(s) <= n {
		return s
	}
	head, _ := cut(s, max(n-3, 0))
	return strings.TrimRight(head, " ") + "..."
}

func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(n-columns(s), 0))
}
