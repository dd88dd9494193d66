package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/jsonpath"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/report"
)

// laterFormats are in the interface and not in this version.
var laterFormats = []string{"junit", "sarif", "github", "markdown", "html"}

// outputFlags say how a report is shown.
type outputFlags struct {
	format    string
	color     string
	noHeaders bool
	quiet     bool
	showOK    bool
}

func (f *outputFlags) add(fs *pflag.FlagSet) {
	fs.StringVarP(&f.format, "output", "o", "text", "`FORMAT`: "+formatNames())
	fs.BoolVar(&f.noHeaders, "no-headers", false, "no column headings in tables")
	fs.BoolVar(&f.showOK, "show-ok", false, "tell in full also what is in order: healthy Services, every path and backend, all evidence")
	f.addShared(fs)
}

// addShared adds what every command that prints a result has.
func (f *outputFlags) addShared(fs *pflag.FlagSet) {
	fs.StringVar(&f.color, "color", "auto", "colours: auto, always, never; auto heeds NO_COLOR, TERM=dumb and pipes")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing; the exit code says it")
}

func formatNames() string {
	var out []string
	for _, f := range report.Formats() {
		out = append(out, f.Name)
	}
	return strings.Join(append(out, "jsonpath=TEMPLATE"), ", ")
}

func (f *outputFlags) validateColor() error {
	if !slices.Contains([]string{"auto", "always", "never"}, f.color) {
		return usageErrorf("--color %q: no such mode", f.color).hint("one of auto, always, never")
	}
	return nil
}

// renderer finds the renderer that -o names.
func (f *outputFlags) renderer() (report.Renderer, error) {
	if err := f.validateColor(); err != nil {
		return nil, err
	}
	if template, ok := strings.CutPrefix(f.format, "jsonpath="); ok {
		return jsonpathRenderer(template)
	}
	for _, known := range report.Formats() {
		if f.format == known.Name {
			return known.Render, nil
		}
	}
	if slices.Contains(laterFormats, f.format) {
		return nil, usageErrorf("-o %s: this version does not have that format yet", f.format).hint("it has %s", formatNames())
	}
	return nil, usageErrorf("-o %q: no such format", f.format).hint("one of %s", formatNames())
}

// options are the renderer's, for standard output as it is.
func (a *app) options(f *outputFlags) report.Options {
	width := 0 // prose of the usual width, and tables as wide as they are
	if isTerminal(a.Out) {
		width = widthOf(a.Out)
	}
	return report.Options{
		Width:     width,
		Color:     a.colorFor(a.Out, f.color),
		NoHeaders: f.noHeaders,
		ShowOK:    f.showOK,
		Program:   a.program,
	}
}

// print renders a report to standard output, in one write.
func (a *app) print(r *diagnosis.Report, render report.Renderer, f *outputFlags) error {
	if f.quiet {
		return nil
	}
	var buf bytes.Buffer
	if err := render(&buf, r, a.options(f)); err != nil {
		return fmt.Errorf("render the report: %w", err)
	}
	_, err := a.Out.Write(buf.Bytes())
	return err
}

// jsonpathRenderer prints what a kubectl JSONPath template finds in the report.
// It is not in package report because it needs client-go.
func jsonpathRenderer(template string) (report.Renderer, error) {
	jp := jsonpath.New("out").AllowMissingKeys(true)
	if err := jp.Parse(braced(template)); err != nil {
		return nil, usageErrorf("-o jsonpath=%s: %w", template, err).hint("for example -o jsonpath='{.services[*].diagnoses[*].code}'")
	}
	return func(w io.Writer, r *diagnosis.Report, _ report.Options) error {
		var raw bytes.Buffer
		if err := report.JSON(&raw, r, report.Options{}); err != nil {
			return err
		}
		var v any
		if err := json.Unmarshal(raw.Bytes(), &v); err != nil {
			return err
		}
		var out bytes.Buffer
		if err := jp.Execute(&out, v); err != nil {
			return usageErrorf("-o jsonpath=%s: %w", template, err)
		}
		_, err := io.WriteString(w, report.EscapeLines(out.String()))
		return err
	}, nil
}

// braced lets a bare path do for a template, as kubectl does: .summary.fail.
func braced(template string) string {
	if strings.HasPrefix(template, "{") || !strings.HasPrefix(template, ".") {
		return template
	}
	return "{" + template + "}"
}
