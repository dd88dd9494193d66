package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// reportForwardingOf reports interfaces that do not forward on a node that does
// otherwise. For IPv4 the kernel asks the interface by which a packet comes in:
// that of the client, and for the answer that of the backend. For IPv6 only the
// switch of all interfaces decides.
func (p *Pass) reportForwardingOf(v *nodeView) {
	if v.host.Forwarding(false) != netfilter.True {
		return
	}
	var names []string
	faults := map[string]*nodeFault{}
	answers := map[string]bool{}
	for _, s := range p.sentBy(v) {
		if s.to.Addr().Is6() || s.pr.caller.kind == proxy.NodeClient || v.host.Local(s.to.Addr()) != netfilter.False {
			continue
		}
		for i, dev := range []string{v.host.Route(s.pr.caller.addr), v.host.Route(s.to.Addr())} {
			if dev == "" {
				continue
			}
			name := "net.ipv4.conf." + dottedName(dev) + ".forwarding"
			if value, read := v.host.Sysctl(name); !read || value != "0" {
				continue
			}
			if faults[name] == nil {
				names, faults[name], answers[name] = append(names, name), &nodeFault{view: v}, true
			}
			answers[name] = answers[name] && i == 1
			if !slices.Contains(faults[name].probes, s.pr) {
				faults[name].probes = append(faults[name].probes, s.pr)
			}
		}
	}
	for _, name := range names {
		found := name + " = 0: what comes in there goes no further"
		if answers[name] {
			found = name + " = 0: the answers of backends come in there and go no further"
		}
		p.Report(Finding{
			Subject:  p.onNode(v),
			Title:    fmt.Sprintf("%s does not forward what comes in by one interface: %s = 0", v.label(), name),
			Expected: name + " = 1, as net.ipv4.ip_forward sets it for every interface",
			Found:    found + "; concerns " + faults[name].affected(),
			Evidence: []diagnosis.Evidence{v.sysctlEvidence(name)},
			Fixes:    []Proposal{p.turn(v, "have the interface forward", name, "0", "1", "what comes in by this interface of "+v.label())},
		})
	}
}
