package netfilter

import (
	"cmp"
	"slices"
)

// The kernel puts a base chain that is registered ahead of all that are hooked
// at the same place at the same priority (nf_hook_entries_grow; for chains of
// NAT likewise, among themselves, in nf_nat_register_fn): the newest is asked
// first. nf_tables lists its tables in the order in which they were made, and
// numbers them so, iptables-nft's among them. From that follows the order of
// base chains if each was made with its table, as kube-proxy makes them and
// iptables-nft does at a table's first use; a chain that was added to an older
// table later is taken for older than it is. When a table of x_tables was
// hooked in, nothing tells.

// lineage is what tables have in common whose order among each other is known.
type lineage struct {
	kind lineageKind
	// source is set for tables that are known by their place in it alone.
	source string
	table  *Table
}

type lineageKind uint8

const (
	unrelated lineageKind = iota // to any other table
	placed
	numbered
)

func (t *Table) lineage() lineage {
	switch {
	case t.Created == 0:
		return lineage{unrelated, "", t}
	case t.Placed:
		return lineage{placed, t.Source, nil}
	}
	return lineage{numbered, "", nil}
}

// order puts stations into the order of the kernel. At equal priority those
// whose order is known share out the places that they have among the others;
// these, whose order is not known, stay where they are.
func order(list []station) {
	slices.SortStableFunc(list, byPriority)
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && byPriority(list[from], list[to]) == 0 {
			to++
		}
		newestFirst(list[from:to])
		from = to
	}
}

// byPriority ranks stations by all but their age.
func byPriority(a, b station) int {
	return cmp.Or(byPlace(a, b), cmp.Compare(a.table.turn, b.table.turn))
}

// byPlace ranks stations by priority. Of chains of NAT the kernel sees one hook
// function, whose own age is not told: they come behind others of their
// priority.
func byPlace(a, b station) int {
	nat := func(s station) (is, prio int) {
		if s.chain.Base.Kind == NAT {
			return 1, s.chain.Base.Priority
		}
		return 0, 0
	}
	aNAT, aPrio := nat(a)
	bNAT, bPrio := nat(b)
	return cmp.Or(cmp.Compare(a.prio, b.prio), cmp.Compare(aNAT, bNAT), cmp.Compare(aPrio, bPrio))
}

// newestFirst orders stations of equal priority, each lineage by itself.
func newestFirst(list []station) {
	if len(list) < 2 {
		return
	}
	places := map[lineage][]int{}
	for i, s := range list {
		l := s.table.lineage()
		places[l] = append(places[l], i)
	}
	old := slices.Clone(list)
	for _, at := range places {
		// The last of a table's chains is its newest.
		from := slices.Clone(at)
		slices.SortFunc(from, func(i, j int) int {
			return cmp.Or(cmp.Compare(old[j].table.Created, old[i].table.Created), cmp.Compare(j, i))
		})
		for n, i := range at {
			list[i] = old[from[n]]
		}
	}
}

// Order says which of two groups of tables the kernel asks first, where both
// have base chains at one hook and one priority.
type Order uint8

const (
	// OrderUnknown: for some of them, it is not known.
	OrderUnknown Order = iota
	// OrderApart: they never meet at one priority.
	OrderApart
	// OrderFirst and OrderSecond: everywhere the first group, or the second.
	OrderFirst
	OrderSecond
	// OrderMixed: known, and not the same everywhere.
	OrderMixed
)

// Known says whether Walk takes them in the kernel's own order.
func (o Order) Known() bool { return o != OrderUnknown }

// OrderOf tells in which order the kernel asks the base chains of two groups of
// a family's tables.
func (rs *Ruleset) OrderOf(f Family, first, second func(TableInfo) bool) Order {
	out := OrderApart
	for _, list := range rs.hookTable(f).stations {
		for i, a := range list {
			for _, b := range list[i+1:] {
				o := orderOf(a, b, first, second)
				switch {
				case o == OrderUnknown:
					return OrderUnknown
				case o == OrderApart || o == out:
				case out == OrderApart:
					out = o
				default:
					out = OrderMixed
				}
			}
		}
	}
	return out
}

// orderOf is the order of a station and a later one.
func orderOf(a, b station, first, second func(TableInfo) bool) Order {
	if a.chain == nil || b.chain == nil || a.table == b.table || a.prio != b.prio {
		return OrderApart
	}
	var o Order
	switch {
	case first(a.table.TableInfo) && second(b.table.TableInfo):
		o = OrderFirst
	case second(a.table.TableInfo) && first(b.table.TableInfo):
		o = OrderSecond
	default:
		return OrderApart
	}
	switch bothNAT := a.chain.Base.Kind == NAT && b.chain.Base.Kind == NAT; {
	case bothNAT && byPlace(a, b) != 0:
		return OrderApart // by priorities of their own
	case byPlace(a, b) != 0:
		return OrderUnknown
	case a.table.turn == b.table.turn && a.table.lineage() != b.table.lineage():
		return OrderUnknown
	}
	return o
}

// Ranked is the ruleset with what created says of when its tables were made:
// see TableInfo.Created.
func (rs *Ruleset) Ranked(created func(TableInfo) int) *Ruleset {
	out := Merge(rs)
	for i, t := range out.tables {
		if rank := created(t.TableInfo); rank != t.Created || t.Placed {
			ranked := *t
			ranked.Created, ranked.Placed = rank, false
			out.tables[i] = &ranked
		}
	}
	return out
}

// Ahead is the ruleset with the tables that first picks ahead of all others at
// equal priority, whatever is known of their order: what the kernel does if
// their chains were hooked in last.
func (rs *Ruleset) Ahead(first func(TableInfo) bool) *Ruleset {
	out := Merge(rs)
	for i, t := range out.tables {
		turned := *t
		turned.turn = 1
		if first(t.TableInfo) {
			turned.turn = 0
		}
		out.tables[i] = &turned
	}
	return out
}
