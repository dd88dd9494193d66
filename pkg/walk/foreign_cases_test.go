package walk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// casesDir has public reports, as their writers pasted them.
const casesDir = "../../../shared/cases"

// TestForeignCases walks the public reports whose cause is another's rule, a
// firewall chain, a second backend or a leftover: what they show is found, and
// what they leave out is said to be missing.
func TestForeignCases(t *testing.T) {
	if _, err := os.Stat(casesDir); err != nil {
		t.Skipf("the public reports are not here: %v", err)
	}
	type file struct {
		kind snapshot.TextKind
		name string
	}
	ipvs := text(snapshot.ProxyMode, "ipvs")
	for _, tt := range []struct {
		id, target string
		files      []file
		more       []snapshot.Text
		roots      string
		status     diagnosis.Status
		says       string // the first diagnosis, or what is missing
	}{
		{id: "024-microk8s-nft-and-legacy", target: "10.152.183.1:443", files: []file{{snapshot.IptablesSave, "iptables-save.txt"}, {snapshot.IptablesLegacySave, "iptables-legacy-save.txt"}},
			status: unknown, says: "the input breaks off on line 27"},
		{id: "026-kube-firewall-lost-mark", target: "10.96.0.1:443", files: []file{{snapshot.IptablesSave, "iptables-save-bad.txt"}}, roots: "VIP311", status: fail, says: "the rule has lost its match"},
		{id: "026-kube-firewall-lost-mark", target: "10.96.0.1:443", files: []file{{snapshot.IptablesSave, "iptables-save-good.txt"}}, status: unknown, says: "table nat is not in the input"},
		{id: "052-hostport-stale-escaped-quotes", target: "172.31.250.11:80", files: []file{{snapshot.IptablesSave, "iptables-save-grep.txt"}}, status: unknown, says: "chain PREROUTING of table nat is not in the input"},
		{id: "063-stale-node-after-mode-switch", target: "10.123.22.76:80", files: []file{{snapshot.IptablesSave, "iptables-save.txt"}}, more: []snapshot.Text{ipvs}, roots: "VIP313", status: unknown, says: "rules for Services of iptables mode beside those of ipvs mode"},
		{id: "102-forward-drop-in-nft-accept-in-legacy", target: "10.96.0.1:443", files: []file{{snapshot.IptablesSave, "session.txt"}}, status: unknown, says: "table nat is not in the input"},
	} {
		t.Run(tt.id, func(t *testing.T) {
			st := &snapshot.NodeState{Via: "node-state", Texts: append([]snapshot.Text{text(snapshot.IPAddr, nodeAddrs)}, tt.more...)}
			for _, f := range tt.files {
				b, err := os.ReadFile(filepath.Join(casesDir, tt.id, f.name))
				if err != nil {
					t.Fatal(err)
				}
				st.Texts = append(st.Texts, text(f.kind, string(b)))
			}
			o := Options{}
			aimedAt(tt.target)(&o)
			svc := Walk(&snapshot.Snapshot{TakenAt: takenAt, Nodes: []*snapshot.NodeState{st}}, o).Services[0]
			l := svc.Layers[2]
			if got := nodeRoots(svc); got != tt.roots || l.Status != tt.status {
				t.Errorf("got %q, layer %s; want %q, %s\n%s", got, l.Status, tt.roots, tt.status, describe(svc))
			}
			said := ""
			for _, d := range svc.Diagnoses {
				said += everything(d)
			}
			for _, m := range l.Missing {
				said += m.What + m.Why
			}
			if !strings.Contains(said, tt.says) {
				t.Errorf("it does not say %q:\n%s", tt.says, said)
			}
		})
	}
}
