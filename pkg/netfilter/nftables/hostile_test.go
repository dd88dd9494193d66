package nftables

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// TestHostile reads large texts that nft never wrote: each takes a time that
// grows with its size alone, and gives an error or a bounded list of problems.
func TestHostile(t *testing.T) {
	const size = 4 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, text := range map[string]string{
		"one line":             fill("x"),
		"lines":                fill("rule\n"),
		"semicolons":           "table ip x {\n chain c {\n" + fill("accept;") + "\n}\n}\n",
		"semicolons in table":  "table ip x {\n" + fill("a;") + "\n}\n",
		"braces":               fill("{"),
		"tables in a line":     fill("table ip x {} "),
		"chains in a line":     "table ip x { " + fill("chain c { accept; } ") + "}\n",
		"objects in a line":    "table ip x { " + fill("counter c { packets 1 } "),
		"quotes":               "table ip x {\n chain c {\n" + fill("\"") + "\n}\n}\n",
		"comments":             "table ip x {\n chain c {\n" + fill("accept # x\n") + "\n}\n}\n",
		"elements":             "table ip x {\n set s {\n type ipv4_addr\n elements = {" + fill("1.2.3.4, ") + "\n",
		"one element":          "table ip x {\n set s {\n type ipv4_addr\n elements = {" + fill("x") + "}\n}\n}\n",
		"quoted braces":        "table ip x {\n set s {\n type ifname\n elements = { " + fill(`"}", `) + "}\n}\n}\n",
		"types":                "table ip x {\n chain c {\n" + fill("type filter hook input priority 0; policy accept;") + "\n}\n}\n",
		"JSON arrays":          `{"nftables": ` + fill("["),
		"JSON objects":         `{"nftables": [` + fill(`{"a":`),
		"JSON numbers":         `{"nftables": [` + fill("1,"),
		"JSON quotes":          `{"nftables": [{"rule": "` + fill(`\"`),
		"JSON of another kind": `{"apiVersion": "` + fill("x") + `"}`,
		"JSON empty objects":   `{"nftables": [` + fill("{},") + "{}]}",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			rs, problems, err := Parse(text, Options{})
			if len(problems) > mostProblems {
				t.Errorf("%d problems", len(problems))
			}
			if err == nil {
				netfilter.Walk(rs, &netfilter.StaticHost{}, netfilter.Packet{
					Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.96.0.1"), Protocol: "tcp", DstPort: 80,
				})
			}
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("took %s", d)
			} else {
				t.Logf("%s, %d problems, %v", d, len(problems), err)
			}
		})
	}
}
