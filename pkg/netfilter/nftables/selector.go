package nftables

import (
	"strconv"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// transports are the protocols that nft names in front of a port.
var transports = map[string]uint8{"th": 0, "tcp": 6, "udp": 17, "dccp": 33, "sctp": 132, "udplite": 136}

// headers are what else nft can read of a packet, with the number of words
// that follow. What a first packet has there is not known.
var headers = map[string]int{
	"ether": 1, "vlan": 1, "arp": 1, "esp": 1, "ah": 1, "comp": 1, "gre": 1, "igmp": 1, "vxlan": 1, "geneve": 1, "gretap": 1,
	"frag": 1, "hbh": 1, "dst": 1, "mh": 1, "rt": 1, "rt0": 1, "rt2": 1, "srh": 1, "osf": 1, "socket": 1, "ipsec": 2,
}

// metaWords may stand without "meta" in front.
var metaWords = map[string]bool{
	"mark": true, "iif": true, "iifname": true, "iiftype": true, "oif": true, "oifname": true, "oiftype": true,
	"skuid": true, "skgid": true, "nftrace": true, "rtclassid": true, "ibrname": true, "obrname": true, "pkttype": true,
	"cpu": true, "iifgroup": true, "oifgroup": true, "cgroup": true,
}

// selector reads one operand, without the operators behind it; nil where the
// words are none.
func (p *ruleParser) selector() *operand {
	t := p.peek()
	if t.quoted {
		return nil
	}
	switch t.text {
	case "ip", "ip6":
		return p.network(t.text == "ip")
	case "icmp", "icmpv6":
		return p.icmp()
	case "meta":
		p.at++
		return p.meta()
	case "ct":
		return p.ct()
	case "fib":
		return p.fib()
	case "numgen", "jhash", "symhash":
		return p.generated()
	}
	if proto, ok := transports[t.text]; ok {
		return p.transport(proto)
	}
	if metaWords[t.text] {
		return p.meta()
	}
	if n, ok := headers[t.text]; ok {
		return p.header(n)
	}
	if len(t.text) >= 3 && t.text[0] == '@' && p.peekAt(1).is(",") { // @th,0,16
		p.at += 5
		return opaque(kindOther, "what the packet has at "+t.text+" is not known")
	}
	return nil
}

func (p *ruleParser) network(v4 bool) *operand {
	p.at++
	field := p.next()
	switch field.text {
	case "saddr":
		return address(netfilter.Src, v4)
	case "daddr":
		return address(netfilter.Dst, v4)
	case "protocol", "nexthdr":
		return reader(kindProto, func(s *netfilter.State) reading { return knownIf(isV4(s) == v4, uint64(s.Protocol)) })
	case "version", "hdrlength", "dscp", "ecn", "length", "id", "frag-off", "ttl", "checksum", "hoplimit", "flowlabel":
		why := "the packet's " + field.text + " is not known"
		return reader(kindOther, func(s *netfilter.State) reading {
			if isV4(s) != v4 {
				return reading{}
			}
			return notKnown(why)
		})
	}
	p.failf(field, "%q is no field of an IP header that is known", field.text)
	return nil
}

func (p *ruleParser) transport(proto uint8) *operand {
	name := p.next()
	field := p.next()
	switch {
	case field.is("dport"):
		return port(netfilter.Dst, proto)
	case field.is("sport"):
		return port(netfilter.Src, proto)
	case field.is("flags") && proto == 6:
		return reader(kindTCPFlags, func(s *netfilter.State) reading { return knownIf(s.Protocol == 6, 2) })
	case field.is("option"):
		p.next()
		if t := p.peek(); t.is("size") || t.is("kind") || t.is("length") || t.is("left") || t.is("right") || t.is("count") || t.is("tsval") || t.is("tsecr") {
			p.at++
		}
	case field.is("chunk"):
		p.next()
		if t := p.peek(); t.is("type") || t.is("flags") || t.is("length") {
			p.at++
		}
	case field.text == "" || field.quoted:
		p.failf(field, "a field of the %s header is missing", name.text)
		return nil
	}
	why := "the packet's " + name.text + " " + field.text + " is not known"
	return reader(kindOther, func(s *netfilter.State) reading {
		if proto != 0 && s.Protocol != proto {
			return reading{}
		}
		return notKnown(why)
	})
}

// icmp reads the ICMP header: the first packet of an ICMP flow that someone
// asks about is taken to be an echo request, a ping.
func (p *ruleParser) icmp() *operand {
	proto, k, echo := uint8(1), kindICMP, uint64(8)
	if p.next().text == "icmpv6" {
		proto, k, echo = 58, kindICMPv6, 128
	}
	field := p.next()
	switch field.text {
	case "type":
		return reader(k, func(s *netfilter.State) reading { return knownIf(s.Protocol == proto, echo) })
	case "code":
		return reader(kindNumber, func(s *netfilter.State) reading { return knownIf(s.Protocol == proto, 0) })
	}
	return reader(kindOther, func(s *netfilter.State) reading {
		if s.Protocol != proto {
			return reading{}
		}
		return notKnown("the ICMP message is not known")
	})
}

func (p *ruleParser) meta() *operand {
	key := p.next()
	switch key.text {
	case "mark":
		return reader(kindMark, func(s *netfilter.State) reading { return number(uint64(s.Mark)) })
	case "l4proto":
		return naming(netfilter.Dst, partProto, kindProto, func(s *netfilter.State) reading { return number(uint64(s.Protocol)) })
	case "nfproto":
		return reader(kindNFProto, func(s *netfilter.State) reading {
			if isV4(s) {
				return number(2)
			}
			return number(10)
		})
	case "protocol":
		return reader(kindEtherType, func(s *netfilter.State) reading {
			if isV4(s) {
				return number(0x0800)
			}
			return number(0x86dd)
		})
	case "iifname", "iif":
		return iface(netfilter.Src)
	case "oifname", "oif":
		return iface(netfilter.Dst)
	case "skuid":
		return socketOwner("user")
	case "skgid":
		return socketOwner("group")
	case "pkttype":
		return pktType()
	case "random":
		return &operand{kind: kindNumber, mod: 1 << 32, read: func(*netfilter.State) reading { return notKnown("chosen at random") }}
	case "ipsec", "secpath":
		return opaque(kindExists, "whether the packet came through IPsec is not known")
	case "", "set":
		p.failf(key, "what of the packet is meant is missing")
		return nil
	}
	return opaque(kindOther, "the packet's "+key.text+" is not known")
}

func (p *ruleParser) ct() *operand {
	p.at++
	key := p.next()
	switch key.text {
	case "state":
		return reader(kindState, ctState)
	case "status":
		return reader(kindStatus, ctStatus)
	case "mark":
		return reader(kindMark, func(s *netfilter.State) reading { return knownIf(s.Tracked(), uint64(s.ConnMark)) })
	case "direction":
		return reader(kindDirection, func(s *netfilter.State) reading { return knownIf(s.Tracked(), 0) })
	case "l3proto":
		return reader(kindNFProto, func(s *netfilter.State) reading {
			if isV4(s) {
				return knownIf(s.Tracked(), 2)
			}
			return knownIf(s.Tracked(), 10)
		})
	case "protocol":
		return reader(kindProto, func(s *netfilter.State) reading { return knownIf(s.Tracked(), uint64(s.Protocol)) })
	case "original", "reply":
		return p.ctTuple(key.text == "reply")
	case "":
		p.failf(key, "what of the connection is meant is missing")
		return nil
	}
	return opaque(kindOther, "the connection's "+key.text+" is not known")
}

func (p *ruleParser) ctTuple(reply bool) *operand {
	field := p.next()
	family := netfilter.Family(0)
	switch field.text {
	case "ip":
		family, field = netfilter.IPv4, p.next()
	case "ip6":
		family, field = netfilter.IPv6, p.next()
	}
	switch field.text {
	case "saddr":
		return tuple(reply, false, netfilter.Src, family)
	case "daddr":
		return tuple(reply, false, netfilter.Dst, family)
	case "proto-src":
		return tuple(reply, true, netfilter.Src, family)
	case "proto-dst":
		return tuple(reply, true, netfilter.Dst, family)
	case "protocol":
		return reader(kindProto, func(s *netfilter.State) reading { return knownIf(s.Tracked(), uint64(s.Protocol)) })
	case "l3proto":
		return opaque(kindNFProto, "the connection's family is not known")
	}
	return opaque(kindOther, "the connection's "+field.text+" is not known")
}

// fib reads "fib saddr . mark . iif RESULT".
func (p *ruleParser) fib() *operand {
	p.at++
	side, link, others := netfilter.Src, "", false
	for {
		flag := p.next()
		switch flag.text {
		case "saddr":
		case "daddr":
			side = netfilter.Dst
		case "iif":
			link = "in"
		case "oif":
			link = "out"
		case "mark":
			others = true
		default:
			p.failf(flag, "%q is nothing that fib looks up by", flag.text)
			return nil
		}
		if !p.peek().is(".") {
			break
		}
		p.at++
	}
	result := p.next()
	switch result.text {
	case "type":
		if others {
			return opaque(kindFibType, "what routing by mark says is not known")
		}
		return fibType(side, link)
	case "oif", "oifname":
		if t := p.peek(); side == netfilter.Src && (t.is("missing") || t.is("exists") || t.is("0") || t.is("1")) {
			return wayBack(link == "")
		}
		return opaque(kindIface, "it depends on the node's routes")
	}
	p.failf(result, "%q is nothing that fib looks up", result.text)
	return nil
}

// header reads a header of which nothing is known: its name, its field.
func (p *ruleParser) header(words int) *operand {
	name := p.next().text
	field := p.next().text
	if words == 2 || name == "socket" && field == "cgroupv2" {
		p.at++
		if p.peek().is("spnum") {
			p.at += 2
		}
	}
	if name == "socket" && field == "cgroupv2" {
		p.at++ // level N
	}
	return opaque(kindOther, "the packet's "+name+" "+field+" is not known")
}

// generated reads numgen, jhash and symhash.
func (p *ruleParser) generated() *operand {
	name := p.next()
	drawn := name.is("numgen")
	switch {
	case drawn:
		if mode := p.next(); !mode.is("random") && !mode.is("inc") {
			p.failf(mode, "%q is no mode of numgen", mode.text)
			return nil
		}
	case name.is("jhash"):
		if p.concat(); p.err != nil {
			return nil
		}
	}
	if t := p.next(); !t.is("mod") {
		p.failf(t, "%s without mod", name.text)
		return nil
	}
	mod := p.number()
	var offset uint64
	for p.peek().is("seed") || p.peek().is("offset") {
		if word := p.next(); word.is("offset") {
			offset = p.number()
		} else {
			p.at++
		}
	}
	if p.err != nil {
		return nil
	}
	if mod == 0 || mod > 1<<32 {
		p.failf(name, "%s with mod %d", name.text, mod)
		return nil
	}
	o := opaque(kindNumber, "it depends on a hash that only the kernel knows")
	switch {
	case drawn || mod == 1:
		// numgen inc takes one after the other: of many new connections, each
		// number falls to the same share.
		o.mod, o.offset = mod, offset
		o.read = func(*netfilter.State) reading { return notKnown("chosen at random") }
	default:
		o.span, o.offset = mod, offset
		o.is = func(_ *netfilter.State, p pattern) netfilter.Tri {
			if p.any || p.first.num <= offset && p.last.num >= offset+mod-1 {
				return netfilter.True
			}
			return netfilter.Of(p.first.num < offset+mod && p.last.num >= offset).And(netfilter.Unknown)
		}
	}
	return o
}

// number reads a number.
func (p *ruleParser) number() uint64 {
	t := p.next()
	n, err := strconv.ParseUint(t.text, 0, 64)
	if err != nil {
		p.failf(t, "%q is not a number", t.text)
	}
	return n
}
