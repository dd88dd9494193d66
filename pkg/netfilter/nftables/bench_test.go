package nftables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

func benchPacket(s int) netfilter.Packet {
	return netfilter.Packet{
		Src: netip.MustParseAddr("10.200.1.2"), Dst: netip.MustParseAddr(serviceIP(s)),
		Protocol: netfilter.TCP, DstPort: 80,
	}
}

var benchHost = &netfilter.StaticHost{Complete: true, Forward4: netfilter.True}

func benchForms(b *testing.B, services, endpoints int, run func(*testing.B, string)) {
	text, inJSON := generated(services, endpoints)
	for name, s := range map[string]string{"text": text, "json": inJSON} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			b.ReportAllocs()
			run(b, s)
			b.ReportMetric(float64(len(s))/1e6, "MB")
		})
	}
}

// BenchmarkWalkOneServiceOf10k reads the text and walks one packet to one
// Service of 10,000 with 10 endpoints each: what one run of vipwalk costs.
func BenchmarkWalkOneServiceOf10k(b *testing.B) {
	benchForms(b, 10000, 10, func(b *testing.B, s string) {
		for b.Loop() {
			rs, _, err := Parse(s, Options{Whole: true})
			if err != nil {
				b.Fatal(err)
			}
			if out := netfilter.Walk(rs, benchHost, benchPacket(4321)); len(out) != 10 || out[0].Verdict != netfilter.DNAT {
				b.Fatalf("%+v, want 10 outcomes", out)
			}
		}
	})
}

// BenchmarkWalkEveryServiceOf10k is the walk of 10,000 Services after one
// reading; the figure is for one Service.
func BenchmarkWalkEveryServiceOf10k(b *testing.B) {
	benchForms(b, 10000, 10, func(b *testing.B, s string) {
		rs, _, err := Parse(s, Options{Whole: true})
		if err != nil {
			b.Fatal(err)
		}
		i := 0
		for b.Loop() {
			if out := netfilter.Walk(rs, benchHost, benchPacket(i%10000)); len(out) != 10 {
				b.Fatalf("%d outcomes, want 10", len(out))
			}
			i++
		}
	})
}

// BenchmarkGrep is the yardstick: looking for one Service's address.
func BenchmarkGrep(b *testing.B) {
	benchForms(b, 10000, 10, func(b *testing.B, s string) {
		for b.Loop() {
			if n := strings.Count(s, serviceIP(4321)); n < 2 {
				b.Fatal(n)
			}
		}
	})
}
