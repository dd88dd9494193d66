package netfilter

import (
	"fmt"
	"net/netip"
)

// Priorities of IPVS's own hooks: in LOCAL_IN after the filter chains, in
// LOCAL_OUT between nat and filter (net/netfilter/ipvs/ip_vs_core.c,
// ip_vs_ops4).
const (
	prioIPVSInput  = prioSrcNAT - 1
	prioIPVSOutput = prioDstNAT + 2
)

// vsConntrack says whether IPVS lets connection tracking see what it sends; it
// is off unless someone turns it on, as kube-proxy does.
const vsConntrack = "net.ipv4.vs.conntrack"

// Sysctler is what a Host may know besides: the value of a setting by its dotted
// name, if it was read.
type Sysctler interface {
	Sysctl(name string) (string, bool)
}

// WithVirtualServers is the ruleset of a node with what its IPVS holds. Where
// the node is known to have none, v is an empty list.
func (rs *Ruleset) WithVirtualServers(v *VirtualServers) *Ruleset {
	out := Merge(rs)
	out.virtual, out.virtualUnread = v, ""
	return out
}

// WithoutVirtualServers is the ruleset of a node that has IPVS whose virtual
// servers were not read, and why: where IPVS may take a packet, what becomes of
// it is Undecided.
func (rs *Ruleset) WithoutVirtualServers(why string) *Ruleset {
	out := Merge(rs)
	out.virtual, out.virtualUnread = nil, why
	return out
}

// VirtualServers are those that the ruleset was given; nil where none were.
func (rs *Ruleset) VirtualServers() *VirtualServers { return rs.virtual }

// ipvsTable names IPVS in a walk's steps, where rules have a table.
const ipvsTable = "ipvs"

// VirtualChain begins what a walk's steps through IPVS have for a chain; the
// virtual server's name follows.
const VirtualChain = "virtual server "

// place gives a virtual server the table and chain under which steps quote it.
func (v *VirtualServers) place() {
	tables := map[string]*Table{}
	for _, s := range v.list {
		if s.table != nil {
			continue // it has its place from the list that it was in before
		}
		t := tables[s.Source]
		if t == nil {
			t = NewTable(TableInfo{Source: s.Source, Name: ipvsTable}, nil, nil)
			tables[s.Source] = t
		}
		s.table, s.chain = t, &ChainDef{Name: VirtualChain + s.Name(), Line: s.Line}
	}
}

// Name is "10.96.0.1:443/tcp", or "mark 5".
func (v *VirtualServer) Name() string {
	if v.Mark != 0 {
		return fmt.Sprintf("mark %d", v.Mark)
	}
	switch v.Protocol {
	case protoTCP:
		return v.Addr.String() + "/tcp"
	case protoUDP:
		return v.Addr.String() + "/udp"
	case protoSCTP:
		return v.Addr.String() + "/sctp"
	}
	return fmt.Sprintf("%s/%d", v.Addr, v.Protocol)
}

func (v *VirtualServer) note() note {
	return note{table: v.table, chain: v.chain, line: v.Line, text: v.Text}
}

// addIPVS puts IPVS at its places in the hooks.
func (h *hookTable) addIPVS(rs *Ruleset) {
	if rs.virtual == nil && rs.virtualUnread == "" {
		return
	}
	h.insert(Input, station{kind: ipvsStation, prio: prioIPVSInput})
	h.insert(Output, station{kind: ipvsStation, prio: prioIPVSOutput})
}

// ipvs is where the kernel looks for a virtual server.
func (l *leg) ipvs() {
	s := l.s
	switch {
	case s.served != nil, s.Protocol != protoTCP && s.Protocol != protoUDP && s.Protocol != protoSCTP:
		s.station++
		return
	case s.Virtual == nil:
		l.notInIPVS(l.rs.virtualUnread)
		return
	}
	v, known := s.Virtual.takes(s)
	switch {
	case v == nil && known:
		s.station++
	case v == nil:
		why := s.Virtual.partial
		if why == "" {
			why = "which virtual server takes it hangs on its destination, which is not known"
		}
		l.notInIPVS(why)
	case !known:
		l.notes = append(l.notes, v.note())
		l.notInIPVS("another virtual server may take it: " + s.Virtual.partial)
	default:
		l.serve(v)
	}
}

// notInIPVS ends the leg where a virtual server may take the packet that was not
// read.
func (l *leg) notInIPVS(why string) {
	l.notes = append(l.notes, note{text: "IPVS", why: why, unknown: true})
	r := l.result(l.s, Undecided)
	r.to, r.rewritten, r.masq = netip.AddrPort{}, false, Unknown
	l.finish(r)
}

// serve schedules the packet to the virtual server's real servers.
func (l *leg) serve(v *VirtualServer) {
	l.notes = append(l.notes, v.note())
	if v.Cut != "" {
		l.notInIPVS(v.Cut)
		return
	}
	if v.Mark == 0 && v.Addr.Port() == 0 && !v.Persistent {
		// The kernel serves every port only where clients stay with what they drew.
		l.refuse()
		return
	}
	draws, why := v.schedule()
	if why != "" {
		n := v.note()
		n.why, n.unknown = why, true
		l.notes = append(l.notes, n)
	}
	if len(draws) == 1 {
		l.draw(v, draws[0].real)
		return
	}
	var all []result
	for _, d := range draws {
		one := l.leg(frame{}, l.s.Flow, d.p)
		one.draw(v, d.real)
		if !one.done {
			one.end(l.run(one.at, one.s.Flow))
		}
		all = append(all, one.results...)
		l.leave(one)
	}
	l.end(all)
}

// refuse answers as the kernel does where no real server is usable.
func (l *leg) refuse() {
	r := l.result(l.s, Reject)
	r.rejectWith = l.defaultReject()
	l.finish(r)
}

// draw sends the packet to one real server; nil is none.
func (l *leg) draw(v *VirtualServer, r *RealServer) {
	if r == nil {
		l.refuse()
		return
	}
	s := l.s
	l.notes = append(l.notes, note{table: v.table, chain: v.chain, line: r.Line, text: r.Text})
	s.served, s.servedBy, s.spoken = v, r, true
	local := s.local(r.Addr.Addr())
	switch {
	case r.Method == LocalNode, local == True && (r.Method == DirectRoute || r.Method == Tunnel):
		s.dstLocal = True
		s.station++
	case r.Method == Masq:
		l.masq(v, r, local)
	case r.Method == "":
		l.undecided(note{table: v.table, chain: v.chain, line: r.Line, text: r.Text, why: "the text does not show how packets are forwarded to the real server"})
	default:
		l.undecided(note{table: v.table, chain: v.chain, line: r.Line, text: r.Text, why: fmt.Sprintf(
			"by method %s the packet goes to %s with its destination as it was (%s): whether that takes it is not the node's to tell",
			r.Method, r.Addr.Addr(), netip.AddrPortFrom(s.Dst, s.DstPort))})
	}
}

// masq rewrites the destination, and sends the packet out through OUTPUT, or on
// to the node itself.
func (l *leg) masq(v *VirtualServer, r *RealServer, local Tri) {
	s := l.s
	port := s.DstPort
	if r.Addr.Port() != 0 && (!v.Persistent || s.DstPort == v.Addr.Port()) {
		port = r.Addr.Port()
	}
	if r.Addr.Addr() != s.Dst || port != s.DstPort {
		s.byIPVS = !s.dnat
		s.dnat, s.dstBound = true, true
		s.Dst, s.DstPort, s.DstPortUnknown = r.Addr.Addr(), port, false
	}
	// ip_vs_xmit.c: neither to the outside from a loopback address, nor to one
	// from outside.
	if s.Src.IsLoopback() && local == False || r.Addr.Addr().IsLoopback() && !s.Packet.LocalProcess {
		l.notes = append(l.notes, note{table: v.table, chain: v.chain, line: r.Line, text: "IPVS does not forward across the node's loopback"})
		l.finish(l.result(s, Drop))
		return
	}
	tracked, untracked := s.Flow, s.Flow
	untracked.untracked = true
	switch vsTracks(s.Host) {
	case True:
		s.Flow = tracked
	case False:
		l.notes = append(l.notes, note{text: vsConntrack + "=0"})
		s.Flow = untracked
	default:
		n := note{text: vsConntrack, why: "whether connection tracking sees what IPVS sends is not known", unknown: true}
		l.end(l.worlds(l.sendOut(tracked, local), l.sendOut(untracked, local), n))
		return
	}
	if local == Unknown {
		l.end(l.sendOut(s.Flow, local))
		return
	}
	s.Flow = leave(s, s.Flow, local)
}

func vsTracks(h Host) Tri {
	if sys, ok := h.(Sysctler); ok {
		if v, read := sys.Sysctl(vsConntrack); read {
			return Of(v != "0")
		}
	}
	return Unknown
}

// sendOut follows a rewritten packet to its end; both ways where it isn't known
// whether the real server is the node itself.
func (l *leg) sendOut(f Flow, local Tri) []result {
	if local != Unknown {
		return l.run(frame{}, leave(l.s, f, local))
	}
	n := note{text: "routing decision", why: fmt.Sprintf("whether %s is an address of this node is not known", f.Dst), unknown: true}
	return l.worlds(l.run(frame{}, leave(l.s, f, True)), l.run(frame{}, leave(l.s, f, False)), n)
}

// leave is where a rewritten packet goes on: at the same hook where the real
// server is the node itself, else at the beginning of OUTPUT.
func leave(s *State, f Flow, local Tri) Flow {
	f.dstLocal = local
	if local == True {
		f.station++
		return f
	}
	f.Hook, f.station, f.In, f.Out = Output, 0, "", ""
	if s.Host != nil {
		f.Out = s.Host.Route(f.Dst)
	}
	return f
}

// Virtually matches what IPVS knows of a packet that it handled (-m ipvs). The
// zero value asks whether it did.
type Virtually struct {
	// At most one of these is set.
	Addr   netip.Prefix // of the virtual server
	Proto  uint8
	Port   PortRange // First 0 is not set
	Method Method
	Reply  bool // the packet goes from the real server to the client
	Orig   bool // the other way
	// Invert negates what is asked of a packet that IPVS handled; any other packet
	// still fails, unless nothing else is asked.
	Invert bool
}

// Eval asks the packet's virtual server. A first packet goes to the real server.
func (m Virtually) Eval(s *State) Tri {
	v := s.served
	if v == nil {
		later := (s.Hook == Output || s.Hook == Postrouting) && s.Packet.LocalProcess
		switch {
		case later && s.Virtual == nil:
			return Unknown
		case m == (Virtually{Invert: true}):
			return True
		}
		return False
	}
	holds := true
	switch {
	case m.Addr.IsValid():
		if v.Mark != 0 {
			return Of(m.Addr.Contains(s.Packet.Dst) != m.Invert)
		}
		holds = m.Addr.Contains(v.Addr.Addr())
	case m.Proto != 0:
		holds = s.Protocol == m.Proto
	case m.Port.First != 0:
		port := s.Packet.DstPort
		holds = m.Port.First <= port && port <= m.Port.Last
	case m.Method != "":
		holds = s.servedBy.Method == m.Method
	case m.Reply:
		holds = false
	}
	if (m.Reply || m.Orig) && !s.Tracked() {
		return False
	}
	return Of(holds != m.Invert)
}

// Why says that IPVS was not read.
func (Virtually) Why(*State) string {
	return "whether IPVS handled the packet is not known; ipvsadm -Ln prints its virtual servers"
}
