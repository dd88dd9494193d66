package walk

import (
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
)

// A text that is met again is not parsed again, and quotes the name that it has
// there.
func TestParsedOnce(t *testing.T) {
	c := &parsedTexts{}
	opt := func(source string) iptables.Options {
		return iptables.Options{Source: source, Family: netfilter.IPv4, Saved: true}
	}
	one, _, err := c.iptables(nodeRules, opt("one"))
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := c.iptables(strings.Clone(nodeRules), opt("two"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.done) != 1 || one.Tables()[0].Source != "one" || two.Tables()[0].Source != "two" {
		t.Errorf("%d parsed, quoted as %s and %s", len(c.done), one.Tables()[0].Source, two.Tables()[0].Source)
	}
	if _, _, err := c.iptables(nodeRules, iptables.Options{Source: "six", Family: netfilter.IPv6, Saved: true}); err != nil || len(c.done) != 2 {
		t.Errorf("another family: %v, %d parsed", err, len(c.done))
	}
	for _, source := range []string{"bad", "worse"} {
		if _, _, err := c.iptables("no rules at all", opt(source)); err == nil || !strings.Contains(err.Error(), source) {
			t.Errorf("%s: %v", source, err)
		}
	}
}
