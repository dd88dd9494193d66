package oracletest

import (
	"math"
	"net/netip"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Seeds gives a fuzz target of (text, source, destination, protocol, port,
// whether a local process sends it) each text with a packet of either family.
func Seeds(f *testing.F, texts []string, dst string) {
	for i, s := range texts {
		f.Add(s, "10.244.1.9", dst, "tcp", uint16(80), i%2 == 0)
		f.Add(s, "fd00::1", "fd00::2", "udp", uint16(53), i%2 == 1)
	}
}

// HoldEnds checks that a packet ends on any node, whatever the rules, and that
// the probabilities of its ends sum to 1. Addresses that are none are sent,
// too.
func HoldEnds(t *testing.T, rs *netfilter.Ruleset, src, dst, proto string, port uint16, local bool) {
	t.Helper()
	from, _ := netip.ParseAddr(src)
	to, _ := netip.ParseAddr(dst)
	for _, host := range []netfilter.Host{
		&netfilter.StaticHost{},
		&netfilter.StaticHost{Complete: true, Forward4: netfilter.True, Forward6: netfilter.False},
		&netfilter.StaticHost{Addresses: []netip.Addr{to}, Complete: true},
		nil,
	} {
		p := netfilter.Packet{Src: from, Dst: to, Protocol: netfilter.Protocol(proto), DstPort: port, LocalProcess: local}
		sum := 0.0
		for _, o := range netfilter.Walk(rs, host, p) {
			sum += o.Probability
			if o.Probability < 0 || o.Verdict == "" || o.Verdict == netfilter.Undecided && len(o.Unknowns) == 0 {
				t.Errorf("not an outcome: %+v", o)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("the probabilities sum to %v", sum)
		}
	}
}
