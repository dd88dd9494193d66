package iptables

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// body gives a chain's rules, each parsed when it is first asked for. Two
// goroutines may both parse a rule; they get equal ones.
type body struct {
	source *indexer
	table  *tableIndex
	chain  *chainIndex
	cache  atomic.Pointer[[]atomic.Pointer[netfilter.Rule]]
	byDst  atomic.Pointer[dstIndex]
}

// Len is the number of rules.
func (b *body) Len() int { return b.chain.len() }

// place is where rule i stands.
func (b *body) place(i int) place { return b.source.rules[b.chain.at(i)] }

// Rule parses rule i, or gives it as it was parsed before.
func (b *body) Rule(i int) *netfilter.Rule {
	cache := b.cache.Load()
	if cache == nil {
		fresh := make([]atomic.Pointer[netfilter.Rule], b.Len())
		if !b.cache.CompareAndSwap(nil, &fresh) {
			fresh = *b.cache.Load()
		}
		cache = &fresh
	}
	if r := (*cache)[i].Load(); r != nil {
		return r
	}
	r, _ := b.source.parseRule(b.table, b.chain.name, b.place(i))
	(*cache)[i].Store(r)
	return r
}

// indexFrom is the number of rules from which on a chain is worth an index by
// destination.
const indexFrom = 32

// dstIndex tells which rules of a chain a packet to an address might match:
// those that begin with -d and that one address, and all that do not begin
// with -d and one address.
type dstIndex struct {
	hosts map[netip.Addr][2]int32 // from and to in one
	one   []int32                 // rules for one address, by address, in order
	other []int32
}

// next is the first rule from i on, of n, that a packet to dst might match.
func (x *dstIndex) next(i, n int, dst netip.Addr) int {
	h := x.hosts[dst]
	return min(firstFrom(x.one[h[0]:h[1]], i, n), firstFrom(x.other, i, n))
}

// firstFrom is the first of sorted indexes that is at least i; n if none is.
func firstFrom(sorted []int32, i, n int) int {
	at, _ := slices.BinarySearch(sorted, int32(i))
	if at == len(sorted) {
		return n
	}
	return int(sorted[at])
}

// indexDsts makes the index of n rules, whose single addresses dst gives.
func indexDsts(n int, dst func(int) (netip.Addr, bool)) *dstIndex {
	x := &dstIndex{hosts: make(map[netip.Addr][2]int32, n)}
	addrs := make([]netip.Addr, n)
	for i := range n {
		a, ok := dst(i)
		if !ok {
			x.other = append(x.other, int32(i))
			continue
		}
		addrs[i] = a
		h := x.hosts[a]
		h[1]++ // the number, for now
		x.hosts[a] = h
	}
	x.one = make([]int32, n-len(x.other))
	free := int32(0)
	for i, a := range addrs {
		if !a.IsValid() {
			continue
		}
		h := x.hosts[a]
		if h[0] == 0 { // not placed yet; places are kept plus 1 until all are
			h = [2]int32{free + 1, free + 1}
			free += x.hosts[a][1]
		}
		x.one[h[1]-1] = int32(i)
		h[1]++
		x.hosts[a] = h
	}
	for a, h := range x.hosts {
		x.hosts[a] = [2]int32{h[0] - 1, h[1] - 1}
	}
	return x
}

// Next skips rules for other destinations, in chains that are long.
func (b *body) Next(i int, dst netip.Addr) int {
	n := b.Len()
	if n < indexFrom || !dst.IsValid() || i >= n {
		return i
	}
	x := b.byDst.Load()
	if x == nil {
		x = indexDsts(n, func(i int) (netip.Addr, bool) { return leadingDst(b.source.lineAt(int(b.place(i).offset))) })
		b.byDst.Store(x)
	}
	return x.next(i, n, dst)
}

// leadingDst reads the address of a rule that begins with "-A CHAIN -d ADDR",
// where it is a single one. Any other rule is left to be evaluated.
func leadingDst(line string) (netip.Addr, bool) {
	rest, ok := strings.CutPrefix(afterCounters(line), "-A ")
	if !ok {
		return netip.Addr{}, false
	}
	_, rest = word(rest)
	rest, ok = strings.CutPrefix(rest, "-d ")
	if !ok {
		return netip.Addr{}, false
	}
	v, _ := word(rest)
	addr, bits, masked := strings.Cut(v, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, false
	}
	if masked && !(bits == "32" && a.Is4() || bits == "128" && a.Is6()) {
		return netip.Addr{}, false
	}
	return a, true
}
