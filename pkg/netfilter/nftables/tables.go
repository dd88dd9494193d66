package nftables

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Listed is one table as nft list tables shows it.
type Listed struct {
	// Family is nft's: ip, ip6, inet, arp, bridge, netdev.
	Family, Name string
	// Handle is the number that the kernel gave it, 0 where it is not shown.
	Handle int
}

// ReadTables reads what nft list tables prints, as JSON (-j) or text, with
// handles (-a) or without. The tables are in the order in which they were made.
// It is false for any other text, of nft as well.
func ReadTables(text string) ([]Listed, bool) {
	if looksJSON(text) {
		return readTablesJSON(text)
	}
	var out []Listed
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
			continue
		case len(f) < 3 || f[0] != "table" || len(f) > 3 && (f[3] != "#" || f[2] == "{"), len(f) == 3 && f[2] == "{":
			return nil, false
		}
		t := Listed{Family: f[1], Name: f[2]}
		if len(f) == 6 && f[4] == "handle" {
			t.Handle = handleOf(f[5])
		}
		out = append(out, t)
	}
	return out, true
}

func readTablesJSON(text string) ([]Listed, bool) {
	r := jsonReader{text: text}
	if !r.listOf("nftables") {
		return nil, false
	}
	var out []Listed
	for first := true; !r.sign(']'); first = false {
		var n node
		if !first && !r.sign(',') || !r.value(&n) {
			return nil, false
		}
		switch o := n.only(); {
		case o == nil:
			return nil, false
		case o.key == "table":
			out = append(out, Listed{Family: o.str("family"), Name: o.str("name"), Handle: handleOf(o.str("handle"))})
		case o.key != "metainfo":
			return nil, false
		}
	}
	return out, r.sign('}')
}

// handleOf is a handle, 0 for what is none.
func handleOf(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// TablesOf lists the tables of what Parse made of one node's texts, as far as
// their order is known: by their handles or, in a single text, by their place.
// Otherwise it lists none.
func TablesOf(parts ...*netfilter.Ruleset) []Listed {
	var tables []netfilter.TableInfo
	for _, p := range parts {
		tables = append(tables, p.Tables()...)
	}
	noHandle := func(t netfilter.TableInfo) bool { return t.Created == 0 || t.Placed }
	byPlace := slices.ContainsFunc(tables, noHandle)
	if byPlace && len(parts) > 1 {
		return nil
	}
	slices.SortStableFunc(tables, func(a, b netfilter.TableInfo) int { return cmp.Compare(a.Created, b.Created) })
	var out []Listed
	for _, t := range tables {
		l := Listed{Family: t.Listed, Name: t.Name}
		if !byPlace {
			l.Handle = t.Created
		}
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// Rank tells the tables of nf_tables in a ruleset which of them is newer, from
// a list of the node's: those that nft listed, and those that iptables-nft-save
// shows, which nft has under the same name.
func Rank(rs *netfilter.Ruleset, tables []Listed) *netfilter.Ruleset {
	if len(tables) == 0 {
		return rs
	}
	numbered := !slices.ContainsFunc(tables, func(t Listed) bool { return t.Handle == 0 })
	rank := map[tableKey]int{}
	for i, t := range tables {
		n := i + 1
		if numbered {
			n = t.Handle
		}
		rank[tableKey{t.Family, t.Name}] = n
	}
	return rs.Ranked(func(t netfilter.TableInfo) int {
		if t.Backend != netfilter.NFT {
			return 0
		}
		n := rank[tableKey{cmp.Or(t.Listed, nftFamily(t.Family)), t.Name}]
		if n == 0 && numbered && !t.Placed {
			return t.Created // made after the list was
		}
		return n
	})
}

// nftFamily is the family that iptables-nft makes its tables in.
func nftFamily(f netfilter.Family) string {
	if f == netfilter.IPv6 {
		return "ip6"
	}
	return "ip"
}
