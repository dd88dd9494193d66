package iptables

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// A ruleset under another name walks as before, and quotes the other name.
func TestRenamed(t *testing.T) {
	const text = "*nat\n:PREROUTING ACCEPT [0:0]\n:A - [0:0]\n-A PREROUTING -d 10.0.0.1/32 -p tcp -j A\n-A A -p tcp -j DNAT --to-destination 10.0.0.2:80\nCOMMIT\n"
	rs, _, err := Parse(text, Options{Source: "one", Family: netfilter.IPv4, Saved: true})
	if err != nil {
		t.Fatal(err)
	}
	packet := netfilter.Packet{Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.0.0.1"), DstPort: 1, Protocol: "tcp"}
	sources := func(rs *netfilter.Ruleset) map[string]int {
		out := map[string]int{}
		for _, o := range netfilter.Walk(rs, benchHost, packet) {
			for _, s := range o.Steps {
				out[s.Source]++
			}
		}
		return out
	}
	before := sources(rs)
	if diff := cmp.Diff(map[string]int{"one": before["one"]}, before); diff != "" || before["one"] == 0 {
		t.Fatalf("%v", before)
	}
	if diff := cmp.Diff(map[string]int{"two": before["one"]}, sources(rs.Renamed("two"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, sources(rs)); diff != "" {
		t.Errorf("the first has changed: %s", diff)
	}
}
