package conntrack

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	listed  = "udp      17 29 src=10.12.0.14 dst=10.15.240.10 sport=43145 dport=53 [UNREPLIED] src=10.15.240.10 dst=10.12.0.14 sport=53 dport=43145 mark=0 use=1\n"
	proc    = "ipv4     2 tcp      6 431999 ESTABLISHED src=10.244.1.9 dst=10.96.0.50 sport=40000 dport=80 packets=3 bytes=180 src=10.244.2.6 dst=10.244.1.9 sport=8080 dport=40000 packets=2 bytes=120 [ASSURED] mark=0 zone=0 use=2\n"
	proc6   = "ipv6     10 udp      17 100 src=fd00:0000:0000:0000:0000:0000:0000:0001 dst=fd00::a sport=1 dport=53 src=fd00::2 dst=fd00::1 sport=53 dport=1 mark=0 use=2\n"
	event   = "[1700000000.1]     [UPDATE] tcp      6 60 SYN_RECV src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2 src=3.3.3.3 dst=1.1.1.1 sport=2 dport=1\n"
	icmp    = "icmp     1 29 src=1.1.1.1 dst=2.2.2.2 type=8 code=0 id=1 src=2.2.2.2 dst=1.1.1.1 type=0 code=0 id=1 mark=0 use=1\n"
	summary = "conntrack v1.4.7 (conntrack-tools): 2 flow entries have been shown.\n"
)

func TestParse(t *testing.T) {
	type short struct {
		Protocol, State     string
		Left, Line          int
		Orig, Backend       string
		Unreplied, Assured  bool
		Rewritten, IPv6Orig bool
	}
	flows, problems := Parse(listed + proc + proc6 + event + icmp + summary + "nonsense\ntcp six 1 src=1.1.1.1\ntcp 6 1 X src=1.1.1 dst=2.2.2.2\n\ntcp 6 1 CLOSE src=1.1.1.1 dst=2.2.2.2 sport=1 dport=2\n")
	var got []short
	for _, f := range flows {
		got = append(got, short{f.Protocol, f.State, f.Left, f.Line, f.Orig.Dst.String(), f.Backend().String(), f.Unreplied, f.Assured, f.Rewritten(), f.Orig.Dst.Addr().Is6()})
	}
	want := []short{
		{"udp", "", 29, 1, "10.15.240.10:53", "10.15.240.10:53", true, false, false, false},
		{"tcp", "ESTABLISHED", 431999, 2, "10.96.0.50:80", "10.244.2.6:8080", false, true, true, false},
		{"udp", "", 100, 3, "[fd00::a]:53", "[fd00::2]:53", false, false, true, true},
		{"tcp", "SYN_RECV", 60, 4, "2.2.2.2:2", "3.3.3.3:2", false, false, true, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
	}
	if diff := cmp.Diff([]int{7, 8, 9, 11}, lines); diff != "" {
		t.Errorf("problems: %s\n%v", diff, problems)
	}
	if flows[1].Orig.Src != netip.MustParseAddrPort("10.244.1.9:40000") {
		t.Errorf("source %s", flows[1].Orig.Src)
	}
}

func TestCounters(t *testing.T) {
	const text = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error\n" +
		"00000049  00000000 00000000 00000000 00000003 00000000 00000000 00000000 00000000 00000001 0000000a 00000000 00000000\n" +
		"00000049  00000000 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000002 00000010 00000000 00000000\n"
	got, ok := Counters(text)
	if !ok || got["invalid"] != 4 || got["insert_failed"] != 3 || got["drop"] != 26 || got["entries"] != 0 {
		t.Errorf("got %v %v", got, ok)
	}
	for _, bad := range []string{"", "entries a b\n", "entries a b\nx y z\n", "1 2 3\n"} {
		if _, ok := Counters(bad); ok {
			t.Errorf("%q is read", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(listed + proc + proc6 + event + icmp + summary)
	f.Add("entries a b\n1 2 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		flows, problems := Parse(text)
		if len(problems) > mostProblems {
			t.Errorf("%d problems", len(problems))
		}
		for _, fl := range flows {
			if !fl.Orig.Dst.Addr().IsValid() || !fl.Backend().Addr().IsValid() || fl.Line < 1 {
				t.Errorf("%+v", fl)
			}
		}
		Counters(text)
	})
}
