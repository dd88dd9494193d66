package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// leftoverProxyMode: the node still has what another mode of kube-proxy wrote.
// kube-proxy clears the other modes' rules away when it starts; where that
// failed, or nobody asked for it, the kernel goes on obeying both.
var leftoverProxyMode = &Check{
	Code: diagnosis.LeftoverProxyMode, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			for _, l := range v.leftovers() {
				p.reportLeftover(v, l)
			}
		}
	},
}

// leftover is what one mode left on a node where another runs.
type leftover struct {
	mode, running string
	// known: what runs is known, not guessed by which rules are there.
	known bool
	what  string
	*dataplane
}

func (p *Pass) reportLeftover(v *nodeView, l *leftover) {
	running := "which of the two runs was not read"
	if l.known {
		running = "kube-proxy runs in " + l.running + " mode there"
	}
	f := Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("%s has %s of %s mode beside those of %s mode", v.label(), l.what, l.mode, l.running),
		Expected: "the state of one proxy mode",
		Found:    fmt.Sprintf("%s of %s mode, and %s", l.what, l.mode, running),
		Evidence: append(slices.Clone(l.evidence), v.runningEvidence(l)...),
		Fixes:    []Proposal{p.drainAndReboot(v)},
	}
	if sp := p.spoiledBy(v, l); sp != nil {
		p.tellSpoilt(&f, v, l, sp)
	} else if o := p.knownOrder(v, l); o.Known() {
		if text := l.orderText(o); text != "" {
			f.Found += "; " + text
		}
		f.Evidence = append(f.Evidence, v.orderEvidence(o)...)
	}
	f.Fixes = append(f.Fixes, p.cleanUp(v, l)...)
	p.Report(f)
}

// tellSpoilt says on which packet the leftover decides, and wrongly.
func (p *Pass) tellSpoilt(f *Finding, v *nodeView, l *leftover, sp *spoilt) {
	f.Severity = diagnosis.Error
	decides := fmt.Sprintf("decides on %s: the node %s", frontendText(sp.with.frontend, sp.with.dst), sp.with.whereTo())
	if sp.unsettled {
		decides = fmt.Sprintf("may decide on %s: the node then %s", frontendText(sp.with.frontend, sp.with.dst), sp.with.whereTo())
	}
	f.Title = fmt.Sprintf("what %s mode left on %s %s", l.mode, v.label(), decides)
	if p.Service != nil {
		f.Expected += "; " + sp.with.wantText()
	}
	f.Found += "; without it the node " + sp.without
	if sp.unsettled {
		f.Found += "; " + orderUnknown
	} else if text := l.orderText(sp.order); text != "" {
		f.Found += "; " + text
	}
	f.Found += fmt.Sprintf("; for %s", nodeFault{view: v, probes: []*probe{sp.with}}.affected())
	for _, e := range append(wayEvidence(v, sp.quote), v.orderEvidence(sp.order)...) {
		if !slices.Contains(f.Evidence, e) {
			f.Evidence = append(f.Evidence, e)
		}
	}
	f.Explains = decidedByRules
}

// knownOrder is in which order the two are asked for any packet of the node's
// that was walked.
func (p *Pass) knownOrder(v *nodeView, l *leftover) netfilter.Order {
	for _, pr := range p.probes() {
		if pr.view == v {
			return v.order(l, familyOf(pr.frontend.V6))
		}
	}
	return netfilter.OrderUnknown
}

// spoiledBy finds a packet on which the leftover decides, or may decide, and
// wrongly; nil where there is none.
func (p *Pass) spoiledBy(v *nodeView, l *leftover) *spoilt {
	if l.leads == nil {
		return nil
	}
	if l.running == "ipvs" && v.lackForMode() != nil {
		return p.spoiledInIPVS(v, l)
	}
	for _, pr := range p.probes() {
		if pr.view != v || pr.hairpin || pr.unsure != "" || p.Service != nil && pr.expect.Action == proxy.Ignore {
			continue
		}
		if sp := p.spoils(pr, l); sp != nil {
			return sp
		}
	}
	return nil
}

// spoiledInIPVS looks for a packet that the leftover turns away in INPUT on a
// node in IPVS mode whose virtual servers were not read. IPVS takes what came
// through the filter chains of INPUT; in OUTPUT it comes before these.
func (p *Pass) spoiledInIPVS(v *nodeView, l *leftover) *spoilt {
	for _, f := range p.nodeFrontends() {
		dst, ok := p.destination(v, f)
		if !ok {
			continue
		}
		fam := familyOf(f.V6)
		filter := v.rules.Only(func(t netfilter.TableInfo) bool { return t.Family == fam && t.Name == "filter" })
		rules := netfilter.Merge(filter, netfilter.New([]netfilter.Contents{{Whole: true, Family: fam}}))
		for _, c := range p.callers(v, f, dst) {
			if c.kind == proxy.NodeClient {
				continue
			}
			pr := &probe{view: v, caller: c, frontend: f, dst: dst}
			if p.Service != nil {
				pr.expect = proxy.ExpectFrom(p.Service, p.Slices(), v.proxyNode(), c.kind, c.addr, f)
				if pr.expect.Action != proxy.Forward {
					continue
				}
			}
			pr.outcomes = netfilter.Walk(rules, boundHost{v.host, dst.Addr()}, pr.packet())
			if slices.ContainsFunc(pr.outcomes, func(o netfilter.Outcome) bool { return saysEmpty(o) && o.Hook == netfilter.Input }) {
				return &spoilt{with: pr, quote: pr.outcomes[0], without: "leaves it to IPVS", order: netfilter.OrderApart}
			}
		}
	}
	return nil
}

// boundHost is a node that has one address more: IPVS mode binds those of
// Services.
type boundHost struct {
	netfilter.Host
	bound netip.Addr
}

func (h boundHost) Local(a netip.Addr) netfilter.Tri {
	if a == h.bound {
		return netfilter.True
	}
	return h.Host.Local(a)
}

// leftovers are what other modes than the running one left on the node. They
// are looked for once.
func (v *nodeView) leftovers() []*leftover {
	if !v.rivals.leftoversDone {
		v.rivals.leftoversDone = true
		v.rivals.leftovers = v.findLeftovers()
	}
	return v.rivals.leftovers
}

func (v *nodeView) findLeftovers() []*leftover {
	running, known := v.runningMode()
	if running == "" || v.seen.answered == "" && !v.showsMode(running) {
		// Where nothing of the mode that is configured is there, the one that is
		// may well be what runs: that is VIP335's to tell.
		return nil
	}
	var out []*leftover
	add := func(l *leftover) {
		if l != nil {
			l.running, l.known = running, known
			out = append(out, l)
		}
	}
	if running != "iptables" {
		add(v.leftIptables(running))
	}
	if running != "nftables" {
		add(v.leftNftables())
	}
	if running != "ipvs" {
		add(v.leftIPVS())
	}
	return out
}

// runningMode is the mode of the kube-proxy that runs on the node, and whether
// that was read rather than seen by its rules.
func (v *nodeView) runningMode() (mode string, known bool) {
	switch s := v.seen; {
	case s.answered != "":
		return s.answered, true
	case s.configured != "":
		return s.configured, true
	default:
		return s.byRules, false
	}
}

// showsMode says whether a mode's rules, or its device, are on the node.
func (v *nodeView) showsMode(mode string) bool {
	switch mode {
	case "nftables":
		return v.rules.HasChain(kubeProxyTable, "services")
	case "ipvs":
		return len(v.boundByIPVS()) > 0 || v.rules.HasChain("nat", "KUBE-NODE-PORT") || v.rules.HasChain("nat", "KUBE-LOAD-BALANCER")
	case "iptables":
		_, ok := hookedServices(v.rules, "nat", "KUBE-SERVICES", netfilter.Prerouting, netfilter.Output)
		return ok
	}
	return false
}

// leftIptables are the rules of iptables mode, where a hook leads to them. In
// IPVS mode the chain KUBE-SERVICES of table nat is that mode's own, and so are
// others that begin alike; the filter table's are not.
func (v *nodeView) leftIptables(running string) *leftover {
	d := &dataplane{name: "iptables mode", holds: func(t netfilter.TableInfo) bool {
		return slices.Contains(iptablesTables, t.Name) && t.Listed == "" || t.Compat
	}}
	jumps := proxyJumps
	if running == "ipvs" {
		jumps = []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"}
	} else if c, ok := hookedServices(v.rules, "nat", "KUBE-SERVICES", netfilter.Prerouting, netfilter.Output); ok {
		d.evidence = append(d.evidence, chainEvidence(v, c))
	}
	for _, name := range []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"} {
		if c, ok := hookedServices(v.rules, "filter", name, netfilter.Forward, netfilter.Output, netfilter.Input); ok {
			d.evidence = append(d.evidence, chainEvidence(v, c))
		}
	}
	if len(d.evidence) == 0 {
		return nil
	}
	d.leads = func(c netfilter.Chain, r netfilter.Rule) bool {
		return slices.Contains(jumps, r.Jump) && (running != "ipvs" || c.Table == "filter")
	}
	return &leftover{mode: "iptables", what: "rules for Services", dataplane: d}
}

var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// leftNftables is the table of nftables mode.
func (v *nodeView) leftNftables() *leftover {
	c, ok := v.rules.Chain(kubeProxyTable, "services")
	if !ok {
		return nil
	}
	d := &dataplane{
		name: "nftables mode", evidence: []diagnosis.Evidence{chainEvidence(v, c)},
		holds: func(t netfilter.TableInfo) bool { return t.Name == kubeProxyTable },
		leads: func(c netfilter.Chain, _ netfilter.Rule) bool { return c.Table == kubeProxyTable },
	}
	return &leftover{mode: "nftables", what: "the table kube-proxy", dataplane: d}
}

// ipvsJumps are the chains to which IPVS mode alone leads packets from a hook.
var ipvsJumps = []string{"KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", "KUBE-NODE-PORT", "KUBE-SOURCE-RANGES-FIREWALL"}

// leftIPVS is what IPVS mode binds, and the chains that hooks lead to. Its
// virtual servers are not in what is read here.
func (v *nodeView) leftIPVS() *leftover {
	d := &dataplane{name: "IPVS mode", holds: func(netfilter.TableInfo) bool { return false }}
	for _, hook := range []netfilter.Hook{netfilter.Input, netfilter.Output, netfilter.Forward} {
		for _, base := range v.rules.BaseChains(hook) {
			for r := range base.Rules() {
				if slices.Contains(ipvsJumps, r.Jump) {
					d.evidence = append(d.evidence, ruleEvidence(v, netfilter.Step{Source: base.Source, Table: base.Table, Chain: base.Name, Line: r.Line, Text: r.Text}))
				}
			}
		}
	}
	if len(d.evidence) > 0 {
		d.leads = func(_ netfilter.Chain, r netfilter.Rule) bool { return slices.Contains(ipvsJumps, r.Jump) }
	}
	what := "chains"
	if bound := v.boundByIPVS(); len(bound) > 0 {
		what = "the device " + ipvsDevice
		d.evidence = append([]diagnosis.Evidence{v.deviceEvidence(bound)}, d.evidence...)
	}
	if len(d.evidence) == 0 {
		return nil
	}
	return &leftover{mode: "ipvs", what: what, dataplane: d}
}

// boundByIPVS are the addresses on kube-ipvs0.
func (v *nodeView) boundByIPVS() []netip.Addr {
	return slices.DeleteFunc(v.host.Addresses(), func(a netip.Addr) bool { return v.host.Interface(a) != ipvsDevice })
}

// deviceEvidence quotes the first address of kube-ipvs0 as `ip addr` prints it.
func (v *nodeView) deviceEvidence(bound []netip.Addr) diagnosis.Evidence {
	e := diagnosis.Evidence{
		Source: "ip addr of " + v.label(), Quote: fmt.Sprintf("%s has %s", ipvsDevice, bound[0]),
		Command: v.onNodeCommand("ip addr show dev " + ipvsDevice),
	}
	for _, t := range v.state.All(snapshot.IPAddr) {
		n, inside := 0, false
		for line := range strings.Lines(t.Content) {
			n++
			text := strings.TrimSpace(line)
			switch {
			case strings.Contains(text, " "+ipvsDevice+":") || strings.Contains(text, " "+ipvsDevice+" ") && !strings.HasPrefix(line, " "):
				inside = true
				e.Source, e.Line, e.Quote = textName(t)+" of "+v.label(), n, text
			case line[0] != ' ' && line[0] != '\t':
				inside = false
			case inside && strings.HasPrefix(text, "inet"):
				e.Quote += fmt.Sprintf("; %s (%s in all)", text, count(len(bound), "address"))
				return e
			}
		}
	}
	return e
}

// runningEvidence shows in which mode kube-proxy runs, by what was read of it.
func (v *nodeView) runningEvidence(l *leftover) []diagnosis.Evidence {
	switch s := v.seen; {
	case s.answered != "":
		return v.modeAnswer()
	case s.configured != "":
		return []diagnosis.Evidence{{
			Source: s.configRef, Ref: "ConfigMap/" + snapshot.ProxyNamespace, Quote: "mode: " + s.configured,
			Command: kubectl("get", "-n", snapshot.ProxyNamespace, s.configRef, "-o", "yaml"),
		}}
	}
	return slices.DeleteFunc(v.modeChains(), func(e diagnosis.Evidence) bool { return slices.Contains(l.evidence, e) })
}

// cleanUp proposes to take the leftover alone away.
func (p *Pass) cleanUp(v *nodeView, l *leftover) []Proposal {
	var out []Proposal
	switch l.mode {
	case "nftables":
		out = append(out, p.deleteTable(v))
	case "iptables":
		if l.running == "nftables" {
			for _, tool := range v.leftTools(l) {
				out = append(out, p.filterOut(v, tool, "the rules of iptables mode"))
			}
		}
	case "ipvs":
		if len(v.boundByIPVS()) > 0 {
			out = append(out, p.deleteDevice(v))
		}
	}
	return append(out, Proposal{
		Fix: diagnosis.Fix{
			Title: "or let kube-proxy clear away all modes' rules, and start again",
			Commands: []string{
				v.onNodeCommand("sudo kube-proxy --cleanup") + "   (as kube-proxy's own image and version, with the node's network and privileges, while kube-proxy is stopped)",
			},
			BlastRadius: "every Service on " + v.label() + ": the rules of the mode that runs go too, so that no Service works there until kube-proxy has started again and written its own",
			Undo:        []string{"start kube-proxy again: it writes all rules of its mode"},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	})
}

// leftTools are the iptables that a leftover was written with.
func (v *nodeView) leftTools(l *leftover) []string {
	var out []string
	for _, t := range v.rules.Tables() {
		if !l.holds(t) || !v.rules.Only(func(o netfilter.TableInfo) bool { return o == t }).HasChain(t.Name, "KUBE-SERVICES") {
			continue
		}
		backend := "nft"
		if t.Backend == netfilter.Legacy {
			backend = "legacy"
		}
		if tool := v.toolOf(backend, t.Family == netfilter.IPv6); !slices.Contains(out, tool) {
			out = append(out, tool)
		}
	}
	return out
}

func (p *Pass) deleteTable(v *nodeView) Proposal {
	fix := diagnosis.Fix{
		Title:       "delete nftables mode's table, while kube-proxy runs in the other mode",
		BlastRadius: "what that table does on " + v.label() + " alone; nothing else writes to it, and new connections then go by the running mode's rules",
		Verify:      []string{p.again()},
	}
	for _, t := range v.rules.Tables() {
		if t.Name != kubeProxyTable {
			continue
		}
		family := cmpFamily(t)
		file := kubeProxyTable + "-" + family + ".nft"
		if save := v.onNodeCommand(fmt.Sprintf("sudo nft list table %s %s | tee %s | head -n 1", family, kubeProxyTable, file)); !slices.Contains(fix.Commands, save) {
			fix.Commands = append(fix.Commands, save, v.onNodeCommand(fmt.Sprintf("sudo nft delete table %s %s", family, kubeProxyTable)))
			fix.Undo = append(fix.Undo, v.onNodeCommand("sudo nft -f "+file))
		}
	}
	return Proposal{Fix: fix, NotSimulated: changesNode}
}

// cmpFamily is the family that nft has for kube-proxy's table.
func cmpFamily(t netfilter.TableInfo) string {
	if t.Family == netfilter.IPv6 {
		return "ip6"
	}
	return "ip"
}

func (p *Pass) deleteDevice(v *nodeView) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "delete the device of IPVS mode, while kube-proxy runs in the other mode",
			Commands: []string{
				v.onNodeCommand("ip addr show dev " + ipvsDevice + " | tee " + ipvsDevice + ".before"), v.onNodeCommand("sudo ip link delete " + ipvsDevice),
			},
			BlastRadius: "the addresses on that device cease to be " + v.label() + "'s own; the virtual servers of IPVS stay, and are out of reach then",
			Undo:        []string{v.onNodeCommand("sudo ip link add "+ipvsDevice+" type dummy") + "   (then ip addr add each address of " + ipvsDevice + ".before)"},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}
