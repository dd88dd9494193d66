package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// TraceRenderer writes one trace.
type TraceRenderer func(io.Writer, *diagnosis.TraceReport, Options) error

// TraceFormat is one value of trace's -o.
type TraceFormat struct {
	Name   string
	Render TraceRenderer
}

// TraceFormats are those of a trace, in the order of the help.
func TraceFormats() []TraceFormat {
	return []TraceFormat{
		{"text", TraceText},
		{"json", func(w io.Writer, t *diagnosis.TraceReport, _ Options) error { return writeJSON(w, t) }},
		{"yaml", func(w io.Writer, t *diagnosis.TraceReport, _ Options) error { return writeYAML(w, t) }},
	}
}

// TraceText draws each outcome of a trace with its probability and the rules
// that the packet passed, by line. Rules are quoted as they stand in the text
// that was read.
func TraceText(w io.Writer, t *diagnosis.TraceReport, o Options) error {
	p := newPrinter(w, o)
	p.line(Escape(t.Packet.From), " > ", Escape(t.Packet.To), "/", Escape(t.Packet.Protocol), "  ", entry(t.Packet))
	named := severalSources(t.Outcomes)
	for _, out := range t.Outcomes {
		p.line()
		p.wrapped(p.code.Sprintf("%5s", percent(out.Probability))+"  ", 7, p.outcome(out))
		for _, r := range out.Rules {
			p.rule(r, named, "")
		}
		for _, u := range out.Unknowns {
			p.rule(u.Rule, named, "undecided: "+Escape(u.Why))
		}
		if len(out.Rules)+len(out.Unknowns) == 0 {
			p.line(strings.Repeat(" ", 7), "no rule matched")
		}
	}
	return p.close()
}

func entry(k diagnosis.Packet) string {
	switch {
	case k.LocalProcess:
		return "from a process on the node, enters at OUTPUT"
	case k.In != "":
		return "enters at PREROUTING on " + Escape(k.In)
	}
	return "enters at PREROUTING"
}

// outcome says how the packet ends; the rules that decided follow below it.
func (p *printer) outcome(o diagnosis.Outcome) string {
	to := Escape(o.To)
	source := "source kept"
	switch {
	case o.Masquerade:
		source = "source rewritten"
	case o.MasqueradeUnknown:
		source = "whether its source is rewritten is not known"
	}
	switch o.Verdict {
	case "dnat":
		return p.ok.Sprint("DNAT") + " to " + to + ", " + source
	case "accept":
		return p.ok.Sprint("ACCEPT") + " to " + to + ", " + source
	case "none":
		text := "NONE: no rule rewrites it, passes to " + to
		if o.Masquerade {
			text += ", source rewritten"
		}
		return text
	case "drop", "reject":
		text := p.fail.Sprint(strings.ToUpper(o.Verdict))
		if rewritten(o) {
			text += " after DNAT to " + to
		}
		return text
	}
	return p.unknown.Sprint("UNKNOWN") + ": a match that decides could not be decided"
}

// rule writes one rule that was passed: table, chain, line, and what stands
// there.
func (p *printer) rule(r diagnosis.Rule, named bool, note string) {
	at := strings.TrimSpace(Escape(r.Table + " " + r.Chain))
	if r.Line > 0 {
		at += fmt.Sprintf(" line %d", r.Line)
	}
	if named && r.Source != "" {
		at += " of " + Escape(r.Source)
	}
	if note != "" {
		at += "  " + note
	}
	if at = strings.TrimSpace(at); at != "" {
		p.wrapped(strings.Repeat(" ", 7), 9, at)
	}
	p.line(strings.Repeat(" ", 9), p.quote.Sprint(Escape(r.Text)))
}

func severalSources(outcomes []diagnosis.Outcome) bool {
	first, several := "", false
	for _, o := range outcomes {
		for _, r := range o.Rules {
			if first == "" {
				first = r.Source
			}
			several = several || r.Source != first
		}
	}
	return several
}
