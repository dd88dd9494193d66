package nftables

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// kind is the type of a datum: what its names mean, and what it can be
// compared with.
type kind uint8

const (
	kindOther kind = iota // nothing is known of its values
	kindAddr
	kindPort
	kindProto
	kindMark
	kindIface
	kindState
	kindStatus
	kindDirection
	kindFibType
	kindPktType
	kindNFProto
	kindEtherType
	kindUser
	kindICMP
	kindICMPv6
	kindTCPFlags
	kindNumber
	kindExists
	kindVerdict
)

// typeKinds are nft's names of types, as sets declare them.
var typeKinds = map[string]kind{
	"ipv4_addr": kindAddr, "ipv6_addr": kindAddr, "inet_service": kindPort, "inet_proto": kindProto,
	"mark": kindMark, "ifname": kindIface, "iface_index": kindIface, "ct_state": kindState,
	"ct_status": kindStatus, "ct_dir": kindDirection, "fib_addrtype": kindFibType, "pkt_type": kindPktType,
	"nf_proto": kindNFProto, "ether_type": kindEtherType, "uid": kindUser, "gid": kindUser,
	"icmp_type": kindICMP, "icmpv6_type": kindICMPv6, "tcp_flag": kindTCPFlags, "integer": kindNumber,
	"boolean": kindExists, "verdict": kindVerdict,
}

// The bits and numbers behind nft's names (linux/netfilter/nf_conntrack_common.h
// and the like). Numbers are taken everywhere: nft -nn prints nothing else.
var kindNames = map[kind]map[string]uint64{
	kindProto: {
		"icmp": 1, "igmp": 2, "ipencap": 4, "tcp": 6, "udp": 17, "dccp": 33, "ipv6": 41, "gre": 47, "esp": 50, "ah": 51,
		"comp": 108, "ipv6-icmp": 58, "icmpv6": 58, "ospf": 89, "pim": 103, "vrrp": 112, "sctp": 132, "udplite": 136,
	},
	kindState:     {"invalid": 1, "established": 2, "related": 4, "new": 8, "untracked": 64},
	kindStatus:    {"expected": 1, "seen-reply": 2, "assured": 4, "confirmed": 8, "snat": 16, "dnat": 32, "dying": 512},
	kindDirection: {"original": 0, "reply": 1},
	kindFibType: {
		"unspec": 0, "unicast": 1, "local": 2, "broadcast": 3, "anycast": 4, "multicast": 5, "blackhole": 6,
		"unreachable": 7, "prohibit": 8, "throw": 9,
	},
	kindPktType:   {"host": 0, "unicast": 0, "broadcast": 1, "multicast": 2, "other": 3},
	kindNFProto:   {"ipv4": 2, "ipv6": 10},
	kindEtherType: {"ip": 0x0800, "arp": 0x0806, "ip6": 0x86dd, "vlan": 0x8100},
	kindICMP: {
		"echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5, "echo-request": 8,
		"router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
		"timestamp-request": 13, "timestamp-reply": 14, "info-request": 15, "info-reply": 16,
		"address-mask-request": 17, "address-mask-reply": 18,
	},
	kindICMPv6: {
		"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4,
		"echo-request": 128, "echo-reply": 129, "mld-listener-query": 130, "mld-listener-report": 131,
		"mld-listener-done": 132, "mld-listener-reduction": 132, "nd-router-solicit": 133, "nd-router-advert": 134,
		"nd-neighbor-solicit": 135, "nd-neighbor-advert": 136, "nd-redirect": 137, "router-renumbering": 138,
		"ind-neighbor-solicit": 141, "ind-neighbor-advert": 142, "mld2-listener-report": 143,
	},
	kindTCPFlags: {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ecn": 64, "cwr": 128},
	kindExists:   {"missing": 0, "exists": 1, "false": 0, "true": 1},
	kindUser:     {"root": 0},
	kindPort: { // what nft -S writes of those that rules are made for
		"ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "bootps": 67, "bootpc": 68, "tftp": 69, "http": 80,
		"kerberos": 88, "ntp": 123, "snmp": 161, "bgp": 179, "ldap": 389, "https": 443, "mdns": 5353, "vxlan": 4789,
		"mysql": 3306, "postgresql": 5432, "http-alt": 8080, "nfs": 2049, "dhcpv6-client": 546, "dhcpv6-server": 547,
	},
}

// isFlags says whether a kind is a set of bits: a rule without an operator
// then asks whether any of them is set.
func (k kind) isFlags() bool { return k == kindState || k == kindStatus || k == kindTCPFlags }

// datum is one value: an address, a name, or a number.
type datum struct {
	addr netip.Addr
	name string
	num  uint64
}

// compare orders two data of one kind; an IPv4 address is less than any IPv6.
func (d datum) compare(e datum) int {
	if c := d.addr.Compare(e.addr); c != 0 {
		return c
	}
	if c := strings.Compare(d.name, e.name); c != 0 {
		return c
	}
	switch {
	case d.num < e.num:
		return -1
	case d.num > e.num:
		return 1
	}
	return 0
}

// pattern is what a datum may be compared with: first to last, both in it, or
// a name that begins like first.
type pattern struct {
	first, last datum
	prefix      bool // "cali*"
	any         bool // "*"
}

func exactly(d datum) pattern { return pattern{first: d, last: d} }

// single says whether it is one value.
func (p pattern) single() bool { return !p.prefix && !p.any && p.first == p.last }

func (p pattern) holds(d datum) bool {
	switch {
	case p.any:
		return true
	case p.prefix:
		return strings.HasPrefix(d.name, p.first.name)
	case p.first.addr.IsValid() && d.addr.BitLen() != p.first.addr.BitLen():
		return false
	}
	return p.first.compare(d) <= 0 && d.compare(p.last) <= 0
}

// all says whether every datum of the kind is in it.
func (p pattern) all(k kind) bool {
	switch {
	case p.any, p.prefix && p.first.name == "":
		return true
	case k == kindPort:
		return p.first.num <= 1 && p.last.num >= 65535
	case k == kindAddr && p.first.addr.IsValid():
		pre := netip.PrefixFrom(p.first.addr, 0)
		return p.first.addr == pre.Masked().Addr() && p.last.addr == lastOf(pre)
	}
	return false
}

// parsePattern reads one value, range or prefix of a kind.
func parsePattern(k kind, t token) (pattern, error) {
	if t.is("*") {
		return pattern{any: true}, nil
	}
	switch k {
	case kindIface:
		if name, ok := strings.CutSuffix(t.text, "*"); ok && !strings.HasSuffix(name, `\`) {
			return pattern{first: datum{name: name}, prefix: true}, nil
		}
		return exactly(datum{name: strings.ReplaceAll(t.text, `\*`, "*")}), nil
	case kindAddr:
		return parseAddrs(t.text)
	case kindOther:
		return exactly(datum{name: t.text}), nil
	}
	if d, err := parseDatum(k, t.text); err == nil {
		return exactly(d), nil
	}
	if first, last, ok := strings.Cut(t.text, "-"); ok {
		lo, err := parseDatum(k, first)
		if err == nil {
			var hi datum
			if hi, err = parseDatum(k, last); err == nil && lo.num <= hi.num {
				return pattern{first: lo, last: hi}, nil
			}
		}
	}
	if v, length, ok := strings.Cut(t.text, "/"); ok { // a mark's 0x10/28
		d, err := parseDatum(k, v)
		n, err2 := strconv.ParseUint(length, 10, 8)
		if err == nil && err2 == nil && n <= 32 {
			span := uint64(1)<<(32-n) - 1
			return pattern{first: datum{num: d.num &^ span}, last: datum{num: d.num | span}}, nil
		}
	}
	return pattern{}, fmt.Errorf("%q is not understood here", t.text)
}

func parseDatum(k kind, s string) (datum, error) {
	if n, ok := kindNames[k][s]; ok {
		return datum{num: n}, nil
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return datum{}, fmt.Errorf("%q is not understood here", s)
	}
	return datum{num: n}, nil
}

// parseAddrs reads an address, a prefix, or a range of addresses.
func parseAddrs(s string) (pattern, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return exactly(datum{addr: a}), nil
	}
	if i := strings.IndexByte(s, '/'); i >= 0 {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return pattern{}, fmt.Errorf("%q is not a network", s)
		}
		return pattern{first: datum{addr: p.Masked().Addr()}, last: datum{addr: lastOf(p)}}, nil
	}
	if first, last, ok := strings.Cut(s, "-"); ok {
		lo, err := netip.ParseAddr(first)
		hi, err2 := netip.ParseAddr(last)
		if err == nil && err2 == nil && lo.BitLen() == hi.BitLen() && lo.Zone()+hi.Zone() == "" && lo.Compare(hi) <= 0 {
			return pattern{first: datum{addr: lo}, last: datum{addr: hi}}, nil
		}
	}
	return pattern{}, fmt.Errorf("%q is not an address", s)
}

// lastOf is the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	from := p.Bits()
	if p.Addr().Is4() {
		from += 96
	}
	for i := from; i < 128; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a := netip.AddrFrom16(b)
	if p.Addr().Is4() {
		return a.Unmap()
	}
	return a
}
