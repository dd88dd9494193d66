package netfilter

import (
	"fmt"
	"net/netip"
)

// stationStep takes the packet to its next base chain, hook, or end.
func (l *leg) stationStep() {
	s := l.s
	list := l.hooks.stations[s.Hook]
	if s.station >= len(list) {
		l.leaveHook()
		return
	}
	at := list[s.station]
	switch at.kind {
	case chainStation:
		if at.chain.Base.Kind == NAT && !natSees(s) {
			s.station++
			return
		}
		l.at = frame{table: at.table, chain: at.chain}
		return
	case conntrackStation:
		s.tracked = !s.untracked
	case natEndStation:
		if s.Hook == Prerouting || s.Hook == Output {
			s.dstBound = true
		} else {
			s.srcBound = true
		}
	case natUnreadStation:
		l.natUnread(note{table: l.hooks.noNAT, why: "table nat is not in the input"})
		return
	case unreadStation:
		l.baseUnread(at)
		return
	case ipvsStation:
		l.ipvs()
		return
	}
	s.station++
}

// natSees says whether the kernel consults NAT chains at this hook: once for
// each direction of rewriting, and not for packets that aren't tracked.
func natSees(s *State) bool {
	if !s.Tracked() {
		return false
	}
	if s.Hook == Prerouting || s.Hook == Output {
		return !s.dstBound
	}
	return !s.srcBound
}

// natUnread stands where a nat table would have been: it may have rewritten
// the packet to anything, or not at all.
func (l *leg) natUnread(n note) {
	s := l.s
	n.unknown = true
	s.station++
	if !natSees(s) {
		return
	}
	if s.Hook == Postrouting {
		s.srcMaybe = true
		l.notes = append(l.notes, n)
		return
	}
	rewritten := s.Flow
	rewritten.Dst, rewritten.DstPortUnknown = netip.Addr{}, true
	rewritten.dnat, rewritten.dstBound, rewritten.dstLocal = true, true, Unknown
	l.end(l.worlds(l.run(frame{}, rewritten), l.run(frame{}, s.Flow), n))
}

// baseUnread stands where a base chain would have been of a table that the
// input shows in part. A filter chain may have stopped the packet.
func (l *leg) baseUnread(at station) {
	n := note{table: at.table, chain: at.chain, why: fmt.Sprintf("chain %s of table %s is not in the input", at.chain.Name, at.table.Name)}
	if at.chain.Base.Kind == NAT {
		l.natUnread(n)
		return
	}
	l.doubt(n)
	l.s.station++
}

// leaveHook is the routing decision, and the way on to the next hook.
func (l *leg) leaveHook() {
	s := l.s
	next := route(s)
	switch {
	case next.undecided:
		l.bothWays()
		return
	case next.done:
		l.finish(l.arrived())
		return
	}
	enter(s, next.hook)
	if next.hook == Forward {
		l.forwarding()
	}
}

// bothWays follows the packet as one to the node itself, and as one to
// elsewhere.
func (l *leg) bothWays() {
	here, away := l.s.Flow, l.s.Flow
	here.dstLocal, away.dstLocal = True, False
	why := "whether the destination is an address of this node is not known"
	if l.s.Dst.IsValid() {
		why = fmt.Sprintf("whether %s is an address of this node is not known", l.s.Dst)
	}
	n := note{text: "routing decision", why: why, unknown: true}
	l.end(l.worlds(l.run(frame{}, here), l.run(frame{}, away), n))
}

// forwarding drops the packet where the node doesn't forward. Where that isn't
// known the node is taken to forward, and the doubt is listed.
func (l *leg) forwarding() {
	v6 := l.packet.Dst.Is6()
	name := "net.ipv4.ip_forward"
	if v6 {
		name = "net.ipv6.conf.all.forwarding"
	}
	fwd := Unknown
	if l.host != nil {
		fwd = l.host.Forwarding(v6)
	}
	switch fwd {
	case False:
		l.notes = append(l.notes, note{text: name + "=0"})
		l.finish(l.result(l.s, Drop))
	case Unknown:
		l.notes = append(l.notes, note{text: name, why: "whether this node forwards is not known; taken as yes", unknown: true})
	}
}

// arrived is the end of a packet that every hook let pass.
func (l *leg) arrived() result {
	s := l.s
	r := l.result(s, None)
	switch {
	case s.dnat:
		r.verdict = DNAT
	case s.spoken:
		r.verdict = Accept
	}
	var doubts []note
	if l.hooks.filterUnread {
		doubts = append(doubts, note{table: l.hooks.noFilter, why: "table filter is not in the input", unknown: true})
		if !s.dnat {
			r.verdict = Undecided
		}
	}
	if s.doubt && !s.dnat {
		r.verdict = Undecided
	}
	if l.hooks.legacyUnread {
		doubts = append(doubts, note{text: "# Warning: iptables-legacy tables present", why: "the legacy tables are not in the input", unknown: true})
	}
	r.trail = l.before(doubts, nil)
	return r
}
