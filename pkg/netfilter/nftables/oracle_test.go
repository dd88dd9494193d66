package nftables

import (
	"fmt"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// forms are the forms in which the oracles hold each ruleset.
var forms = []string{"nftList", "nftListHandles", "nftJSON"}

// TestOracle walks the 218 flows of kube-proxy's own tests of nftables mode,
// from the text of nft list, with and without handles, and from its JSON.
func TestOracle(t *testing.T) {
	oracletest.HoldFlows(t, "nftables", forms, func(text, source string) (*netfilter.Ruleset, error) {
		rs, problems, err := Parse(text, Options{Source: source, Whole: true, Strict: true})
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("not understood: %v", problems)
		}
		return rs, err
	})
}
