package report

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// overview writes the verdict over many Services and a line for each.
func (p *printer) overview(r *diagnosis.Report) {
	all := worstFirst(r.Services)
	word := verdictWord(all[0].Verdict)
	p.wrapped(p.status(all[0].Verdict, word)+strings.Repeat(" ", max(9-len(word), 2)), 9, counts(r.Summary))
	p.line()
	rows := make([][4]string, 0, len(all)+1)
	if !p.opts.NoHeaders {
		rows = append(rows, [4]string{"VERDICT", "SERVICE", "FRONTEND", "WHY"})
	}
	for _, s := range all {
		rows = append(rows, [4]string{verdictWord(s.Verdict), serviceName(s), firstFrontend(s), why(s)})
	}
	p.columns(rows, func(i int) diagnosis.Status {
		if i -= len(rows) - len(all); i < 0 {
			return ""
		}
		return all[i].Verdict
	})
}

// columns writes rows aligned; the last column is cut at the width.
func (p *printer) columns(rows [][4]string, status func(int) diagnosis.Status) {
	var widths [3]int
	for _, r := range rows {
		for i := range widths {
			widths[i] = max(widths[i], columns(r[i]))
		}
	}
	for i, r := range rows {
		line := pad(r[1], widths[1]) + "  " + pad(r[2], widths[2])
		used := widths[0] + 4 + columns(line)
		if why := clip(r[3], max(p.width-used, 12)); why != "" {
			line += "  " + why
		}
		p.line(p.status(status(i), pad(r[0], widths[0])), "  ", strings.TrimRight(line, " "))
	}
}

func counts(s diagnosis.Summary) string {
	parts := []string{fmt.Sprintf("%d of %d Services fail", s.Fail, s.Services)}
	for _, c := range []struct {
		n    int
		word string
	}{{s.Unknown, "unknown"}, {s.Warn, "with warnings"}, {s.OK, "ok"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.word))
		}
	}
	return strings.Join(parts, ", ")
}

func firstFrontend(s *diagnosis.Service) string {
	fs := frontends(s)
	switch len(fs) {
	case 0:
		return "-"
	case 1:
		return fs[0]
	}
	return fmt.Sprintf("%s +%d", fs[0], len(fs)-1)
}

// why is the reason for a Service's verdict in one clause.
func why(s *diagnosis.Service) string {
	if causes := fold(s.Diagnoses); len(causes) > 0 {
		return Escape(string(causes[0].Code) + " " + causes[0].Title)
	}
	for _, l := range s.Layers {
		if l.Status == diagnosis.Unknown {
			return Escape(fmt.Sprintf("%s: %s", l.Name, l.Summary))
		}
	}
	return ""
}
