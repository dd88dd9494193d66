package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// brief is a list in few words: "TCP 10.0.0.1:80 rr: 10.1.0.1:8080 Masq 1".
func brief(v *netfilter.VirtualServers) []string {
	var out []string
	for _, s := range v.All() {
		name := fmt.Sprintf("%d %s", s.Protocol, s.Addr)
		if s.Mark != 0 {
			name = fmt.Sprintf("mark %d %s", s.Mark, s.Family)
		}
		line := name + " " + s.Scheduler
		if s.Persistent {
			line += fmt.Sprintf(" persistent %d", s.Timeout)
		}
		if s.Mask != "" {
			line += " mask " + s.Mask
		}
		if s.OnePacket {
			line += " ops"
		}
		if len(s.Flags) > 0 {
			line += " " + strings.Join(s.Flags, ",")
		}
		for _, r := range s.Real {
			line += fmt.Sprintf("; %s %s %d", r.Addr, r.Method, r.Weight)
		}
		out = append(out, line)
	}
	return out
}

const header = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n"

func TestParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
		partial    string
		problems   []string
	}{
		{
			name: "listing", text: header + "TCP  10.96.0.1:443 rr persistent 10800\n  -> 172.31.250.1:6443            Masq    1      0          2         \nUDP  10.96.0.10:53 rr\nSCTP 10.103.164.9:1000 wrr\n  -> 10.1.0.1:1000 Masq 3 0 0\n",
			want: []string{"6 10.96.0.1:443 rr persistent 10800; 172.31.250.1:6443 Masq 1", "17 10.96.0.10:53 rr", "132 10.103.164.9:1000 wrr; 10.1.0.1:1000 Masq 3"},
		},
		{name: "nothing but a header", text: header},
		{
			name: "IPv6, masks, flags, marks", text: header + "TCP  [fd00::1]:443 sh persistent 60 mask 64 (sh-fallback,sh-port)\n  -> [fd00::2]:8443   Route 1 0 0\nFWM  5 wlc ops\n  -> 10.0.0.1:0 Tunnel 1 0 0\nFWM  6 IPv6 rr\n",
			want: []string{"6 [fd00::1]:443 sh persistent 60 mask 64 sh-fallback,sh-port; [fd00::2]:8443 Route 1", "mark 5 IPv4 wlc ops; 10.0.0.1:0 Tunnel 1", "mark 6 IPv6 rr"},
		},
		{
			name: "statistics show no scheduler", text: "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\n  -> RemoteAddress:Port\nTCP  10.96.0.1:443                       8       43       40     3264     3464\n  -> 172.31.250.1:6443                   0        0        0        0        0\n",
			want: []string{"6 10.96.0.1:443 ; 172.31.250.1:6443  -1"},
		},
		{
			name: "persistent connections", text: "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port            Weight    PersistConn ActiveConn InActConn\n  -> RemoteAddress:Port\nTCP  10.96.0.1:443 rr\n  -> 172.31.250.1:6443            3         1           2          4\n",
			want: []string{"6 10.96.0.1:443 ; 172.31.250.1:6443  3"},
		},
		{
			name: "saved", text: "-A -t 10.96.0.1:443 -s rr -p 10800\n-a -t 10.96.0.1:443 -r 172.31.250.1:6443 -m -w 1\n-A --sctp-service 10.0.0.9:9 -s sh -b sh-fallback,sh-port\n-A -f 3 -6 -s wlc -o\n-a -f 3 -6 -r [fd00::9]:0 -g -w 2\n",
			want:    []string{"6 10.96.0.1:443 rr persistent 10800; 172.31.250.1:6443 Masq 1", "132 10.0.0.9:9 sh sh-fallback,sh-port", "mark 3 IPv6 wlc ops; [fd00::9]:0 Route 2"},
			partial: "excerpt",
		},
		{
			name: "commands, and the way ipvsadm reads them", text: "sudo ipvsadm -A -t 10.0.0.1:80\nipvsadm -a -t 10.0.0.1:80 -r 10.1.0.1:8080\nipvsadm --add-service --tcp-service=10.0.0.1:81 --scheduler=rr -p\n",
			want: []string{"6 10.0.0.1:80 wlc; 10.1.0.1:8080 Route 1", "6 10.0.0.1:81 rr persistent 360"}, partial: "excerpt",
		},
		{
			name: "the kernel's own", text: "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP  0A607833:0050 rr  persistent 2700000 FFFFFFFF\n  -> 0AF40306:1F90      Masq    1      0          0         \nTCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:8080 rr  \n  -> [fd00:0000:0000:0000:0000:0000:0000:0002]:1F90      Masq    1      0          0         \nFWM  0000000A sh ops \n",
			want: []string{"6 10.96.120.51:80 rr persistent 0; 10.244.3.6:8080 Masq 1", "6 [fd00::1]:32896 rr; [fd00::2]:8080 Masq 1", "mark 10 family 0 sh ops"},
		},
		{
			name: "after a shell's prompt, with timeouts", text: "root@node:~# ipvsadm -L -n\n" + header + "TCP  10.0.0.1:80 rr\nroot@node:~# ipvsadm -l --timeout\nTimeout (tcp tcpfin udp): 900 120 300\n",
			want: []string{"6 10.0.0.1:80 rr"},
		},
		{
			name: "elided", text: header + "TCP  10.0.0.1:80 rr\n  -> 10.1.0.1:80 Masq 1 0 0\n                ...\nTCP  10.0.0.2:80 rr\n",
			want: []string{"6 10.0.0.1:80 rr; 10.1.0.1:80 Masq 1", "6 10.0.0.2:80 rr"}, partial: "left out", problems: []string{"line 6: lines were left out here"},
		},
		{
			name: "cut in a weight", text: header + "TCP  10.0.0.1:80 rr\n  -> 10.1.0.1:80 Masq 1",
			want: []string{"6 10.0.0.1:80 rr; 10.1.0.1:80 Masq 1"}, partial: "breaks off", problems: []string{"line 5: the line breaks off: 1 of 3 numbers are there"},
		},
		{
			name: "cut in a port", text: header + "TCP  10.0.0.1:80 rr\nTCP  10.0.0.1:4",
			want: []string{"6 10.0.0.1:80 rr"}, partial: "breaks off", problems: []string{"line 5: the line breaks off before the scheduler"},
		},
		{
			name: "names instead of numbers", text: header + "TCP  kubernetes.default:https rr\n  -> 10.1.0.1:6443 Masq 1 0 0\n",
			partial: "no port number", problems: []string{`line 4, column 6: "https" is no port number; ipvsadm -n prints numbers`},
		},
		{
			name: "real servers before any", text: header + "  -> 10.1.0.1:80 Masq 1 0 0\nTCP 10.0.0.1:80 rr\n",
			want: []string{"6 10.0.0.1:80 rr"}, partial: "column 3", problems: []string{"line 4, column 3: a real server without a virtual server before it"},
		},
		{
			name: "a way of forwarding that is none", text: header + "TCP 10.0.0.1:80 rr\n  -> 10.1.0.1:80 Magic 1 0 0\n",
			want: []string{"6 10.0.0.1:80 rr"}, partial: "Magic", problems: []string{`line 5, column 18: "Magic" is no way of forwarding: Masq, Route, Tunnel or Local`},
		},
		{
			name: "an IPv6 address without brackets", text: header + "TCP fd00::1:80 rr\n", partial: "brackets",
			problems: []string{`line 4, column 5: "fd00::1:80" is no address and port: an IPv6 address stands in brackets`},
		},
		{
			name: "listed and saved in one text", text: header + "TCP  10.0.0.1:80 rr\n  -> 10.1.0.1:80 Masq 1 0 0\n\n-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.1.0.1:80 -m -w 1\n",
			want: []string{"6 10.0.0.1:80 rr; 10.1.0.1:80 Masq 1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, problems, err := Parse(tt.text, "ipvsadm -Ln")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, brief(v)); d != "" {
				t.Errorf("virtual servers (-want +got):\n%s", d)
			}
			if p := v.Partial(); (p == "") != (tt.partial == "") || !strings.Contains(p, tt.partial) {
				t.Errorf("partial: %q, want it to say %q", p, tt.partial)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			if d := cmp.Diff(tt.problems, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]error{
		"":                         ErrNoServer,
		"*nat\n:PREROUTING ACCEPT": ErrNoServer,
		"TCP 10.0.0.1:80 rr\n\x00": ErrBinary,
		strings.Repeat("x\n", 100): ErrNoServer,
	} {
		if _, _, err := Parse(text, "a text"); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", text, err, want)
		}
	}
	if v, _, err := ParseSaved("", "ipvsadm -Sn"); err != nil || v.Partial() != "" || len(v.All()) != 0 {
		t.Errorf("an empty saved list is a node without any: %v, %v", v, err)
	}
	_, _, err := Parse("TCP 10.0.0.1:80 rr\nabc\x00", "a text")
	if err == nil || !strings.Contains(err.Error(), "line 2, column 4") {
		t.Errorf("%v: want the line and column of the zero byte", err)
	}
}

func TestHugeLine(t *testing.T) {
	v, problems, err := Parse(header+"TCP 10.0.0.1:80 rr\n  -> "+strings.Repeat("9", 1<<20)+"\nTCP 10.0.0.2:80 rr\n", "x")
	if err != nil || len(problems) != 1 || len(v.All()) != 2 || v.Partial() == "" {
		t.Fatalf("%v, %v, %v", brief(v), problems, err)
	}
	if len(problems[0].Text) > 400 {
		t.Errorf("a problem quotes %d bytes", len(problems[0].Text))
	}
}

func TestFind(t *testing.T) {
	v, _, err := Parse(header+"TCP  10.0.0.1:80 rr\nUDP  10.0.0.1:80 rr\n", "x")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort("10.0.0.1:80")
	if s := v.Find(netfilter.UDP, at); s == nil || s.Line != 5 || s.Text != "UDP  10.0.0.1:80 rr" || s.Source != "x" {
		t.Errorf("UDP: %+v", s)
	}
	if s := v.Find(netfilter.SCTP, at); s != nil {
		t.Errorf("SCTP: %+v", s)
	}
}

func TestMerge(t *testing.T) {
	read := func(text string) *netfilter.VirtualServers {
		t.Helper()
		v, _, err := Parse(text, "x")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	whole := read(header + "TCP 10.0.0.1:80 rr\n  -> 10.1.0.1:80 Masq 1 0 0\n")
	stats := read("IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\nTCP 10.0.0.1:80 0 0 0 0 0\n  -> 10.1.0.1:80 0 0 0 0 0\n")
	excerpt := read("-A -t 10.0.0.1:80 -s rr\n-A -t 10.0.0.2:80 -s rr\n")
	if got := Merge(stats, excerpt, whole); got != whole {
		t.Errorf("the one that is whole counts: %v", brief(got))
	}
	if got := brief(Merge(stats, excerpt)); !slices.Equal(got, []string{"6 10.0.0.1:80 rr", "6 10.0.0.2:80 rr"}) {
		t.Errorf("those that are not whole add up: %v", got)
	}
	if Merge() != nil || Merge(nil) != nil {
		t.Error("of nothing comes nothing")
	}
	if d := cmp.Diff(brief(whole), brief(Merge(nil, whole)), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}
