package walk

import (
	"sync"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
)

// parsedTexts are the texts of rules that were parsed so far: nodes of one
// group often have the very same rules, and a thousand of them are to cost what
// the different ones do. It is safe for concurrent use.
type parsedTexts struct {
	mu   sync.Mutex
	done map[parseKey]*parsedText
}

type parseKey struct {
	content string
	family  netfilter.Family
	backend netfilter.Backend
}

type parsedText struct {
	rules    *netfilter.Ruleset
	problems []iptables.Problem
	err      error
	source   string
}

// iptables parses a text, or finds it parsed. What comes back quotes the text
// by the Source of opt.
func (c *parsedTexts) iptables(content string, opt iptables.Options) (*netfilter.Ruleset, []iptables.Problem, error) {
	key := parseKey{content, opt.Family, opt.Backend}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.done[key]
	if t == nil || t.err != nil { // an error names the text
		t = &parsedText{source: opt.Source}
		t.rules, t.problems, t.err = iptables.Parse(content, opt)
		if c.done == nil {
			c.done = map[parseKey]*parsedText{}
		}
		c.done[key] = t
	}
	if t.err == nil && t.source != opt.Source {
		return t.rules.Renamed(opt.Source), t.problems, nil
	}
	return t.rules, t.problems, t.err
}
