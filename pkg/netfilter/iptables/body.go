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
	hosts map[netip.Addr][]int32
	other []int32
}

// Next skips rules for other destinations, in chains that are long.
func (b *body) Next(i int, dst netip.Addr) int {
	n := b.Len()
	if n < indexFrom || !dst.IsValid() || i >= n {
		return i
	}
	x := b.byDst.Load()
	if x == nil {
		x = b.indexByDst()
		b.byDst.Store(x)
	}
	return min(firstFrom(x.hosts[dst], i, n), firstFrom(x.other, i, n))
}

// firstFrom is the first of sorted indexes that is at least i; n if none is.
func firstFrom(sorted []int32, i, n int) int {
	at, _ := slices.BinarySearch(sorted, int32(i))
	if at == len(sorted) {
		return n
	}
	return int(sorted[at])
}

func (b *body) indexByDst() *dstIndex {
	x := &dstIndex{hosts: make(map[netip.Addr][]int32, b.Len())}
	for i := range b.Len() {
		if a, ok := leadingDst(b.source.lineAt(int(b.place(i).offset))); ok {
			x.hosts[a] = append(x.hosts[a], int32(i))
		} else {
			x.other = append(x.other, int32(i))
		}
	}
	return x
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
