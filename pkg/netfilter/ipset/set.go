package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Sets are the sets of a node. It answers a netfilter walk's -m set, and is
// safe for concurrent use.
type Sets struct {
	byName map[string]*set
}

// Names are the names of the sets, sorted.
func (s *Sets) Names() []string {
	names := make([]string, 0, len(s.byName))
	for n := range s.byName {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Size is the number of elements of a set that were read.
func (s *Sets) Size(name string) int {
	if t := s.byName[name]; t != nil {
		return t.size
	}
	return 0
}

// Merge makes one of several texts' sets; of a set that is in two, that of the
// earlier counts.
func Merge(parts ...*Sets) *Sets {
	out := &Sets{byName: map[string]*set{}}
	for _, p := range parts {
		for n, t := range p.byName {
			if out.byName[n] == nil {
				out.byName[n] = t
			}
		}
	}
	return out
}

// set is one set.
type set struct {
	name    string
	dims    []dim
	v6      bool
	netmask int // hash:ip with a netmask: addresses are compared by it
	missing string
	size    int
	// buckets are the elements by those of their parts that are compared for
	// being equal.
	buckets map[key]*bucket
	nets    int // how many parts are networks
	ranges  int // elements that ranges stood for
	members []string
}

// dim is what one part of an element is.
type dim uint8

const (
	dimIP dim = iota
	dimNet
	dimPort
	dimBarePort // of bitmap:port, which has no protocol
	dimMark
	dimIface
	dimMAC
	dimSet
)

// key is the parts that are compared for being equal.
type key struct {
	ip    [2]netip.Addr
	proto uint8
	port  uint16
	mark  uint32
	iface string
}

// bucket is the elements with one key. The networks of those with one network
// part are in byNet, by prefix; others are gone through.
type bucket struct {
	byNet map[netip.Prefix]bool // true: nomatch
	bits  []int                 // the prefix lengths in byNet, longest first
	pairs []pair
}

type pair struct {
	nets    [2]netip.Prefix
	nomatch bool
}

// lacks notes why the set may have more elements than were read.
func (t *set) lacks(why string) {
	if t.missing == "" {
		t.missing = why
	}
}

// makeSet makes a set of a type such as hash:ip,port. One of a type that isn't
// known answers nothing.
func makeSet(name, kind string) (*set, error) {
	t := &set{name: name, buckets: map[key]*bucket{}}
	method, parts, _ := strings.Cut(kind, ":")
	for _, part := range strings.Split(parts, ",") {
		d, ok := map[string]dim{"ip": dimIP, "net": dimNet, "port": dimPort, "mark": dimMark, "iface": dimIface, "mac": dimMAC, "set": dimSet}[part]
		switch {
		case !ok || method != "hash" && method != "bitmap" && method != "list" || d == dimSet != (method == "list"):
			t.dims, t.missing = nil, "sets of type "+kind+" are not read"
			return t, errors.New(t.missing)
		case d == dimPort && method == "bitmap":
			d = dimBarePort
		case d == dimNet:
			t.nets++
		case d == dimMAC:
			t.missing = "link-layer addresses are not known to the walk"
		}
		t.dims = append(t.dims, d)
	}
	if t.nets > 2 {
		t.dims, t.missing = nil, "sets of type "+kind+" are not read"
		return t, errors.New(t.missing)
	}
	return t, nil
}

// add takes in one element.
func (t *set) add(elem string, nomatch bool) error {
	if t.dims[0] == dimSet {
		t.members = append(t.members, elem)
		t.size++
		return nil
	}
	parts := strings.Split(elem, ",")
	if len(parts) < len(t.dims) {
		return fmt.Errorf("%q has %d parts, and elements of the set have %d", elem, len(parts), len(t.dims))
	}
	if len(parts) > len(t.dims) {
		return fmt.Errorf("%q has more parts than the set's %d", elem, len(t.dims))
	}
	e := element{t: t}
	for i, d := range t.dims {
		if err := e.part(d, parts[i]); err != nil {
			return err
		}
	}
	t.size++
	for _, k := range e.keys() {
		t.put(k, e.nets, e.nNets, nomatch)
	}
	return nil
}

func (t *set) put(k key, nets [2]netip.Prefix, n int, nomatch bool) {
	b := t.buckets[k]
	if b == nil {
		b = &bucket{}
		t.buckets[k] = b
	}
	if n != 1 {
		b.pairs = append(b.pairs, pair{nets, nomatch})
		return
	}
	if b.byNet == nil {
		b.byNet = map[netip.Prefix]bool{}
	}
	b.byNet[nets[0]] = nomatch
	if bits := nets[0].Bits(); !slices.Contains(b.bits, bits) {
		b.bits = append(b.bits, bits)
		slices.SortFunc(b.bits, func(x, y int) int { return y - x })
	}
}

// element is one element, while its parts are read.
type element struct {
	t     *set
	k     key
	ips   int
	nets  [2]netip.Prefix
	nNets int
	// first to last: an element of bitmap:ip or hash:ip that is a range.
	first, last netip.Addr
	ports       [2]uint16
}

// mostRanges bounds the elements that a set's ranges stand for.
const mostRanges = 1 << 16

func (e *element) part(d dim, s string) error {
	switch d {
	case dimIP:
		return e.ip(s)
	case dimNet:
		p, err := parseNet(s)
		if err != nil {
			return err
		}
		e.nets[e.nNets] = p
		e.nNets++
		return nil
	case dimPort:
		return e.port(s)
	case dimBarePort:
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		lo, err := strconv.ParseUint(first, 10, 16)
		hi, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || hi < lo {
			return fmt.Errorf("%q is not a port", s)
		}
		e.ports = [2]uint16{uint16(lo), uint16(hi)}
		e.k.port = uint16(lo)
		return nil
	case dimMark:
		n, err := strconv.ParseUint(s, 0, 32)
		if err != nil {
			return fmt.Errorf("%q is not a mark", s)
		}
		e.k.mark = uint32(n)
		return nil
	case dimIface:
		e.k.iface = strings.TrimPrefix(s, "physdev:")
		return nil
	}
	return nil // a MAC: see set.missing
}

func (e *element) ip(s string) error {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		if p, err := netip.ParsePrefix(first); err == nil && p.Bits() < p.Addr().BitLen() {
			if e.t.netmask == 0 || p.Bits() != e.t.netmask {
				e.first = p.Masked().Addr()
				e.last = lastOf(p)
				return nil
			}
			first = p.Addr().String()
		}
		first, _, _ = strings.Cut(first, "/")
		last = first
	}
	a, err := netip.ParseAddr(first)
	b, err2 := netip.ParseAddr(last)
	if err != nil || err2 != nil || a.Zone() != "" || a.BitLen() != b.BitLen() || b.Less(a) {
		return fmt.Errorf("%q is not an address", s)
	}
	if isRange {
		e.first, e.last = a.Unmap(), b.Unmap()
		return nil
	}
	if e.ips < len(e.k.ip) {
		e.k.ip[e.ips] = e.t.masked(a.Unmap())
	}
	e.ips++
	return nil
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// port reads PROTO:PORT or PORT, which is TCP's.
func (e *element) port(s string) error {
	proto, port, ok := strings.Cut(s, ":")
	if !ok {
		proto, port = "tcp", s
	}
	n, known := netfilter.Protocol(strings.ToLower(proto)).Number()
	if !known {
		return fmt.Errorf("protocol %q is not known", proto)
	}
	e.k.proto = n
	if n == 1 || n == 58 {
		return nil // the type and code of ICMP: see lookup
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("%q is not a port", port)
	}
	e.k.port = uint16(p)
	return nil
}

// keys are the element's; a range has several.
func (e *element) keys() []key {
	switch {
	case e.ports[1] > e.ports[0]:
		var out []key
		for p := int(e.ports[0]); p <= int(e.ports[1]) && e.t.ranges < mostRanges; p++ {
			e.t.ranges++
			k := e.k
			k.port = uint16(p)
			out = append(out, k)
		}
		return out
	case !e.first.IsValid():
		return []key{e.k}
	}
	var out []key
	for a := e.first; a.IsValid() && a.Compare(e.last) <= 0; a = a.Next() {
		if e.t.ranges == mostRanges {
			e.t.lacks("its ranges hold more addresses than are read")
			break
		}
		e.t.ranges++
		k := e.k
		k.ip[0] = e.t.masked(a)
		out = append(out, k)
	}
	return out
}

func (t *set) masked(a netip.Addr) netip.Addr {
	if t.netmask == 0 || !a.IsValid() {
		return a
	}
	p, err := a.Prefix(t.netmask)
	if err != nil {
		return a
	}
	return p.Addr()
}

func parseNet(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a network", s)
	}
	return p.Masked(), nil
}
