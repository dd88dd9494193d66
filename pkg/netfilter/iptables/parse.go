// Package iptables reads the text of iptables-save and ip6tables-save, of the
// legacy and of the nft backend, into a netfilter.Ruleset; and that of iptables
// -S and iptables -L, and any of these as people paste them: quoted, escaped,
// filtered, cut, several of them together.
//
// Reading indexes the text in one pass: which chain has which lines. A rule is
// parsed when a walk comes to it, so that walking one Service out of hundreds
// of thousands of rules costs about as much as a grep.
package iptables

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
	// Family is that of the rules; 0 takes it from the text's header or its
	// addresses, and IPv4 where neither tells (a Problem says so).
	Family netfilter.Family
	// Backend overrides what the header says.
	Backend netfilter.Backend
	// Table is the table of lines ahead of the first "*table" line, for an
	// excerpt without one, where no command line before it says which; "" has
	// it concluded from the chains and targets.
	Table string
	// Whole: the text is all that iptables-save has to say of the family, so
	// that a table it lacks does not exist. Not to be set for the output of
	// iptables-save -t nat.
	Whole bool
	// Saved: it may be all; then it is, where it opens the tables nat and filter
	// (see ShowsAll).
	Saved bool
	// Skim is the text's index, where SkimText made it before.
	Skim *Skim
	// Strict parses every rule now, so that the Problems are all there are.
	// Otherwise a rule that isn't understood comes to light when it is walked,
	// as one that can't be decided.
	Strict bool
	// Refuse makes an error, ErrNotUnderstood, of the first line or rule that
	// isn't understood, of a listing whose lines are run together, and of a
	// table that breaks off. It implies Strict.
	Refuse bool
}

// Parse reads what iptables prints. The Ruleset can be merged with others
// (netfilter.Merge) and is safe for concurrent use.
//
// What can't be understood is a Problem and stays as something that can't be
// decided; so does what may be missing from a table without its COMMIT (see
// Ruleset.Partial). The error is one of ErrEmpty, ErrNoTable, ErrBinary,
// ErrTooLarge and, where Options ask for it, ErrNotUnderstood.
func Parse(text string, opt Options) (*netfilter.Ruleset, []Problem, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, nil, fmt.Errorf("read %s: %w", named(opt.Source), ErrEmpty)
	case uint64(len(text)) > math.MaxUint32:
		return nil, nil, fmt.Errorf("read %s: %w", named(opt.Source), ErrTooLarge)
	}
	if rs, problems, ok := parsePlain(text, opt); ok {
		return rs, problems, nil
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		line := strings.Count(text[:i], "\n") + 1
		col := i - strings.LastIndexByte(text[:i], '\n')
		return nil, nil, fmt.Errorf("read %s: line %d, column %d: a zero byte: %w", named(opt.Source), line, col, ErrBinary)
	}
	opt.Whole = opt.Whole || opt.Saved && ShowsAll(text)
	x := newIndexer(text, opt)
	x.index()
	if x.tooLarge {
		return nil, nil, fmt.Errorf("read %s: %w", named(opt.Source), ErrTooLarge)
	}
	if len(x.tables) == 0 {
		return nil, x.problems, fmt.Errorf("read %s: %w", named(opt.Source), ErrNoTable)
	}
	rs := x.ruleset()
	if opt.Strict || opt.Refuse {
		x.parseAll()
	}
	if opt.Refuse {
		for _, p := range x.problems {
			switch p.Kind {
			case UnknownLine, UnknownRule, UnknownChain, UnknownTable, Mangled, Truncated:
				return nil, x.problems, fmt.Errorf("read %s: %s: %w", named(opt.Source), p, ErrNotUnderstood)
			}
		}
	}
	return rs, x.problems, nil
}

// parsePlain reads a text that is plainly iptables-save's, if it is a large one.
func parsePlain(text string, opt Options) (*netfilter.Ruleset, []Problem, bool) {
	if opt.Strict || opt.Refuse || len(text) < plainFrom {
		return nil, nil, false
	}
	p := opt.Skim
	if p == nil || p.text != text {
		var ok bool
		if p, ok = SkimText(text); !ok {
			return nil, nil, false
		}
	}
	return p.ruleset(opt)
}

func named(source string) string {
	if source == "" {
		return "iptables-save text"
	}
	return source
}
