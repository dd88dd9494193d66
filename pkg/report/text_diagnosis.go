package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// maxEvidence is how many pieces of evidence text quotes for a diagnosis;
// -o json and --show-ok have all.
const maxEvidence = 4

// diagnosis writes a root cause in full, with its consequences folded. The
// first one of a Service draws the path in any case; another one only if it is
// about a node whose path is not drawn yet.
func (p *printer) diagnosis(s *diagnosis.Service, c *cause, first bool, drawn drawing) {
	p.heading(c.Diagnosis)
	if about := subject(s, c.Subject); about != "" {
		p.row("about", about)
	}
	p.rowIf("expected", c.Expected)
	p.rowIf("found", c.Found)
	if c.Severity == diagnosis.Info && !p.opts.ShowOK {
		p.consequences(c)
		return
	}
	if path := pathFor(s, c.Subject.Node, first); path != nil && !drawn[path] {
		p.drawPath(s, path, drawn)
	}
	p.evidence(c.Evidence)
	p.consequences(c)
	p.fixes(c.Fixes)
}

func (p *printer) heading(d *diagnosis.Diagnosis) {
	title := Escape(d.Title)
	if d.Severity != diagnosis.Error {
		title = Escape(string(d.Severity)) + ": " + title
	}
	code := Escape(string(d.Code))
	p.wrapped(p.code.Sprint(code)+"  ", columns(code)+2, title)
}

func (p *printer) rowIf(label, text string) {
	if text != "" {
		p.row(label, Escape(text))
	}
}

// subject names what a diagnosis is about, where that is not the Service.
func subject(s *diagnosis.Service, sub diagnosis.Subject) string {
	var out string
	if sub.Name != "" && (sub.Kind != "Service" || sub.Name != s.Name || sub.Namespace != s.Namespace) {
		out = strings.ToLower(sub.Kind) + " " + sub.Name
		if sub.Namespace != "" {
			out = strings.ToLower(sub.Kind) + " " + sub.Namespace + "/" + sub.Name
		}
	}
	if sub.Node != "" && (sub.Kind != "Node" || sub.Name != sub.Node) {
		out += " on node " + sub.Node
	}
	return Escape(strings.TrimPrefix(out, " on "))
}

// evidence quotes what was seen, and lists the commands that show it again.
func (p *printer) evidence(es []diagnosis.Evidence) {
	shown := es
	if len(shown) > maxEvidence && !p.opts.ShowOK {
		shown = shown[:maxEvidence]
	}
	label := "evidence"
	for _, e := range shown {
		source := e.Source
		if e.Line > 0 {
			source += fmt.Sprintf(", line %d", e.Line)
		}
		p.row(label, Escape(source))
		if e.Quote != "" {
			p.quoted(e.Quote)
		}
		label = ""
	}
	if more := len(es) - len(shown); more > 0 {
		p.row(label, fmt.Sprintf("and %d more (--show-ok, or -o json)", more))
	}
	p.seeIt(shown)
}

// quoted writes a quote under the evidence it belongs to; a newline in it is
// shown, not obeyed.
func (p *printer) quoted(text string) {
	p.line(strings.Repeat(" ", labelWidth+2), p.quote.Sprint(Escape(text)))
}

func (p *printer) seeIt(es []diagnosis.Evidence) {
	label := "see it"
	var seen []string
	for _, e := range es {
		if e.Command == "" || slices.Contains(seen, e.Command) {
			continue
		}
		seen = append(seen, e.Command)
		p.verbatim(label, e.Command, 0)
		label = ""
	}
}

// consequences lists what follows from a cause, a line each.
func (p *printer) consequences(c *cause) {
	label := "leads to"
	for _, d := range c.consequences {
		title := string(d.Code) + " " + d.Title
		if d.Subject.Node != "" {
			title += " (" + d.Subject.Node + ")"
		}
		p.line(p.head(label), clip(Escape(title), p.width-labelWidth))
		label = ""
	}
}

// fixes writes the alternatives: those that the simulation confirmed first,
// then those that it could not try, then those that it refuted.
func (p *printer) fixes(fs []diagnosis.Fix) {
	n := 0
	for _, f := range fs {
		if f.Simulated.Status == diagnosis.Confirmed {
			n++
			p.fix(fmt.Sprintf("fix %d", n), f, "simulated", simulated(f.Simulated))
		}
	}
	n = 0
	for _, f := range fs {
		if f.Simulated.Status != diagnosis.Confirmed && f.Simulated.Status != diagnosis.Refuted {
			n++
			p.fix(fmt.Sprintf("try %d", n), f, "unproven", f.Simulated.Why)
		}
	}
	for _, f := range fs {
		if f.Simulated.Status == diagnosis.Refuted {
			p.line()
			p.row("not a fix", Escape(f.Title+": "+firstOf(f.Simulated.Why, simulated(f.Simulated))))
		}
	}
}

func (p *printer) fix(label string, f diagnosis.Fix, proof, result string) {
	p.line()
	p.row(label, Escape(f.Title))
	p.rowIf(proof, result)
	p.commands("", f.Commands, 2)
	p.rowIf("touches", f.BlastRadius)
	p.commands("undo", f.Undo, 0)
	p.commands("verify", f.Verify, 0)
}

func (p *printer) commands(label string, cmds []string, extra int) {
	for _, c := range cmds {
		p.verbatim(label, c, extra)
		label = ""
	}
}

func simulated(s diagnosis.Simulation) string {
	switch {
	case s.Before == "":
		return s.After
	case s.After == "":
		return s.Before
	}
	return s.Before + " > " + s.After
}

func firstOf(ss ...string) string {
	for _, s := range ss {
		if s != "" {
			return s
		}
	}
	return ""
}
