package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// a small node: one Service of two endpoints, hooked.
const small = `*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-SEP-B - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-X - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SEP-A -p tcp -m comment --comment "ns/web:http" -m tcp -j DNAT --to-destination 10.244.1.5:8080
-A KUBE-SEP-B -p tcp -m comment --comment "ns/web:http" -m tcp -j DNAT --to-destination 10.244.2.5:8080
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "ns/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-X
-A KUBE-SVC-X -m comment --comment "ns/web:http -> 10.244.1.5:8080" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A
-A KUBE-SVC-X -m comment --comment "ns/web:http -> 10.244.2.5:8080" -j KUBE-SEP-B
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
`

// walked is where a packet from a pod to the small node's Service ends.
func walked(rs *netfilter.Ruleset) []string {
	host := &netfilter.StaticHost{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Complete: true, Forward4: netfilter.True}
	var out []string
	for _, o := range netfilter.Walk(rs, host, netfilter.Packet{
		Src: netip.MustParseAddr("10.244.3.3"), In: "cni0", Dst: netip.MustParseAddr("10.96.0.10"), DstPort: 80, Protocol: netfilter.TCP,
	}) {
		s := fmt.Sprintf("%s %s %.2f", o.Verdict, o.To, o.Probability)
		if o.Verdict == netfilter.Undecided && len(o.Unknowns) > 0 {
			s = "unknown: " + o.Unknowns[0].Why
		}
		out = append(out, s)
	}
	return out
}

// each puts something before every line.
func each(text, prefix string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		b.WriteString(prefix + l)
	}
	return b.String()
}

// TestPastes reads the small node's rules as people and programs paste them,
// and walks one packet through each.
func TestPastes(t *testing.T) {
	both := []string{"dnat 10.244.1.5:8080 0.50", "dnat 10.244.2.5:8080 0.50"}
	escape := func(s string) string {
		return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s)
	}
	numberedLines := func(form string) string {
		var b strings.Builder
		n := 0
		for l := range strings.Lines(small) {
			n++
			fmt.Fprintf(&b, form+"%s", n, l)
		}
		return b.String()
	}
	var dockerLog strings.Builder
	for l := range strings.Lines(small) {
		fmt.Fprintf(&dockerLog, `{"log":"%s\n","stream":"stdout","time":"2024-01-02T03:04:05Z"}`+"\n", escape(strings.TrimSuffix(l, "\n")))
	}
	for _, c := range []struct {
		name, text string
		line       int // of the KUBE-SVC-X rule to KUBE-SEP-A
		want       []string
	}{
		{"as it is", small, 15, both},
		{"a mail", each(small, "> "), 15, both},
		{"a mail answered twice", each(small, "> >> "), 15, both},
		{"tabs", each(small, "\t  "), 15, both},
		{"a diff", "--- a\n+++ b\n" + each(small, "+"), 17, both},
		{"a diff's context", each(small, " "), 15, both},
		{"a prompt", "root@w1:~# iptables-save\n" + small + "root@w1:~# \n", 16, both},
		{"a fence", "```\n" + small + "```\n", 16, both},
		{"CRLF", strings.ReplaceAll(small, "\n", "\r\n"), 15, both},
		{"journal", each(small, "Nov 14 11:06:11 w1 sh[12085]: "), 15, both},
		{"a log", each(small, "2024-01-02T03:04:05.123Z INFO "), 15, both},
		{"klog", each(small, "I0102 03:04:05.123456       1 proxier.go:12] "), 15, both},
		{"grep -n", numberedLines("%d:"), 15, both},
		{"line numbers", numberedLines("%5d  "), 15, both},
		{"line numbers with a bar", numberedLines("%5d | "), 15, both},
		{"a file's name", each(small, "w1.txt:"), 15, both},
		{"a file's name and line", numberedLines("dumps/w1.txt:%d:"), 15, both},
		{"two files", each(small, "w1.txt:") + each(strings.ReplaceAll(small, "10.244", "10.99"), "w2.txt:"), 15, both},
		{"JSON", `{"node":"w1","rules":"` + escape(small) + `"}` + "\n", 1, both},
		{"JSON in JSON", `{"log":"{\"rules\":\"` + escape(escape(small)) + `\"}"}` + "\n", 1, both},
		{"a Go log", `2024-01-02 03:04:05 [INFO] state="` + escape(small) + `" next=1` + "\n", 1, both},
		{"docker's log", dockerLog.String(), 15, both},
		{"a JSON list", "[\n" + strings.ReplaceAll(each(strings.ReplaceAll(small, `"`, `\"`), `  "`), "\n", "\",\n") + "]\n", 16, both},
		{"counters", strings.ReplaceAll(small, "\n-A ", "\n[12:720] -A "), 15, both},

		// What is not in the input is not empty.
		{"without the postrouting chain's table", strings.SplitAfter(small, "COMMIT\n")[0], 15, both},
		{"filter alone", strings.SplitAfter(small, "COMMIT\n")[1], 0, []string{"unknown: table nat is not in the input"}},
		{"grep KUBE", grep(small, "KUBE"), 11, both},
		{"grep KUBE-S", strings.ReplaceAll(grep(small, "KUBE-S"), "-A PREROUTING", "#"), 9, []string{"unknown: chain PREROUTING of table nat is not in the input"}},
		{"a SEP chain not in it", grep(small, "KUBE-SVC|KUBE-SERVICES"), 5, []string{"unknown: chain KUBE-SEP-A is not in the input"}},
		{"cut", small[:strings.Index(small, "-A KUBE-SVC-X")+5], 0, []string{"unknown: the input breaks off on line 15, before COMMIT: rules of this chain may be missing"}},
		{"elided", strings.Replace(small, "-A KUBE-SERVICES", "...\n-A KUBE-SERVICES", 1), 16, both},
		{"a line torn", strings.Replace(small, "statistic --mode", "stati\nstic --mode", 1), 15, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs, problems, err := Parse(c.text, Options{Source: "paste", Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := walked(rs); c.want != nil && !cmp.Equal(c.want, got) {
				t.Errorf("got %v, want %v\n%v", got, c.want, problems)
			}
			if ch, ok := rs.Chain("nat", "KUBE-SVC-X"); ok && c.line != 0 {
				for r := range ch.Rules() {
					if r.Line != c.line {
						t.Errorf("the first rule of KUBE-SVC-X is on line %d, want %d", r.Line, c.line)
					}
					break
				}
			}
		})
	}
}

// grep keeps the lines that hold one of the words.
func grep(text, words string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		for w := range strings.SplitSeq(words, "|") {
			if strings.Contains(l, w) {
				b.WriteString(l)
				break
			}
		}
	}
	return b.String()
}

func TestPasteProblems(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"a diff's removed line", "+*nat\n+:PREROUTING ACCEPT [0:0]\n--A PREROUTING -j KUBE-SERVICES\n+COMMIT\n", []string{"3:1 removed", "1:1 family-guessed"}},
		{"two files", "a:*nat\na::X - [0:0]\nb::Y - [0:0]\na:COMMIT\n", []string{"3:1 other-file", "1:1 family-guessed"}},
		{"a listing's row without its chain", "KUBE-MARK-MASQ  tcp  --  10.0.0.1  anywhere  /* a/b: */ tcp dpt:30356\n", []string{"1:1 unknown-chain", "1:1 table-concluded", "1:1 undeclared-chain"}},
		{"glued rows", "Chain KUBE-SEP-X (1 references)\ntarget     prot opt source               destination         \nKUBE-MARK-MASQ  all  --  10.0.0.1  anywhere  /* a/b: */      DNAT       tcp  --  anywhere  anywhere  tcp to:10.0.0.1:80\n", []string{"3:1 truncated", "3:1 table-concluded", "3:62 unknown-rule"}},
		{"a glued header", "Chain KUBE-SEP-X (1 references)\ntarget     prot opt source               destination             KUBE-MARK-MASQ  all  --  10.0.0.1  anywhere\nX  all  --  10.0.0.1  anywhere\n", []string{"2:66 mangled", "2:1 table-concluded"}},
		{"a broken row", "Chain FORWARD (policy ACCEPT)\ntarget     prot opt source               destination         \nACCEPT     all  --  10.0.0.1\nDROP  all  --  10.0.0.2  anywhere\n", []string{"3:1 unknown-rule", "1:1 table-concluded"}},
		{"an unknown word", "Chain FORWARD (policy ACCEPT)\ntarget     prot opt source               destination         \nDROP  all  --  10.0.0.2  anywhere  wibble 7\nDROP  all  --  10.0.0.2  anywhere\n", []string{"1:1 table-concluded", "3:36 unknown-rule"}},
		{"no table, no clue", "-N X\n-A X -s 10.0.0.1/32 -j ACCEPT\n", []string{"2:1 unknown-table"}},
		{"nat by its policies", "-P PREROUTING ACCEPT\n-P INPUT ACCEPT\n-P OUTPUT ACCEPT\n-P POSTROUTING ACCEPT\n-A PREROUTING -d 10.0.0.1/32 -j X\n-N X\n", []string{"1:1 table-concluded"}},
		{"as the command says", "$ ip6tables -t raw -S\n-P PREROUTING ACCEPT\n-P OUTPUT ACCEPT\n", nil},
		{"a long line", "*nat\n" + strings.Repeat("x", 2<<20) + "\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", []string{"2:1 unknown-line", "1:1 family-guessed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems, err := Parse(c.text, Options{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Kind))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s%v", diff, problems)
			}
		})
	}
}

// TestTables: which tables a paste turns out to show.
func TestTables(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"-S", "-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT\n", "filter IPv4 \"\""},
		{"-S twice", "-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT\n-P PREROUTING ACCEPT\n-P INPUT ACCEPT\n-P OUTPUT ACCEPT\n-P POSTROUTING ACCEPT\n-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE\n", "filter IPv4 \"\", nat IPv4 \"\""},
		{"-S of all", "-P PREROUTING ACCEPT\n-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n-P POSTROUTING ACCEPT\n-A FORWARD -s 10.0.0.1/32 -j ACCEPT\n", "mangle IPv4 \"\""},
		{"by chain", "$ iptables -t nat -S PREROUTING\n-P PREROUTING ACCEPT\n-A PREROUTING -s 10.0.0.1/32 -j X\n$ iptables -t nat -S POSTROUTING\n-P POSTROUTING ACCEPT\n", "nat IPv4 \"\""},
		{"both backends", "$ iptables -L FORWARD\nChain FORWARD (policy DROP)\n$ iptables-legacy -L FORWARD\nChain FORWARD (policy ACCEPT)\n", "filter IPv4 \"nft\", filter IPv4 \"legacy\""},
		{"grep", "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j REJECT\n-A KUBE-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-X\n-A KUBE-FIREWALL -j DROP\n", "filter IPv4 \"\", nat IPv4 \"\""},
		{"IPv6", "# ip6tables -t nat -L -n\nChain PREROUTING (policy ACCEPT)\ntarget     prot opt source               destination         \nX          all      ::/0                 fd00::1             \n", "nat IPv6 \"\""},
	} {
		rs, problems, err := Parse(c.text, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, info := range rs.Tables() {
			got = append(got, fmt.Sprintf("%s %s %q", info.Name, info.Family, info.Backend))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: got %s, want %s\n%v", c.name, s, c.want, problems)
		}
	}
}

func TestRefuse(t *testing.T) {
	for text, says := range map[string]string{
		"*nat\n:PREROUTING ACCEPT [0:0]\nwhat\nCOMMIT\n":             "line 3, column 1",
		"*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j\nCOMMIT\n": "line 3, column 15",
		"*nat\n:PREROUTING ACCEPT [0:0]\n":                           "without COMMIT",
	} {
		rs, _, err := Parse(text, Options{Refuse: true, Source: "x", Family: netfilter.IPv4})
		if rs != nil || !errors.Is(err, ErrNotUnderstood) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, _, err := Parse(small, Options{Refuse: true}); err != nil {
		t.Error(err)
	}
}

// TestGarbage: what is no rules is given up early, however large it is.
func TestGarbage(t *testing.T) {
	for name, text := range map[string]string{
		"lines":     strings.Repeat("lorem -A ipsum: Chain [1:2] dolor sit amet \\n 10.0.0.1\n", 1<<20),
		"newlines":  strings.Repeat("\n", 64<<20) + "x",
		"one line":  strings.Repeat("x -A ", 20<<20),
		"backslash": strings.Repeat(`\\n"`, 8<<20),
	} {
		if _, problems, err := Parse(text, Options{}); !errors.Is(err, ErrNoTable) || len(problems) > mostProblems+1 {
			t.Errorf("%s: %v and %d problems", name, err, len(problems))
		}
	}
}
