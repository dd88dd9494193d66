package report

import (
	"bytes"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// Wide writes a table of all Services, the broken ones first, as wide as it
// needs to be.
func Wide(w io.Writer, r *diagnosis.Report, o Options) error {
	if r.Audit {
		return auditWide(w, r, o)
	}
	headings := []string{"VERDICT", "NAMESPACE", "SERVICE", "TYPE", "FRONTENDS", "SELECTOR", "ENDPOINTS", "NODE", "POLICY", "DIAGNOSES", "CLIENTS"}
	if o.NoHeaders {
		headings = nil
	}
	var rows [][]string
	for _, s := range worstFirst(r.Services) {
		rows = append(rows, wideRow(s))
	}
	return writeTable(w, headings, rows)
}

func wideRow(s *diagnosis.Service) []string {
	row := []string{verdictWord(s.Verdict), dash(s.Namespace), Escape(s.Name), dash(s.Type), dash(strings.Join(frontends(s), ","))}
	for _, l := range s.Layers {
		row = append(row, layerWord(l.Status))
	}
	for len(row) < 9 {
		row = append(row, "-")
	}
	var codes []string
	for _, d := range s.Diagnoses {
		if c := Escape(string(d.Code)); !d.Ignored && (len(codes) == 0 || codes[len(codes)-1] != c) {
			codes = append(codes, c)
		}
	}
	return append(row, dash(strings.Join(codes, ",")), dash(s.Consequence))
}

// dash is a cell's text, or a dash where there is none.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return Escape(s)
}

// writeTable is the only place that knows the table library: no lines, no
// borders, three spaces between columns, as kubectl's own tables are.
func writeTable(w io.Writer, headings []string, rows [][]string) error {
	var buf bytes.Buffer
	cell := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
		Alignment:  tw.CellAlignment{Global: tw.AlignLeft},
		Padding:    tw.CellPadding{Global: tw.Padding{Right: "   ", Overwrite: true}},
	}
	t := tablewriter.NewTable(&buf,
		tablewriter.WithConfig(tablewriter.Config{Header: cell, Row: cell}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		})),
	)
	if len(headings) > 0 {
		t.Header(headings)
	}
	if err := t.Bulk(rows); err != nil {
		return err
	}
	if err := t.Render(); err != nil {
		return err
	}
	// The last column is padded to its widest cell; in a terminal that is a
	// screen full of blank lines.
	for line := range strings.Lines(buf.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}
