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

// nodeChecks are layer 3: what each examined node does with a packet. Those
// that explain others come first.
var nodeChecks = []*Check{
	proxyNotRunning,
	proxyCrashing,
	proxyReplaced,
	cniAgentNotReady,
	proxyModeDiffers,
	twoIptablesBackends,
	leftoverProxyMode,
	kernelModuleMissing,
	forwardingOff,
	hookMissing,
	capturedByForeignRule,
	vipNotOnDummy,
	virtualServerMissing,
	ipvsUnsupported,
	vipNotProgrammed,
	nodePortNotProgrammed,
	externalIPNotProgrammed,
	rejectedAsEmpty,
	staleBackend,
	wrongBackendPort,
	backendMissing,
	unevenOdds,
	affinityNotProgrammed,
	masqueradeMissing,
	droppedAfterDNAT,
	firewallChainDrops,
	bridgeNfCallOff,
	noRouteToBackend,
	noRouteToVIP,
	vipIsLocalAddress,
	serviceRangeOverlaps,
	conntrackNearlyFull,
	conntrackStale,
	sysctlSuspicious,
	nothingListens,
	listensOnLoopbackOnly,
	nodesDisagree, // last: it speaks of what the others found
}

// nodeLayer is what the node checks share of one Service.
type nodeLayer struct {
	done   bool
	views  []*nodeView
	probes []*probe
}

// onNodes is the Applies of every check that compares a node's rules with the
// objects.
func onNodes(p *Pass) bool {
	return p.Service != nil && HasVIP(p.Service) && len(p.Frontends()) > 0 && len(p.snap.Nodes) > 0
}

var needsOfNode = []snapshot.Resource{snapshot.EndpointSlices}

// nodeFault is one node's probes that share a fault.
type nodeFault struct {
	view   *nodeView
	probes []*probe
}

// faults groups the probes for which has is true by node.
func (p *Pass) faults(has func(*probe) bool) []nodeFault {
	var out []nodeFault
	for _, pr := range p.probes() {
		if !has(pr) || p.leftToIPVS(pr.view) || p.pastCilium(pr.view) {
			continue
		}
		i := slices.IndexFunc(out, func(f nodeFault) bool { return f.view == pr.view })
		if i < 0 {
			out = append(out, nodeFault{view: pr.view})
			i = len(out) - 1
		}
		out[i].probes = append(out[i].probes, pr)
	}
	return out
}

func (f nodeFault) first() *probe { return f.probes[0] }

// subject is the Service as that node sees it.
func (p *Pass) onNode(v *nodeView) diagnosis.Subject {
	s := p.ServiceSubject()
	s.Node = v.name
	return s
}

// affected names the packets that share a fault: "10.96.1.2:80/TCP for any pod
// and node worker-1".
func (f nodeFault) affected() string {
	var fronts, callers []string
	for _, pr := range f.probes {
		if t := frontendText(pr.frontend, pr.dst); !slices.Contains(fronts, t) {
			fronts = append(fronts, t)
		}
		if c := outsiders(pr.caller.label); !slices.Contains(callers, c) {
			callers = append(callers, c)
		}
	}
	return join(fronts, 2) + " for " + join(callers, 3)
}

// outsiders names the client "external" in a sentence.
func outsiders(label string) string {
	if rest, ok := strings.CutPrefix(label, "external"); ok {
		return "clients outside" + rest
	}
	return label
}

// join lists up to n words, and how many more there are.
func join(words []string, n int) string {
	if len(words) > n+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:n], ", "), len(words)-n)
	}
	if len(words) > 1 {
		return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
	}
	return strings.Join(words, "")
}

func summariseNode(p *Pass) Summary {
	switch {
	case !HasVIP(p.Service):
		return Summary{Status: diagnosis.Skipped, Text: "no virtual IP, so no node has rules for it"}
	case len(p.Frontends()) == 0:
		s := Summary{Status: diagnosis.Skipped, Text: "nothing here that kube-proxy would program"}
		if p.Raised(diagnosis.ClusterIPMissing, diagnosis.PortNotExposed) {
			s.Because = []diagnosis.Layer{diagnosis.LayerSelector}
		}
		return s
	}
	probes := p.probes()
	if len(p.node.views) == 0 {
		p.Missing(diagnosis.LayerNode, p.nodeStateMissing())
		return Summary{Status: diagnosis.Unknown, Text: "no node's rules were read"}
	}
	if p.noneOutside() {
		return Summary{Status: diagnosis.Skipped, Text: "no address of it is for clients outside the cluster"}
	}
	if p.Client.Kind == OnePod && p.clientPod() == nil {
		p.Missing(diagnosis.LayerNode, p.clientMissing())
	}
	if !p.Has(snapshot.EndpointSlices) {
		p.Need(diagnosis.LayerNode, snapshot.EndpointSlices)
	}
	for _, v := range p.node.views {
		if m := v.lackForMode(); m != nil && !p.opts.resynced[v.name] {
			p.Missing(diagnosis.LayerNode, *m)
		}
	}
	p.noteUndecided(probes)
	p.noteUnexamined()
	return p.summariseProbes(probes)
}

// noneOutside says whether the client is outside, and every frontend is for the
// cluster's own clients.
func (p *Pass) noneOutside() bool {
	return p.Client.Kind == FromExternal && !slices.ContainsFunc(p.Frontends(), func(f proxy.Frontend) bool { return f.Kind != proxy.ClusterIP })
}

// nodeAlone says whether an address is to be examined by the nodes' rules
// alone: no Services were read, so nobody can say whose it is.
func (p *Pass) nodeAlone() bool {
	return p.Service == nil && p.Target.Addr.IsValid() && len(p.snap.Nodes) > 0 && !p.Has(snapshot.Services)
}

// summariseAlone is the layer's line for an address and nothing but rules.
func (p *Pass) summariseAlone() Summary {
	if p.Target.Port == 0 {
		p.Missing(diagnosis.LayerNode, diagnosis.Missing{
			What: "the port", Why: "without the Service, only the port tells which packet to walk", Supply: "vipwalk " + shellQuote(netip.AddrPortFrom(p.Target.Addr, 80).String()) + " --node-state FILE   (80: the port)",
		})
		return Summary{Status: diagnosis.Unknown, Text: "an address without a port cannot be walked"}
	}
	probes := p.probes()
	for _, v := range p.node.views {
		if m := v.lackForMode(); m != nil {
			p.Missing(diagnosis.LayerNode, *m)
		}
	}
	p.noteUndecided(probes)
	if len(probes) == 0 {
		return Summary{Status: diagnosis.Unknown, Text: "nothing could be walked"}
	}
	_, who := viewNames(p.node.views)
	to := map[string]bool{}
	bad := false
	for _, pr := range probes {
		bad = bad || pr.bad()
		for _, o := range pr.outcomes {
			if o.Verdict == netfilter.DNAT {
				to[o.To.String()] = true
			}
		}
	}
	switch {
	case allTurnedAway(probes):
		return Summary{Status: diagnosis.OK, Text: who + turnedAway}
	case bad && p.raisedOnNodes():
		return Summary{Status: diagnosis.OK, Text: who + ": not every packet gets through"}
	case bad:
		return Summary{Status: diagnosis.Unknown, Text: who + ": not every packet gets through"}
	case undecided(probes):
		return Summary{Status: diagnosis.Unknown, Text: who + ": its rules do not tell where the packet goes"}
	case len(to) == 0 && slices.ContainsFunc(probes, func(pr *probe) bool { return pr.fenced }):
		return Summary{Status: diagnosis.OK, Text: who + ": its source ranges leave this client out"}
	}
	return Summary{Status: diagnosis.OK, Text: fmt.Sprintf("%s sends to %s", who, countBackends(len(to)))}
}

// nodeStateMissing says that a node's state would be needed, and of which node.
func (p *Pass) nodeStateMissing() diagnosis.Missing {
	node := p.clientNode()
	if node == "" {
		node = p.Target.Node
	}
	what, name := "a node's rules", "NODE"
	if node != "" {
		what, name = "the rules of "+node, node
	}
	if r := p.replacedUnseen(); r != nil {
		w := *r
		p.agentOf(&w, node)
		return diagnosis.Missing{What: "how nodes program Services", Why: r.kind.name + " stands in for kube-proxy; its own list of Services was not read", Supply: w.supply(name)}
	}
	why := "no node's state was read"
	if len(p.snap.Nodes) > 0 {
		why = "only other nodes' state was read"
	}
	return diagnosis.Missing{
		What: what, Why: why,
		Supply: fmt.Sprintf("ssh %s sudo vipwalk node-state | %s --node-state %s", sshHost(name), p.again(), shellQuote(name+"=-")),
	}
}

// again is the command line of this very walk.
func (p *Pass) again() string {
	if p.Service == nil {
		return "vipwalk " + shellQuote(p.Target.Text)
	}
	return kubectl("vipwalk", p.Service.Name, "-n", p.Service.Namespace)
}

// noteUndecided makes the layer unknown where an outcome hangs on a rule that
// could not be decided, or on a table that is not in the input.
func (p *Pass) noteUndecided(probes []*probe) {
	for _, pr := range probes {
		if len(pr.unfiltered) > 0 {
			p.Missing(diagnosis.LayerNode, diagnosis.Missing{
				What: "the filter table of " + pr.view.label(), Why: "it is not in the input, so what drops a packet after kube-proxy rewrote it was not seen",
				Supply: "sudo iptables-save > FILE   (all tables, not -t nat alone)",
			})
		}
		for _, o := range pr.undecided {
			for _, u := range o.Unknowns {
				if u.Table == "filter" && u.Chain == "" {
					continue // said above
				}
				m := diagnosis.Missing{What: undecidedText(u, pr.view), Why: u.Why, Supply: pr.view.supply()}
				if u.Text != "" && u.Line > 0 {
					m.Supply = "look at the rule: " + u.Text
				}
				p.Missing(diagnosis.LayerNode, m)
			}
		}
	}
}

// undecidedText names what a walk hung on: a rule, or what lies behind one.
func undecidedText(u netfilter.Undecidable, v *nodeView) string {
	place := strings.TrimSpace(u.Table + " " + u.Chain)
	switch {
	case u.Line > 0:
		return fmt.Sprintf("%s line %d (%s) on %s", u.Source, u.Line, place, v.label())
	case place != "":
		return fmt.Sprintf("%s of %s", place, v.label())
	}
	return v.label()
}

// noteUnexamined tells which nodes nobody looked at, without making the layer
// unknown: what it says is said of the nodes it names.
func (p *Pass) noteUnexamined() {
	if p.clientNode() != "" || p.Target.Node != "" {
		return // the packet meets no other node's Service rules
	}
	rest := 0
	for i := range p.snap.Objects.Nodes {
		name := p.snap.Objects.Nodes[i].Name
		if !slices.ContainsFunc(p.node.views, func(v *nodeView) bool { return v.name == name }) {
			rest++
		}
	}
	if rest == 0 {
		return
	}
	names := make([]string, 0, len(p.node.views))
	for _, v := range p.node.views {
		names = append(names, v.label())
	}
	p.Note(diagnosis.LayerNode, diagnosis.Missing{
		What: fmt.Sprintf("nodes other than %s (%d)", join(names, 3), rest), Why: "their state was not read",
		Supply: fmt.Sprintf("ssh NODE sudo vipwalk node-state | %s --node-state NODE=-", p.again()),
	})
}

// summariseProbes is the layer's line when nodes were examined.
func (p *Pass) summariseProbes(probes []*probe) Summary {
	names, who := viewNames(p.node.views)
	does := func(one, many string) string {
		if len(names) > 1 {
			return who + " " + many
		}
		return who + " " + one
	}
	s := Summary{Status: diagnosis.OK}
	var bad, empty, dropped int
	backends, fresh := map[string]bool{}, map[string]bool{}
	for _, pr := range probes {
		switch {
		case pr.hairpin:
		case pr.bad():
			bad++
		case pr.expect.Action == proxy.Reject:
			empty++
		case pr.expect.Action == proxy.Drop:
			dropped++
		}
		for _, b := range pr.fresh {
			fresh[b.Addr.String()] = true
		}
		for _, b := range pr.expect.Backends {
			backends[b.Addr.String()] = true
		}
	}
	switch {
	case len(probes) == 0 && len(p.opts.resynced) > 0:
		s.Text = who + " as kube-proxy would program it"
	case len(probes) == 0:
		s.Status, s.Text = diagnosis.Unknown, who+": nothing could be walked"
	case bad > 0:
		s.Text = p.badNodes(probes)
		if !p.raisedOnNodes() {
			s.Status = diagnosis.Unknown // no check had a word for it
		}
	case unsure(probes):
		s.Status, s.Text = diagnosis.Unknown, who+": whether as the objects ask cannot be told"
	case empty > 0 && len(backends) == 0:
		s.Text, s.Because = does("rejects, as it should with no endpoints", "reject, as they should with no endpoints"), p.emptyBecause()
		switch pass := notTurnedAway(probes); {
		case len(pass) == len(probes):
			s.Text = does("has", "have") + " no rule to reject it, and there is no endpoint to send it to"
		case len(pass) > 0:
			s.Text += ", but for " + join(pass, 2)
		}
	case dropped > 0 && len(backends) == 0:
		s.Text, s.Because = does("drops", "drop")+dropsBecause(probes), []diagnosis.Layer{diagnosis.LayerSelector}
	case undecided(probes):
		s.Status, s.Text = diagnosis.Unknown, who+": its rules do not tell where the packet goes"
	default:
		s.Text = does("sends to ", "send to ") + countBackends(len(backends))
	}
	if len(fresh) > 0 {
		s.Text += fmt.Sprintf(" (%d just became ready and may be on the way)", len(fresh))
	}
	return s
}

// raisedOnNodes says whether a check of this layer reported anything.
func (p *Pass) raisedOnNodes() bool {
	return slices.ContainsFunc(p.findings, func(f *finding) bool { return f.code.Layer() == diagnosis.LayerNode })
}

// unsure says whether what any probe found was taken back.
func unsure(probes []*probe) bool {
	return slices.ContainsFunc(probes, func(pr *probe) bool { return pr.unsure != "" })
}

// undecided says whether any packet's end could not be told.
func undecided(probes []*probe) bool {
	return slices.ContainsFunc(probes, func(pr *probe) bool { return len(pr.undecided) > 0 })
}

func countBackends(n int) string {
	if n == 1 {
		return "the one backend"
	}
	return fmt.Sprintf("all %d backends", n)
}

// emptyBecause is the layer to blame for a Service without endpoints.
func (p *Pass) emptyBecause() []diagnosis.Layer {
	for _, f := range p.findings {
		if l := f.code.Layer(); l == diagnosis.LayerSelector && f.severity() == diagnosis.Error {
			return []diagnosis.Layer{l}
		}
	}
	return []diagnosis.Layer{diagnosis.LayerEndpoints}
}

// notTurnedAway names the packets that no rule rejects or drops: the node's own
// to a node port or an outside address pass kube-proxy's rules for the empty.
func notTurnedAway(probes []*probe) []string {
	var out []string
	for _, pr := range probes {
		if slices.ContainsFunc(pr.outcomes, func(o netfilter.Outcome) bool { return o.Verdict != netfilter.Reject && o.Verdict != netfilter.Drop }) {
			out = append(out, outsiders(pr.caller.label)+" to "+frontendText(pr.frontend, pr.dst))
		}
	}
	return out
}

// viewNames are the nodes' names, and all of them in a phrase; the mode is said
// once where it is one: "worker-1 and worker-2 (iptables)".
func viewNames(views []*nodeView) (names []string, phrase string) {
	same := true
	var each []string
	for _, v := range views {
		names = append(names, v.label())
		each = append(each, v.label()+v.modeText())
		same = same && v.modeText() == views[0].modeText()
	}
	if same && len(views) > 0 {
		return names, join(names, 3) + views[0].modeText()
	}
	return names, join(each, 3)
}

// badNodes names the nodes that do something else than the objects ask, and
// how many of the others do as they ask.
func (p *Pass) badNodes(probes []*probe) string {
	var bad []*nodeView
	for _, pr := range probes {
		if pr.bad() && !slices.Contains(bad, pr.view) {
			bad = append(bad, pr.view)
		}
	}
	_, phrase := viewNames(bad)
	phrase += ": not as the objects ask"
	if rest := len(p.node.views) - len(bad); rest > 0 {
		phrase += fmt.Sprintf("; %d other as they ask", rest)
	}
	return phrase
}

func (v *nodeView) modeText() string {
	if m := v.seen.mode(); m != "" {
		return " (" + m + ")"
	}
	return ""
}
