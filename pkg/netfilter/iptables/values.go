package iptables

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// address reads -s and -d: ADDR, ADDR/BITS, ADDR/MASK, or several of them with
// commas between (which iptables-save never writes, but a person may).
func (p *ruleParser) address(o *option, side netfilter.Side) {
	v, ok := p.value(o)
	if !ok {
		return
	}
	m, err := parseNet(v.text, side)
	if err != nil {
		p.failf(v, "%s", err)
		return
	}
	o.add(&p.exprs, m)
}

func parseNet(s string, side netfilter.Side) (netfilter.Match, error) {
	host, mask, masked := strings.Cut(s, "/")
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() != "" {
		return nil, fmt.Errorf("%q is not an address", host)
	}
	a = a.Unmap()
	bits := a.BitLen()
	if masked {
		if n, err := strconv.Atoi(mask); err == nil {
			bits = n
		} else if bits, err = maskBits(mask, a); err != nil {
			m, merr := netip.ParseAddr(mask)
			if merr != nil || m.Unmap().BitLen() != a.BitLen() {
				return nil, fmt.Errorf("%q is not a mask", mask)
			}
			return netfilter.AddrMasked{Side: side, Addr: a, Mask: m.Unmap()}, nil
		}
	}
	prefix, err := a.Prefix(bits)
	if err != nil {
		return nil, fmt.Errorf("%q is not a prefix length of %s", mask, a)
	}
	return netfilter.AddrIn{Side: side, Prefix: prefix}, nil
}

// maskBits is the length of a mask that is a prefix (255.255.0.0).
func maskBits(mask string, a netip.Addr) (int, error) {
	m, err := netip.ParseAddr(mask)
	if err != nil || m.BitLen() != a.BitLen() {
		return 0, fmt.Errorf("%q is not a mask", mask)
	}
	bits, done := 0, false
	for _, b := range m.AsSlice() {
		for i := 7; i >= 0; i-- {
			switch one := b>>i&1 == 1; {
			case one && done:
				return 0, fmt.Errorf("mask %s has holes", mask)
			case one:
				bits++
			default:
				done = true
			}
		}
	}
	return bits, nil
}

// iface reads -i and -o; a trailing + makes the name a prefix.
func (p *ruleParser) iface(o *option, side netfilter.Side) {
	v, ok := p.value(o)
	if !ok {
		return
	}
	name, prefix := strings.CutSuffix(v.text, "+")
	if name == "" && !prefix {
		p.failf(v, "option %s has an empty name", o.text)
		return
	}
	o.add(&p.exprs, netfilter.Interface{Side: side, Name: name, Prefix: prefix})
}

// protocol reads -p: a name, a number, or all (0).
func (p *ruleParser) protocol(o *option) {
	v, ok := p.value(o)
	if !ok {
		return
	}
	name := strings.ToLower(v.text)
	if name == "all" {
		name = "0"
	}
	n, known := netfilter.Protocol(name).Number()
	switch {
	case !known:
		p.failf(v, "protocol %q is not known", v.text)
	case n == 0 && o.not:
		o.not = false
		o.add(&p.exprs, netfilter.Never{})
	case n != 0:
		m := netfilter.Proto{Number: n}
		if !o.not {
			p.proto = &m
		}
		o.add(&p.exprs, m)
	}
}

// services are the well-known port names (IANA's, as /etc/services has them)
// that iptables -L without -n, older versions of iptables-save, or people,
// write in place of numbers.
var services = map[string]uint16{
	"tcpmux": 1, "echo": 7, "discard": 9, "systat": 11, "daytime": 13, "netstat": 15, "qotd": 17, "chargen": 19, "ftp-data": 20, "ftp": 21,
	"fsp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "time": 37, "whois": 43, "nicname": 43, "tacacs": 49, "domain": 53, "bootps": 67, "bootpc": 68,
	"tftp": 69, "gopher": 70, "finger": 79, "http": 80, "www": 80, "www-http": 80, "kerberos": 88, "kerberos5": 88, "krb5": 88, "iso-tsap": 102, "acr-nema": 104,
	"pop2": 109, "pop3": 110, "sunrpc": 111, "portmapper": 111, "rpcbind": 111, "auth": 113, "nntp": 119, "ntp": 123, "epmap": 135, "loc-srv": 135,
	"netbios-ns": 137, "netbios-dgm": 138, "netbios-ssn": 139, "imap2": 143, "imap": 143, "snmp": 161, "snmp-trap": 162, "snmptrap": 162, "cmip-man": 163,
	"cmip-agent": 164, "xdmcp": 177, "bgp": 179, "smux": 199, "qmtp": 209, "z3950": 210, "ipx": 213, "ptp-event": 319, "ptp-general": 320,
	"pawserv": 345, "zserv": 346, "rpc2portmap": 369, "codaauth2": 370, "clearcase": 371, "ldap": 389, "svrloc": 427, "https": 443, "snpp": 444,
	"microsoft-ds": 445, "kpasswd": 464, "submissions": 465, "urd": 465, "saft": 487, "isakmp": 500, "rtsp": 554, "nqs": 607, "asf-rmcp": 623,
	"qmqp": 628, "ipp": 631, "ldaps": 636, "ldp": 646, "exec": 512, "login": 513, "shell": 514, "printer": 515, "syslog": 514, "biff": 512, "who": 513,
	"talk": 517, "ntalk": 518, "route": 520, "router": 520, "gdomap": 538, "uucp": 540, "klogin": 543, "kshell": 544, "dhcpv6-client": 546, "dhcpv6-server": 547,
	"afpovertcp": 548, "nntps": 563, "submission": 587, "domain-s": 853, "rsync": 873, "ftps-data": 989, "ftps": 990, "telnets": 992, "imaps": 993, "pop3s": 995,
	"socks": 1080, "proofd": 1093, "rootd": 1094, "openvpn": 1194, "rmiregistry": 1099, "lotusnote": 1352, "ms-sql-s": 1433, "ms-sql-m": 1434, "ingreslock": 1524,
	"datametrics": 1645, "kermit": 1649, "groupwise": 1677, "l2f": 1701, "l2tp": 1701, "radius": 1812, "radius-acct": 1813, "cisco-sccp": 2000, "nfs": 2049,
	"gnunet": 2086, "rtcm-sc104": 2101, "gsigatekeeper": 2119, "gris": 2135, "etcd-client": 2379, "etcd-server": 2380, "cvspserver": 2401, "venus": 2430, "mon": 2583, "zebra": 2600,
	"iscsi-target": 3260, "mysql": 3306, "ms-wbt-server": 3389, "nut": 3493, "distcc": 3632, "daap": 3689, "svn": 3690, "epmd": 4369, "f5-globalsite": 2792,
	"ipsec-nat-t": 4500, "vxlan": 4789, "iax": 4569, "mtn": 4691, "radmin-port": 4899, "sip": 5060, "sip-tls": 5061, "xmpp-client": 5222, "xmpp-server": 5269,
	"cfengine": 5308, "mdns": 5353, "postgresql": 5432, "amqps": 5671, "amqp": 5672, "freeciv": 5556, "x11": 6000, "gnutella-svc": 6346, "redis": 6379,
	"ircd": 6667, "ircs-u": 6697, "bbs": 7000, "puppet": 8140, "http-alt": 8080, "webcache": 8080, "tproxy": 8081, "omniorb": 8088, "bacula-dir": 9101, "bacula-fd": 9102, "bacula-sd": 9103,
	"git": 9418, "zabbix-agent": 10050, "zabbix-trapper": 10051, "amanda": 10080, "memcached": 11211, "mongodb": 27017,
}

func parsePort(s string) (uint16, error) {
	if n, ok := services[s]; ok {
		return n, nil
	}
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port", s)
	}
	return uint16(n), nil
}

// parsePorts reads PORT, FIRST:LAST (either may be missing), with commas
// between several.
func parsePorts(s string) ([]netfilter.PortRange, error) {
	var out []netfilter.PortRange
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, ":")
		if isRange && first == "" {
			first = "0"
		}
		if isRange && last == "" {
			last = "65535"
		}
		if !isRange {
			last = first
		}
		lo, err := parsePort(first)
		if err != nil {
			return nil, err
		}
		hi, err := parsePort(last)
		if err != nil {
			return nil, err
		}
		if lo > hi {
			return nil, fmt.Errorf("port range %q runs backwards", part)
		}
		out = append(out, netfilter.PortRange{First: lo, Last: hi})
	}
	return out, nil
}

// parseMark reads VALUE or VALUE/MASK, in any base that C knows.
func parseMark(s string) (value, mask uint32, err error) {
	v, m, masked := strings.Cut(s, "/")
	mask = ^uint32(0)
	if masked {
		if mask, err = parseUint32(m); err != nil {
			return 0, 0, err
		}
	}
	value, err = parseUint32(v)
	return value, mask, err
}

func parseUint32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a 32-bit number", s)
	}
	return uint32(n), nil
}

// parseNATRange reads what follows --to-destination and --to-source:
// [ADDR[-ADDR]][:PORT[-PORT[/BASE]]], IPv6 addresses in brackets where a port
// follows.
func parseNATRange(s string) (netfilter.NATRange, error) {
	var r netfilter.NATRange
	addrs, ports := s, ""
	if rest, ok := strings.CutPrefix(s, "["); ok {
		in, after, closed := strings.Cut(rest, "]")
		if !closed || after != "" && after[0] != ':' {
			return r, fmt.Errorf("%q is not an address to rewrite to", s)
		}
		addrs, ports = in, strings.TrimPrefix(after, ":")
	} else if strings.Count(s, ":") == 1 {
		addrs, ports, _ = strings.Cut(s, ":")
	}
	if addrs == "" && ports == "" {
		return r, fmt.Errorf("%q is not an address to rewrite to", s)
	}
	if addrs != "" {
		first, last, isRange := strings.Cut(addrs, "-")
		if !isRange {
			last = first
		}
		var err error
		if r.First, err = netip.ParseAddr(strings.Trim(first, "[]")); err != nil {
			return r, fmt.Errorf("%q is not an address", first)
		}
		if r.Last, err = netip.ParseAddr(strings.Trim(last, "[]")); err != nil {
			return r, fmt.Errorf("%q is not an address", last)
		}
		if r.First.Unmap().BitLen() != r.Last.Unmap().BitLen() || r.Last.Less(r.First) {
			return r, fmt.Errorf("address range %q runs backwards", addrs)
		}
		r.First, r.Last = r.First.Unmap().WithZone(""), r.Last.Unmap().WithZone("")
	}
	if ports == "" {
		return r, nil
	}
	return r, parseNATPorts(ports, &r)
}

// parseNATPorts reads PORT[-PORT[/BASE]].
func parseNATPorts(s string, r *netfilter.NATRange) error {
	ports, base, shifted := strings.Cut(s, "/")
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	var err error
	if r.MinPort, err = parsePort(first); err != nil {
		return err
	}
	if r.MaxPort, err = parsePort(last); err != nil {
		return err
	}
	if shifted {
		if r.BasePort, err = parsePort(base); err != nil {
			return err
		}
	}
	switch {
	case r.MinPort == 0:
		return fmt.Errorf("port 0 can't be rewritten to")
	case r.MinPort > r.MaxPort:
		return fmt.Errorf("port range %q runs backwards", s)
	}
	return nil
}
