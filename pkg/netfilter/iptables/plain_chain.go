package iptables

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Chain is the chain of that name, or nil.
func (t *plainTable) Chain(name string) *netfilter.ChainDef {
	i, ok := t.slot(name)
	if !ok {
		return nil
	}
	if c := t.defs[i].Load(); c != nil {
		return c
	}
	t.defs[i].CompareAndSwap(nil, t.define(i, name))
	return t.defs[i].Load()
}

// define makes the chain of a slot.
func (t *plainTable) define(slot int, name string) *netfilter.ChainDef {
	at := int(t.names[slot])
	name = t.of.text[at : at+len(name)] // the text's own, not one that keeps another alive
	c := &netfilter.ChainDef{
		Name: name, Declared: true, Line: t.of.lineNumber(at),
		Base: builtins[t.name].hooked(name),
		Body: &plainBody{table: t, chain: name, from: int(t.firsts[slot].Load())},
	}
	if c.Base != nil {
		if policy, _ := word(t.of.lineFrom(at + len(name))); policy != "-" {
			c.Policy = policy
		}
	}
	return c
}

// All yields every chain in the order of the declarations.
func (t *plainTable) All() iter.Seq[*netfilter.ChainDef] {
	return func(yield func(*netfilter.ChainDef) bool) {
		for line := range strings.Lines(t.of.text[t.declared:t.rules]) {
			name, _, _ := strings.Cut(line[1:], " ")
			if !yield(t.Chain(name)) {
				return
			}
		}
	}
}

// Based are the chains that the kernel calls, in the order of the declarations.
func (t *plainTable) Based() []*netfilter.ChainDef {
	var out []*netfilter.ChainDef
	for _, h := range builtins[t.name].hooks {
		if c := t.Chain(string(h)); c != nil {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *netfilter.ChainDef) int { return a.Line - b.Line })
	return out
}

// plainBody gives the rules of a chain of a plain text. Two goroutines may both
// parse a rule, or find the chain's lines; they get equal ones.
type plainBody struct {
	table *plainTable
	chain string
	from  int // the first rule; 0 for none
	lines atomic.Pointer[plainLines]
	byDst atomic.Pointer[plainDsts]
}

// plainLines are the rules of a chain: where each begins, as they were parsed.
type plainLines struct {
	at    []uint32
	cache []atomic.Pointer[netfilter.Rule]
}

// found finds the chain's lines when they are first asked for.
func (b *plainBody) found() *plainLines {
	if l := b.lines.Load(); l != nil {
		return l
	}
	l := &plainLines{}
	if b.from > 0 {
		l.at = b.find()
		l.cache = make([]atomic.Pointer[netfilter.Rule], len(l.at))
	}
	b.lines.CompareAndSwap(nil, l)
	return b.lines.Load()
}

// find goes through the lines from the chain's first rule to the first line
// that is none of it.
func (b *plainBody) find() []uint32 {
	text := b.table.of.text[:b.table.rulesEnd]
	few := [16]uint32{}
	out := few[:0]
	for at := b.from; at < len(text); {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			end = len(text) - at
		}
		if _, name := ruleChain(text[at : at+end]); name != b.chain {
			break
		}
		out = append(out, uint32(at))
		at += end + 1
	}
	return slices.Clone(out)
}

// Len is the number of rules.
func (b *plainBody) Len() int { return len(b.found().at) }

// Rule parses rule i, or gives it as it was parsed before.
func (b *plainBody) Rule(i int) *netfilter.Rule {
	l := b.found()
	if r := l.cache[i].Load(); r != nil {
		return r
	}
	r := b.parse(int(l.at[i]))
	l.cache[i].Store(r)
	return r
}

// parse parses the rule whose line begins at an offset.
func (b *plainBody) parse(at int) *netfilter.Rule {
	of := b.table.of
	p := of.parsers.Get().(*ruleParser)
	defer of.parsers.Put(p)
	p.reset(b.table, b.chain, netfilter.Rule{Line: of.lineNumber(at), Text: afterCounters(of.lineFrom(at))})
	p.words()
	p.parse()
	r := p.rule
	if p.err != nil {
		r.Problem = p.err.message
	}
	return &r
}

const (
	// seekFrom is the number of rules from which on a chain's rules are looked
	// at for their destination before they are parsed.
	seekFrom = indexFrom
	// mostSeeks is how often that is done without an index of the destinations.
	mostSeeks = 32
)

// plainDsts tells which rules of a chain a packet to an address might match:
// see dstIndex. Until it is worth it there is no index, and each rule is looked
// at.
type plainDsts struct {
	seeks atomic.Int32
	index atomic.Pointer[dstIndex]
}

// Next skips rules for other destinations, in chains that are long.
func (b *plainBody) Next(i int, dst netip.Addr) int {
	at := b.found().at
	if len(at) < seekFrom || !dst.IsValid() || i >= len(at) {
		return i
	}
	d := b.byDst.Load()
	if d == nil {
		b.byDst.CompareAndSwap(nil, &plainDsts{})
		d = b.byDst.Load()
	}
	x := d.index.Load()
	if x == nil {
		if i > 0 || d.seeks.Add(1) <= mostSeeks {
			return b.seek(at, i, dst)
		}
		x = indexDsts(len(at), func(i int) (netip.Addr, bool) { return b.dst(int(at[i])) })
		d.index.Store(x)
	}
	return x.next(i, len(at), dst)
}

// seek is the first rule from i on that might match, found by looking at each.
func (b *plainBody) seek(at []uint32, i int, dst netip.Addr) int {
	for ; i < len(at); i++ {
		if a, ok := b.dst(int(at[i])); !ok || a == dst {
			break
		}
	}
	return i
}

// dst is the address of the rule that begins at an offset, if it begins with -d
// and one address.
func (b *plainBody) dst(at int) (netip.Addr, bool) {
	text := b.table.of.text[at:]
	skip := len("-A ") + len(b.chain) + 1
	if text[0] == '-' && len(text) > skip+len("-d 255.255.255.255/32 ") && text[skip:skip+3] == "-d " {
		if a, ok := plainIPv4(text[skip+3:]); ok {
			return a, true
		}
	}
	return leadingDst(b.table.of.lineFrom(at))
}

// plainIPv4 reads "a.b.c.d/32 ", as iptables-save writes the address of a host.
func plainIPv4(s string) (netip.Addr, bool) {
	var a [4]byte
	for i := range a {
		n, digits := 0, 0
		for digits < len(s) && digits < 3 && isDigit(s[digits]) {
			n, digits = n*10+int(s[digits]-'0'), digits+1
		}
		end := byte('.')
		if i == len(a)-1 {
			end = '/'
		}
		if digits == 0 || n > 255 || digits > 1 && s[0] == '0' || digits == len(s) || s[digits] != end {
			return netip.Addr{}, false
		}
		a[i], s = byte(n), s[digits+1:]
	}
	return netip.AddrFrom4(a), strings.HasPrefix(s, "32 ")
}
