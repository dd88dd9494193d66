package nftables

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestIptablesView walks the flows of iptables mode through what nft shows of
// its rules. nft hides parts of them, so much is unknown; but nothing that the
// walk is sure of may be wrong.
func TestIptablesView(t *testing.T) {
	dir := shared(t, "oracles", "kube-proxy")
	files, err := filepath.Glob(filepath.Join(dir, "v1.37.2", "iptables-flow-*.json"))
	if err != nil || len(files) != 57 {
		t.Fatalf("found %d flow files, want 57 (%v)", len(files), err)
	}
	walked, undecided := 0, 0
	for _, file := range files {
		var in struct {
			NodeIPs []string     `json:"nodeIPs"`
			Flows   []oracleFlow `json:"flows"`
		}
		readJSON(t, file, &in)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		var kernel map[string]json.RawMessage
		readJSON(t, filepath.Join(dir, "v1.37.2-kernel", name+".real.json"), &kernel)
		rs, _, err := Parse(oracleText(t, kernel, "nftJSONView"), Options{Whole: true, Strict: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, table := range rs.Tables() {
			if !table.Compat {
				t.Errorf("%s: table %s is not seen as one of iptables-nft", name, table.Name)
			}
		}
		host := oracleHost(in.NodeIPs)
		for _, f := range in.Flows {
			walked++
			got := replay(rs, host, f)
			if strings.Contains(got.Output, "UNDECIDED") {
				undecided++
				continue
			}
			// Whether it is masqueraded hangs on marks that nft doesn't show.
			if got.Output != want(f).Output {
				t.Errorf("%s %q\n from %s to %s:%d/%s\n got  %+v\n want %+v", name, f.Name, f.SourceIP, f.DestIP, f.DestPort, f.Protocol, got, want(f))
			}
		}
	}
	if walked != 246 || undecided == 0 {
		t.Errorf("walked %d flows, %d of them undecided", walked, undecided)
	}
	t.Logf("walked %d flows; %d undecided, the others as they are", walked, undecided)
}
