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
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// capturedByForeignRule: the packet is rewritten before kube-proxy's rules see
// it, and a connection is rewritten once: a pod's hostPort, a port that docker
// publishes, a mesh's redirect, a DNAT made by hand.
var capturedByForeignRule = &Check{
	Code: diagnosis.CapturedByForeignRule, Needs: needsOfNode, Applies: onNodes, Alone: true,
	Run: func(p *Pass) {
		for _, f := range byCapture(p.faults(func(pr *probe) bool { return len(pr.captured) > 0 })) {
			p.reportCapture(f)
		}
	},
}

// byCapture parts what different rules of a node take.
func byCapture(faults []nodeFault) []nodeFault {
	var out []nodeFault
	for _, f := range faults {
		first := len(out)
		for _, pr := range f.probes {
			rule, _ := capture(pr.captured[0])
			i := slices.IndexFunc(out[first:], func(g nodeFault) bool {
				s, _ := capture(g.first().captured[0])
				return s == rule
			})
			if i < 0 {
				out = append(out, nodeFault{view: f.view})
				i = len(out) - 1 - first
			}
			out[first+i].probes = append(out[first+i].probes, pr)
		}
	}
	return out
}

func (p *Pass) reportCapture(f nodeFault) {
	pr, v := f.first(), f.view
	o := pr.captured[0]
	rule, _ := capture(o)
	owner, known := ownerOf(o.Steps, rule)
	who := "a rule that is not kube-proxy's"
	if known {
		who = "a rule of " + owner.name
	}
	sent := "sends it to " + listTo(rewritten(pr.captured))
	if !o.Rewritten {
		sent = "hands it to a process of the node"
	}
	found := fmt.Sprintf("%s %s: %s; %s", rule.Table, rule.Chain, rule.Text, sent)
	if o.Rewritten {
		found += ", " + p.whoHas(v, o.To)
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s takes %s to %s on %s before kube-proxy's rules, and %s", who, share(pr.captured), frontendText(pr.frontend, pr.dst), v.label(), sent),
		Expected: pr.wantText(),
		Found:    found + "; for " + f.affected(),
		Evidence: slices.Concat(captureEvidence(v, o, rule), pr.unreached(), p.backendsEvidence(pr.expect.Backends)),
		Fixes:    p.giveBack(f, rule, owner),
	})
}

// whoHas says what has an address that a packet is sent to, as far as was read.
func (p *Pass) whoHas(v *nodeView, to netip.AddrPort) string {
	a := to.Addr()
	pods := p.podsByIP[a]
	switch {
	case !a.IsValid() || a.IsLoopback() || v.host.Local(a) == netfilter.True:
		return fmt.Sprintf("a process of the node on port %d, if one listens", to.Port())
	case p.Service == nil:
		return "which kube-proxy's rules have no say in"
	case len(pods) == 1 && slices.ContainsFunc(p.Endpoints(), func(e Endpoint) bool { return e.Addr == a }):
		return fmt.Sprintf("pod %s/%s on a port that is no endpoint's", pods[0].Namespace, pods[0].Name)
	case len(pods) == 1:
		return fmt.Sprintf("pod %s/%s, no endpoint of the Service", pods[0].Namespace, pods[0].Name)
	case len(pods) == 0 && p.inPodRange(a) && p.hasAll(snapshot.Pods):
		return "an address that no pod has"
	}
	return "no endpoint of the Service"
}

// captureEvidence quotes the rule that took the packet, and those that led to it.
func captureEvidence(v *nodeView, o netfilter.Outcome, rule netfilter.Step) []diagnosis.Evidence {
	var out []diagnosis.Evidence
	for _, s := range o.Steps {
		if s == rule {
			break
		}
		if s.Table == rule.Table && s.Source == rule.Source && !isPolicy(s) && !ofKubeProxy(s) {
			out = append(out, ruleEvidence(v, s))
		}
	}
	return append(out, ruleEvidence(v, rule))
}

// unreached quotes kube-proxy's own rule for the packet, which never sees it.
func (pr *probe) unreached() []diagnosis.Evidence {
	for _, o := range pr.ownWay() {
		for _, s := range o.Steps {
			if ofKubeProxy(s) && (s.Chain == pr.view.proxyChains().services || s.Chain == "KUBE-NODEPORTS") && !strings.HasSuffix(s.Text, "-j KUBE-MARK-MASQ") && !strings.HasSuffix(s.Text, "-j KUBE-NODEPORTS") {
				return []diagnosis.Evidence{ruleEvidence(pr.view, s)}
			}
		}
	}
	return nil
}

// servedByProxy says whether kube-proxy's own rules would rewrite the packet.
func (pr *probe) servedByProxy() bool {
	return slices.ContainsFunc(pr.ownWay(), func(o netfilter.Outcome) bool { return o.Rewritten })
}

// ownWay is what kube-proxy's rules do with the packet if nothing rewrites it
// before them.
func (pr *probe) ownWay() []netfilter.Outcome {
	v := pr.view
	if v.own == nil {
		names := v.proxyChains()
		v.own = v.rules.Unhooked(func(c netfilter.Chain, r netfilter.Rule) bool {
			if c.Base.Hook != netfilter.Prerouting && c.Base.Hook != netfilter.Output || c.Table == kubeProxyTable || c.Base.Kind == netfilter.Filtering {
				return false
			}
			return c.Base.Kind == netfilter.Preparing || r.Jump != names.services
		})
	}
	return netfilter.Walk(v.own, v.host, pr.packet())
}

// packet is what the probe sends.
func (pr *probe) packet() netfilter.Packet {
	pkt := packetTo(pr.frontend, pr.dst, pr.caller.addr)
	pkt.LocalProcess = pr.caller.kind == proxy.NodeClient
	if !pkt.LocalProcess {
		// It arrives by the interface over which the node would answer.
		pkt.In = pr.view.host.Route(pr.caller.addr)
	}
	return pkt
}

// ipvsDevice is the dummy device to which kube-proxy in IPVS mode binds the
// addresses of Services.
const ipvsDevice = "kube-ipvs0"

// takenOnPurpose says who takes the packet that may well hand it on to the
// Service: another that programs Services, or, of a load balancer's address, a
// pod that was not read; "" where nobody of these took it.
func (p *Pass) takenOnPurpose(pr *probe) string {
	for _, o := range pr.captured {
		rule, _ := capture(o)
		owner, _ := ownerOf(o.Steps, rule)
		place := fmt.Sprintf("%s line %d (%s %s) takes the packet before kube-proxy's rules: %s", rule.Source, rule.Line, rule.Table, rule.Chain, rule.Text)
		switch {
		case owner.proxies:
			return place + "; " + owner.name + " programs Services too"
		case owner.hostPort && p.mayBeServiceLB(pr, o.To.Addr()):
			return place + "; that may be a pod of k3s's servicelb (svclb), which hands on to the Service, and pods were not read"
		}
	}
	return ""
}

// settleAlone takes back what a probe without objects has, where it may be none.
func (p *Pass) settleAlone(pr *probe) {
	if p.Client.Kind == AnyPod || p.Client.Kind == FromExternal {
		// Source ranges are there to leave some out.
		n := len(pr.walled)
		pr.walled = slices.DeleteFunc(pr.walled, func(o netfilter.Outcome) bool { return pr.view.wallOf(o).kind == wallRanges })
		pr.fenced = len(pr.walled) < n
	}
	if why := p.takenOnPurpose(pr); why != "" {
		pr.captured = nil
		pr.unsure = why
		p.Missing(diagnosis.LayerNode, diagnosis.Missing{
			What: "where " + frontendText(pr.frontend, pr.dst) + " ends on " + pr.view.label(), Why: why,
			Supply: "kubectl get services,pods -A -o yaml > objects.yaml   (then: --objects objects.yaml)",
		})
	}
}

// mayBeServiceLB says whether a host port may be that of a pod by which k3s
// makes a load balancer of its nodes: the address is a load balancer's as far
// as is known, and whose pod it goes to is not.
func (p *Pass) mayBeServiceLB(pr *probe, to netip.Addr) bool {
	if len(p.podsByIP[to]) > 0 || p.hasAll(snapshot.Pods) {
		return false
	}
	if p.Service != nil {
		return pr.frontend.Kind == proxy.LoadBalancer
	}
	for _, e := range pr.unreached() {
		if strings.Contains(e.Quote, "--comment") {
			return strings.Contains(e.Quote, "loadbalancer IP")
		}
	}
	return true
}

// Labels of the pods of k3s's servicelb (k3s-io/k3s pkg/cloudprovider).
const (
	serviceLBName      = "svccontroller.k3s.cattle.io/svcname"
	serviceLBNamespace = "svccontroller.k3s.cattle.io/svcnamespace"
)

// byServiceLB says whether the packet goes to a pod of k3s's servicelb of this
// very Service: that pod sends it to the Service again, so it ends where it is
// to end.
func (p *Pass) byServiceLB(o netfilter.Outcome) bool {
	return p.Service != nil && o.Verdict == netfilter.DNAT && slices.ContainsFunc(p.podsByIP[o.To.Addr()], func(pod *corev1.Pod) bool {
		ns := pod.Labels[serviceLBNamespace]
		return pod.Labels[serviceLBName] == p.Service.Name && (ns == "" || ns == p.Service.Namespace)
	})
}

// giveBack proposes how kube-proxy gets the packets: which of the two is to have
// the port is for people to say.
func (p *Pass) giveBack(f nodeFault, rule netfilter.Step, owner ruleOwner) []Proposal {
	pr, v := f.first(), f.view
	var out []Proposal
	to := pr.captured[0].To.Addr()
	look := []string{showChain(v, rule)}
	title := "see who wrote this rule, and have them use another port"
	switch {
	case owner.hostPort && len(p.podsByIP[to]) == 1:
		pod := p.podsByIP[to][0]
		title = fmt.Sprintf("give pod %s/%s another hostPort, or the Service another port", pod.Namespace, pod.Name)
		look = append(look, kubectl("get", "pod", pod.Name, "-n", pod.Namespace, "-o", "jsonpath={.spec.containers[*].ports}"))
	case owner.hostPort:
		title = "find the pod with this hostPort; where there is none, the CNI left the rule behind"
		look = append(look, "kubectl get pods -A -o wide --field-selector "+shellQuote("status.podIP="+to.String()))
	case owner.look != "":
		title = "have " + owner.name + " use another port, or the Service"
		look = append(look, v.onNodeCommand(owner.look))
	case owner.name != "":
		title = "have " + owner.name + " leave this address and port alone on the node"
	}
	out = append(out, Proposal{
		Fix: diagnosis.Fix{
			Title: title, Commands: slices.DeleteFunc(look, func(c string) bool { return c == "" }), BlastRadius: "these commands only look",
			Undo: []string{"nothing to undo: these only look"}, Verify: []string{p.again()},
		},
		NotSimulated: changesNode,
	})
	if owner.name == "" || owner.hostPort && p.Service != nil && p.hasAll(snapshot.Pods) && len(p.podsByIP[to]) == 0 {
		out = append(out, p.takeOut(v, rule, pr.frontend.V6)...)
	}
	return out
}

// takeOut proposes to delete one rule of iptables, with the command that puts
// it back in its place.
func (p *Pass) takeOut(v *nodeView, rule netfilter.Step, v6 bool) []Proposal {
	words, ok := ruleWords(rule.Text)
	chain, found := v.rules.OnlyFamily(familyOf(v6)).Chain(rule.Table, rule.Chain)
	if !ok || !found || len(words) < 3 || words[0] != "-A" || v.nftFamily(rule.Table) != "" {
		return nil
	}
	at := 0
	for r := range chain.Rules() {
		if at++; r.Line == rule.Line {
			break
		}
	}
	tool := strings.TrimSuffix(v.saveTool(rule.Source), "-save")
	var body []string
	for _, w := range words[2:] {
		body = append(body, shellQuote(w))
	}
	command := func(do string) string {
		return v.onNodeCommand(fmt.Sprintf("sudo %s -t %s %s %s", tool, shellQuote(rule.Table), do, strings.Join(body, " ")))
	}
	return []Proposal{{
		Fix: diagnosis.Fix{
			Title:       "take the rule out, once nobody needs it",
			Commands:    []string{command("-D " + shellQuote(rule.Chain))},
			BlastRadius: "new connections on " + v.label() + " that this rule takes today; whoever wrote it may write it again",
			Undo:        []string{command(fmt.Sprintf("-I %s %d", shellQuote(rule.Chain), at))},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}}
}

// ruleWords splits a rule as iptables-save prints it: words are set off by
// blanks, or stand in double quotes with a backslash before a quote or a
// backslash. false where the quotes do not match.
func ruleWords(text string) ([]string, bool) {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted, begun = !quoted, true
		case quoted && c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
		case !quoted && (c == ' ' || c == '\t'):
			end()
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	end()
	return words, !quoted
}
