package netfilter

import (
	"iter"
	"net/netip"
	"slices"
)

// Chain is a view of one chain of a Ruleset.
type Chain struct {
	Source  string
	Table   string
	Name    string
	Family  Family
	Backend Backend
	// Line is that of the chain's declaration; 0 when it has none.
	Line     int
	Declared bool
	// Known: the chain's rules are in the input, all of them. A chain that is
	// known and has NumRules 0 is empty; one that isn't known may have more.
	Known    bool
	NumRules int
	// Base, Policy: for a chain that the kernel calls.
	Base   *Base
	Policy string

	table *Table
	def   *ChainDef
}

func (t *Table) view(c *ChainDef) Chain {
	return Chain{
		Source: t.Source, Table: t.Name, Name: c.Name, Family: t.Family, Backend: t.Backend,
		Line: c.Line, Declared: c.Declared, Known: c.Cut == "", NumRules: c.len(),
		Base: c.Base, Policy: c.Policy, table: t, def: c,
	}
}

// Rules yields the chain's rules in order, parsing them as they are asked for.
func (c Chain) Rules() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		if c.def == nil {
			return
		}
		for i := range c.def.len() {
			if !yield(*c.def.Body.Rule(i)) {
				return
			}
		}
	}
}

// RulesTo yields the chain's rules that a packet to an address might match by
// its destination: all but those that certainly are for another one.
func (c Chain) RulesTo(dst netip.Addr) iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		if c.def == nil || c.def.Body == nil {
			return
		}
		for i := c.def.next(0, dst); i < c.def.len(); i = c.def.next(i+1, dst) {
			if !yield(*c.def.Body.Rule(i)) {
				return
			}
		}
	}
}

// Chain gives the first chain of that name in a table of that name, in any
// family and backend; narrow the ruleset with Only or OnlyFamily first where
// that matters. It is false when the chain is neither declared nor has rules.
func (rs *Ruleset) Chain(table, name string) (Chain, bool) {
	for _, t := range rs.tables {
		if t.Name != table {
			continue
		}
		if c := t.chain(name); c != nil {
			return t.view(c), true
		}
	}
	return Chain{}, false
}

// Chains gives every chain of that name: one for each family and backend.
func (rs *Ruleset) Chains(table, name string) []Chain {
	var out []Chain
	for _, t := range rs.tables {
		if c := t.chain(name); c != nil && t.Name == table {
			out = append(out, t.view(c))
		}
	}
	return out
}

// AllChains yields every chain of the tables of that name, in the order of
// the text.
func (rs *Ruleset) AllChains(table string) iter.Seq[Chain] {
	return func(yield func(Chain) bool) {
		for _, t := range rs.tables {
			if t.Name != table {
				continue
			}
			for c := range t.chains.All() {
				if !yield(t.view(c)) {
					return
				}
			}
		}
	}
}

// HasChain says whether the chain is in a table of that name.
func (rs *Ruleset) HasChain(table, chain string) bool {
	_, ok := rs.Chain(table, chain)
	return ok
}

// BaseChains gives the chains that the kernel runs at a hook, of all families,
// in its order.
func (rs *Ruleset) BaseChains(hook Hook) []Chain {
	var out []Chain
	for _, f := range []Family{IPv4, IPv6} {
		for _, s := range rs.hookTable(f).stations[hook] {
			if s.kind == chainStation {
				out = append(out, s.table.view(s.chain))
			}
		}
	}
	return out
}

// HasTable says whether a table of that name and family was in the input.
func (rs *Ruleset) HasTable(f Family, name string) bool {
	return slices.ContainsFunc(rs.tables, func(t *Table) bool { return t.Family == f && t.Name == name })
}

// TablesRead names the tables of a family that were in the input, sorted. An
// absent one was not read, unless Whole.
func (rs *Ruleset) TablesRead(f Family) []string {
	var names []string
	for _, t := range rs.tables {
		if t.Family == f {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Whole says whether the input is all that the node has of the family, so
// that an absent table does not exist.
func (rs *Ruleset) Whole(f Family) bool { return rs.whole[f] }

// LegacyUnread says that the text warned of iptables-legacy tables of the
// family, and none of them is in the input.
func (rs *Ruleset) LegacyUnread(f Family) bool { return rs.legacyMissing(f) }

// Tables lists the tables in the order of the input.
func (rs *Ruleset) Tables() []TableInfo {
	out := make([]TableInfo, len(rs.tables))
	for i, t := range rs.tables {
		out[i] = t.TableInfo
	}
	return out
}

// Partial lists the tables whose end is not in the input.
func (rs *Ruleset) Partial() []TableInfo {
	return slices.DeleteFunc(rs.Tables(), func(t TableInfo) bool { return t.CutAt == 0 })
}

// Passage is one jump on the way from a chain to another.
type Passage struct {
	Chain string
	Rule  Rule
}

// Reach says by which jumps chain c leads to the chain of that name, by the
// fewest jumps, preferring the earliest. It looks at jumps alone, not at
// whether a packet would take them (see Rule.Unconditional), nor at rules that
// end the chain before.
func (c Chain) Reach(name string) ([]Passage, bool) {
	if c.def == nil || c.table.chain(name) == nil {
		return nil, false
	}
	type hop struct {
		from *hop
		Passage
	}
	seen := map[string]bool{c.Name: true}
	type place struct {
		def *ChainDef
		by  *hop
	}
	for queue := []place{{c.def, nil}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for i := range at.def.len() {
			r := at.def.Body.Rule(i)
			if r.Jump == "" || seen[r.Jump] {
				continue
			}
			seen[r.Jump] = true
			by := &hop{at.by, Passage{at.def.Name, *r}}
			if r.Jump == name {
				var path []Passage
				for h := by; h != nil; h = h.from {
					path = append(path, h.Passage)
				}
				slices.Reverse(path)
				return path, true
			}
			if next := c.table.chain(r.Jump); next != nil {
				queue = append(queue, place{next, by})
			}
		}
	}
	return nil, false
}

// JumpsTo lists the rules of the chain that jump or go straight to another.
func (c Chain) JumpsTo(name string) []Rule {
	var out []Rule
	for r := range c.Rules() {
		if r.Jump == name {
			out = append(out, r)
		}
	}
	return out
}
