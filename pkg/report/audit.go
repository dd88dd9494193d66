package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// vip is one row of an audit: a frontend of a Service, and what becomes of
// packets to it.
type vip struct {
	service *diagnosis.Service
	address string
	status  diagnosis.Status
	served  bool // every packet is sent to a backend
	does    string
}

// auditText writes an audit for a person: what came out, a line for each VIP,
// the broken ones first, then those in full.
func (p *printer) auditText(r *diagnosis.Report) {
	vips := auditRows(r)
	if len(vips) == 0 {
		for i := range r.Services {
			if i > 0 {
				p.line()
			}
			p.service(&r.Services[i])
		}
		return
	}
	p.auditHead(r, vips)
	p.auditTable(vips)
	for _, s := range worstFirst(r.Services) {
		if p.opts.ShowOK || inTrouble(s) {
			p.line()
			p.service(s)
		}
	}
}

// auditHead says how many VIPs fail, and of what nothing is said.
func (p *printer) auditHead(r *diagnosis.Report, vips []vip) {
	var fail, unknown, warn, turned, ok int
	for i := range vips {
		switch v := &vips[i]; {
		case v.status == diagnosis.Fail:
			fail++
		case v.status == diagnosis.Unknown:
			unknown++
		case v.status == diagnosis.Warn:
			warn++
		case !v.served:
			turned++
		default:
			ok++
		}
	}
	verdict := diagnosis.Unknown // no object was read: never better than that
	if fail > 0 {
		verdict = diagnosis.Fail
	}
	text := fmt.Sprintf("%d of %d VIPs fail on the %s", fail, len(vips), nodesWord(r))
	for _, c := range []struct {
		n    int
		word string
	}{{unknown, "unknown"}, {warn, "with warnings"}, {turned, "turned away as without endpoints"}, {ok, "ok there"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.word)
		}
	}
	word := verdictWord(verdict)
	p.wrapped(p.status(verdict, word)+strings.Repeat(" ", max(9-len(word), 2)), 9, text+"; layers 1, 2 and 4 were not examined")
	p.line()
}

// nodesWord is "node", or how many there are.
func nodesWord(r *diagnosis.Report) string {
	var names []string
	for i := range r.Services {
		for _, path := range r.Services[i].Paths {
			if !slices.Contains(names, path.Node) {
				names = append(names, path.Node)
			}
		}
		if len(names) > 1 && i > 100 {
			break
		}
	}
	if len(names) > 1 {
		return fmt.Sprintf("%d nodes", len(names))
	}
	return "node"
}

func (p *printer) auditTable(vips []vip) {
	headings := [...]string{"NODE", "SERVICE", "VIP"}
	widths := [...]int{len(headings[0]), len(headings[1]), len(headings[2])}
	for i := range vips {
		v := &vips[i]
		for j, n := range [...]int{len(layerWord(v.status)), columns(auditName(v.service)), columns(v.address)} {
			widths[j] = max(widths[j], n)
		}
	}
	if !p.opts.NoHeaders {
		p.line(pad(headings[0], widths[0]), "  ", pad(headings[1], widths[1]), "  ", pad(headings[2], widths[2]), "  DOES")
	}
	width := max(p.width-widths[0]-widths[1]-widths[2]-6, 12)
	for i := range vips {
		v := &vips[i]
		does := v.does
		if p.opts.Width > 0 { // a file takes lines of any length
			does = clip(does, width)
		}
		p.line(p.status(v.status, pad(layerWord(v.status), widths[0])), "  ", pad(auditName(v.service), widths[1]), "  ", pad(v.address, widths[2]), "  ", does)
	}
}

// auditName is a dash for what the rules give no name.
func auditName(s *diagnosis.Service) string {
	if s.Namespace == "" && s.Name == "" {
		return "-"
	}
	return serviceName(s)
}

// auditRows are the VIPs of an audit, the broken ones first, then those that
// turn packets away, in the report's order.
func auditRows(r *diagnosis.Report) []vip {
	out := make([]vip, 0, len(r.Services))
	none := 0
	for i := range r.Services {
		s := &r.Services[i]
		if len(s.Paths) == 0 {
			none++
			out = append(out, vip{service: s, address: "-", status: nodeStatus(s), does: Escape(nodeSummary(s))})
			continue
		}
		out = append(out, vipsOf(s)...)
	}
	if none == len(out) {
		return nil // no VIP at all
	}
	slices.SortStableFunc(out, func(a, b vip) int {
		return cmp.Or(cmp.Compare(verdictRank(a.status), verdictRank(b.status)), cmp.Compare(rankServed(a), rankServed(b)))
	})
	return out
}

func rankServed(v vip) int {
	if v.served {
		return 1
	}
	return 0
}

func nodeStatus(s *diagnosis.Service) diagnosis.Status {
	for i := range s.Layers {
		if s.Layers[i].Layer == diagnosis.LayerNode {
			return s.Layers[i].Status
		}
	}
	return s.Verdict
}

func nodeSummary(s *diagnosis.Service) string {
	for i := range s.Layers {
		if s.Layers[i].Layer == diagnosis.LayerNode {
			return s.Layers[i].Summary
		}
	}
	return ""
}

// vipsOf gathers a Service's paths by frontend. Paths to one stand together.
func vipsOf(s *diagnosis.Service) []vip {
	var out []vip
	whole := nodeStatus(s)
	for from := 0; from < len(s.Paths); {
		to := from + 1
		for to < len(s.Paths) && s.Paths[to].Frontend == s.Paths[from].Frontend && s.Paths[to].Node == s.Paths[from].Node {
			to++
		}
		at := slices.IndexFunc(out, func(v vip) bool { return v.address == Escape(s.Paths[from].Frontend) })
		if at < 0 {
			out = append(out, vip{service: s, address: Escape(s.Paths[from].Frontend), status: diagnosis.OK, served: true})
			at = len(out) - 1
		}
		v := &out[at]
		for i := from; i < to; i++ {
			v.status = diagnosis.Worse(v.status, s.Paths[i].Status)
			v.served = v.served && !slices.ContainsFunc(s.Paths[i].Outcomes, func(o diagnosis.Outcome) bool { return o.Verdict != "dnat" })
		}
		if whole == diagnosis.Unknown { // something that concerns all of it was not read
			v.status = diagnosis.Worse(v.status, diagnosis.Unknown)
		}
		from = to
	}
	for i := range out {
		out[i].does = does(s, out[i].address)
	}
	return out
}

// does says where packets to a frontend go: in one clause where that is the
// same for all clients and nodes, else who goes where.
func does(s *diagnosis.Service, address string) string {
	type group struct {
		summary       string
		nodes, others []string // who; clients where the nodes agree
	}
	var groups []group
	nodes := map[string]bool{}
	for i := range s.Paths {
		path := &s.Paths[i]
		if Escape(path.Frontend) != address {
			continue
		}
		nodes[path.Node] = true
		j := slices.IndexFunc(groups, func(g group) bool { return g.summary == path.Summary })
		if j < 0 {
			groups = append(groups, group{summary: path.Summary})
			j = len(groups) - 1
		}
		if !slices.Contains(groups[j].nodes, path.Node) {
			groups[j].nodes = append(groups[j].nodes, path.Node)
		}
		if !slices.Contains(groups[j].others, path.Client) {
			groups[j].others = append(groups[j].others, path.Client)
		}
	}
	if len(groups) == 1 {
		return Escape(groups[0].summary)
	}
	// Nodes that do one thing for every client go by their name.
	byNode := map[string]int{}
	for _, g := range groups {
		for _, n := range g.nodes {
			byNode[n]++
		}
	}
	var parts []string
	for _, g := range groups {
		who := strings.Join(g.others, ", ")
		if len(nodes) > 1 {
			who = strings.Join(g.nodes, ", ")
			if slices.ContainsFunc(g.nodes, func(n string) bool { return byNode[n] > 1 }) {
				who += " (" + strings.Join(g.others, ", ") + ")"
			}
		}
		parts = append(parts, who+": "+g.summary)
	}
	return Escape(strings.Join(parts, "; "))
}

// auditWide writes a row for each path of an audit, as wide as it needs to be.
func auditWide(w io.Writer, r *diagnosis.Report, o Options) error {
	p := newPrinter(w, o)
	var rows [][]string
	if !o.NoHeaders {
		rows = append(rows, []string{"STATUS", "NAMESPACE", "SERVICE", "KIND", "VIP", "NODE", "CLIENT", "DOES", "DIAGNOSES"})
	}
	seen := map[*diagnosis.Service]bool{}
	for _, v := range auditRows(r) {
		if s := v.service; !seen[s] {
			seen[s] = true
			rows = append(rows, auditWideRows(s)...)
		}
	}
	if len(rows) < 2 {
		for i := range r.Services {
			rows = append(rows, auditWideRows(&r.Services[i])...)
		}
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], columns(cell))
		}
	}
	var line strings.Builder
	for _, row := range rows {
		line.Reset()
		for i, cell := range row {
			line.WriteString(pad(cell, widths[i]+3))
		}
		p.line(strings.TrimRight(line.String(), " "))
	}
	return p.close()
}

func auditWideRows(s *diagnosis.Service) [][]string {
	var codes []string
	for i := range s.Diagnoses {
		if c := Escape(string(s.Diagnoses[i].Code)); !s.Diagnoses[i].Ignored && !slices.Contains(codes, c) {
			codes = append(codes, c)
		}
	}
	tail := dash(strings.Join(codes, ","))
	if len(s.Paths) == 0 {
		return [][]string{{layerWord(nodeStatus(s)), dash(s.Namespace), dash(s.Name), "-", "-", "-", "-", dash(nodeSummary(s)), tail}}
	}
	var rows [][]string
	for i := range s.Paths {
		path := &s.Paths[i]
		rows = append(rows, []string{
			layerWord(path.Status), dash(s.Namespace), dash(s.Name), kindOf(s, path.Frontend), Escape(path.Frontend), dash(path.Node), dash(path.Client), dash(path.Summary), tail,
		})
	}
	return rows
}

// kindOf is the kind of the Service's frontend that a path is to; a path to a
// node port names an address of the node.
func kindOf(s *diagnosis.Service, address string) string {
	for i, f := range frontends(s) {
		if f == Escape(address) {
			return Escape(string(s.Frontends[i].Kind))
		}
	}
	return string(diagnosis.NodePort)
}
