package netfilter

import "strconv"

// protocolNumbers are the IP protocols that rules name, by the names that
// /etc/protocols and iptables-save give them.
var protocolNumbers = map[string]uint8{
	"icmp": 1, "igmp": 2, "ipencap": 4, "ipip": 4, "tcp": 6, "egp": 8, "udp": 17,
	"dccp": 33, "ipv6": 41, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51,
	"ipv6-icmp": 58, "icmpv6": 58, "icmp6": 58, "ospf": 89, "pim": 103,
	"vrrp": 112, "l2tp": 115, "sctp": 132, "mh": 135, "ipv6-mh": 135, "udplite": 136,
	"mptcp": 6,
}

// Protocol numbers that the walk itself needs.
const (
	protoICMP    uint8 = 1
	protoTCP     uint8 = 6
	protoUDP     uint8 = 17
	protoDCCP    uint8 = 33
	protoICMPv6  uint8 = 58
	protoSCTP    uint8 = 132
	protoUDPLite uint8 = 136
)

// Number gives the protocol's IP protocol number. It knows the names that
// iptables-save writes, and decimal numbers.
func (p Protocol) Number() (uint8, bool) {
	if n, ok := protocolNumbers[string(p)]; ok {
		return n, true
	}
	n, err := strconv.ParseUint(string(p), 10, 8)
	return uint8(n), err == nil
}

// hasPorts says whether the protocol carries port numbers.
func hasPorts(proto uint8) bool {
	switch proto {
	case protoTCP, protoUDP, protoSCTP, protoDCCP, protoUDPLite:
		return true
	}
	return false
}
