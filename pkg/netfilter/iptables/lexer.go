package iptables

import "strings"

// token is one argument of a rule.
type token struct {
	text string
	col  int // from 1
	// quoted: it stood in quotes, so it is no option, whatever it looks like.
	quoted bool
}

// lex splits a rule into arguments as iptables-restore does: at blanks, but
// not inside double quotes, where a backslash takes the next character as it
// is. It appends to buf.
func lex(line string, buf []token) ([]token, *fault) {
	for i := 0; i < len(line); {
		if isBlank(line[i]) {
			i++
			continue
		}
		start := i
		for i < len(line) && !isBlank(line[i]) && line[i] != '"' {
			i++
		}
		if i == len(line) || isBlank(line[i]) {
			buf = append(buf, token{text: line[start:i], col: start + 1})
			continue
		}
		text, end, ok := unquote(line, start, i)
		if !ok {
			return buf, &fault{i + 1, "the quote is not closed"}
		}
		buf = append(buf, token{text: text, col: start + 1, quoted: true})
		i = end
	}
	return buf, nil
}

// unquote reads the argument that starts at start and has its first quote at
// quote; end is where it ends.
func unquote(line string, start, quote int) (text string, end int, ok bool) {
	if close := strings.IndexAny(line[quote+1:], `"\`); close >= 0 && line[quote+1+close] == '"' && start == quote {
		end = quote + close + 2
		if end == len(line) || isBlank(line[end]) {
			return line[quote+1 : end-1], end, true // the usual case: no escapes
		}
	}
	var b strings.Builder
	b.WriteString(line[start:quote])
	in := false
	for i := quote; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			in = !in
		case c == '\\' && in && i+1 < len(line):
			i++
			b.WriteByte(line[i])
		case isBlank(c) && !in:
			return b.String(), i, true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), len(line), !in
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }
