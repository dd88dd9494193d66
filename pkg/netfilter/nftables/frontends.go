package nftables

import (
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// part is what an operand reads of a packet's destination.
type part uint8

const (
	partNone part = iota
	partAddr
	partProto
	partPort
	partType // fib daddr type
)

// naming makes an operand that reads a part of the destination, where it is
// the destination's side that it reads.
func naming(side netfilter.Side, names part, k kind, read func(*netfilter.State) reading) *operand {
	o := reader(k, read)
	if side == netfilter.Dst {
		o.names = names
	}
	return o
}

// Destinations are those that the elements of the map are for; nothing where
// it is looked up by anything besides.
func (c *chooser) Destinations() []netfilter.Destination { return c.set.destinations(c.key) }

// Destinations of a look-up are the map's, which the action behind it tells.
func (mayFind) Destinations() []netfilter.Destination { return nil }

// Destinations are those of what the elements are compared with. A relation
// that is negated names none.
func (m *relation) Destinations() []netfilter.Destination {
	if m.not || m.flags != 0 || m.set == nil {
		return nil
	}
	return m.set.destinations(m.key)
}

var (
	_ netfilter.Destined = (*chooser)(nil)
	_ netfilter.Destined = (*relation)(nil)
)

// destinations reads each element as a destination, in the order of address,
// protocol and port.
func (s *set) destinations(key []*operand) []netfilter.Destination {
	if !slices.ContainsFunc(key, func(o *operand) bool { return o.names != partNone }) ||
		slices.ContainsFunc(key, func(o *operand) bool { return o.names == partNone }) {
		return nil
	}
	s.load()
	all := s.all()
	out := make([]netfilter.Destination, 0, len(all))
	for i := range all {
		if d, ok := all[i].destination(key); ok {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, compareDestinations)
	return out
}

func compareDestinations(a, b netfilter.Destination) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	if c := int(a.Protocol) - int(b.Protocol); c != 0 {
		return c
	}
	if c := int(a.Port) - int(b.Port); c != 0 {
		return c
	}
	return strings.Compare(a.Leads, b.Leads)
}

// destination reads one element; ok is false for one of several ports or
// protocols.
func (e *element) destination(key []*operand) (d netfilter.Destination, ok bool) {
	if len(e.key) != len(key) {
		return d, false
	}
	for i, o := range key {
		p := e.key[i]
		switch {
		case p.any:
		case o.names == partAddr && p.single():
			d.Addr = p.first.addr
		case o.names == partAddr:
			continue // a range of addresses is no one's
		case !p.single():
			return d, false
		case o.names == partProto:
			d.Protocol = uint8(p.first.num)
		case o.names == partPort:
			d.Port = uint16(p.first.num)
		case o.names == partType:
			d.Local = p.first.num < uint64(len(fibTypes)) && fibTypes[p.first.num] == "LOCAL"
		}
	}
	if jump, ok := e.verdict.(netfilter.JumpTo); ok {
		d.Leads = jump.Chain
	}
	d.Comment = e.comment
	return d, true
}
