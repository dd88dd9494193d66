package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// firewallChainDrops: the packet ends in a chain that kube-proxy or the kubelet
// made to drop: for source ranges that leave the client out, for the mark to
// drop, for packets to loopback addresses, for what conntrack calls invalid.
var firewallChainDrops = &Check{
	Code: diagnosis.FirewallChainDrops, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		for _, f := range byDrop(p.faults(func(pr *probe) bool { return len(pr.walled) > 0 }), func(pr *probe) []netfilter.Outcome { return pr.walled }) {
			p.reportWall(f)
		}
		p.reportLostMatch()
		p.reportRanges()
	},
}

// reportWall is about packets that ought to get through.
func (p *Pass) reportWall(f nodeFault) {
	pr, v := f.first(), f.view
	o := pr.walled[0]
	last := lastStep(o)
	wall := v.wallOf(o)
	found := fmt.Sprintf("%s %s: %s", last.Table, last.Chain, last.Text)
	if wall.says != "" {
		found += "; " + wall.says
	}
	evidence := wayEvidence(v, o)
	fixes := []Proposal{p.restartProxy(v)}
	switch {
	case wall.kind == wallRanges:
		evidence = append(evidence, wall.rules...)
		if p.Service != nil {
			asked := "[] (none)"
			if r := p.Service.Spec.LoadBalancerSourceRanges; len(r) > 0 {
				asked = strings.Join(r, ", ")
			}
			evidence = append(evidence, p.serviceField(".spec.loadBalancerSourceRanges", asked))
			found += "; the Service's own ranges are " + asked
		}
	case wall.kind == wallLost:
		fixes = []Proposal{p.matchVersions(v)}
	case wall.kind == wallMark:
		fixes = []Proposal{p.findMarker(v, o)}
		for _, s := range o.Steps {
			if strings.Contains(s.Text, "MARK") && !ofKubeProxy(s) {
				evidence = append([]diagnosis.Evidence{ruleEvidence(v, s)}, evidence...)
			}
		}
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s drops %s to %s in %s%s: %s", v.label(), share(pr.walled), frontendText(pr.frontend, pr.dst), last.Chain, atLine(last), wall.title),
		Expected: pr.wantText(),
		Found:    found + "; for " + f.affected(),
		Evidence: evidence,
		Fixes:    fixes,
	})
}

// wallKind is why a firewall chain drops.
type wallKind uint8

const (
	wallOther wallKind = iota
	wallRanges
	wallMark
	wallLost
	wallMartian
	wallInvalid
)

// wall is one drop explained.
type wall struct {
	kind        wallKind
	title, says string
	rules       []diagnosis.Evidence // that let other clients through
}

// wallOf tells by the rule and the way to it why a packet was dropped.
func (v *nodeView) wallOf(o netfilter.Outcome) wall {
	last := lastStep(o)
	text := last.Text
	fw := firewallOf(o)
	switch {
	case fw != "" || last.Table == kubeProxyTable || strings.HasPrefix(last.Chain, "KUBE-FW-") || last.Chain == "KUBE-SOURCE-RANGES-FIREWALL" || last.Chain == "KUBE-PROXY-FIREWALL" || last.Chain == "KUBE-FIRE-WALL":
		w := wall{kind: wallRanges, title: "the source ranges in its rules leave this client out"}
		if ranges := v.rangesIn(fw, last); len(ranges) > 0 {
			var texts []string
			for _, r := range ranges {
				texts = append(texts, r.text)
				w.rules = append(w.rules, r.evidence)
			}
			w.says = "they admit " + listed(slices.Compact(texts))
		}
		return w
	case last.Chain == "KUBE-FIREWALL" && unconditional(text):
		return wall{kind: wallLost, title: "the rule has lost its match, and drops everything",
			says: "it is to drop marked packets alone (-m mark --mark 0x8000/0x8000); an iptables that is older than the one that wrote a rule writes it back without the match (kubernetes#112477)"}
	case last.Chain == "KUBE-FIREWALL" && strings.Contains(text, "127.0.0.0/8"):
		return wall{kind: wallMartian, title: "it goes to a loopback address from elsewhere",
			says: "this rule keeps packets from outside away from what listens on 127.0.0.1 (CVE-2020-8558)"}
	case last.Chain == "KUBE-FIREWALL":
		return wall{kind: wallMark, title: "it carries the mark to drop",
			says: fmt.Sprintf("its mark is %#x, and no rule of kube-proxy's for a Service without endpoints set it", o.Mark)}
	case last.Chain == "KUBE-FORWARD":
		return wall{kind: wallInvalid, title: "conntrack calls the packet invalid", says: "it has no connection there, or the rule lost its match"}
	}
	return wall{title: "it is not let through"}
}

// unconditional says whether a rule, as it was printed, drops without a match.
func unconditional(text string) bool {
	words, ok := ruleWords(text)
	if !ok {
		return false
	}
	for i := 2; i < len(words); i++ {
		switch words[i] {
		case "--comment", "-j":
			i++
		case "-m":
			if i++; i >= len(words) || words[i] != "comment" {
				return false
			}
		default:
			return false
		}
	}
	return len(words) > 2 && words[0] == "-A"
}

// firewallOf is the chain KUBE-FW-* that a packet came through without being
// sent to the Service, so that its end is that chain's doing; "" where it
// passed none, or where that let it in.
func firewallOf(o netfilter.Outcome) string {
	fw := ""
	for _, s := range o.Steps {
		if s.Table != "nat" {
			continue
		}
		if i := strings.Index(s.Text, "-j KUBE-FW-"); i >= 0 {
			fw = strings.Fields(s.Text[i+len("-j "):])[0]
			continue
		}
		for _, in := range []string{"-j KUBE-SVC-", "-j KUBE-SVL-", "-j KUBE-EXT-", "-j KUBE-XLB-"} {
			if s.Chain == fw && strings.Contains(s.Text, in) {
				fw = ""
			}
		}
	}
	return fw
}

// unfenced says whether KUBE-PROXY-FIREWALL dropped a packet that never came to
// the chain KUBE-FW-* of its Service: nothing in nat knows the address, which is
// the fault.
func unfenced(o netfilter.Outcome) bool {
	return lastStep(o).Chain == "KUBE-PROXY-FIREWALL" && !slices.ContainsFunc(o.Steps, func(s netfilter.Step) bool {
		return s.Table == "nat" && strings.Contains(s.Text, "-j KUBE-FW-")
	})
}

// sourceRange is a range that a rule lets in.
type sourceRange struct {
	text     string
	evidence diagnosis.Evidence
}

// rangesIn are the ranges that the firewall chain of a Service admits: iptables
// has a rule for each, nft one rule for what is not in any.
func (v *nodeView) rangesIn(fw string, last netfilter.Step) []sourceRange {
	var out []sourceRange
	if last.Table == kubeProxyTable {
		if _, rest, ok := strings.Cut(last.Text, "saddr != "); ok {
			text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "drop"))
			if i := strings.Index(text, "}"); i >= 0 {
				text = text[:i+1]
			}
			out = append(out, sourceRange{strings.Trim(text, "{} "), ruleEvidence(v, last)})
		}
		return out
	}
	if fw == "" {
		_, rest, _ := strings.Cut(last.Text, "traffic not accepted by ")
		fw, _, _ = strings.Cut(rest, "\"")
	}
	for _, c := range v.rules.Chains("nat", strings.TrimSpace(fw)) {
		for r := range c.Rules() {
			words, _ := ruleWords(r.Text)
			if i := slices.Index(words, "-s"); i > 0 && i+1 < len(words) && words[i-1] != "!" {
				out = append(out, sourceRange{words[i+1], ruleEvidence(v, netfilter.Step{Source: c.Source, Table: c.Table, Chain: c.Name, Line: r.Line, Text: r.Text})})
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// reportLostMatch finds the node that drops whatever it receives or sends
// itself, whether or not a packet that was walked is among it: the kubelet and
// kube-proxy reach nobody from there.
func (p *Pass) reportLostMatch() {
	for _, v := range p.node.views {
		jumps, drop := v.lostMatch()
		if len(jumps) == 0 || slices.ContainsFunc(p.node.probes, func(pr *probe) bool {
			return pr.view == v && slices.ContainsFunc(pr.walled, func(o netfilter.Outcome) bool { return v.wallOf(o).kind == wallLost })
		}) {
			continue // or said with the packet that meets it
		}
		wall := v.wallOf(netfilter.Outcome{Steps: []netfilter.Step{drop}})
		var does []string
		var evidence []diagnosis.Evidence
		for _, j := range jumps {
			does = append(does, map[string]string{"INPUT": "receives", "OUTPUT": "sends"}[j.Chain])
			evidence = append(evidence, ruleEvidence(v, j))
		}
		p.Report(Finding{
			Subject:  p.onNode(v),
			Title:    fmt.Sprintf("%s drops all that it %s itself, in KUBE-FIREWALL%s: %s", v.label(), strings.Join(slices.Compact(does), " and "), atLine(drop), wall.title),
			Expected: "KUBE-FIREWALL to drop marked packets alone",
			Found:    drop.Text + "; " + wall.says,
			Evidence: append(evidence, ruleEvidence(v, drop)),
			Fixes:    []Proposal{p.matchVersions(v)},
		})
	}
}

// lostMatch finds a rule of KUBE-FIREWALL that drops everything, and the rules
// of INPUT and OUTPUT that lead there without a condition.
func (v *nodeView) lostMatch() (jumps []netfilter.Step, drop netfilter.Step) {
	if !v.rivals.lostDone {
		v.rivals.lostDone = true
		v.rivals.lostJumps, v.rivals.lostDrop = v.findLostMatch()
	}
	return v.rivals.lostJumps, v.rivals.lostDrop
}

func (v *nodeView) findLostMatch() (jumps []netfilter.Step, drop netfilter.Step) {
	for _, c := range v.rules.Chains("filter", "KUBE-FIREWALL") {
		step := func(chain string, r netfilter.Rule) netfilter.Step {
			return netfilter.Step{Source: c.Source, Table: c.Table, Chain: chain, Line: r.Line, Text: r.Text}
		}
		same := v.rules.Only(func(t netfilter.TableInfo) bool {
			return t.Source == c.Source && t.Backend == c.Backend && t.Family == c.Family && t.Name == c.Table
		})
		for r := range c.Rules() {
			if r.Target != "DROP" || !r.Unconditional && !unconditional(r.Text) {
				continue
			}
			for _, name := range []string{"INPUT", "OUTPUT"} {
				base, _ := same.Chain("filter", name)
				for _, j := range base.JumpsTo(c.Name) {
					if j.Unconditional {
						jumps = append(jumps, step(name, j))
					}
				}
			}
			if len(jumps) > 0 {
				return jumps, step(c.Name, r)
			}
		}
	}
	return nil, netfilter.Step{}
}

// matchVersions is the mend for rules that one iptables wrote and another read.
func (p *Pass) matchVersions(v *nodeView) Proposal {
	commands := []string{v.onNodeCommand("iptables --version"), v.onNodeCommand("sudo iptables -t filter -S KUBE-FIREWALL")}
	if v.seen.pod != nil {
		commands = append(commands, kubectl("exec", "-n", v.seen.pod.Namespace, v.seen.pod.Name, "--", "iptables", "--version"))
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "use one version of iptables on " + v.label() + ", on the host and in the images of kube-proxy and the CNI, then restart the kubelet and kube-proxy",
			Commands:    commands,
			BlastRadius: "these commands only look; the restarts write the rules anew, and connections go on",
			Undo:        []string{"nothing to undo: these only look"},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// findMarker is the mend where something else uses the mark to drop.
func (p *Pass) findMarker(v *nodeView, o netfilter.Outcome) Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "find the rule that sets the mark, and have its owner use another bit",
			Commands:    []string{v.onNodeCommand(fmt.Sprintf("sudo %s | grep -e MARK -e 0x8000", v.saveTool(lastStep(o).Source)))},
			BlastRadius: "these commands only look",
			Undo:        []string{"nothing to undo: these only look"},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}

// reportRanges is about a client that the Service's own source ranges leave
// out: that is as the Service asks, and an error only for the client that was
// asked about.
func (p *Pass) reportRanges() {
	if p.Service == nil {
		return
	}
	faults := p.faults(func(pr *probe) bool { return pr.leftOut() && p.asksFor(pr) })
	if len(faults) == 0 {
		return
	}
	// It is one thing to say of the Service, however many nodes do as it asks.
	f := faults[0]
	pr, v := f.first(), f.view
	nodes := v.label()
	if len(faults) > 1 {
		nodes = count(len(faults), "node") + " examined"
	}
	ranges := strings.Join(p.Service.Spec.LoadBalancerSourceRanges, ", ")
	p.Report(Finding{
		Title:    fmt.Sprintf("loadBalancerSourceRanges leave %s out: %s drops its packets to %s", pr.caller.addr, v.label(), frontendText(pr.frontend, pr.dst)),
		Expected: pr.caller.addr.String() + " to be in one of the Service's source ranges",
		Found:    fmt.Sprintf("they are %s; %s: %s", ranges, nodes, f.affected()),
		Evidence: append([]diagnosis.Evidence{p.serviceField(".spec.loadBalancerSourceRanges", ranges)}, wayEvidence(v, pr.outcomes[0])...),
		Fixes:    []Proposal{p.admitRange(pr)},
	})
}

// asksFor says whether this very packet was asked about: a client by its
// address, from outside, or any that is named with the load balancer's address.
// Clients in the cluster have the cluster IP.
func (p *Pass) asksFor(pr *probe) bool {
	switch {
	case p.Client.Kind == AnyPod || p.Client.Kind == FromExternal || pr.hairpin:
		return false
	case p.Target.Addr == pr.dst.Addr():
		return true
	}
	return pr.caller.kind == proxy.ExternalClient
}

// admitted is a client outside that the Service's source ranges let in, where
// one that stands for all others is not: without it nobody would see what the
// node does for those that are served. None where there are no ranges.
func (p *Pass) admitted(v *nodeView, f proxy.Frontend) []caller {
	if p.Service == nil || f.Kind != proxy.LoadBalancer {
		return nil
	}
	var first netip.Prefix
	for _, text := range p.Service.Spec.LoadBalancerSourceRanges {
		r, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch {
		case err != nil || r.Addr().Is6() != f.V6:
		case r.Bits() == 0 || r.Contains(outside(f.V6)):
			return nil
		case !first.IsValid():
			first = r.Masked()
		}
	}
	if !first.IsValid() {
		return nil
	}
	a := first.Addr()
	if next := a.Next(); first.Contains(next) {
		a = next
	}
	if v.host.Local(a) == netfilter.True || len(p.podsByIP[a]) > 0 || p.nodeByAddress[a] != nil {
		return nil // it is no client outside
	}
	return []caller{{proxy.ExternalClient, "external in " + first.String(), a}}
}

// dropsBecause says why a node drops what the objects ask it to drop.
func dropsBecause(probes []*probe) string {
	for _, pr := range probes {
		if pr.expect.Action == proxy.Drop && !pr.leftOut() {
			return ", as the traffic policy asks with no local endpoint"
		}
	}
	return ", as loadBalancerSourceRanges ask"
}

// leftOut says whether the node drops the packet by the Service's source
// ranges, as these ask.
func (pr *probe) leftOut() bool {
	return pr.expect.Action == proxy.Drop && pr.frontend.Kind == proxy.LoadBalancer && len(pr.outcomes) > 0 &&
		!slices.ContainsFunc(pr.outcomes, func(o netfilter.Outcome) bool { return o.Verdict != netfilter.Drop || !firewallChain(lastStep(o)) })
}

// admitRange proposes to let the client in.
func (p *Pass) admitRange(pr *probe) Proposal {
	from := p.Service.Spec.LoadBalancerSourceRanges
	one := netip.PrefixFrom(pr.caller.addr, pr.caller.addr.BitLen()).String()
	to := append(slices.Clone(from), one)
	return p.specFix("admit "+one+", if this client is to have access", "loadBalancerSourceRanges", to, from,
		"this Service's load balancer addresses alone; every node, and a cloud's load balancer, then lets this address in",
		func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = to })
}

// byDrop parts what different rules of a node turn away.
func byDrop(faults []nodeFault, of func(*probe) []netfilter.Outcome) []nodeFault {
	var out []nodeFault
	for _, f := range faults {
		first := len(out)
		for _, pr := range f.probes {
			rule := lastStep(of(pr)[0])
			i := slices.IndexFunc(out[first:], func(g nodeFault) bool { return lastStep(of(g.first())[0]) == rule })
			if i < 0 {
				out = append(out, nodeFault{view: f.view})
				i = len(out) - 1 - first
			}
			out[first+i].probes = append(out[first+i].probes, pr)
		}
	}
	return out
}

// firewallChain says whether a rule stands in a chain of kube-proxy's or the
// kubelet's that only drops.
func firewallChain(s netfilter.Step) bool {
	if s.Table == kubeProxyTable {
		return strings.HasPrefix(s.Chain, "firewall-") || s.Chain == "firewall" || strings.Contains(s.Text, "@firewall")
	}
	switch s.Chain {
	case "KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-FIRE-WALL":
		return true
	case "KUBE-FORWARD":
		return strings.Contains(s.Text, "DROP")
	}
	return strings.HasPrefix(s.Chain, "KUBE-FW-")
}
