package ipvs

import (
	"math"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// isSaved says whether a line is one of ipvsadm -Sn, or such a command.
func (p *parser) isSaved(f []word) bool {
	f = afterCommand(f)
	if len(f) == 0 {
		return false
	}
	switch f[0].text {
	case "-A", "-a", "--add-service", "--add-server":
		return true
	}
	return false
}

// afterCommand leaves out "sudo ipvsadm".
func afterCommand(f []word) []word {
	for len(f) > 0 && (f[0].text == "sudo" || f[0].text == "ipvsadm" || strings.HasSuffix(f[0].text, "/ipvsadm")) {
		f = f[1:]
	}
	return f
}

// saved is what the options of one line say.
type savedWords struct {
	service netfilter.VirtualServer
	real    netfilter.RealServer
	isReal  bool
	hasReal bool
}

// savedLine reads "-A -t 10.96.0.1:443 -s rr -p 10800", or
// "-a -t 10.96.0.1:443 -r 172.31.250.1:6443 -m -w 1".
func (p *parser) savedLine(s string, f []word) {
	p.now, p.broken = nil, true
	f = afterCommand(f)
	w := savedWords{
		isReal:  f[0].text == "-a" || f[0].text == "--add-server",
		service: netfilter.VirtualServer{Source: p.source, Line: p.n, Text: strings.TrimSpace(s), Scheduler: "wlc"}, // ipvsadm's default
		real: netfilter.RealServer{
			Line: p.n, Text: strings.TrimSpace(s), Method: netfilter.DirectRoute, Weight: 1, // its defaults, too
			Active: netfilter.NotShown, Inactive: netfilter.NotShown,
		},
	}
	for i := 1; i < len(f); {
		n := p.option(s, &w, f[i:])
		if n == 0 {
			return
		}
		i += n
	}
	v := &w.service
	switch {
	case v.Mark == 0 && !v.Addr.IsValid():
		p.problem(s, 0, "the line names no virtual server (-t, -u, --sctp-service or -f)")
	case !w.isReal:
		if v.Family == 0 {
			v.Family = netfilter.IPv4
		}
		p.add(v)
	case !w.hasReal:
		p.problem(s, 0, "the line breaks off: no real server (-r) is named")
	default:
		p.savedReal(s, v, w.real)
	}
}

func (p *parser) savedReal(s string, v *netfilter.VirtualServer, r netfilter.RealServer) {
	if v.Family == 0 {
		v.Family = netfilter.IPv4
	}
	of := p.byKey[keyOf(v)]
	if of == nil {
		p.problem(s, 0, "a real server of a virtual server that no line before it adds")
		return
	}
	for _, have := range of.Real {
		if have.Addr == r.Addr {
			return // a listing before this shows it
		}
	}
	of.Real = append(of.Real, r)
}

// option reads one option and its value, and says how many words they are; 0
// where they are not understood.
func (p *parser) option(s string, w *savedWords, f []word) int {
	name, value, joined := strings.Cut(f[0].text, "=")
	column, n := f[0].column, 1
	if !joined && len(f) > 1 {
		value, column = f[1].text, f[1].column
	}
	needs := func() int {
		if joined {
			return 1
		}
		return 2
	}
	switch name {
	case "-t", "--tcp-service", "-u", "--udp-service", "--sctp-service":
		addr, err := p.addrPort(value)
		if err != nil {
			p.problem(s, column, "%v", err)
			return 0
		}
		w.service.Addr, w.service.Family = addr, netfilter.FamilyOf(addr.Addr())
		w.service.Protocol = map[string]uint8{"-t": 6, "--tcp-service": 6, "-u": 17, "--udp-service": 17, "--sctp-service": 132}[name]
		return needs()
	case "-f", "--fwmark-service":
		mark, err := strconv.ParseUint(value, 10, 32)
		if err != nil || mark == 0 {
			p.problem(s, column, "%q is no firewall mark", value)
			return 0
		}
		w.service.Mark = uint32(mark)
		return needs()
	case "-6", "--ipv6":
		w.service.Family = netfilter.IPv6
	case "-r", "--real-server":
		addr, err := p.addrPort(value)
		if err != nil {
			p.problem(s, column, "%v", err)
			return 0
		}
		w.real.Addr, w.hasReal = addr, true
		return needs()
	case "-m", "--masquerading":
		w.real.Method = netfilter.Masq
	case "-g", "--gatewaying":
		w.real.Method = netfilter.DirectRoute
	case "-i", "--ipip":
		w.real.Method = netfilter.Tunnel
	case "-s", "--scheduler":
		if w.service.Scheduler = value; value == "" {
			p.problem(s, 0, "the line breaks off before the scheduler")
			return 0
		}
		return needs()
	case "-b", "--sched-flags":
		w.service.Flags = append(w.service.Flags, schedulerFlags(value)...)
		return needs()
	case "-p", "--persistent":
		w.service.Persistent, w.service.Timeout = true, 360 // ipvsadm's default
		if t, err := strconv.ParseUint(value, 10, 31); err == nil {
			w.service.Timeout = int(t)
			return needs()
		}
	case "-M", "--netmask":
		w.service.Mask = value
		return needs()
	case "-o", "--ops", "ops":
		w.service.OnePacket = true
	case "-w", "--weight":
		weight, err := strconv.ParseUint(value, 10, 32)
		if err != nil || weight > math.MaxInt32 {
			p.problem(s, column, "%q is no weight", value)
			return 0
		}
		w.real.Weight = int(weight)
		return needs()
	case "-x", "--u-threshold", "-y", "--l-threshold", "--pe", "pe", "--tun-type", "--tun-port":
		return needs()
	case "-n", "--numeric", "--tun-nocsum", "--tun-csum", "--tun-remcsum":
	default:
		p.problem(s, f[0].column, "option %q is not known", name)
		return 0
	}
	return n
}
