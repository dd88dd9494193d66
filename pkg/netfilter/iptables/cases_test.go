package iptables

import (
	"net/netip"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// TestCasesWalk walks a packet through rules of public reports, and expects
// the fault that each report came to.
func TestCasesWalk(t *testing.T) {
	for _, c := range []struct {
		file, from, in, to string
		want               string
		by                 string // the rule that decides
	}{
		// Pasted without its end, so what may be cut off keeps the walk from a verdict.
		{"018-docker-forward-drop-debian-xtables/iptables-save.txt", "10.244.1.2", "cni0", "10.96.0.10:53", "unknown", ""},
		{"021-k3s-host-firewall-reject/iptables-save-working.txt", "10.42.0.5", "cni0", "10.43.0.10:53", "unknown", ""},
		{"021-k3s-host-firewall-reject/iptables-save-broken.txt", "10.42.0.5", "cni0", "10.43.0.10:53", "reject", "-A FORWARD -j REJECT --reject-with icmp-host-prohibited"},
		{"026-kube-firewall-lost-mark/iptables-save-bad.txt", "192.0.2.1", "eth0", "10.0.0.1:22", "drop", `-A KUBE-FIREWALL -m comment --comment "kubernetes firewall for dropping marked packets" -j DROP`},
		{"026-kube-firewall-lost-mark/iptables-save-good.txt", "192.0.2.1", "eth0", "10.0.0.1:22", "none", ""},
		{"063-stale-node-after-mode-switch/iptables-save.txt", "10.244.1.2", "cni0", "10.123.22.76:80", "reject", `-A KUBE-SERVICES -d 10.123.22.76/32 -p tcp -m comment --comment "default/kubia-local has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable`},
		{"068-healthy-libvirt-flannel/iptables-save-nat.txt", "10.244.1.2", "cni0", "10.98.69.149:3000", "dnat 10.244.3.38:80", ""},
		{"068-healthy-libvirt-flannel/iptables-save-nat.txt", "10.244.1.2", "cni0", "10.96.0.1:443", "dnat 192.168.100.1:6443", ""},
	} {
		t.Run(c.file, func(t *testing.T) {
			// Whole: the reports show filter alone where nat is not at fault.
			rs, _, err := Parse(readFile(t, shared(t, "cases", c.file)), Options{Whole: true})
			if err != nil {
				t.Fatal(err)
			}
			dst := netip.MustParseAddrPort(c.to)
			host := &netfilter.StaticHost{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Complete: true, Forward4: netfilter.True}
			got := netfilter.Walk(rs, host, netfilter.Packet{
				Src: netip.MustParseAddr(c.from), In: c.in, Dst: dst.Addr(), DstPort: dst.Port(), Protocol: netfilter.TCP,
			})
			if len(got) != 1 {
				t.Fatalf("%+v", got)
			}
			s := string(got[0].Verdict)
			if got[0].Verdict == netfilter.DNAT {
				s += " " + got[0].To.String()
			}
			by := ""
			if n := len(got[0].Steps); n > 0 {
				by = got[0].Steps[n-1].Text
			}
			if s != c.want || c.by != "" && by != c.by {
				t.Errorf("%s by %q, want %s by %q\n%+v", s, by, c.want, c.by, got[0])
			}
		})
	}
}
