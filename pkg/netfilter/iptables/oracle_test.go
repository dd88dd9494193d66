package iptables

import (
	"fmt"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// TestOracle walks the 246 flows of kube-proxy's own tests of iptables mode, in
// the text of the legacy and of the nft tools, without and with counters.
func TestOracle(t *testing.T) {
	forms := []string{"legacySave", "nftSave", "legacySaveWithCounters", "nftSaveWithCounters"}
	oracletest.HoldFlows(t, "iptables", forms, func(text, source string) (*netfilter.Ruleset, error) {
		rs, problems, err := Parse(text, Options{Source: source, Whole: true, Strict: true})
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("not understood: %v", problems)
		}
		return rs, err
	})
}
