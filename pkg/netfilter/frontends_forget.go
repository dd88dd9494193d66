package netfilter

// Forget lets go of what was parsed of a chain that the kernel does not call
// itself, where the text can be read again: who walks all Services one after
// another need not keep the rules of each. It may be called while others walk.
func (rs *Ruleset) Forget(table, chain string) {
	for _, t := range rs.tables {
		if t.Name != table {
			continue
		}
		if f, ok := t.chains.(interface{ Forget(chain string) }); ok {
			if c := t.chain(chain); c != nil && c.Base == nil {
				f.Forget(chain)
			}
		}
	}
}
