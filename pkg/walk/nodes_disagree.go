package walk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// nodesDisagree: most nodes do with the Service as the objects ask, and some do
// not. It comes last, and puts what was found on the odd ones under one
// headline. It takes three nodes to tell which are the odd ones out; of two the
// faulty one's own diagnosis says all.
var nodesDisagree = &Check{
	Code: diagnosis.NodesDisagree, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		agree, odd := p.sides()
		if len(agree) == 0 || len(odd) == 0 || len(agree)+nodesIn(odd) < 3 {
			return
		}
		p.Report(p.disagreement(agree, odd))
		p.oddFirst(odd)
	},
}

// oddFirst puts what the odd nodes do with the packets before what the others
// do, of whom there may be hundreds.
func (p *Pass) oddFirst(odd []oddNodes) {
	place := map[string]int{}
	for i, g := range odd {
		for _, v := range g.views {
			place[v.name] = i - len(odd)
		}
	}
	slices.SortStableFunc(p.paths, func(a, b diagnosis.Path) int { return cmp.Compare(place[a.Node], place[b.Node]) })
}

// oddNodes are nodes that do the same other thing than the objects ask.
type oddNodes struct {
	views []*nodeView
	// one and many say what they do: "still sends to 10.244.3.9:8080".
	one, many string
	// of are the findings on the first of them.
	of []*finding
	// rooted: something on the node itself explains it, which has its own
	// headline where it is one node.
	rooted bool
}

func nodesIn(groups []oddNodes) int {
	n := 0
	for _, g := range groups {
		n += len(g.views)
	}
	return n
}

// sides sorts the examined nodes into those that do as the objects ask and
// those that do not; of the rest it cannot be told.
func (p *Pass) sides() (agree []*nodeView, odd []oddNodes) {
	findings := map[string][]*finding{}
	for _, f := range p.findings {
		if f.code.Layer() == diagnosis.LayerNode && f.severity() != diagnosis.Info && f.Subject.Node != "" {
			findings[f.Subject.Node] = append(findings[f.Subject.Node], f)
		}
	}
	byView := map[*nodeView][]*probe{}
	for _, pr := range p.node.probes {
		byView[pr.view] = append(byView[pr.view], pr)
	}
	for _, v := range p.node.views {
		probes, found := byView[v], findings[v.name]
		switch {
		case v.name == "":
		case slices.ContainsFunc(probes, (*probe).isBad) && len(found) > 0, slices.ContainsFunc(found, (*finding).grave):
			odd = p.addOdd(odd, v, probes, found)
		case len(probes) > 0 && !slices.ContainsFunc(probes, func(pr *probe) bool { return pr.isBad() || pr.unsure != "" || len(pr.undecided) > 0 }):
			agree = append(agree, v)
		}
	}
	slices.SortStableFunc(odd, func(a, b oddNodes) int { return cmp.Compare(len(a.views), len(b.views)) })
	return agree, odd
}

func (pr *probe) isBad() bool { return pr.bad() }

func (f *finding) grave() bool { return f.severity() == diagnosis.Error }

func (p *Pass) addOdd(odd []oddNodes, v *nodeView, probes []*probe, found []*finding) []oddNodes {
	one, many := p.doings(probes)
	if one == "" {
		// Nothing that its rules do, but what becomes of the packet then.
		f := found[slices.IndexFunc(found, (*finding).grave)]
		e, _ := diagnosis.Lookup(string(f.code))
		one, many = "has "+string(f.code)+" "+e.Name, "have "+string(f.code)+" "+e.Name
	}
	i := slices.IndexFunc(odd, func(g oddNodes) bool { return g.one == one })
	if i < 0 {
		g := oddNodes{one: one, many: many, of: found}
		for _, f := range found {
			g.rooted = g.rooted || !slices.Contains(ruleDifferences, f.code)
		}
		odd = append(odd, g)
		i = len(odd) - 1
	}
	odd[i].views = append(odd[i].views, v)
	return odd
}

// ruleDifferences are the codes that say what a node does, and not why.
var ruleDifferences = []diagnosis.Code{
	diagnosis.VIPNotProgrammed, diagnosis.StaleBackend, diagnosis.BackendMissing, diagnosis.RejectedAsEmpty,
	diagnosis.WrongBackendPort, diagnosis.UnevenOdds, diagnosis.VirtualServerMissing,
	diagnosis.NodePortNotProgrammed, diagnosis.ExternalIPNotProgrammed, diagnosis.AffinityNotProgrammed,
}

// doings say what a node does that it ought not, for one node and for many.
func (p *Pass) doings(probes []*probe) (one, many string) {
	type doing struct{ one, many, object string }
	var all []doing
	add := func(one, many, object string) {
		d := doing{one, many, object}
		if !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	for _, pr := range probes {
		if os := sentTo(pr.stale); os != "" {
			add("still sends to", "still send to", os)
		}
		if os := sentTo(pr.wrongPort); os != "" {
			add("sends to a wrong port,", "send to a wrong port,", os)
		}
		if len(pr.missing) > 0 {
			add("never sends to", "never send to", listBackends(pr.missing))
		}
		front := frontendText(pr.frontend, pr.dst)
		if !pr.frontend.IP.IsValid() {
			front = fmt.Sprintf("node port %d", pr.frontend.Port) // its address differs by node
		}
		if len(pr.untouched) > 0 {
			add("does nothing with", "do nothing with", front)
		}
		if len(pr.refused) > 0 {
			add("refuses as without endpoints", "refuse as without endpoints", front)
		}
		for _, o := range slices.Concat(pr.blocked, pr.walled, pr.filtered) {
			last := lastStep(o)
			add("turns away in "+strings.TrimSpace(last.Table+" "+last.Chain), "turn away in "+strings.TrimSpace(last.Table+" "+last.Chain), front)
		}
		if len(pr.captured) > 0 {
			add("lets another rule take", "let another rule take", front)
		}
		if len(pr.unmasked)+len(pr.stuck) > 0 && len(all) == 0 {
			add("leaves the source as it is of", "leave the source as it is of", front)
		}
	}
	var ones, manys []string
	for _, d := range all[:min(len(all), 2)] {
		ones, manys = append(ones, d.one+" "+d.object), append(manys, d.many+" "+d.object)
	}
	if len(all) > 2 {
		ones, manys = append(ones, "more"), append(manys, "more")
	}
	return strings.Join(ones, " and "), strings.Join(manys, " and ")
}

// sentTo lists where outcomes go, "" for none.
func sentTo(os []netfilter.Outcome) string {
	if len(os) == 0 {
		return ""
	}
	return listTo(os)
}

func (g oddNodes) text() string {
	var names []string
	for _, v := range g.views {
		names = append(names, v.label())
	}
	if len(names) == 1 {
		return names[0] + " " + g.one
	}
	return join(names, 3) + " " + g.many
}

func (p *Pass) disagreement(agree []*nodeView, odd []oddNodes) Finding {
	n := nodesIn(odd)
	all := len(agree) + n
	f := Finding{
		Severity: diagnosis.Warning,
		Subject:  p.ServiceSubject(),
		Expected: "the same on every node: what the objects ask for",
	}
	var texts []string
	for _, g := range odd {
		texts = append(texts, g.text())
	}
	_, who := viewNames(agree)
	f.Title = fmt.Sprintf("%d of %d nodes do otherwise than the rest: %s", n, all, join(texts, 2))
	if n == 1 {
		f.Title = fmt.Sprintf("1 of %d nodes does otherwise than the rest: %s", all, texts[0])
		f.Subject.Node = odd[0].views[0].name
	}
	f.Found = fmt.Sprintf("%s; %s as the objects ask: %s", strings.Join(texts, "; "), agreeing(len(agree)), who)
	for i, g := range odd {
		for _, x := range g.of {
			if x.severity() == diagnosis.Error {
				f.Severity = diagnosis.Error
			}
			f.Explains = addCode(f.Explains, x.code)
		}
		if i < 3 {
			f.Evidence = append(f.Evidence, g.of[0].Evidence...)
			f.Fixes = append(f.Fixes, g.fixes()...)
		}
	}
	if pr := p.goodProbe(agree); pr != nil {
		f.Evidence = append(f.Evidence, wayEvidence(pr.view, pr.outcomes[0])...)
	}
	if n == 1 && odd[0].rooted {
		// What is the matter with the node is the headline; that the others are
		// well follows from it.
		f.Explains = nil
		for _, x := range odd[0].of {
			if !slices.Contains(ruleDifferences, x.code) && x.severity().Rank() >= f.Severity.Rank() {
				x.Explains = append(slices.Clone(x.Explains), diagnosis.NodesDisagree)
			}
		}
	}
	return f
}

func agreeing(n int) string {
	if n == 1 {
		return "1 node does"
	}
	return fmt.Sprintf("%d nodes do", n)
}

// fixes are those for the first of the nodes; where there are more they say so.
func (g oddNodes) fixes() []Proposal {
	var out []Proposal
	for _, f := range g.of[:1] {
		for _, fix := range f.Fixes[:min(len(f.Fixes), 1)] {
			if rest := len(g.views) - 1; rest > 0 {
				var names []string
				for _, v := range g.views[1:] {
					names = append(names, v.label())
				}
				fix.Fix.Title += "; then the same on " + join(names, 5)
			}
			out = append(out, fix)
		}
	}
	return out
}

// goodProbe is a packet on a node that does as the objects ask, to show beside
// the others.
func (p *Pass) goodProbe(agree []*nodeView) *probe {
	for _, pr := range p.node.probes {
		if pr.view == agree[0] && !pr.hairpin && len(pr.outcomes) > 0 && pr.outcomes[0].Rewritten {
			return pr
		}
	}
	return nil
}
