package node

import (
	"slices"
	"strings"
)

// oneSave is the section of a text that is one iptables-save's from its first
// line to its last, found without going through its lines: between the comments
// that iptables-save puts around its tables there are only their lines. Where
// the comments tell of anything else (two dumps, a table without an end,
// something else behind one) the lines have to be gone through.
func oneSave(text string) (*section, bool) {
	if !strings.HasSuffix(text, "\n") {
		return nil, false
	}
	s := &section{tool: toolSave, end: len(text), whole: true}
	for at := 0; at < len(text); {
		line, next := lineAt(text, at)
		if line == "" || line[0] == '#' {
			d, ok := headerOf(line)
			switch {
			case ok && len(s.save.tables) == 0:
				s.save = d
			case ok && (d.family != s.save.family || d.variant != s.save.variant):
				return nil, false
			}
			at = next
			continue
		}
		name := tableOf(line)
		if name == "" || s.save.family == familyUnknown || slices.Contains(s.save.tables, name) {
			return nil, false
		}
		s.save.tables = append(s.save.tables, name)
		end, ok := tableEnd(text, next)
		if !ok {
			return nil, false
		}
		at = end
	}
	return s, len(s.save.tables) > 0
}

func lineAt(text string, at int) (line string, next int) {
	i := strings.IndexByte(text[at:], '\n')
	if i < 0 {
		return text[at:], len(text)
	}
	return text[at : at+i], at + i + 1
}

// tableEnd is where the comment begins that follows a table's COMMIT; false
// where a comment comes that follows none, or none comes.
func tableEnd(text string, at int) (int, bool) {
	const commit = "\nCOMMIT\n"
	for {
		i := strings.IndexByte(text[at:], '#')
		if i < 0 {
			return 0, false
		}
		at += i
		if text[at-1] == '\n' {
			return at, strings.HasSuffix(text[:at], commit)
		}
		at++
	}
}
