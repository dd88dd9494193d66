package iptables

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Skim is the index of a text that is iptables-save's as it prints it: tables
// from "*name" to COMMIT, all declarations of one ahead of its rules, the rules
// of each chain together. It keeps where the rules of each chain begin and
// nothing of each rule, so that a text of hundreds of megabytes is indexed at
// about the speed at which memory is read. It is safe for concurrent use.
type Skim struct {
	text    string
	tables  []*plainTable
	legacy  *Problem // the text warns of legacy tables
	seed    maphash.Seed
	parsers sync.Pool // of *ruleParser
	// ends[i] is the number of line ends ahead of block i of the text.
	ends []uint32
}

// SkimmedTable is a table of a Skim, as the comment ahead of it has it.
type SkimmedTable struct {
	Name    string
	Family  netfilter.Family // 0 where no comment tells
	Backend netfilter.Backend
}

// Tables are the tables in the order of the text.
func (p *Skim) Tables() []SkimmedTable {
	out := make([]SkimmedTable, len(p.tables))
	for i, t := range p.tables {
		out[i] = SkimmedTable{t.name, t.header.family, t.header.backend}
	}
	return out
}

// plainBlock is the size of the blocks of which the line ends are counted. It
// bounds what is counted again to tell a line's number.
const plainBlock = 4096

// plainTable is a table of a plain text.
type plainTable struct {
	of     *Skim
	name   string
	header header
	// declared and rules are where those lines stand, rulesEnd where the last
	// one ends.
	declared, rules, rulesEnd int

	// A hash table of the chains by name, by slot: half of the name's hash, where
	// the name stands in its declaration, and where the chain's first rule does; 0
	// for none.
	hashes, names []uint32
	firsts        []atomic.Uint32
	count         int
	defs          []atomic.Pointer[netfilter.ChainDef] // as they were asked for
}

// place is the slot of the chain of that name by its hash: whole names are not
// compared, which would touch all declarations again. That it mistakes two
// declared names for each other happens in one of thousands of large texts, and
// makes that text not plain; ask slot where a name may not be declared. Where
// there is none, it is the slot where it would be.
func (t *plainTable) place(name string) (at int, half uint32, ok bool) {
	hash := maphash.String(t.of.seed, name)
	half = uint32(hash>>32) | 1 // not 0
	mask := len(t.hashes) - 1
	for i := int(hash) & mask; ; i = (i + 1) & mask {
		switch t.hashes[i] {
		case 0:
			return i, half, false
		case half:
			return i, half, true
		}
	}
}

// slot is the slot of the chain of that name.
func (t *plainTable) slot(name string) (int, bool) {
	if len(t.names) == 0 || name == "" {
		return 0, false
	}
	i, _, ok := t.place(name)
	if !ok {
		return 0, false
	}
	text, at := t.of.text, int(t.names[i])
	end := at + len(name)
	return i, end < len(text) && text[end] == ' ' && text[at:end] == name
}

// named says whether the table has a chain of that name.
func (t *plainTable) named(chain string) bool {
	_, ok := t.slot(chain)
	return ok
}

// lineNumber is the number of the line that an offset is in, from 1.
func (p *Skim) lineNumber(at int) int {
	block := at / plainBlock
	return int(p.ends[block]) + strings.Count(p.text[block*plainBlock:at], "\n") + 1
}

// lineFrom is the line that begins at an offset, without blanks at its end.
func (p *Skim) lineFrom(at int) string {
	s := p.text[at:]
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return strings.TrimRight(s, " \t\r")
}

// ruleset makes the tables, as the options have them; false where no option
// and no comment tells a table's family, or a table is there twice.
func (p *Skim) ruleset(opt Options) (*netfilter.Ruleset, []Problem, bool) {
	whole := opt.Whole || opt.Saved && p.opens("nat") && p.opens("filter")
	tables := make([]*netfilter.Table, 0, len(p.tables))
	contents := make([]netfilter.Contents, 0, len(p.tables))
	seen := map[netfilter.TableInfo]bool{}
	for _, t := range p.tables {
		info := t.info(opt)
		if info.Family == 0 || seen[netfilter.TableInfo{Name: info.Name, Backend: info.Backend, Family: info.Family}] {
			return nil, nil, false
		}
		seen[netfilter.TableInfo{Name: info.Name, Backend: info.Backend, Family: info.Family}] = true
		tables = append(tables, netfilter.TableOf(info, t))
		contents = append(contents, netfilter.Contents{Family: info.Family, Whole: whole, LegacyPresent: p.legacy != nil})
	}
	var problems []Problem
	if p.legacy != nil {
		problems = []Problem{*p.legacy}
	}
	return netfilter.New(contents, tables...), problems, true
}

// info is what the table is called, as the options have it.
func (t *plainTable) info(opt Options) netfilter.TableInfo {
	i := netfilter.TableInfo{
		Source: opt.Source, Name: t.name, Family: t.header.family, Backend: t.header.backend, Line: t.of.lineNumber(t.declared - 1),
	}
	if opt.Family != 0 {
		i.Family = opt.Family
	}
	if opt.Backend != netfilter.AnyBackend {
		i.Backend = opt.Backend
	}
	if t.of.legacy != nil && i.Backend == netfilter.AnyBackend {
		i.Backend = netfilter.NFT // only its tools warn of the legacy ones
	}
	return i
}

func (p *Skim) opens(table string) bool {
	for _, t := range p.tables {
		if strings.HasPrefix(t.name, table) { // as ShowsAll has it
			return true
		}
	}
	return false
}
