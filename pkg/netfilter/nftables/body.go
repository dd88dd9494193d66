package nftables

import (
	"net/netip"
	"sync/atomic"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// body gives a chain's rules, each parsed when it is first asked for. Two
// goroutines may both parse a rule; they get equal ones.
type body struct {
	table *tableIndex
	chain *chainIndex
	cache atomic.Pointer[[]atomic.Pointer[netfilter.Rule]]
}

// Len is the number of rules.
func (b *body) Len() int { return int(b.chain.to - b.chain.from) }

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
	r, _ := b.table.parseRule(int(b.table.rules[int(b.chain.from)+i].at))
	(*cache)[i].Store(r)
	return r
}

// Next skips nothing: nftables looks up addresses in maps, not in long chains.
func (b *body) Next(i int, _ netip.Addr) int { return i }
