package netfilter

import (
	"slices"
	"strings"
)

// Hooked is the ruleset with jumps assumed: from a base chain of a table, where
// the input doesn't show that base chain, to chains that it does show. It
// answers what an excerpt does with a packet that comes to it. The assumed
// rules have no line, and their text says so. Whatever else the input lacks
// stays unknown.
func (rs *Ruleset) Hooked(table string, hook Hook, chains ...string) *Ruleset {
	out := Merge(rs)
	out.tables = slices.Clone(rs.tables)
	for i, t := range out.tables {
		if t.Name == table {
			out.tables[i] = t.hooked(hook, chains)
		}
	}
	return out
}

func (t *Table) hooked(hook Hook, chains []string) *Table {
	at := slices.IndexFunc(t.unread, func(c ChainDef) bool { return c.Name == string(hook) })
	if at < 0 {
		return t
	}
	var rules Rules
	for _, c := range chains {
		if t.chain(c) == nil {
			continue
		}
		rules = append(rules, Rule{
			Text: "assumed: " + strings.TrimSpace("-A "+string(hook)+" -j "+c), Target: c, Jump: c, Unconditional: true,
			Exprs: []Expr{{Do: JumpTo{Chain: c}}},
		})
	}
	if len(rules) == 0 {
		return t
	}
	def := t.unread[at]
	def.Policy, def.Body = "ACCEPT", rules
	n := &Table{TableInfo: t.TableInfo, chains: &overlaid{t.chains, map[string]*ChainDef{def.Name: &def}, []*ChainDef{&def}}, turn: t.turn}
	n.unread = slices.Delete(slices.Clone(t.unread), at, at+1)
	return n
}

// Excerpt says whether a table is here whose base chains the input does not
// all show.
func (rs *Ruleset) Excerpt() bool {
	return slices.ContainsFunc(rs.tables, func(t *Table) bool { return len(t.unread) > 0 })
}
