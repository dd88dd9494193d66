package cilium

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const table = `ID   Frontend                Service Type   Backend
1    10.96.0.1:443/TCP       ClusterIP      1 => 172.18.0.3:6443/TCP (active)
2    10.96.0.50:80/TCP       ClusterIP      1 => 10.244.1.5:8080/TCP (active)
                                            2 => 10.244.2.6:8080/TCP (terminating)
3    0.0.0.0:30080/TCP       NodePort       1 => 10.244.1.5:8080/TCP (active)
4    0.0.0.0:30080/TCP/i     NodePort       1 => 10.244.1.5:8080/TCP (active)
                                            2 => 10.244.2.6:8080/TCP (quarantined)
5    10.96.0.51:81/UDP       ClusterIP
6    [fd00::50]:80/TCP       ClusterIP      1 => [fd00:1::5]:8080/TCP (active)
`

const old = `ID   Frontend           Service Type   Backend
4    10.96.95.246:80    ClusterIP      1 => 10.244.0.58:80 (active)
                                       2 => 10.244.1.59:80 (active)
`

const list = `[
  {
    "spec": {
      "backend-addresses": [{"ip": "10.244.9.9", "port": 8080}],
      "frontend-address": {"ip": "10.96.0.50", "port": 80, "protocol": "TCP", "scope": "external"},
      "id": 2
    },
    "status": {"realized": {
      "backend-addresses": [
        {"ip": "10.244.1.5", "nodeName": "worker-1", "port": 8080, "preferred": false, "state": "active", "weight": 100},
        {"ip": "10.244.2.6", "port": 8080, "state": "terminating", "weight": 0}
      ],
      "flags": {"name": "web", "namespace": "shop", "type": "ClusterIP"},
      "frontend-address": {"ip": "10.96.0.50", "port": 80, "protocol": "TCP", "scope": "external"},
      "id": 2
    }}
  },
  {
    "spec": {"frontend-address": {"ip": "0.0.0.0", "port": 30080, "protocol": "TCP", "scope": "internal"}, "flags": {"type": "NodePort"}}
  }
]
`

const maps = `SERVICE ADDRESS            BACKEND ADDRESS (REVNAT_ID) (SLOT)
10.96.0.50:80/TCP (2)      10.244.2.6:8080/TCP (9) (2)
10.96.0.50:80/TCP (0)      0.0.0.0:0 (9) (0) [ClusterIP, non-routable]
10.96.0.50:80/TCP (1)      10.244.1.5:8080/TCP (9) (1)
0.0.0.0:32179/TCP/i (0)    0.0.0.0:0 (31) (0) [NodePort, Local, two-scopes, non-routable]
`

const oldMaps = `SERVICE ADDRESS    BACKEND ADDRESS (REVNAT_ID) (SLOT)
10.96.0.50:80      10.244.1.5:8080 (9) (1)
                   0.0.0.0:0 (9) (0) [ClusterIP, non-routable]
`

const jsonMaps = `{
  "10.96.0.50:80/TCP (0)": ["0.0.0.0:0 (9) (0) [ClusterIP, non-routable]"],
  "10.96.0.50:80/TCP (1)": ["10.244.1.5:8080/TCP (9) (1)"]
}
`

// show is a list of Services in short.
func show(s *Services) []string {
	var out []string
	for i := range s.Frontends {
		f := &s.Frontends[i]
		text := frontendText(f) + " " + f.Type
		for _, b := range f.Backends {
			text += " " + b.Addr.String()
			if !b.Active() {
				text += "(no)"
			}
		}
		out = append(out, text)
	}
	return out
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
		lines      []int
	}{
		{"table", table, []string{
			"10.96.0.1:443/TCP ClusterIP 172.18.0.3:6443", "10.96.0.50:80/TCP ClusterIP 10.244.1.5:8080 10.244.2.6:8080(no)",
			"0.0.0.0:30080/TCP NodePort 10.244.1.5:8080", "0.0.0.0:30080/TCP/i NodePort 10.244.1.5:8080 10.244.2.6:8080(no)",
			"10.96.0.51:81/UDP ClusterIP", "[fd00::50]:80/TCP ClusterIP [fd00:1::5]:8080",
		}, []int{2, 3, 5, 6, 8, 9}},
		{"old table", old, []string{"10.96.95.246:80 ClusterIP 10.244.0.58:80 10.244.1.59:80"}, []int{2}},
		{"JSON list", list, []string{"10.96.0.50:80/TCP ClusterIP 10.244.1.5:8080 10.244.2.6:8080(no)", "0.0.0.0:30080/TCP/i NodePort"}, []int{2, 18}},
		{"maps", maps, []string{"10.96.0.50:80/TCP ClusterIP 10.244.1.5:8080 10.244.2.6:8080", "0.0.0.0:32179/TCP/i NodePort"}, []int{3, 5}},
		{"old maps", oldMaps, []string{"10.96.0.50:80 ClusterIP 10.244.1.5:8080"}, []int{3}},
		{"maps as JSON", jsonMaps, []string{"10.96.0.50:80/TCP ClusterIP 10.244.1.5:8080"}, []int{2}},
		{"nothing", "[]\n", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, problems, err := Parse(tt.text, "x")
			if err != nil || len(problems) > 0 {
				t.Fatalf("%v, %v", err, problems)
			}
			if d := cmp.Diff(tt.want, show(s)); d != "" {
				t.Error(d)
			}
			var lines []int
			for _, f := range s.Frontends {
				lines = append(lines, f.Line)
			}
			if d := cmp.Diff(tt.lines, lines); d != "" {
				t.Errorf("lines: %s", d)
			}
			if tt.name != "nothing" && !Recognise(tt.text) {
				t.Error("it is not recognised")
			}
		})
	}
}

func TestLookup(t *testing.T) {
	s, _, err := Parse(table, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		addr, proto  string
		inside, node bool
		line         int
	}{
		{"10.96.0.50:80", "TCP", true, false, 3},
		{"10.96.0.50:80", "UDP", true, false, 0},
		{"172.18.0.2:30080", "TCP", false, true, 5},
		{"172.18.0.2:30080", "TCP", true, true, 6},
		{"172.18.0.2:30080", "TCP", true, false, 0},
		{"[fd00::50]:80", "TCP", true, false, 9},
	} {
		f := s.Lookup(netip.MustParseAddrPort(tt.addr), tt.proto, tt.inside, tt.node)
		got := 0
		if f != nil {
			got = f.Line
		}
		if got != tt.line {
			t.Errorf("%+v: line %d", tt, got)
		}
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"ID   Frontend   Service Type   Backend\nx y z\n", "expected ID FRONTEND TYPE"},
		{"ID   Frontend   Service Type   Backend\n   2 => 10.0.0.1:1\n", "a backend without a frontend"},
		{"ID   Frontend   Service Type   Backend\n1 10.0.0.1:1/XYZ ClusterIP\n", `no protocol "XYZ"`},
		{"SERVICE ADDRESS   BACKEND ADDRESS\n10.0.0.1:80 nonsense\n", "expected BACKEND"},
		{`[{"spec": {}}]`, "without a frontend-address"},
	} {
		_, problems, err := Parse(tt.text, "x")
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Message, tt.want) {
			t.Errorf("%q: %v, %v, want %q", tt.text, problems, err, tt.want)
		}
	}
	for text, want := range map[string]string{
		"hello\n":            ErrUnknownForm.Error(),
		"[\n{\"spec\": \n x": "line 3:",
		"[\n{\"spec\": {\"backend-addresses\": 1}}]": "line 2:",
		"[\n{\"spec\": {}}\n":                        "line 3:",
	} {
		if _, _, err := Parse(text, "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, other := range []string{"ID\n", "{\"nftables\": []}", "[{\"a\":1}]", ""} {
		if Recognise(other) {
			t.Errorf("%q is recognised", other)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{table, old, list, maps, oldMaps, jsonMaps, "[]", "{}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, problems, err := Parse(text, "x")
		if err != nil {
			return
		}
		lines := strings.Count(text, "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines {
				t.Errorf("problem on line %d of %d", p.Line, lines)
			}
		}
		for i := range s.Frontends {
			fr := &s.Frontends[i]
			if fr.Line < 1 || fr.Line > lines || fr.Text == "" {
				t.Errorf("frontend %+v of %d lines", fr, lines)
			}
			if s.Lookup(fr.Addr, fr.Protocol, fr.Internal, false) == nil {
				t.Errorf("%v is not found", fr.Addr)
			}
		}
	})
}
