package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// ruleset makes the tables of what was indexed.
func (x *indexer) ruleset() *netfilter.Ruleset {
	tables := make([]*netfilter.Table, 0, len(x.tables))
	contents := []netfilter.Contents{}
	whole := x.opt.Whole && !slices.ContainsFunc(x.tables, func(t *tableIndex) bool { return !t.committed || t.loose })
	seen := map[netfilter.TableInfo]int{}
	for _, t := range x.tables {
		x.checkTwice(t, seen)
		tables = append(tables, x.build(t))
		contents = append(contents, netfilter.Contents{Family: t.Family, Whole: whole, LegacyPresent: x.legacy})
	}
	return netfilter.New(contents, tables...)
}

// identify settles a table's family and backend.
func (x *indexer) identify(t *tableIndex) {
	if x.opt.Backend != netfilter.AnyBackend {
		t.Backend = x.opt.Backend
	}
	if x.legacy && t.Backend == netfilter.AnyBackend {
		t.Backend = netfilter.NFT // only its tools warn of the legacy ones
	}
	switch {
	case x.opt.Family != 0:
		t.Family = x.opt.Family
	case t.Family != 0:
	default:
		t.Family = x.guessFamily(t)
	}
}

// guessFamily looks at the table's own rules, then at the whole text's.
func (x *indexer) guessFamily(t *tableIndex) netfilter.Family {
	if f := x.familyOfTable(t); f != 0 {
		return f
	}
	if x.guess == nil {
		f := netfilter.Family(0)
		for _, t := range x.tables {
			if f == 0 {
				f = x.familyOfTable(t)
			}
		}
		x.guess = &f
	}
	if *x.guess != 0 {
		return *x.guess
	}
	x.problems = append(x.problems, Problem{FamilyGuessed, t.Line, 1, "*" + t.Name, fmt.Sprintf("nothing tells whether table %s is of IPv4 or IPv6; taken as IPv4", t.Name)})
	return netfilter.IPv4
}

// familyOfTable is the family that the table's rules tell of; 0 for none.
func (x *indexer) familyOfTable(t *tableIndex) netfilter.Family {
	for i := range t.chains {
		c := &t.chains[i]
		for j := range c.len() {
			p := x.rules[c.at(j)]
			if f := familyOfRule(x.lineAt(int(p.offset)), p.layout); f != 0 {
				return f
			}
		}
	}
	return 0
}

// checkTwice reports a table that was there before.
func (x *indexer) checkTwice(t *tableIndex, seen map[netfilter.TableInfo]int) {
	k := netfilter.TableInfo{Name: t.Name, Family: t.Family, Backend: t.Backend}
	if line, twice := seen[k]; twice {
		x.problems = append(x.problems, Problem{Duplicate, t.Line, 1, "*" + t.Name, fmt.Sprintf("table %s of %s is here twice (first on line %d)", t.Name, t.Family, line)})
		return
	}
	seen[k] = t.Line
}

// build makes a table's chains. Their rules stay text.
func (x *indexer) build(t *tableIndex) *netfilter.Table {
	t.bodies = make([]body, len(t.chains))
	defs := make([]netfilter.ChainDef, len(t.chains))
	hooks := builtins[t.Name]
	for i := range t.chains {
		c := &t.chains[i]
		b := &t.bodies[i]
		b.source, b.table, b.chain = x, t, c
		defs[i] = netfilter.ChainDef{
			Name: c.name, Declared: c.declared, Line: c.line, Body: b,
			Base: hooks.hooked(c.name), Cut: x.cut(t, int32(i)),
		}
		if defs[i].Base != nil {
			defs[i].Policy = c.policy
		}
	}
	table := netfilter.NewTable(t.TableInfo, defs, t.byName)
	table.Lacks(x.lacking(t))
	return table
}

// lacking are the base chains that a table may have and the text doesn't show:
// only a text that was filtered, or shows a piece, lacks any. Of nat and filter
// alone, as a packet is walked without the other tables too.
func (x *indexer) lacking(t *tableIndex) []netfilter.ChainDef {
	if t.Name != "nat" && t.Name != "filter" {
		return nil
	}
	piece := t.loose
	for i := range t.chains {
		piece = piece || !t.chains[i].declared
	}
	if !piece {
		return nil
	}
	var out []netfilter.ChainDef
	b := builtins[t.Name]
	for _, h := range b.hooks {
		name := string(h)
		if _, ok := t.byName[name]; ok || t.Name == "nat" && h == netfilter.Input {
			continue
		}
		out = append(out, netfilter.ChainDef{Name: name, Base: b.hooked(name)})
	}
	return out
}

// cut says why rules of a chain may be missing. iptables-save writes all
// declarations first, then chain by chain: in a table that breaks off, the
// chain that was being written and those not yet begun may have more rules.
func (x *indexer) cut(t *tableIndex, i int32) string {
	c := &t.chains[i]
	switch {
	case c.declared && c.cut != "":
		return c.cut
	case !c.declared:
		if c.len() > 0 {
			x.problems = append(x.problems, Problem{
				Undeclared, int(x.rules[c.first.from].line), 1, x.lineAt(int(x.rules[c.first.from].offset)),
				fmt.Sprintf("chain %s of table %s is not declared, so the text is not whole: it may have more rules", c.name, t.Name),
			})
		}
		return "the chain is not declared in the input, so rules of it may be missing"
	case !t.committed && (i == t.last || c.len() == 0):
		return fmt.Sprintf("the input breaks off on line %d, before COMMIT: rules of this chain may be missing", t.CutAt)
	}
	return ""
}

// brokenLine says whether the rule that starts at offset is the last line of
// a text that breaks off, and so may itself be broken.
func (x *indexer) brokenLine(offset uint32) bool {
	if n := len(x.tables); n == 0 || x.tables[n-1].committed {
		return false
	}
	return int(offset) < len(x.text) && strings.IndexByte(x.text[offset:], '\n') < 0
}

// parseAll parses every rule, to know all problems.
func (x *indexer) parseAll() {
	for _, t := range x.tables {
		for i := range t.bodies {
			b := &t.bodies[i]
			for j := range b.Len() {
				if r, p := x.parseRule(t, b.chain.name, b.place(j)); r.Problem != "" && p.Kind != "" {
					x.problems = append(x.problems, p)
				}
			}
		}
	}
}
