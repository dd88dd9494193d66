package cli

import (
	"cmp"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/ipvs"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// virtualServers tells rules of the node's virtual servers; where there are none
// in its state, and the rules are those around IPVS, that they were not read.
func (a *app) virtualServers(rules *netfilter.Ruleset, state *snapshot.NodeState) (*netfilter.Ruleset, error) {
	var parts []*netfilter.VirtualServers
	for _, t := range state.All(snapshot.Ipvsadm, snapshot.ProcIPVS) {
		if t.Status != snapshot.Done {
			a.note("%s was not read: %s", t.Kind, t.Why)
			continue
		}
		source := cmp.Or(t.Ref, string(t.Kind))
		parse := ipvs.Parse
		if strings.TrimSpace(t.Content) == "" {
			parse = ipvs.ParseSaved // read and empty: there is none
		}
		part, problems, err := parse(t.Content, source)
		if err != nil {
			return nil, usageErrorf("%w", err)
		}
		for _, p := range problems {
			a.note("%s: %s", source, p)
		}
		parts = append(parts, part)
	}
	switch v := ipvs.Merge(parts...); {
	case v != nil:
		return rules.WithVirtualServers(v), nil
	case walk.IPVSShape(rules):
		a.note("%s", walk.VirtualServersUnread)
		return rules.WithoutVirtualServers(walk.VirtualServersUnread), nil
	}
	return rules, nil
}
