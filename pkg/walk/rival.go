package walk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// dataplane is one whole set of kube-proxy's rules on a node, of which one is
// to be enough.
type dataplane struct {
	name string
	// holds says whether a table is one in which it stands.
	holds func(netfilter.TableInfo) bool
	// leads says whether a rule of a base chain leads into it.
	leads func(netfilter.Chain, netfilter.Rule) bool
	// evidence quotes where it stands.
	evidence []diagnosis.Evidence

	without, ahead, behind *netfilter.Ruleset
	hooking                map[hookedTable]bool // see there
}

// proxyJumps are the chains to which kube-proxy's iptables mode leads packets
// from the kernel's hooks. The kubelet makes KUBE-FIREWALL, and up to 1.27
// KUBE-POSTROUTING, too; these alone are no sign of kube-proxy.
var proxyJumps = []string{"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL", "KUBE-FORWARD", "KUBE-POSTROUTING"}

// unhooked is the node's rules without the dataplane.
func (v *nodeView) unhooked(d *dataplane) *netfilter.Ruleset {
	if d.without == nil {
		d.without = v.rules.Unhooked(d.leads)
	}
	return d.without
}

// aheadOf is the node's rules with the dataplane's tables ahead of all others
// at equal priority, as they are if they were loaded last.
func (v *nodeView) aheadOf(d *dataplane) *netfilter.Ruleset {
	if d.ahead == nil {
		d.ahead = v.rules.Ahead(d.holds)
	}
	return d.ahead
}

// behindOf has them behind all others.
func (v *nodeView) behindOf(d *dataplane) *netfilter.Ruleset {
	if d.behind == nil {
		d.behind = v.rules.Ahead(func(t netfilter.TableInfo) bool { return !d.holds(t) })
	}
	return d.behind
}

// contest is how two dataplanes treat one packet.
type contest struct {
	pr *probe
	// first and second: the packet with one of the two alone.
	first, second *probe
	// firstAhead and secondAhead: with both, in either order.
	firstAhead, secondAhead *probe
}

func (p *Pass) contest(pr *probe, a, b *dataplane) contest {
	v := pr.view
	return contest{
		pr: pr, first: p.under(pr, v.unhooked(b)), second: p.under(pr, v.unhooked(a)),
		firstAhead: p.under(pr, v.aheadOf(a)), secondAhead: p.under(pr, v.aheadOf(b)),
	}
}

// under is the probe as it would be under other rules of the node.
func (p *Pass) under(pr *probe, rules *netfilter.Ruleset) *probe {
	out := &probe{view: pr.view, caller: pr.caller, frontend: pr.frontend, dst: pr.dst, expect: pr.expect}
	out.outcomes = netfilter.Walk(rules, pr.view.host, pr.packet())
	if p.Service == nil {
		out.judgeAlone()
		return out
	}
	p.judge(out)
	out.blocked = slices.DeleteFunc(out.blocked, func(o netfilter.Outcome) bool { return p.policed(out, o) })
	return out
}

// harm says whether having both is what spoils the packet: one of the two alone
// would treat it as it ought to be, and both together, in an order that the
// kernel may have, do not. Without objects nobody knows what ought to be; the
// harm then is that they contradict each other.
func (p *Pass) harm(c contest) bool {
	if p.Service == nil {
		return c.firstAhead.whereTo() != c.secondAhead.whereTo() ||
			c.first.serves() && c.second.serves() && c.first.whereTo() != c.second.whereTo()
	}
	return (c.firstAhead.bad() || c.secondAhead.bad()) && (!c.first.bad() || !c.second.bad())
}

// hangsOnOrder says whether it depends on which the kernel asks first.
func (c contest) hangsOnOrder() bool { return c.firstAhead.whereTo() != c.secondAhead.whereTo() }

// serves says whether the rules say anything of the packet.
func (pr *probe) serves() bool {
	return slices.ContainsFunc(pr.outcomes, func(o netfilter.Outcome) bool {
		return o.Verdict != netfilter.None && (o.Verdict != netfilter.Accept || o.Rewritten)
	})
}

// whereTo says where a packet may end, for people and to compare.
func (pr *probe) whereTo() string {
	var to []string
	does := map[string]bool{}
	for _, o := range pr.outcomes {
		switch {
		case o.Verdict == netfilter.DNAT:
			to = append(to, o.To.String())
		case o.Verdict == netfilter.Reject:
			does["rejects it"] = true
		case o.Verdict == netfilter.Drop:
			does["drops it"] = true
		case o.Verdict == netfilter.Undecided:
			does["may do anything"] = true
		default:
			does["leaves it as it is"] = true
		}
	}
	slices.Sort(to)
	var parts []string
	if to = slices.Compact(to); len(to) > 0 {
		parts = append(parts, "sends it to "+listed(to))
	}
	return strings.Join(append(parts, sortedKeys(does)...), " or ")
}

// contested are the probes of a node to which having both does harm.
func (p *Pass) contested(v *nodeView, a, b *dataplane) []contest {
	var out []contest
	for _, pr := range p.probes() {
		if pr.view != v || pr.hairpin || pr.unsure != "" || p.Service != nil && pr.expect.Action == proxy.Ignore {
			continue
		}
		if c := p.contest(pr, a, b); p.harm(c) {
			out = append(out, c)
		}
	}
	return out
}

// text tells what each of the two does with the packet, and what is not known.
func (c contest) text(a, b *dataplane) string {
	s := fmt.Sprintf("to %s from %s, %s alone %s, %s alone %s", frontendText(c.pr.frontend, c.pr.dst), outsiders(c.pr.caller.label), a.name, c.first.whereTo(), b.name, c.second.whereTo())
	if c.hangsOnOrder() {
		return s + "; " + orderUnknown
	}
	return s + "; with both the kernel " + c.firstAhead.whereTo()
}

const orderUnknown = "which of the two the kernel asks first is not known: it is the one that was loaded last, and nothing that was read tells which"

// way quotes the rules that do harm: those of the one that is wrong alone, or,
// without objects, of both; by what the other would not do.
func (c contest) way(p *Pass) []diagnosis.Evidence {
	var out []diagnosis.Evidence
	for _, side := range [][2]*probe{{c.first, c.second}, {c.second, c.first}} {
		pr, other := side[0], side[1]
		if p.Service != nil && !pr.bad() || len(pr.outcomes) == 0 {
			continue
		}
		for _, e := range wayEvidence(pr.view, pr.unlike(other)) {
			if !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return out
}

// unlike is the first outcome that the other does not have, or else the first.
func (pr *probe) unlike(other *probe) netfilter.Outcome {
	at := slices.IndexFunc(pr.outcomes, func(o netfilter.Outcome) bool {
		return !slices.ContainsFunc(other.outcomes, func(x netfilter.Outcome) bool { return x.To == o.To && x.Verdict == o.Verdict })
	})
	return pr.outcomes[max(at, 0)]
}

// decidedByRules are the diagnoses that two dataplanes on one node account for
// where the one that is wrong decides.
var decidedByRules = []diagnosis.Code{
	diagnosis.VIPNotProgrammed, diagnosis.StaleBackend, diagnosis.BackendMissing, diagnosis.RejectedAsEmpty, diagnosis.WrongBackendPort,
	diagnosis.UnevenOdds, diagnosis.MasqueradeMissing, diagnosis.DroppedAfterDNAT, diagnosis.FirewallChainDrops,
	// Connections that the stale one of the two made.
	diagnosis.ConntrackStale,
}

// hookedServices says whether a chain of services is led to by a hook of its
// table, and has rules for Services.
func hookedServices(rules *netfilter.Ruleset, table, name string, hooks ...netfilter.Hook) (netfilter.Chain, bool) {
	for _, c := range rules.Chains(table, name) {
		if !hasServices(c) {
			continue
		}
		same := rules.Only(func(t netfilter.TableInfo) bool {
			return t.Source == c.Source && t.Backend == c.Backend && t.Family == c.Family && t.Name == table
		})
		for _, h := range hooks {
			for _, base := range same.BaseChains(h) {
				if _, ok := base.Reach(name); ok {
					return c, true
				}
			}
		}
	}
	return netfilter.Chain{}, false
}

// hasServices says whether a chain KUBE-SERVICES or the like has a rule for any
// Service: one that sends on to its chains or that turns it away. In IPVS mode
// it asks sets, and has none.
func hasServices(c netfilter.Chain) bool {
	for r := range c.Rules() {
		if r.Target == "REJECT" || r.Target == "DROP" {
			return true
		}
		if slices.ContainsFunc(chainsOfServices, func(p string) bool { return strings.HasPrefix(r.Jump, p) }) {
			return true
		}
	}
	return false
}

// chainsOfServices are how the chains of single Services begin, in iptables mode.
var chainsOfServices = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-", "KUBE-XLB-"}

// chainEvidence quotes a chain by its declaration.
func chainEvidence(v *nodeView, c netfilter.Chain) diagnosis.Evidence {
	quote := fmt.Sprintf(":%s (%d rules)", c.Name, c.NumRules)
	if v.nftFamily(c.Table) != "" {
		quote = fmt.Sprintf("table %s, chain %s (%d rules)", c.Table, c.Name, c.NumRules)
	}
	return diagnosis.Evidence{
		Source: cmp.Or(c.Source, "rules") + " of " + v.label(), Ref: c.Table + " " + c.Name, Line: c.Line, Quote: quote, Command: showBase(v, c),
	}
}

// drainAndReboot is the mend for rules that nobody will take away: a kernel
// that starts anew has none, and kube-proxy then writes its own.
func (p *Pass) drainAndReboot(v *nodeView) Proposal {
	node := cmp.Or(v.name, "NODE")
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "drain and reboot " + v.label() + ", which leaves only what is written anew",
			Commands: []string{
				kubectl("drain", node, "--ignore-daemonsets"), v.onNodeCommand("sudo systemctl reboot"), kubectl("uncordon", node),
			},
			BlastRadius: "the pods of " + v.label() + " move to other nodes, and everything on it is away for some minutes; no other node is touched",
			Undo:        []string{kubectl("uncordon", node)},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// filterOut proposes to load a backend's rules without kube-proxy's.
func (p *Pass) filterOut(v *nodeView, tool, what string) Proposal {
	const chains = "KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|FORWARD|PROXY-FIREWALL|PROXY-CANARY|SVC-|SVL-|SEP-|EXT-|FW-|XLB-)"
	file := tool + ".before"
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "take " + what + " out of " + v.label() + " without a reboot",
			Commands: []string{
				v.onNodeCommand(fmt.Sprintf("sudo %s-save | tee %s | grep -c KUBE-", tool, file)),
				v.onNodeCommand(fmt.Sprintf("grep -v -E '%s' %s | sudo %s-restore", chains, file, tool)),
			},
			BlastRadius: "every table of " + tool + " on " + v.label() + " is loaded again without those chains: what others write in the same moment is lost; connections that were rewritten go on",
			Undo:        []string{v.onNodeCommand(fmt.Sprintf("sudo %s-restore < %s", tool, file))},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}
