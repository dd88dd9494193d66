package netfilter

import (
	"iter"
	"net/netip"
	"slices"
)

// Destination is what a rule, or one element of a map that a rule looks up, is
// for, as far as it says so: an address, a protocol, a port. What else the rule
// asks of a packet is not in it.
type Destination struct {
	// Addr is the one address; the zero Addr is any, or one of Net.
	Addr netip.Addr
	// Net is the network of addresses, where it is not one alone.
	Net netip.Prefix
	// Local: an address of the node itself is asked for.
	Local bool
	// Protocol and Port are 0 where any will do.
	Protocol uint8
	Port     uint16
	// Leads is the chain that the packets are sent to; "" for none.
	Leads string
	// Comment is what the writer noted on a map's element.
	Comment string
	// Line and Text are the rule's.
	Line int
	Text string
}

// Destined is a Match or a Chooser that is for certain destinations: those
// alone, apart from what else it asks.
type Destined interface{ Destinations() []Destination }

// mostPorts bounds the ports of one rule that are told apart.
const mostPorts = 16

// Destinations yields the destinations that the chain's rules name, in order;
// a rule that names several gives several, and one that names none, none.
func (c Chain) Destinations() iter.Seq[Destination] {
	return func(yield func(Destination) bool) {
		if c.def == nil {
			return
		}
		for i := range c.def.len() {
			for d := range c.def.Body.Rule(i).destinations() {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// Destinations are those that the rule names.
func (r *Rule) Destinations() iter.Seq[Destination] { return r.destinations() }

// destinations goes through the rule's expressions up to the first map that it
// looks up, or to its end. Sets that are asked before a map give destinations
// of their own.
func (r *Rule) destinations() iter.Seq[Destination] {
	return func(yield func(Destination) bool) {
		n := naming{Destination: Destination{Leads: r.Jump, Line: r.Line, Text: r.Text}}
		for _, e := range r.Exprs {
			if e.Match != nil {
				n.match(e.Match)
				continue
			}
			choose, ok := e.Do.(Choose)
			if !ok {
				continue
			}
			by, ok := choose.By.(Destined)
			if !ok {
				continue
			}
			for _, set := range append(n.sets, by.Destinations()) {
				for _, e := range set {
					if !yield(n.with(e)) {
						return
					}
				}
			}
			return
		}
		if !n.named {
			return
		}
		for _, d := range n.spread() {
			if !yield(d) {
				return
			}
		}
	}
}

// naming is a Destination as the matches of a rule make it.
type naming struct {
	Destination
	named bool // an address or a port is
	ports []PortRange
	sets  [][]Destination
}

func (n *naming) match(m Match) {
	switch m := m.(type) {
	case AddrIn:
		n.named = n.address(m) || n.named
	case Proto:
		n.Protocol = m.Number
	case Ports:
		if m.Side == Dst {
			n.ports, n.named = m.Ranges, true
		}
	case AddrType:
		if m.Side == Dst && slices.Contains(m.Types, "LOCAL") {
			n.Local = true
		}
	case Destined:
		switch of := m.Destinations(); {
		case len(of) == 1:
			n.Destination = n.with(of[0])
			n.named = n.named || of[0].Addr.IsValid() || of[0].Port != 0
		case len(of) > 1:
			n.sets, n.named = append(n.sets, of), true
		}
	}
}

// address notes what a match on an address says of the destination.
func (d *Destination) address(m AddrIn) bool {
	switch {
	case m.Side != Dst || m.Prefix.Bits() == 0:
		return false
	case m.Prefix.IsSingleIP():
		d.Addr = m.Prefix.Addr()
	default:
		d.Net = m.Prefix
	}
	return true
}

// with adds what an element says.
func (d Destination) with(e Destination) Destination {
	if e.Addr.IsValid() {
		d.Addr = e.Addr
	}
	if e.Net.IsValid() {
		d.Net = e.Net
	}
	d.Local = d.Local || e.Local
	if e.Protocol != 0 {
		d.Protocol = e.Protocol
	}
	if e.Port != 0 {
		d.Port = e.Port
	}
	if e.Leads != "" {
		d.Leads = e.Leads
	}
	if e.Comment != "" {
		d.Comment = e.Comment
	}
	return d
}

// spread makes one Destination for each port and each element of the sets.
func (n *naming) spread() []Destination {
	out := []Destination{n.Destination}
	if len(n.ports) > 0 {
		out = out[:0]
		for _, r := range n.ports {
			for p := int(r.First); p <= int(r.Last); p++ {
				if len(out) == mostPorts {
					return nil // a range of ports names none
				}
				d := n.Destination
				d.Port = uint16(p)
				out = append(out, d)
			}
		}
	}
	for _, set := range n.sets {
		all := make([]Destination, 0, len(out)*len(set))
		for _, d := range out {
			for _, e := range set {
				all = append(all, d.with(e))
			}
		}
		out = all
	}
	return out
}
