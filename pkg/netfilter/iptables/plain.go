package iptables

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// plain is the index of a text that is iptables-save's as it prints it: tables
// from "*name" to COMMIT, all declarations of one ahead of its rules, the rules
// of each chain together. It keeps where the rules of each chain begin and
// nothing of each rule, so that a text of hundreds of megabytes is indexed at
// about the speed at which memory is read.
type plain struct {
	text    string
	opt     Options
	tables  []*plainTable
	legacy  *Problem // the text warns of legacy tables
	seed    maphash.Seed
	parsers sync.Pool // of *ruleParser
	// ends[i] is the number of line ends ahead of block i of the text.
	ends []uint32
}

// plainBlock is the size of the blocks of which the line ends are counted. It
// bounds what is counted again to tell a line's number.
const plainBlock = 4096

// plainTable is a table of a plain text.
type plainTable struct {
	netfilter.TableInfo
	of *plain
	// declared and rules are where those lines stand, rulesEnd where the last
	// one ends.
	declared, rules, rulesEnd int

	slots []plainSlot // a hash table of the chains by name
	count int
	defs  []atomic.Pointer[netfilter.ChainDef] // by slot, as they were asked for
}

// plainSlot is a chain: where its name stands in its declaration, and where its
// first rule does; 0 for none.
type plainSlot struct {
	name uint32
	rule atomic.Uint32
}

// slot is where the hash table has the chain of that name, or the place where
// it would have it; false where it has none.
func (t *plainTable) slot(name string) (int, bool) {
	if len(t.slots) == 0 || name == "" {
		return 0, false
	}
	text := t.of.text
	mask := len(t.slots) - 1
	for i := int(maphash.String(t.of.seed, name)) & mask; ; i = (i + 1) & mask {
		at := int(t.slots[i].name)
		if at == 0 {
			return i, false
		}
		if end := at + len(name); end < len(text) && text[end] == ' ' && text[at:end] == name {
			return i, true
		}
	}
}

// named says whether the table has a chain of that name.
func (t *plainTable) named(chain string) bool {
	_, ok := t.slot(chain)
	return ok
}

// lineNumber is the number of the line that an offset is in, from 1.
func (p *plain) lineNumber(at int) int {
	block := at / plainBlock
	return int(p.ends[block]) + strings.Count(p.text[block*plainBlock:at], "\n") + 1
}

// lineFrom is the line that begins at an offset, without blanks at its end.
func (p *plain) lineFrom(at int) string {
	s := p.text[at:]
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return strings.TrimRight(s, " \t\r")
}

// ruleset makes the tables.
func (p *plain) ruleset() *netfilter.Ruleset {
	whole := p.opt.Whole || p.opt.Saved && p.opens("nat") && p.opens("filter")
	tables := make([]*netfilter.Table, 0, len(p.tables))
	contents := make([]netfilter.Contents, 0, len(p.tables))
	for _, t := range p.tables {
		tables = append(tables, netfilter.TableOf(t.TableInfo, t))
		contents = append(contents, netfilter.Contents{Family: t.Family, Whole: whole, LegacyPresent: p.legacy != nil})
	}
	return netfilter.New(contents, tables...)
}

func (p *plain) opens(table string) bool {
	for _, t := range p.tables {
		if strings.HasPrefix(t.Name, table) { // as ShowsAll has it
			return true
		}
	}
	return false
}
