package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// Text writes the report for a person: the verdict first, a line for each
// layer, the root causes with evidence, fix, undo and verification, then what
// was not examined and the command that would supply it. A healthy Service is
// six lines; several Services are a table, the broken ones first, and the
// broken ones in full below it.
func Text(w io.Writer, r *diagnosis.Report, o Options) error {
	p := newPrinter(w, o)
	switch {
	case len(r.Services) == 0:
		p.line("nothing walked: no Service was found")
	case r.Audit:
		p.auditText(r)
	case len(r.Services) == 1:
		p.service(&r.Services[0])
	default:
		p.overview(r)
		for _, s := range worstFirst(r.Services) {
			if o.ShowOK || inTrouble(s) {
				p.line()
				p.service(s)
			}
		}
	}
	p.notExamined(r)
	p.unreadable(r)
	p.closing(r)
	return p.close()
}

// inTrouble says whether a Service among many is worth telling in full: one
// that fails, or that has more than an info to read. Of one that is only
// unknown the table and the list of what was not examined say all there is.
func inTrouble(s *diagnosis.Service) bool {
	return s.Verdict == diagnosis.Fail || slices.ContainsFunc(s.Diagnoses, func(d diagnosis.Diagnosis) bool {
		return !d.Ignored && d.Severity != diagnosis.Info
	})
}

// service writes one Service in full.
func (p *printer) service(s *diagnosis.Service) {
	causes := fold(s.Diagnoses)
	p.verdict(s)
	if s.Verdict != diagnosis.OK {
		p.line()
	}
	for _, l := range s.Layers {
		p.layer(l, s.Verdict == diagnosis.OK && !p.opts.ShowOK)
	}
	drawn := drawing{}
	if len(causes) == 0 || s.Verdict == diagnosis.OK {
		p.healthyPath(s, drawn)
	}
	for i := range causes {
		p.line()
		p.diagnosis(s, &causes[i], i == 0, drawn)
	}
	if p.opts.ShowOK {
		p.otherPaths(s, drawn)
	}
}

// verdict writes the line that everything else explains: verdict, Service,
// where it is reached, and what a client sees.
func (p *printer) verdict(s *diagnosis.Service) {
	const indent = 6
	word := verdictWord(s.Verdict)
	head := p.status(s.Verdict, word) + strings.Repeat(" ", max(indent-len(word), 2))
	used := max(indent, len(word)+2)
	name := serviceName(s)
	rest := frontendsWithin(frontends(s), p.width-used-columns(name)-2)
	text := name
	if rest != "" {
		text += "  " + rest
	}
	if s.Consequence == "" {
		p.line(head, text)
		return
	}
	consequence := Escape(s.Consequence)
	if used+columns(text)+2+columns(consequence) <= p.width {
		p.line(head, text, "  ", consequence)
		return
	}
	p.line(head, text)
	p.wrapped(strings.Repeat(" ", indent), indent, consequence)
}

// frontendsWithin lists as many frontends as fit, and counts the others.
func frontendsWithin(fs []string, width int) string {
	if len(fs) == 0 {
		return ""
	}
	text := func(n int) string {
		t := strings.Join(fs[:n], ", ")
		if n < len(fs) {
			t += fmt.Sprintf(" +%d", len(fs)-n)
		}
		return t
	}
	n := 1
	for n < len(fs) && n < 3 && columns(text(n+1)) <= width {
		n++
	}
	if columns(text(n)) > width {
		return "" // a very long name; the layers and -o json have the addresses
	}
	return text(n)
}

// layer writes one of the four lines; of a healthy Service it stays one line.
func (p *printer) layer(l diagnosis.LayerResult, oneLine bool) {
	const indent = 24
	word := layerWord(l.Status)
	head := fmt.Sprintf("  %d %-9s  %s", l.Layer, Escape(l.Name), p.status(l.Status, word)) + strings.Repeat(" ", max(9-len(word), 1))
	text := Escape(l.Summary)
	if len(l.Because) > 0 {
		text = strings.TrimSpace(text + "  because of " + layerNumbers(l.Because))
	}
	if oneLine {
		text = clip(text, p.width-indent)
	}
	if text == "" {
		p.line(strings.TrimRight(head, " "))
		return
	}
	p.wrapped(head, indent, text)
}

func layerNumbers(ls []diagnosis.Layer) string {
	var out []string
	for _, l := range ls {
		out = append(out, fmt.Sprint(int(l)))
	}
	return strings.Join(out, ", ")
}

// closing says what is left to say: what was suppressed, and where to read on.
func (p *printer) closing(r *diagnosis.Report) {
	if r.Summary.Ignored > 0 {
		p.line()
		p.line(fmt.Sprintf("ignored: %d (%s)", r.Summary.Ignored, ignoredCodes(r)))
	}
	for _, s := range worstFirst(r.Services) {
		cases := fold(s.Diagnoses)
		if len(cases) == 0 {
			continue
		}
		if r.Summary.Ignored == 0 {
			p.line()
		}
		p.line("explain: ", p.opts.program(), " explain ", Escape(string(cases[0].Code)))
		return
	}
}

func ignoredCodes(r *diagnosis.Report) string {
	var out []string
	seen := map[diagnosis.Code]bool{}
	for i := range r.Services {
		for _, d := range r.Services[i].Diagnoses {
			if d.Ignored && !seen[d.Code] {
				seen[d.Code] = true
				out = append(out, Escape(string(d.Code)))
			}
		}
	}
	return strings.Join(out, ", ")
}
