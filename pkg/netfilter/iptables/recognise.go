package iptables

import (
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Prints says whether a line is one that iptables-save, iptables -S or
// iptables -L prints, as people paste it, or a command line that asks
// iptables for some of it. Rows of a listing, which have no beginning of their
// own, are not among them.
func Prints(line string) bool {
	s := strings.Trim(line, " \t\r")
	if s == "" {
		return false
	}
	if len(s) > longestLine || strings.Contains(s, `\n`) {
		if escaped(s) && (strings.Contains(s, `\n-A `) || strings.Contains(s, `\n*`) || strings.Contains(s, `\nChain `) || strings.Contains(s, `\n:`)) {
			return true
		}
		if len(s) > longestLine {
			return false
		}
	}
	if c, ok := readCommand(s); ok {
		return c.table != "" || c.filtered
	}
	if s[0] == '#' {
		return false
	}
	if startsLine(s) || columns.MatchString(strings.TrimLeft(s, ">|+ \t")) {
		return s != "COMMIT"
	}
	i := lineWithin(s)
	return i > 0 && (decoration(s[:i]) || strings.HasSuffix(s[:i], `"`) && listItem.MatchString(s[:i-1]))
}

// decoration says whether what stands before a line of iptables' own is what
// people and programs put there.
func decoration(before string) bool {
	if logged.MatchString(before) || grepped.MatchString(before) {
		return true
	}
	return !strings.Contains(before, "iptables") && around.MatchString(before)
}

// CommandFamily is the family that a command line asks iptables for; false
// where the line is none.
func CommandFamily(line string) (netfilter.Family, bool) {
	c, ok := readCommand(strings.Trim(line, " \t\r"))
	return c.family, ok && c.family != 0
}

// FamilyOf is the family of the rules that a text shows; 0 where none tells.
func FamilyOf(text string) netfilter.Family {
	rs, problems, err := Parse(text, Options{})
	if err != nil {
		return 0
	}
	for _, p := range problems {
		if p.Kind == FamilyGuessed && len(rs.Tables()) == 1 {
			return 0
		}
	}
	return rs.Tables()[0].Family
}

// ShowsAll says whether a text is iptables-save's of all tables, as it prints
// them: then a table that isn't there does not exist. The tables nat and filter
// stand for all; iptables-save -t prints one alone.
func ShowsAll(text string) bool { return opens(text, "*nat") && opens(text, "*filter") }

// opens says whether a line of the text opens the table.
func opens(text, line string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], line)
		if i < 0 {
			return false
		}
		at += i
		if at == 0 || text[at-1] == '\n' {
			return true
		}
		at += len(line)
	}
}
