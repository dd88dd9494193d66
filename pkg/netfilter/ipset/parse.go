// Package ipset reads the text of ipset save and ipset list, and answers
// whether a packet's addresses and ports are in a set.
package ipset

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
)

// Errors of a text that no set can be made of.
var (
	// ErrNoSet: not one line creates a set. A node without sets prints nothing.
	ErrNoSet = errors.New("no set in the input: expected the output of ipset save (create NAME hash:ip ...) or ipset list")
	// ErrBinary: the text holds bytes that no ipset prints.
	ErrBinary = errors.New("binary input")
)

// Problem is a line that was not understood. Whether its element is in the set
// is then not known, nor what else is not.
type Problem struct {
	// Line counts from 1.
	Line          int
	Text, Message string
}

func (p Problem) String() string { return fmt.Sprintf("line %d: %s", p.Line, p.Message) }

// mostProblems bounds the problems that are told.
const mostProblems = 1000

// Parse reads sets. Both forms may stand in one text, with shell prompts
// between; of a set that is there twice the first counts. source names the
// text in errors.
func Parse(text, source string) (*Sets, []Problem, error) {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, nil, fmt.Errorf("read %s: line %d: a zero byte: %w", source, strings.Count(text[:i], "\n")+1, ErrBinary)
	}
	p := &parser{sets: &Sets{byName: map[string]*set{}}}
	for at := 0; at < len(text); {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			end = len(text) - at
		}
		p.n++
		p.line(strings.TrimRight(text[at:at+end], " \t\r"))
		at += end + 1
		if at > 4<<20 && len(p.sets.byName) == 0 {
			break // nothing will come of it
		}
	}
	if p.now != nil && !strings.HasSuffix(text, "\n") {
		p.now.lacks("the input breaks off in this set")
	}
	p.endOfList()
	if len(p.sets.byName) == 0 {
		return nil, p.problems, fmt.Errorf("read %s: %w", source, ErrNoSet)
	}
	return p.sets, p.problems, nil
}

type parser struct {
	sets     *Sets
	problems []Problem
	n        int  // the line's number
	now      *set // the set that members of a listing belong to
	// of a listing: the name that a Type line is to follow, whether its members
	// are being read, and how many there should be.
	name    string
	members bool
	want    int
	have    int
}

func (p *parser) problem(s, format string, a ...any) {
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	if len(p.problems) < mostProblems {
		p.problems = append(p.problems, Problem{p.n, s, fmt.Sprintf(format, a...)})
	}
}

var prompt = lazyregexp.New(`^(\S*@\S+[:~ ].*|\[.*\]|)\s*[#$>] `)

func (p *parser) line(s string) {
	s = strings.TrimLeft(s, "> \t")
	if len(s) > 1<<16 {
		p.problem(s, "a line of %d bytes, which no element has", len(s))
		return
	}
	verb, rest, _ := strings.Cut(s, " ")
	switch {
	case s == "":
		p.endOfList()
	case verb == "create" || verb == "-N":
		p.endOfList()
		p.create(s, rest)
	case verb == "add" || verb == "-A":
		p.add(s, rest)
	case verb == "Name:":
		p.endOfList()
		p.name = strings.TrimSpace(rest)
	case p.name != "" && verb == "Type:":
		p.now = p.newSet(s, p.name, strings.TrimSpace(rest))
	case p.name != "" && !p.members && p.listed(s, verb, rest):
	case p.members && !prompt.MatchString(s):
		p.have++
		p.element(s, p.now, s)
	case s[0] == '#', prompt.MatchString(s):
		p.endOfList()
	default:
		p.problem(s, "this is no line that ipset prints")
	}
}

// listed reads what ipset list prints of a set before its members.
func (p *parser) listed(s, verb, rest string) bool {
	switch verb {
	case "Members:":
		p.members = true
	case "Header:":
		if p.now != nil {
			p.options(s, p.now, strings.Fields(rest))
		}
	case "Number":
		if _, n, ok := strings.Cut(rest, "entries: "); ok {
			fmt.Sscan(n, &p.want)
		}
	case "Revision:", "Size", "References:", "Default":
	default:
		return false
	}
	return true
}

func (p *parser) endOfList() {
	if p.now != nil && p.members && p.want >= 0 && p.have < p.want {
		p.now.lacks(fmt.Sprintf("%d of its %d members are in the input", p.have, p.want))
	}
	if p.now != nil && p.name != "" && !p.members {
		p.now.lacks("its members are not in the input")
	}
	p.name, p.members, p.want, p.have = "", false, -1, 0
	p.now = nil
}

func (p *parser) create(s, rest string) {
	f := strings.Fields(rest)
	if len(f) < 2 {
		p.problem(s, "a set without a type")
		return
	}
	t := p.newSet(s, f[0], f[1])
	if t != nil {
		p.options(s, t, f[2:])
		p.now = t
	}
}

// newSet makes a set, which counts unless there is one of that name.
func (p *parser) newSet(s, name, kind string) *set {
	t, err := makeSet(name, kind)
	if err != nil {
		p.problem(s, "%v", err)
	}
	if _, twice := p.sets.byName[name]; twice {
		p.problem(s, "set %s is here twice: the first counts", name)
		return t
	}
	p.sets.byName[name] = t
	return t
}

// options reads what a set was created with.
func (p *parser) options(s string, t *set, f []string) {
	for i := 0; i < len(f); i++ {
		value := ""
		if i+1 < len(f) {
			value = f[i+1]
		}
		switch f[i] {
		case "family":
			t.v6 = value == "inet6"
			i++
		case "netmask":
			if _, err := fmt.Sscan(value, &t.netmask); err != nil || t.netmask > 128 {
				p.problem(s, "%q is not a netmask", value)
			}
			i++
		case "bitmask":
			t.lacks("sets with a bitmask are not read")
			i++
		case "counters", "comment", "skbinfo", "forceadd":
		default:
			i++ // hashsize, maxelem, timeout, range, size, bucketsize, initval, markmask
		}
	}
}

func (p *parser) add(s, rest string) {
	name, elem, _ := strings.Cut(strings.TrimSpace(rest), " ")
	t := p.sets.byName[name]
	if t == nil {
		// The set's type is not in the input, so its elements can't be read.
		t = &set{name: name, missing: "its create line is not in the input"}
		p.sets.byName[name] = t
		p.problem(s, "set %s has an element and no create line", name)
		return
	}
	p.now = t
	p.element(s, t, elem)
}

// element reads one element: its parts with commas between, then its options.
func (p *parser) element(s string, t *set, elem string) {
	if t == nil {
		return
	}
	elem, options, _ := strings.Cut(strings.TrimSpace(elem), " ")
	options, _, _ = strings.Cut(options, `"`) // a comment may hold anything
	nomatch := strings.Contains(" "+options+" ", " nomatch ")
	if t.dims == nil {
		return
	}
	if err := t.add(elem, nomatch); err != nil {
		t.lacks(fmt.Sprintf("its element on line %d is not understood", p.n))
		p.problem(s, "%v", err)
	}
}
