package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// Family is an address family.
type Family uint8

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return fmt.Sprintf("family %d", uint8(f))
}

// Backend is the kernel interface that a table lives in. A node may use both;
// the kernel runs the chains of both at every hook.
type Backend string

const (
	// Legacy is x_tables: iptables-legacy.
	Legacy Backend = "legacy"
	// NFT is nf_tables, written by iptables-nft or by nft.
	NFT Backend = "nft"
	// AnyBackend is a table whose text does not tell.
	AnyBackend Backend = ""
)

// Kind is what a base chain is for.
type Kind uint8

const (
	// Filtering chains decide; an ACCEPT in one speaks of the packet.
	Filtering Kind = iota
	// NAT chains see only the first packet of a connection, and only as long
	// as no NAT chain has settled it.
	NAT
	// Preparing chains (raw, mangle, security) come before and beside: an
	// ACCEPT in one only ends the chain.
	Preparing
)

// Base is how a base chain is hooked into the kernel.
type Base struct {
	Hook     Hook
	Priority int
	Kind     Kind
}

// TableInfo says what a table is and where it was read.
type TableInfo struct {
	// Source names the text, as Steps will quote it.
	Source  string
	Name    string
	Family  Family
	Backend Backend
	// Line is where the table starts in its Source.
	Line int
	// CutAt is the last line of a table whose end is not in the input; 0 when
	// the table is whole. Nothing is concluded from what may be cut off.
	CutAt int
	// Compat: a table of iptables-nft, read from nft's own listing, which does
	// not show all of its rules. iptables-save does.
	Compat bool
	// Listed is the family that nft has for a table of its own listing: ip, ip6
	// or inet, which is of both address families. "" for any other text.
	Listed string
	// Created ranks nf_tables' tables by when they were made: a greater one is
	// newer. 0 where it is not known, as it never is of x_tables.
	Created int
	// Placed: Created is the table's place in its text. It then tells nothing of
	// tables of another Source.
	Placed bool
}

// Body gives the rules of a chain. Implementations are safe for concurrent
// use, so that a Ruleset is.
type Body interface {
	Len() int
	// Rule is the i-th rule, from 0.
	Rule(i int) *Rule
	// Next is the first index from i on whose rule a packet to dst might
	// match, or Len. It may skip only rules that certainly do not match; the
	// zero Addr is a destination that is not known.
	Next(i int, dst netip.Addr) int
}

// Rules is a Body that is all there.
type Rules []Rule

// Len is the number of rules.
func (b Rules) Len() int { return len(b) }

// Rule is the i-th rule.
func (b Rules) Rule(i int) *Rule { return &b[i] }

// Next skips nothing.
func (b Rules) Next(i int, _ netip.Addr) int { return i }

// ChainDef defines a chain of a Table.
type ChainDef struct {
	Name string
	// Declared: the text declares the chain (":NAME ..."), on line Line. A
	// chain with rules and no declaration comes from a text that was filtered.
	Declared bool
	Line     int
	// Base is set for a chain that the kernel itself calls.
	Base *Base
	// Policy is what becomes of a packet at the end of a base chain: ACCEPT or
	// DROP; "" when not known.
	Policy string
	Body   Body
	// Cut: rules may be missing after the last, and why.
	Cut string
}

func (c *ChainDef) len() int {
	if c.Body == nil {
		return 0
	}
	return c.Body.Len()
}

// Table is one table of one family and backend.
type Table struct {
	TableInfo
	chains Chains
	unread []ChainDef
	// turn: see Ahead.
	turn int8
}

// NewTable makes a table of chains. index gives each chain's place by name; it
// is built when nil. The table keeps both.
func NewTable(info TableInfo, chains []ChainDef, index map[string]int32) *Table {
	if index == nil {
		index = make(map[string]int32, len(chains))
		for i := range chains {
			index[chains[i].Name] = int32(i)
		}
	}
	return &Table{TableInfo: info, chains: &chainList{chains, index}}
}

// TableOf makes a table of chains that are made when they are asked for.
func TableOf(info TableInfo, chains Chains) *Table {
	return &Table{TableInfo: info, chains: chains}
}

// Lacks says which base chains the table may have that the input doesn't show.
// A packet that would pass one may meet anything there. It is to be called
// before the table is used.
func (t *Table) Lacks(base []ChainDef) { t.unread = base }

func (t *Table) chain(name string) *ChainDef { return t.chains.Chain(name) }

// Ruleset is all that was read of one node's rules: tables of any family and
// backend. It is not changed after it was made, and safe for concurrent use.
type Ruleset struct {
	tables []*Table
	// whole are the families for which a table that isn't here doesn't exist.
	whole map[Family]bool
	// legacyUnread are the families whose iptables-nft text warned of legacy
	// tables.
	legacyUnread map[Family]bool
	sets         Sets
	// virtual are the node's virtual servers, nil where none were read;
	// virtualUnread says why, where it is known that there may be some.
	virtual       *VirtualServers
	virtualUnread string

	walkers   sync.Pool // of *walker: their memory serves again
	hooksOnce sync.Once
	hooks     map[Family]*hookTable
}

// Contents describes what a text gave besides its tables.
type Contents struct {
	// Whole: the text is all that there is of the family, so that a table it
	// lacks does not exist. Otherwise such a table was not read.
	Whole bool
	// LegacyPresent: the text says that legacy tables exist as well.
	LegacyPresent bool
	Family        Family
}

// New makes a ruleset of tables.
func New(contents []Contents, tables ...*Table) *Ruleset {
	rs := &Ruleset{tables: tables, whole: map[Family]bool{}, legacyUnread: map[Family]bool{}}
	for _, c := range contents {
		if c.Whole {
			rs.whole[c.Family] = true
		}
		if c.LegacyPresent {
			rs.legacyUnread[c.Family] = true
		}
	}
	return rs
}

// Merge makes one ruleset of several texts' (IPv4 and IPv6, legacy and nft).
// Where it is not known in which order the kernel asks chains of equal priority
// (see TableInfo.Created), those of earlier parts come first.
func Merge(parts ...*Ruleset) *Ruleset {
	out := New(nil)
	for _, p := range parts {
		if p == nil {
			continue
		}
		out.tables = append(out.tables, p.tables...)
		for f := range p.whole {
			out.whole[f] = true
		}
		for f := range p.legacyUnread {
			out.legacyUnread[f] = true
		}
		if p.sets != nil {
			out.sets = p.sets
		}
		if p.virtual != nil || p.virtualUnread != "" {
			out.virtual, out.virtualUnread = p.virtual, p.virtualUnread
		}
	}
	return out
}

// WithSets is the ruleset with the contents of its named sets.
func (rs *Ruleset) WithSets(s Sets) *Ruleset {
	out := Merge(rs)
	out.sets = s
	return out
}

// Only is the part of the ruleset whose tables keep accepts: one family, one
// backend, one source.
func (rs *Ruleset) Only(keep func(TableInfo) bool) *Ruleset {
	out := Merge(rs)
	out.tables = slices.DeleteFunc(slices.Clone(rs.tables), func(t *Table) bool { return !keep(t.TableInfo) })
	return out
}

// OnlyFamily is the part of the ruleset of one family.
func (rs *Ruleset) OnlyFamily(f Family) *Ruleset {
	return rs.Only(func(t TableInfo) bool { return t.Family == f })
}

// read says whether a table of that name was in the input of the family, or
// is known not to exist.
func (rs *Ruleset) read(f Family, name string) bool {
	return rs.whole[f] || rs.HasTable(f, name)
}

// legacyMissing says that legacy tables of the family exist but were not read.
func (rs *Ruleset) legacyMissing(f Family) bool {
	return rs.legacyUnread[f] && !slices.ContainsFunc(rs.tables, func(t *Table) bool {
		return t.Family == f && t.Backend == Legacy
	})
}
