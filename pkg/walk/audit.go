package walk

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// audit walks every frontend that the nodes' rules name, where there is
// nothing else to go by: no API, no objects.
type audit struct {
	*world
	views  []*auditView
	groups []auditGroup
	// unnamed counts the frontends that a filter by name left out.
	unnamed int
	lack    diagnosis.Missing // that no objects were read, of each Service
}

// auditView is a node whose rules are audited.
type auditView struct {
	*nodeView
	found *found
	// hooked are the rules of an excerpt with jumps assumed; nil for any other.
	hooked *netfilter.Ruleset
	// vips are the addresses that the rules name.
	vips map[netip.Addr]bool
	// pods are the networks whose addresses the rules take for pods'.
	pods []netip.Prefix
	// nodePortAt is where a packet to a node port is sent, by family: an address
	// of the node, or one that stands for it.
	nodePortAt [2]netip.Addr
	// node is the source of the node's own packets, by family.
	node     [2]netip.Addr
	ownKnown [2]bool
	// pod is an address that stands for any pod, by family.
	pod [2]netip.Addr
}

// auditGroup is what is walked as one Service: the frontends that bear one
// name, or, without names, that lead to the chains of one port.
type auditGroup struct {
	namespace, name string
	frontends       []ruleFrontend
	// assumed is what would become of probes with jumps that an excerpt doesn't
	// show, in short.
	assumed map[*probe]string
}

// Addresses of a documentation range stand for the node's own where nothing
// tells which those are (RFC 5737, RFC 3849).
var (
	nodeStandIn4 = netip.MustParseAddr("192.0.2.1")
	nodeStandIn6 = netip.MustParseAddr("2001:db8:fffe::1")
)

// RulesAlone says whether nodes' states are all that the snapshot has: not one
// object was read, or could have been. All Services are then those that the
// nodes' rules name; Options.Selector is not heeded, and Options.Namespaces by
// the names that are noted beside the rules.
func RulesAlone(s *snapshot.Snapshot) bool { return len(s.Nodes) > 0 && len(s.Reads) == 0 }

func (w *world) audits() bool { return w.opts.All && RulesAlone(w.snap) }

// audit gives the Services in order: those that the rules name, then what has
// no name.
func (w *world) audit() []diagnosis.Service {
	a := &audit{world: w}
	a.lack = missingResource(w.snap.Reads.Of(snapshot.Services, ""), " -A")
	lacking := a.readViews()
	a.group()
	if len(a.groups) == 0 && len(lacking) == 0 && len(a.views) > 0 {
		m := diagnosis.Missing{What: "the VIPs that were asked about", Why: "no rule names one" + a.filter(), Supply: "vipwalk -A --node-state FILE   (every VIP that the rules name)"}
		lacking = append(lacking, a.lacking(a.views[0].nodeView, m))
	}
	out := make([]diagnosis.Service, len(a.groups))
	a.each(func(own *audit, i int) {
		p := own.pass(&own.groups[i])
		out[i] = p.auditReport()
		p.forget()
	})
	return append(out, lacking...)
}

// filter says by what frontends were left out.
func (a *audit) filter() string {
	text := ""
	if len(a.opts.Namespaces) > 0 {
		text += " in namespace " + strings.Join(a.opts.Namespaces, ", ")
	}
	if a.opts.Port != "" {
		text += " with port " + a.opts.Port
	}
	return text
}

// each calls do for every group, on all processors. Each has an audit of its
// own: what checks look for once, they keep in the world and in its views.
func (a *audit) each(do func(own *audit, i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[any]
	for range min(runtime.GOMAXPROCS(0), len(a.groups)) {
		own := a.clone()
		wg.Go(func() {
			// A text may be a file that is mapped and was cut short since: what
			// goes wrong here goes wrong for who called.
			debug.SetPanicOnFault(true)
			defer func() {
				if r := recover(); r != nil {
					failed.Store(&r)
				}
			}()
			for i := int(next.Add(1)) - 1; i < len(own.groups); i = int(next.Add(1)) - 1 {
				do(own, i)
			}
		})
	}
	wg.Wait()
	if r := failed.Load(); r != nil {
		panic(*r)
	}
}

// forget lets go of the rules of the group's own chains; the next group has
// others.
func (p *Pass) forget() {
	for _, pr := range p.node.probes {
		last := ""
		for i := range pr.outcomes {
			for _, s := range pr.outcomes[i].Steps {
				if s.Table == "nat" && s.Chain != last && (strings.HasPrefix(s.Chain, "KUBE-SEP-") || chainHash(s.Chain) != "") {
					last = s.Chain
					pr.view.rules.Forget(s.Table, s.Chain)
				}
			}
		}
	}
}

// clone shares the facts, and nothing that is written after they are read. A
// Ruleset is safe for concurrent use.
func (a *audit) clone() *audit {
	out := *a
	w := *a.world
	w.views = maps.Clone(w.views)
	out.world = &w
	out.views = make([]*auditView, len(a.views))
	for i, v := range a.views {
		av, nv := *v, *v.nodeView
		nv.nodePortRules, nv.addrsOf, nv.timeouts = maps.Clone(nv.nodePortRules), maps.Clone(nv.addrsOf), maps.Clone(nv.timeouts)
		av.nodeView = &nv
		out.views[i] = &av
		for key, of := range w.views {
			if of == v.nodeView {
				w.views[key] = &nv
			}
		}
	}
	return &out
}

// readViews finds the frontends of each node. A node whose rules cannot be
// audited is told of as one entry that is unknown.
func (a *audit) readViews() []diagnosis.Service {
	var lacking []diagnosis.Service
	for _, v := range a.nodeViews() {
		if m := v.notAuditable(); m != nil {
			lacking = append(lacking, a.lacking(v, *m))
			continue
		}
		av := &auditView{nodeView: v, found: v.ruleFrontends()}
		if len(av.found.list) == 0 {
			lacking = append(lacking, a.lacking(v, av.empty()))
			continue
		}
		av.prepare()
		a.views = append(a.views, av)
	}
	return lacking
}

// notAuditable says why a node's rules tell of no frontends that can be walked.
func (v *nodeView) notAuditable() *diagnosis.Missing {
	if m := v.lackForMode(); m != nil {
		return m
	}
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if len(v.rules.TablesRead(fam)) > 0 || v.rules.Whole(fam) {
			return nil
		}
	}
	for _, fam := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if ms := v.rulesLack[fam]; len(ms) > 0 {
			return &ms[0]
		}
	}
	return &diagnosis.Missing{What: "the rules of " + v.label(), Why: "not read", Supply: v.supply()}
}

// empty says that the rules name no frontend.
func (v *auditView) empty() diagnosis.Missing {
	m := diagnosis.Missing{What: "the VIPs of " + v.label(), Why: "no rule of kube-proxy's is in the input", Supply: v.supply()}
	if v.found.chains > 0 {
		m.Why = "kube-proxy's chains are there, and no rule in them names a VIP"
	}
	if n := len(v.found.portless); n > 0 {
		m.Why = fmt.Sprintf("%s of an address without a port, from line %d on, and no others: the tool that printed them may be older than the one that wrote them", count(n, "rule"), v.found.portless[0].Line)
	}
	if v.partial() {
		m.Why += "; the input is not whole"
	}
	return m
}

func (v *nodeView) partial() bool { return len(v.rules.Partial()) > 0 || v.rules.Excerpt() }

// lacking is the entry for a node that could not be audited.
func (a *audit) lacking(v *nodeView, m diagnosis.Missing) diagnosis.Service {
	p := &Pass{world: a.world, Target: Target{Text: "the VIPs of " + v.label()}}
	out := diagnosis.Service{Name: p.Target.Text, Verdict: diagnosis.Unknown, Frontends: []diagnosis.Frontend{}, Diagnoses: []diagnosis.Diagnosis{}, Paths: []diagnosis.Path{}}
	for _, l := range diagnosis.Layers {
		res := diagnosis.LayerResult{Layer: l, Name: l.Name(), Status: diagnosis.Unknown, Summary: noObjects}
		if l == diagnosis.LayerNode {
			res.Summary, res.Missing = v.label()+v.modeText()+": "+m.Why, []diagnosis.Missing{m}
		}
		out.Layers = append(out.Layers, res)
	}
	return out
}

const noObjects = "no API objects were read"

// group gathers the nodes' frontends by the Service that they are of.
func (a *audit) group() {
	byKey := map[frontendKey]bool{}
	byName := map[string]int{}
	for _, v := range a.views {
		for i := range v.found.list {
			f := v.found.list[i]
			if byKey[f.key()] {
				continue
			}
			byKey[f.key()] = true
			if len(a.opts.Namespaces) > 0 && !slices.Contains(a.opts.Namespaces, f.namespace) {
				if f.name == "" {
					a.unnamed++
				}
				continue
			}
			name := groupName(&f)
			at, ok := byName[name]
			if !ok {
				at = len(a.groups)
				byName[name] = at
				a.groups = append(a.groups, auditGroup{namespace: f.namespace, name: f.name})
			}
			a.groups[at].frontends = append(a.groups[at].frontends, f)
		}
	}
	for i := range a.groups {
		a.groups[i].frontends = a.onlyPort(a.groups[i].frontends)
		slices.SortFunc(a.groups[i].frontends, func(x, y ruleFrontend) int { return compareFrontends(&x, &y) })
	}
	a.groups = slices.DeleteFunc(a.groups, func(g auditGroup) bool { return len(g.frontends) == 0 })
	slices.SortFunc(a.groups, func(x, y auditGroup) int { return compareFrontends(&x.frontends[0], &y.frontends[0]) })
	var had [2]bool
	for i := range a.groups {
		for j := range a.groups[i].frontends {
			if f := &a.groups[i].frontends[j]; f.Kind == proxy.ClusterIP && !had[index(f.V6)] {
				f.first, had[index(f.V6)] = true, true
			}
		}
	}
}

func groupName(f *ruleFrontend) string {
	switch {
	case f.name != "":
		return f.namespace + "/" + f.name
	case f.hash != "":
		return f.hash
	}
	return fmt.Sprint(f.key())
}

// onlyPort keeps the frontends of the port that --port names: by its name, or
// its number, which a node port has by name alone.
func (a *audit) onlyPort(fs []ruleFrontend) []ruleFrontend {
	if a.opts.Port == "" {
		return fs
	}
	type port struct{ name, protocol string }
	wanted := map[port]bool{}
	for i := range fs {
		f := &fs[i]
		if portMatches(a.opts.Port, f.PortName, f.Port) {
			wanted[port{f.PortName, string(f.Protocol)}] = true
		}
	}
	return slices.DeleteFunc(fs, func(f ruleFrontend) bool { return !wanted[port{f.PortName, string(f.Protocol)}] })
}

// pass is the walk of one group.
func (a *audit) pass(g *auditGroup) *Pass {
	p := &Pass{world: a.world, Client: a.opts.Client, audit: a}
	f := &g.frontends[0] // stands for all where the Service has to be named
	p.Target = Target{
		Namespace: g.namespace, Name: g.name,
		Text: strings.ToLower(frontendText(f.Frontend, netip.AddrPortFrom(f.IP, uint16(f.Port)))),
	}
	p.auditOf = g
	for _, l := range layers() {
		for _, c := range l.checks {
			if c.Alone {
				p.running = c
				c.Run(p)
			}
		}
	}
	p.running = nil
	a.simulate(p)
	return p
}

// auditReport puts together what the walk of a group found.
func (p *Pass) auditReport() diagnosis.Service {
	g := p.auditOf
	out := diagnosis.Service{
		Namespace: g.namespace, Name: g.name, Frontends: make([]diagnosis.Frontend, 0, len(g.frontends)),
		Diagnoses: p.diagnoses(), Paths: p.paths,
	}
	for i := range g.frontends {
		f := reportFrontend(g.frontends[i].Frontend)
		f.TargetPort = ""
		out.Frontends = append(out.Frontends, f)
	}
	if out.Paths == nil {
		out.Paths = []diagnosis.Path{}
	}
	node := diagnosis.LayerResult{Layer: diagnosis.LayerNode, Name: diagnosis.LayerNode.Name()}
	s := p.summariseAudit()
	node.Status, node.Summary = s.Status, s.Text
	for _, d := range out.Diagnoses {
		if !d.Ignored && d.Severity != diagnosis.Info {
			node.Status = diagnosis.Worse(node.Status, statusOf(d.Severity))
		}
	}
	if node.Missing = p.missing[diagnosis.LayerNode]; len(node.Missing) > 0 {
		node.Status = diagnosis.Worse(node.Status, diagnosis.Unknown)
	}
	node.Missing = append(node.Missing, p.notes[diagnosis.LayerNode]...)
	out.Layers = p.audit.layers(node)
	out.Verdict = diagnosis.Worse(diagnosis.Unknown, node.Status)
	out.Consequence = p.consequence(out.Diagnoses)
	return out
}

// layers are the four: of three nothing is known.
func (a *audit) layers(node diagnosis.LayerResult) []diagnosis.LayerResult {
	out := make([]diagnosis.LayerResult, 0, len(diagnosis.Layers))
	for _, l := range diagnosis.Layers {
		switch l {
		case diagnosis.LayerNode:
			out = append(out, node)
		case diagnosis.LayerSelector:
			out = append(out, diagnosis.LayerResult{Layer: l, Name: l.Name(), Status: diagnosis.Unknown, Summary: noObjects, Missing: []diagnosis.Missing{a.lack}})
		default:
			out = append(out, diagnosis.LayerResult{Layer: l, Name: l.Name(), Status: diagnosis.Unknown, Summary: noObjects})
		}
	}
	return out
}

// summariseAudit is layer 3's line of a group.
func (p *Pass) summariseAudit() Summary {
	probes := p.probes()
	p.noteUndecided(probes)
	_, who := viewNames(p.node.views)
	switch {
	case len(probes) == 0:
		return Summary{Status: diagnosis.Unknown, Text: cmp.Or(who, "the node") + ": nothing could be walked"}
	}
	to := map[netip.AddrPort]bool{}
	faulty, empty, lost := 0, 0, 0
	for _, pr := range probes {
		switch {
		case pr.fault():
			faulty++
		case len(pr.refused) > 0:
			empty++
		case len(pr.undecided) > 0:
			lost++
		}
		for i := range pr.outcomes {
			if pr.outcomes[i].Verdict == netfilter.DNAT {
				to[pr.outcomes[i].To] = true
			}
		}
	}
	switch {
	case faulty > 0 && p.raisedOnNodes():
		return Summary{Status: diagnosis.OK, Text: who + ": not every packet gets through"}
	case faulty > 0:
		return Summary{Status: diagnosis.Unknown, Text: who + ": not every packet gets through"}
	case lost > 0:
		return Summary{Status: diagnosis.Unknown, Text: who + ": its rules do not tell where the packet goes"}
	case empty == len(probes):
		return Summary{Status: diagnosis.OK, Text: who + turnedAway}
	case empty > 0:
		return Summary{Status: diagnosis.OK, Text: fmt.Sprintf("%s sends to %s; %d of %d kinds of packet are turned away as to no endpoints", who, countBackends(len(to)), empty, len(probes))}
	}
	return Summary{Status: diagnosis.OK, Text: fmt.Sprintf("%s sends to %s", who, countBackends(len(to)))}
}

// turnedAway is what a node does with a Service that has no endpoints.
const turnedAway = " turns it away as a Service without endpoints"

// allTurnedAway says whether no packet meets anything else.
func allTurnedAway(probes []*probe) bool {
	return len(probes) > 0 && !slices.ContainsFunc(probes, func(pr *probe) bool { return len(pr.refused) != len(pr.outcomes) })
}

// fault says whether a packet does not get through, for another reason than
// that there is no endpoint for it.
func (pr *probe) fault() bool {
	j := pr.judgement
	j.refused = nil
	return j.bad()
}
