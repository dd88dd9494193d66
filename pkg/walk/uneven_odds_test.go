package walk

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// changed is the healthy fixture with changes.
func changed(changes ...change) *snapshot.Snapshot {
	s := nodeFixture()
	for _, c := range changes {
		c(s)
	}
	return s
}

const nftDraw = "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 8080, 1 : 10.244.2.6 . 8080 }"

// draws replaces nft's balancing rule.
func draws(rule string) *snapshot.Snapshot { return nftNode(nftDraw, rule) }

func TestUnevenOdds(t *testing.T) {
	const half = "--probability 0.50000000000"
	lastToo := strings.Replace(webTwo, " -j KUBE-SEP-TWO", " -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-TWO", 1)
	tests := []struct {
		name string
		s    *snapshot.Snapshot
		// roots and folded are codes of layer 3, with their severity.
		roots, folded string
		says          []string
	}{
		{name: "iptables: a probability is wrong", s: changed(rules(half, "--probability 0.25000000000")), roots: "VIP306 warning",
			says: []string{"worker-1 does not share 10.96.0.50:80/TCP out evenly: 10.244.1.5:8080 25%, 10.244.2.6:8080 75%", "each of 2 backends drawn for 50%", "--probability 0.25000000000 -j KUBE-SEP-ONE", "restart kube-proxy"}},
		{name: "iptables: nth, one in three of two", s: changed(rules("--mode random "+half, "--mode nth --every 3 --packet 0")), roots: "VIP306 warning", says: []string{"10.244.1.5:8080 33%"}},
		{name: "iptables: a backend is drawn by two rules", s: changed(rules(webOne, strings.Replace(webOne, half, "--probability 0.33333333349", 1)+webOne)), roots: "VIP306 warning",
			says: []string{"10.244.1.5:8080 67%", "10.244.2.6:8080 33%"}},
		{name: "iptables: the last rule has a probability too", s: changed(rules(webTwo, lastToo)), roots: "VIP306 error",
			says: []string{"sends 25% of new connections to 10.96.0.50:80/TCP nowhere", "every new connection sent to a backend", "-j KUBE-SEP-TWO"}},
		{name: "iptables: the last rule is gone", s: changed(rules(webTwo, "")), roots: "VIP306 error", says: []string{"50% of new connections"}},
		{name: "iptables: the chain of a Local policy up to 1.23", s: changed(rules("KUBE-SVC-WEB", "KUBE-XLB-WEB"), rules(half, "--probability 0.25000000000")), roots: "VIP306 warning", says: []string{"-A KUBE-XLB-WEB"}},
		{name: "iptables: the chain of a Local policy since 1.24", s: changed(rules("KUBE-SVC-WEB", "KUBE-SVL-WEB"), rules(half, "--probability 0.25000000000")), roots: "VIP306 warning", says: []string{"-A KUBE-SVL-WEB"}},
		{name: "iptables: stale and uneven", s: changed(rules("10.244.2.6", "10.244.2.99"), rules(half, "--probability 0.25000000000")), roots: "VIP302 error", folded: "VIP303 warning VIP306 warning"},
		{name: "nft: one backend in two of three slots", s: draws(strings.NewReplacer("mod 2", "mod 3", "1 : 10.244.2.6 . 8080", "1 : 10.244.2.6 . 8080, 2 : 10.244.2.6 . 8080").Replace(nftDraw)), roots: "VIP306 warning",
			says: []string{"10.244.1.5:8080 33%, 10.244.2.6:8080 67%", "mod 3"}},
		{name: "nft: a slot is empty", s: draws(strings.Replace(nftDraw, "mod 2", "mod 3", 1)), roots: "VIP306 error", says: []string{"33% of new connections"}},

		{name: "not: even"},
		{name: "not: nth, even", s: changed(rules("--mode random "+half, "--mode nth --every 2 --packet 0"))},
		{name: "not: five decimals, as kube-proxy wrote at first", s: changed(rules(half, "--probability 0.49999999953"))},
		{name: "not: one is never drawn, and the one that is gets all", s: changed(rules(webOne, "")), roots: "VIP303 warning"},
		{name: "not: a packet that is dropped now and then takes from all alike", s: changed(rules(":KUBE-SERVICES - [0:0]\n-A INPUT", ":KUBE-SERVICES - [0:0]\n-A FORWARD -m statistic --mode random --probability 0.10000000000 -j DROP\n-A OUTPUT -m statistic --mode random --probability 0.10000000000 -j DROP\n-A INPUT")), roots: "VIP310 error VIP310 error"},
		{name: "not: somebody else's rule sends some elsewhere", s: changed(rules("-A PREROUTING -m comment", "-A PREROUTING -d 10.96.0.50/32 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.20000000000 -j DNAT --to-destination 10.244.9.9:80\n-A PREROUTING -m comment")), roots: "VIP308 error"},
		{name: "not: nft, even", s: nftNode()},
		{name: "not: nft, one backend", s: nftNode(nftDraw, "meta l4proto tcp dnat to 10.244.1.5:8080"), roots: "VIP303 warning"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.s == nil {
				tt.s = nodeFixture()
			}
			checkNode(t, tt.s, Options{}, tt.roots, tt.folded, tt.says)
		})
	}
}

// checkNode walks shop/web and compares layer 3's codes; says must stand in the
// first of its diagnoses.
func checkNode(t *testing.T, s *snapshot.Snapshot, o Options, roots, folded string, says []string) diagnosis.Service {
	t.Helper()
	if len(o.Targets) == 0 {
		o.Targets = []Target{{Namespace: "shop", Name: "web"}}
	}
	svc := Walk(s, o).Services[0]
	var got, under []string
	var first *diagnosis.Diagnosis
	for i, d := range svc.Diagnoses {
		if d.Layer != diagnosis.LayerNode {
			continue
		}
		if first == nil {
			first = &svc.Diagnoses[i]
		}
		soundOnNode(t, d)
		line := string(d.Code) + " " + string(d.Severity)
		if len(d.CausedBy) == 0 {
			got = append(got, line)
		} else {
			under = append(under, line)
		}
	}
	if strings.Join(got, " ") != roots || strings.Join(under, " ") != folded {
		t.Errorf("roots %q, folded %q; want %q, %q\n%s", got, under, roots, folded, describe(svc))
	}
	for _, text := range says {
		if first == nil || !strings.Contains(everything(*first), text) {
			t.Errorf("the first diagnosis does not say %q\n%s", text, describe(svc))
			if first != nil {
				t.Log(everything(*first))
			}
		}
	}
	return svc
}

// soundOnNode holds what every diagnosis of layer 3 must be.
func soundOnNode(t *testing.T, d diagnosis.Diagnosis) {
	t.Helper()
	if d.Title == "" || d.Expected == "" || d.Found == "" || len(d.Evidence) == 0 || len(d.Fixes) == 0 {
		t.Errorf("%s lacks something: %+v", d.Code, d)
	}
	for _, e := range d.Evidence {
		if e.Source == "" || e.Quote == "" || e.Command == "" {
			t.Errorf("%s: evidence %+v lacks something", d.Code, e)
		}
	}
	for _, f := range d.Fixes {
		if f.Title == "" || len(f.Commands) == 0 || f.BlastRadius == "" || len(f.Undo) == 0 || len(f.Verify) == 0 {
			t.Errorf("%s: fix %+v lacks something", d.Code, f)
		}
	}
}

// TestUnevenOddsAlone: nothing but the rules, and they speak for themselves.
func TestUnevenOddsAlone(t *testing.T) {
	for name, rules := range map[string]string{
		"VIP306": strings.Replace(nodeRules, "--probability 0.50000000000", "--probability 0.90000000000", 1),
		"":       nodeRules,
	} {
		s := &snapshot.Snapshot{TakenAt: takenAt, Nodes: []*snapshot.NodeState{{Via: "node-state", Texts: []snapshot.Text{text(snapshot.IptablesSave, rules)}}}}
		svc := Walk(s, Options{Targets: []Target{target(t, "10.96.0.50:80")}}).Services[0]
		if got := nodeRoots(svc); got != name {
			t.Errorf("got %q, want %q\n%s", got, name, describe(svc))
		}
	}
}

// TestManyBackendsAreEven: hundreds of rules, each rounded, as kube-proxy and
// the kernel round them.
func TestManyBackendsAreEven(t *testing.T) {
	for _, n := range []int{3, 7, 100, 1000, 5000} {
		for _, format := range []string{"%.10f", "%.5f"} {
			var chains, draws, seps strings.Builder
			for i := range n {
				ip := fmt.Sprintf("10.%d.%d.%d", 200+i/62500, i/250%250, i%250+1)
				prob := ""
				if i < n-1 {
					prob = " -m statistic --mode random --probability " + fmt.Sprintf(format, 1/float64(n-i))
				}
				fmt.Fprintf(&chains, ":KUBE-SEP-N%d - [0:0]\n", i)
				fmt.Fprintf(&draws, "-A KUBE-SVC-WEB%s -j KUBE-SEP-N%d\n", prob, i)
				fmt.Fprintf(&seps, "-A KUBE-SEP-N%d -p tcp -m tcp -j DNAT --to-destination %s:8080\n", i, ip)
			}
			rules := strings.NewReplacer(":KUBE-SERVICES - [0:0]\n:KUBE-SVC-WEB", chains.String()+":KUBE-SERVICES - [0:0]\n:KUBE-SVC-WEB", webOne+webTwo, draws.String()+seps.String()).Replace(nodeRules)
			s := &snapshot.Snapshot{TakenAt: takenAt, Nodes: []*snapshot.NodeState{{Via: "node-state", Texts: []snapshot.Text{text(snapshot.IptablesSave, rules)}}}}
			svc := Walk(s, Options{Targets: []Target{target(t, "10.96.0.50:80")}}).Services[0]
			if got := nodeRoots(svc); got != "" || len(svc.Paths[0].Outcomes) != n {
				t.Errorf("%d backends, %s: %q, %d outcomes", n, format, got, len(svc.Paths[0].Outcomes))
			}
		}
	}
}

var (
	oneProbability = regexp.MustCompile(`--probability 0\.[0-9]+`)
	oneSlot        = regexp.MustCompile(`(?:numgen random mod |"mod": ?)(\d+)`)
)

// TestOddsOfOracles changes the odds of one Service in each of kube-proxy's own
// recorded rules that balance at all, and looks for nothing but that.
func TestOddsOfOracles(t *testing.T) {
	if _, err := os.Stat(oracleDir); err != nil {
		t.Skipf("kube-proxy's recorded rules are not here: %v", err)
	}
	changed := 0
	for _, mode := range []string{"iptables", "nftables"} {
		files, err := filepath.Glob(filepath.Join(oracleDir, mode+"-*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			var o oracle
			readJSON(t, name, &o)
			var texts map[string]any
			readJSON(t, filepath.Join(oracleDir+"-kernel", strings.TrimSuffix(filepath.Base(name), ".json")+".real.json"), &texts)
			for _, key := range oracleTexts[mode] {
				rules := textOf(t, texts[key])
				mutant := skew(key, rules)
				if !o.HasObjects || mutant == rules {
					continue
				}
				changed++
				if codes := outsideCodes(t, &o, mutant); len(codes) != 1 || codes[0] != "VIP306" {
					t.Errorf("%s %s: %v", filepath.Base(name), key, codes)
				}
			}
		}
	}
	t.Logf("%d sets of rules were changed", changed)
	if changed < 80 {
		t.Errorf("only %d sets of rules balance", changed)
	}
}

// skew makes the first balancing rule of a text draw otherwise.
func skew(key, rules string) string {
	if key == "nftSave" || key == "legacySave" {
		if at := oneProbability.FindStringIndex(rules); at != nil {
			return rules[:at[0]] + "--probability 0.81000000000" + rules[at[1]:]
		}
		return rules
	}
	for _, at := range oneSlot.FindAllStringSubmatchIndex(rules, -1) {
		if n := rules[at[2]:at[3]]; n != "1" {
			return rules[:at[2]] + "1" + n + rules[at[3]:] // more slots than elements
		}
	}
	return rules
}
