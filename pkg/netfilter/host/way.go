package host

import (
	"net/netip"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Query is a packet as the routing decision sees it.
type Query struct {
	Src, Dst netip.Addr // a zero Src is any
	// In is the interface that it came in by, "" where that isn't known.
	In string
	// LocalProcess says that a process of the node's sends it.
	LocalProcess bool
}

// Way is how a packet is routed.
type Way struct {
	// Route is the route that it takes; the zero Route where there is none.
	Route Route
	// Rule refuses it, where no route does; nil otherwise.
	Rule *Rule
}

// None says that there is no route.
func (w Way) None() bool { return w.Rule == nil && w.Route.Type == "" }

// Refused says that a route or rule is there to turn the packet away.
func (w Way) Refused() bool {
	return w.Rule != nil || slices.Contains([]string{"blackhole", "unreachable", "prohibit"}, w.Route.Type)
}

// Ways are the ways that the packet may be routed: one where the rules of
// policy routing decide, more where one of them asks what isn't known (a mark).
// ok is false where the routes that would tell were not read.
func (h *Host) Ways(q Query) (ways []Way, ok bool) {
	q.Dst, q.Src = q.Dst.Unmap(), q.Src.Unmap()
	v6 := q.Dst.Is6()
	if !q.Dst.IsValid() || !h.familyRead[index(v6)] {
		return nil, false
	}
	rules, read := h.rules[index(v6)], true
	if len(rules) == 0 {
		rules, read = h.rulesByTables(v6), false
	}
	least := 0 // where a goto leads
	for i := range rules {
		r := &rules[i]
		m := r.match(q)
		if m == netfilter.False || r.Priority < least {
			continue
		}
		var way Way
		switch r.Action {
		case "nop":
			continue
		case "goto":
			if m == netfilter.Unknown {
				return nil, false
			}
			least = r.Goto
			continue
		case "blackhole", "unreachable", "prohibit":
			way.Rule = r
		case "lookup":
			if !h.tableRead(r.Table, v6) {
				if h.Local(q.Dst) == netfilter.True || r.Table != "local" && r.Table != "default" {
					return nil, false
				}
				continue
			}
			route, found := h.LookupIn(r.Table, q.Dst)
			if !found || route.Type == "throw" || r.Suppress >= 0 && route.Prefix.Bits() <= r.Suppress {
				continue
			}
			way.Route = route
		default:
			return nil, false
		}
		ways = append(ways, way)
		if m == netfilter.True {
			return ways, true
		}
	}
	if !read && !h.whole[index(v6)] {
		return nil, false // another table may have a route
	}
	return append(ways, Way{}), true
}

// rulesByTables stand in for rules that were not read: the standard ones, and
// for each further table that has routes one that may apply.
func (h *Host) rulesByTables(v6 bool) []Rule {
	out := slices.Clone(standardRules)
	for _, name := range h.tableNames {
		if !slices.Contains([]string{"local", "main", "default", "unspec"}, name) {
			out = append(out, Rule{Priority: 1, Table: name, Action: "lookup", Suppress: -1, Other: true})
		}
	}
	slices.SortStableFunc(out, func(a, b Rule) int { return a.Priority - b.Priority })
	return out
}

// tableRead says whether a table's routes are known: `ip route show table all`
// has them all, `ip route` those of table main.
func (h *Host) tableRead(name string, v6 bool) bool {
	return h.whole[index(v6)] || name == "main"
}

// LookupIn finds a table's route to the address: the longest prefix, of equals
// the least metric. Routes that the kernel passes over (dead) are none.
func (h *Host) LookupIn(table string, a netip.Addr) (Route, bool) {
	a = a.Unmap()
	t := h.tables[table]
	if t == nil {
		return Route{}, false
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		if !t.lengths[index(a.Is6())][bits] {
			continue
		}
		p, err := a.Prefix(bits)
		if err != nil {
			continue
		}
		best, found := Route{}, false
		for _, i := range t.byPrefix[p] {
			if r := h.routes[i]; !r.Dead && (!found || r.Metric < best.Metric) {
				best, found = r, true
			}
		}
		if found {
			return best, true
		}
	}
	return Route{}, false
}

// table indexes the routes of one routing table by their prefix.
type table struct {
	byPrefix map[netip.Prefix][]int
	lengths  [2][129]bool
}

// addRoute records a route.
func (h *Host) addRoute(r Route) {
	if h.tables == nil {
		h.tables = map[string]*table{}
	}
	t := h.tables[r.Table]
	if t == nil {
		t = &table{byPrefix: map[netip.Prefix][]int{}}
		h.tables[r.Table] = t
		h.tableNames = append(h.tableNames, r.Table)
	}
	p, f := r.Prefix.Masked(), index(r.Prefix.Addr().Is6())
	t.byPrefix[p] = append(t.byPrefix[p], len(h.routes))
	t.lengths[f][p.Bits()] = true
	h.routes = append(h.routes, r)
	h.routesRead, h.familyRead[f] = true, true
	if r.Table == "local" {
		h.whole[f] = true
	}
}

// Routes lists the routes of a table, in the order of the text.
func (h *Host) Routes(name string) []Route {
	var out []Route
	for _, r := range h.routes {
		if r.Table == name {
			out = append(out, r)
		}
	}
	return out
}
