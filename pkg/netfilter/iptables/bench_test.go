package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

func benchText(b *testing.B, services, endpoints int) string {
	text, rules := generated(services, endpoints)
	b.ReportMetric(float64(rules), "rules")
	b.ReportMetric(float64(len(text))/1e6, "MB")
	return text
}

func benchPacket(s int) netfilter.Packet {
	return netfilter.Packet{
		Src: netip.MustParseAddr("10.244.1.2"), Dst: netip.MustParseAddr(serviceIP(s)),
		Protocol: netfilter.TCP, DstPort: 80,
	}
}

var benchHost = &netfilter.StaticHost{Complete: true, Forward4: netfilter.True}

// BenchmarkWalkOneServiceOf320kRules reads the text and walks one packet to
// one Service: what one run of vipwalk costs on a large node.
func BenchmarkWalkOneServiceOf320kRules(b *testing.B) {
	text := benchText(b, 20000, 5)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		rs, _, err := Parse(text, Options{Whole: true})
		if err != nil {
			b.Fatal(err)
		}
		if out := netfilter.Walk(rs, benchHost, benchPacket(12345)); len(out) != 5 {
			b.Fatalf("%d outcomes, want 5", len(out))
		}
	}
}

// BenchmarkWalkEveryServiceOf320kRules is the walk of 20,000 Services after
// one reading; the figure is for one Service.
func BenchmarkWalkEveryServiceOf320kRules(b *testing.B) {
	rs, _, err := Parse(benchText(b, 20000, 5), Options{Whole: true})
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		if out := netfilter.Walk(rs, benchHost, benchPacket(i%20000)); len(out) != 5 {
			b.Fatalf("%d outcomes, want 5", len(out))
		}
		i++
	}
}

// BenchmarkWalkTenEndpoints is the walk alone, of one Service with ten
// endpoints, whose rules were parsed before.
func BenchmarkWalkTenEndpoints(b *testing.B) {
	rs, _, err := Parse(benchText(b, 1000, 10), Options{Whole: true})
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if out := netfilter.Walk(rs, benchHost, benchPacket(i%1000)); len(out) != 10 {
			b.Fatalf("%d outcomes, want 10", len(out))
		}
		i++
	}
}

// BenchmarkWalkServiceOf5000Endpoints is one Service with very many endpoints.
func BenchmarkWalkServiceOf5000Endpoints(b *testing.B) {
	rs, _, err := Parse(benchText(b, 1, 5000), Options{Whole: true})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if out := netfilter.Walk(rs, benchHost, benchPacket(0)); len(out) != 5000 {
			b.Fatalf("%d outcomes, want 5000", len(out))
		}
	}
}

// BenchmarkParse parses every rule.
func BenchmarkParse(b *testing.B) {
	text := benchText(b, 2000, 5)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, problems, err := Parse(text, Options{Strict: true}); err != nil || len(problems) > 0 {
			b.Fatal(err, problems)
		}
	}
}

// BenchmarkGrep is the yardstick: looking for one Service's address.
func BenchmarkGrep(b *testing.B) {
	text := benchText(b, 20000, 5)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		n := 0
		for line := range strings.Lines(text) {
			if strings.Contains(line, serviceIP(12345)) {
				n++
			}
		}
		if n != 2 {
			b.Fatal(n)
		}
	}
}
