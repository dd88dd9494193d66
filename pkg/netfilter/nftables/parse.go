// Package nftables reads the rulesets that nft lists, as text (nft list
// ruleset, with or without -a, -n, -s) and as JSON (nft -j), into a
// netfilter.Ruleset.
//
// Reading indexes the text in one pass: which chain has which rules, and where
// a set's elements stand. A rule is parsed when a walk comes to it, a set's
// elements when a rule first asks for one. A rule in JSON is printed as nft
// prints it, and then read as text: there is one reading of a rule, and what a
// walk quotes looks the same from both forms.
//
// Tables of the families ip, ip6 and inet are walked, the latter for both
// address families. Tables of arp, bridge and netdev see other packets and are
// only noted.
package nftables

import (
	"fmt"
	"math"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Options say what the text itself may not.
type Options struct {
	// Source names the text: the Source of every Step.
	Source string
	// Whole: the text is all that nft list ruleset has to say, so that a table
	// it lacks does not exist. Not to be set for the output of nft list table.
	Whole bool
	// Strict parses every rule and every set now, so that the Problems are all
	// there are. Otherwise what isn't understood comes to light when it is
	// walked, as something that can't be decided.
	Strict bool
}

// Parse reads what nft printed, in either form. The Ruleset can be merged with
// others (netfilter.Merge) and is safe for concurrent use.
//
// What can't be understood is a Problem and stays as something that can't be
// decided; so does what may be missing from a text that breaks off (see
// Ruleset.Partial). The error is one of ErrEmpty, ErrNoTable, ErrJSON,
// ErrBinary and ErrTooLarge.
func Parse(text string, opt Options) (*netfilter.Ruleset, []Problem, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, nil, fmt.Errorf("read %s: %w", named(opt.Source), ErrEmpty)
	case uint64(len(text)) > math.MaxUint32:
		return nil, nil, fmt.Errorf("read %s: %w", named(opt.Source), ErrTooLarge)
	}
	d := &document{text: text, opt: opt, byKey: map[tableKey]*tableIndex{}}
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, nil, fmt.Errorf("read %s: line %d, column %d: a zero byte: %w", named(opt.Source), d.line(i), d.column(i), ErrBinary)
	}
	var err error
	if looksJSON(text) {
		err = d.indexJSON()
	} else {
		err = d.indexText()
	}
	if err != nil {
		return nil, d.problems, fmt.Errorf("read %s: %w", named(opt.Source), err)
	}
	rs := d.ruleset()
	if opt.Strict {
		d.parseAll()
	}
	return rs, d.problems, nil
}

// looksJSON says whether the first thing in the text is a brace or a bracket,
// which no line of the text form begins with.
func looksJSON(text string) bool {
	t := strings.TrimLeft(text, " \t\r\n")
	return strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[")
}

func named(source string) string {
	if source == "" {
		return "the ruleset of nft"
	}
	return source
}

// LooksWhole says whether a text is that of nft list ruleset: it holds several
// tables, where nft list table prints one.
func LooksWhole(text string) bool {
	if looksJSON(text) {
		return strings.Count(text, `"table": {`)+strings.Count(text, `"table":{`) > 1
	}
	return strings.Count("\n"+text, "\ntable ") > 1
}
