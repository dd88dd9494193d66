package netfilter

import "slices"

// Unhooked is the ruleset without the rules of its base chains that drop picks:
// what a packet would meet had nobody hooked them in. The chains that they led
// to stay, for whatever else leads there.
func (rs *Ruleset) Unhooked(drop func(Chain, Rule) bool) *Ruleset {
	out := Merge(rs)
	out.tables = slices.Clone(rs.tables)
	for i, t := range out.tables {
		out.tables[i] = t.unhooked(drop)
	}
	return out
}

func (t *Table) unhooked(drop func(Chain, Rule) bool) *Table {
	by := map[string]*ChainDef{}
	for _, c := range t.chains.Based() {
		if c.len() == 0 {
			continue
		}
		view := t.view(c)
		kept := make(Rules, 0, c.len())
		for j := range c.len() {
			if r := c.Body.Rule(j); !drop(view, *r) {
				kept = append(kept, *r)
			}
		}
		if len(kept) == c.len() {
			continue
		}
		def := *c
		def.Body = kept
		by[c.Name] = &def
	}
	if len(by) == 0 {
		return t
	}
	out := *t
	out.chains = &overlaid{Chains: t.chains, by: by}
	return &out
}
