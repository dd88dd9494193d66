package nftables

import (
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// TestIptablesView walks the flows of iptables mode through what nft shows of
// its rules. nft hides parts of them, so much is unknown; but nothing that the
// walk is sure of may be wrong.
func TestIptablesView(t *testing.T) {
	walked, undecided := 0, 0
	for _, f := range oracletest.Files(t, "iptables", "flow", oracletest.FlowFiles["iptables"]) {
		rs, _, err := Parse(f.Text(t, "nftJSONView"), Options{Whole: true, Strict: true})
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		for _, table := range rs.Tables() {
			if !table.Compat {
				t.Errorf("%s: table %s is not seen as one of iptables-nft", f.Name, table.Name)
			}
		}
		for _, flow := range f.Flows {
			walked++
			got := flow.Replay(rs, f.Host())
			if strings.Contains(got.Output, "UNDECIDED") {
				undecided++
				continue
			}
			// Whether it is masqueraded hangs on marks that nft doesn't show.
			if got.Output != flow.Want().Output {
				flow.Differs(t, f.Name, got)
			}
		}
	}
	if walked != oracletest.AllFlows["iptables"] || undecided == 0 {
		t.Errorf("walked %d flows, %d of them undecided", walked, undecided)
	}
	t.Logf("walked %d flows; %d undecided, the others as they are", walked, undecided)
}
