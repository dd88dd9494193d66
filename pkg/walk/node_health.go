package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// lineEvidence quotes a line of one of the node's texts; line 0 is for what the
// text as a whole shows. command reads it again.
func (v *nodeView) lineEvidence(kind snapshot.TextKind, line int, quote, command string) diagnosis.Evidence {
	return diagnosis.Evidence{
		Source: textName(v.state.Text(kind)) + " of " + v.label(), Ref: string(kind), Line: line, Quote: quote, Command: v.onNodeCommand(command),
	}
}

// turn is the mend for a setting: its value now is what takes it back.
func (p *Pass) turn(v *nodeView, title, name, from, to, touches string) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       title,
			Commands:    []string{v.onNodeCommand("sudo sysctl -w " + name + "=" + to)},
			BlastRadius: touches + "; until " + v.label() + " starts anew, so keep it in /etc/sysctl.d/ too, and find what set it",
			Undo:        []string{v.onNodeCommand("sudo sysctl -w " + name + "=" + from)},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// look is a mend that only looks: what is to be done depends on what it shows.
func (p *Pass) look(title string, commands ...string) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title: title, Commands: commands, BlastRadius: "these commands only look",
			Undo: []string{"nothing to undo: these only look"}, Verify: []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// sent are the outcomes of a node's packets that go on to a backend, each
// address and caller once, without those of a backend that calls itself.
type sent struct {
	pr *probe
	to netip.AddrPort
	// backend is what the objects say of it; the zero value where nothing.
	backend proxy.Backend
	masq    netfilter.Tri
}

// sentBy lists what a node's packets are rewritten to.
func (p *Pass) sentBy(v *nodeView) []sent {
	var out []sent
	for _, pr := range p.probes() {
		if pr.view != v || pr.hairpin {
			continue
		}
		for _, o := range pr.outcomes {
			if o.Verdict != netfilter.DNAT || !o.To.Addr().IsValid() {
				continue
			}
			s := sent{pr: pr, to: o.To, masq: o.Masquerade}
			if i := slices.IndexFunc(pr.expect.Backends, func(b proxy.Backend) bool { return b.Addr == o.To }); i >= 0 {
				s.backend = pr.expect.Backends[i]
			}
			out = append(out, s)
		}
	}
	return out
}

// query is the packet as the node routes it once it is rewritten.
func (s sent) query() host.Query {
	q := host.Query{Src: s.pr.caller.addr, Dst: s.to.Addr(), LocalProcess: s.pr.caller.kind == proxy.NodeClient}
	if !q.LocalProcess {
		q.In = s.pr.view.host.Route(s.pr.caller.addr)
	}
	return q
}

// routeEvidence quotes a route, or that there is none.
func (v *nodeView) routeEvidence(r host.Route, to netip.Addr) diagnosis.Evidence {
	command := "ip route get " + to.String()
	if r.Line == 0 {
		return v.lineEvidence(snapshot.IPRoute, 0, fmt.Sprintf("none of %s leads to %s", count(len(v.host.Routes("main")), "route"), to), command)
	}
	return v.lineEvidence(snapshot.IPRoute, r.Line, r.Text, command)
}

// dottedName is an interface's name as it stands in a setting's.
func dottedName(iface string) string { return strings.ReplaceAll(iface, ".", "/") }

// findLine finds the first line of a text that has a word beginning so, and its
// number; 0 where none has.
func findLine(text, word string) (int, string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		for w := range strings.FieldsSeq(line) {
			if strings.HasPrefix(w, word) {
				return n, strings.TrimSpace(line)
			}
		}
	}
	return 0, ""
}
