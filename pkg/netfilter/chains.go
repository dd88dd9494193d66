package netfilter

import "iter"

// Chains are the chains of a table that makes them when they are asked for.
// Each is made once: who asks twice gets the same pointer. Implementations are
// safe for concurrent use, and the chains are not changed.
type Chains interface {
	// Chain is the one of that name, or nil.
	Chain(name string) *ChainDef
	// All yields every chain, in the order of the text.
	All() iter.Seq[*ChainDef]
	// Based are the chains that the kernel calls, in the order of the text.
	Based() []*ChainDef
}

// chainList is Chains that are all there.
type chainList struct {
	defs  []ChainDef
	index map[string]int32
}

// Chain is the one of that name, or nil.
func (l *chainList) Chain(name string) *ChainDef {
	i, ok := l.index[name]
	if !ok {
		return nil
	}
	return &l.defs[i]
}

// All yields every chain.
func (l *chainList) All() iter.Seq[*ChainDef] {
	return func(yield func(*ChainDef) bool) {
		for i := range l.defs {
			if !yield(&l.defs[i]) {
				return
			}
		}
	}
}

// Based are the chains that the kernel calls.
func (l *chainList) Based() []*ChainDef {
	var out []*ChainDef
	for i := range l.defs {
		if l.defs[i].Base != nil {
			out = append(out, &l.defs[i])
		}
	}
	return out
}

// overlaid is Chains of which some are replaced, and more are added.
type overlaid struct {
	Chains
	by   map[string]*ChainDef
	more []*ChainDef
}

// Chain is the one of that name, or nil.
func (o *overlaid) Chain(name string) *ChainDef {
	if c := o.by[name]; c != nil {
		return c
	}
	return o.Chains.Chain(name)
}

// All yields every chain; those that were added come last.
func (o *overlaid) All() iter.Seq[*ChainDef] {
	return func(yield func(*ChainDef) bool) {
		for c := range o.Chains.All() {
			if by := o.by[c.Name]; by != nil {
				c = by
			}
			if !yield(c) {
				return
			}
		}
		for _, c := range o.more {
			if !yield(c) {
				return
			}
		}
	}
}

// Based are the chains that the kernel calls.
func (o *overlaid) Based() []*ChainDef {
	var out []*ChainDef
	for _, c := range o.Chains.Based() {
		if by := o.by[c.Name]; by != nil {
			c = by
		}
		out = append(out, c)
	}
	for _, c := range o.more {
		if c.Base != nil {
			out = append(out, c)
		}
	}
	return out
}
