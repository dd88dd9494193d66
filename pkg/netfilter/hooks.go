package netfilter

import "slices"

// Priorities at which the kernel itself acts (linux/netfilter_ipv4.h).
const (
	prioConntrack = -200
	prioDstNAT    = -100
	prioSrcNAT    = 100
)

// hookTable is, for one family, what a packet meets at each hook.
type hookTable struct {
	stations map[Hook][]station
	// natUnread, filterUnread: no such table was in the input.
	natUnread, filterUnread bool
	legacyUnread            bool
	// noNAT and noFilter stand for these tables in what could not be decided.
	noNAT, noFilter *Table
}

type stationKind uint8

const (
	chainStation     stationKind = iota
	conntrackStation             // conntrack sees the packet
	natUnreadStation             // here a NAT table would be, had it been read
	unreadStation                // here a base chain would be, had it been read
	natEndStation                // whatever NAT did not rewrite stays as it is
	ipvsStation                  // IPVS looks for a virtual server
)

type station struct {
	kind  stationKind
	prio  int
	table *Table
	chain *ChainDef
}

// hookTable builds the stations of a family, once.
func (rs *Ruleset) hookTable(f Family) *hookTable {
	rs.hooksOnce.Do(func() {
		rs.hooks = map[Family]*hookTable{}
		for _, f := range []Family{IPv4, IPv6} {
			rs.hooks[f] = rs.buildHooks(f)
		}
	})
	return rs.hooks[f]
}

func (rs *Ruleset) buildHooks(f Family) *hookTable {
	h := &hookTable{
		stations:     map[Hook][]station{},
		natUnread:    !rs.read(f, "nat"),
		filterUnread: !rs.read(f, "filter"),
		legacyUnread: rs.legacyMissing(f),
		noNAT:        NewTable(TableInfo{Name: "nat", Family: f}, nil, nil),
		noFilter:     NewTable(TableInfo{Name: "filter", Family: f}, nil, nil),
	}
	add := func(hook Hook, s station) { h.stations[hook] = append(h.stations[hook], s) }
	for _, t := range rs.tables {
		if t.Family != f {
			continue
		}
		for _, c := range t.chains.Based() {
			switch c.Base.Kind {
			case NAT:
				h.natUnread = false
			case Filtering:
				h.filterUnread = false
			}
			add(c.Base.Hook, station{prio: hookPriority(c.Base), table: t, chain: c})
		}
		for i := range t.unread {
			c := &t.unread[i]
			add(c.Base.Hook, station{kind: unreadStation, prio: hookPriority(c.Base), table: t, chain: c})
		}
	}
	for _, s := range h.stations {
		order(s)
	}
	for _, hook := range []Hook{Prerouting, Output} {
		h.insert(hook, station{kind: conntrackStation, prio: prioConntrack})
		if h.natUnread {
			h.insert(hook, station{kind: natUnreadStation, prio: prioDstNAT})
		}
		h.insert(hook, station{kind: natEndStation, prio: prioDstNAT})
	}
	for _, hook := range []Hook{Input, Postrouting} {
		if h.natUnread && hook == Postrouting {
			h.insert(hook, station{kind: natUnreadStation, prio: prioSrcNAT})
		}
		h.insert(hook, station{kind: natEndStation, prio: prioSrcNAT})
	}
	h.addIPVS(rs)
	return h
}

// insert puts s after every station of the same or a lower priority, except
// that conntrack comes before chains of its own priority.
func (h *hookTable) insert(hook Hook, s station) {
	list := h.stations[hook]
	i := 0
	for i < len(list) && (list[i].prio < s.prio || list[i].prio == s.prio && s.kind != conntrackStation) {
		i++
	}
	h.stations[hook] = slices.Insert(list, i, s)
}

// hookPriority is the priority at which the kernel runs the chain: all nat
// chains of a hook are run by one hook function at a fixed priority
// (nf_nat_inet_fn), in order of their own.
func hookPriority(b *Base) int {
	if b.Kind != NAT {
		return b.Priority
	}
	if b.Hook == Prerouting || b.Hook == Output {
		return prioDstNAT
	}
	return prioSrcNAT
}

// nextHook is where a packet goes after the last station of its hook.
type nextHook struct {
	hook Hook
	// undecided: it is not known whether the destination is the node's own, so
	// the packet goes to INPUT or to FORWARD (or, for the node's own packets,
	// leaves or comes back through lo).
	undecided bool
	done      bool
}

// route is the routing decision and what follows on each hook.
func route(s *State) nextHook {
	switch s.Hook {
	case Prerouting:
		if s.loopback {
			return nextHook{hook: Input}
		}
		switch s.LocalDst() {
		case True:
			return nextHook{hook: Input}
		case False:
			return nextHook{hook: Forward}
		}
		return nextHook{undecided: true}
	case Forward:
		return nextHook{hook: Postrouting}
	case Output:
		if s.LocalDst() == Unknown {
			return nextHook{undecided: true}
		}
		return nextHook{hook: Postrouting}
	case Postrouting:
		if s.Packet.LocalProcess && !s.loopback && s.LocalDst() == True {
			return nextHook{hook: Prerouting}
		}
	}
	return nextHook{done: true}
}

// enter moves the flow to a hook.
func enter(s *State, hook Hook) {
	from := s.Hook
	s.Hook, s.station = hook, 0
	switch {
	case hook == Forward:
		s.Out = s.routeTo()
	case hook == Postrouting && from == Output:
		s.Out = s.routeTo() // the DNAT of OUTPUT routes the packet again
	case hook == Prerouting: // back in through lo
		s.loopback, s.In, s.Out = true, "lo", ""
	case hook == Input:
		s.Out = ""
	}
}

// routeTo is the interface towards the present destination, "" if not known.
func (s *State) routeTo() string {
	if s.Packet.LocalProcess && s.LocalDst() == True {
		return "lo"
	}
	if !s.Dst.IsValid() || s.Host == nil {
		return ""
	}
	return s.Host.Route(s.Dst)
}
