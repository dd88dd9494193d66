package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// InventoryRenderer writes one inventory.
type InventoryRenderer func(io.Writer, *diagnosis.Inventory, Options) error

// InventoryFormat is one value of inventory's -o.
type InventoryFormat struct {
	Name   string
	Render InventoryRenderer
}

// InventoryFormats are those of an inventory, in the order of the help.
func InventoryFormats() []InventoryFormat {
	return []InventoryFormat{
		{"text", InventoryText},
		{"wide", InventoryWide},
		{"json", func(w io.Writer, i *diagnosis.Inventory, _ Options) error { return writeJSON(w, i) }},
		{"yaml", func(w io.Writer, i *diagnosis.Inventory, _ Options) error { return writeYAML(w, i) }},
	}
}

// mostListed is how many nodes and VIPs the text lists of many; -o wide lists
// all.
const mostListed = 20

// InventoryText is the picture on a page: what runs, which nodes, which VIPs,
// the broken ones first, and what is not known.
func InventoryText(w io.Writer, i *diagnosis.Inventory, o Options) error {
	p := newPrinter(w, o)
	p.inventoryHead(i)
	if err := p.close(); err != nil {
		return err
	}
	headings, rows := inventoryNodes(i, false)
	if err := p.inventoryTable("nodes", headings, rows, !o.ShowOK); err != nil {
		return err
	}
	headings, rows = inventoryVIPs(i, false)
	if err := p.inventoryTable("virtual IPs", headings, rows, !o.ShowOK); err != nil {
		return err
	}
	if len(i.Missing) > 0 {
		p.line()
		p.line("not known:")
		for _, m := range i.Missing {
			p.wrapped("  ", 2, Escape(m.What)+" ("+Escape(m.Why)+")")
			p.line("      ", p.quote.Sprint(Escape(m.Supply)))
		}
	}
	return p.close()
}

// InventoryWide is the same with every node, every VIP and every column.
func InventoryWide(w io.Writer, i *diagnosis.Inventory, o Options) error {
	p := newPrinter(w, o)
	p.inventoryHead(i)
	if err := p.close(); err != nil {
		return err
	}
	headings, rows := inventoryNodes(i, true)
	if err := p.inventoryTable("nodes", headings, rows, false); err != nil {
		return err
	}
	headings, rows = inventoryVIPs(i, true)
	return p.inventoryTable("virtual IPs", headings, rows, false)
}

// inventoryHead is one row for each fact; what is not known says so.
func (p *printer) inventoryHead(i *diagnosis.Inventory) {
	row := func(label, text string) {
		p.wrapped("  "+p.label.Sprint(pad(label, 16)), 18, cmp.Or(text, "UNKNOWN"))
	}
	row("API server", versionText(i.Versions.APIServer))
	row("kubelets", versionText(i.Versions.Kubelet))
	row("kube-proxy", versionText(i.Versions.Proxy))
	row("proxy mode", factText(i.ProxyMode))
	row("service CIDRs", factsText(i.ServiceCIDRs))
	row("pod CIDRs", factsText(i.PodCIDRs))
	none := ""
	if i.PodsRead {
		none = "none found among the pods"
	}
	row("network", cmp.Or(factsText(i.Networks), none))
	row("policy engine", cmp.Or(factText(i.PolicyEngine), none))
	row("load balancers", cmp.Or(factsText(i.LoadBalancer), none))
}

func versionText(vs []diagnosis.VersionCount) string {
	var out []string
	for _, v := range vs {
		out = append(out, fmt.Sprintf("%s (%d)", Escape(v.Version), v.Count))
	}
	return strings.Join(out, ", ")
}

func factText(f diagnosis.Fact) string {
	if f.Value == "" {
		return ""
	}
	return Escape(f.Value) + "  (" + Escape(f.Source) + ")"
}

// factsText lists facts, three of many.
func factsText(fs []diagnosis.Fact) string {
	var out []string
	for _, f := range fs[:min(len(fs), 3)] {
		out = append(out, factText(f))
	}
	text := strings.Join(out, ", ")
	if rest := len(fs) - len(out); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

func (p *printer) inventoryTable(title string, headings []string, rows [][]string, short bool) error {
	p.line()
	p.line(p.code.Sprint(title), fmt.Sprintf(" (%d)", len(rows)))
	rest := 0
	if short && len(rows) > mostListed {
		rest = len(rows) - mostListed
		rows = rows[:mostListed]
	}
	if err := p.close(); err != nil {
		return err
	}
	if len(rows) > 0 {
		if p.opts.NoHeaders {
			headings = nil
		}
		if err := writeTable(p.w, headings, rows); err != nil {
			return err
		}
	}
	if rest > 0 {
		p.line(fmt.Sprintf("and %d more (--show-ok, or -o wide)", rest))
	}
	return p.close()
}

func inventoryNodes(i *diagnosis.Inventory, wide bool) (headings []string, rows [][]string) {
	headings = []string{"NODE", "READY", "PROXY", "MODE SEEN"}
	if wide {
		headings = append(headings, "KUBELET", "KERNEL", "ADDRESSES", "POD CIDRS")
	}
	for _, n := range i.Nodes {
		seen := n.ModeSeen
		if seen == "" && n.StateRead {
			seen = "none"
		}
		row := []string{Escape(n.Name), unknownOr(n.Ready), unknownOr(n.Proxy), unknownOr(seen)}
		if wide {
			row = append(row, unknownOr(n.Kubelet), unknownOr(n.Kernel), dash(strings.Join(n.Addresses, ",")), dash(strings.Join(n.PodCIDRs, ",")))
		}
		rows = append(rows, row)
	}
	return headings, rows
}

func unknownOr(s string) string { return Escape(cmp.Or(s, "UNKNOWN")) }

func inventoryVIPs(i *diagnosis.Inventory, wide bool) (headings []string, rows [][]string) {
	headings = []string{"VERDICT", "NAMESPACE", "SERVICE", "TYPE", "FRONTENDS", "DIAGNOSES"}
	if wide {
		headings = append(headings, "SELECTOR", "ENDPOINTS", "NODE", "POLICY")
	}
	vips := slices.Clone(i.VIPs)
	slices.SortStableFunc(vips, func(a, b diagnosis.InventoryVIP) int {
		return cmp.Compare(verdictRank(a.Verdict), verdictRank(b.Verdict))
	})
	for _, v := range vips {
		fronts := frontends(&diagnosis.Service{Frontends: v.Frontends})
		text := strings.Join(fronts, ",")
		if !wide && len(fronts) > 1 {
			text = fmt.Sprintf("%s +%d", fronts[0], len(fronts)-1)
		}
		var codes []string
		for _, c := range v.Diagnoses {
			codes = append(codes, Escape(string(c)))
		}
		row := []string{verdictWord(v.Verdict), dash(v.Namespace), Escape(v.Name), dash(v.Type), cmp.Or(text, "-"), cmp.Or(strings.Join(codes, ","), "-")}
		if wide {
			for _, l := range v.Layers {
				row = append(row, layerWord(l.Status))
			}
		}
		rows = append(rows, row)
	}
	return headings, rows
}
