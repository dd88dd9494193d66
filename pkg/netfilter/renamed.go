package netfilter

import "slices"

// Renamed is the ruleset under another name of its text: a text that several
// nodes have in common is parsed once, and each node quotes its own file. What
// was parsed is shared.
func (rs *Ruleset) Renamed(source string) *Ruleset {
	out := Merge(rs)
	out.tables = slices.Clone(rs.tables)
	for i, t := range out.tables {
		if t.Source != source {
			named := *t
			named.Source = source
			out.tables[i] = &named
		}
	}
	return out
}
