package cli

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/docs"
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/report"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain a diagnosis; without CODE, list them",
		Long: "Explain a diagnosis in full: what it means, how it arises, how to confirm it by hand,\n" +
			"how to mend, undo and verify. CODE is a code (VIP102) or its name (SelectorMatchesNoPod).\n" +
			"Without CODE, list all of them.",
		ValidArgsFunction: completeCodes,
		RunE: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return a.listCodes()
			case 1:
				return a.explain(args[0])
			}
			return usageErrorf("explain takes one code, got %d arguments", len(args))
		},
	}
}

func (a *app) listCodes() error {
	for _, e := range diagnosis.Catalogue {
		if _, err := fmt.Fprintf(a.Out, "%s  %-23s  %-7s  %s\n", e.Code, e.Name, e.Severity, e.Title); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) explain(word string) error {
	e, err := lookupCode(word)
	if err != nil {
		return err
	}
	text, err := fs.ReadFile(docs.FS, strings.TrimPrefix(e.Code.Docs(), "docs/"))
	if err != nil {
		// Held to be impossible by a test; the catalogue's line is still right.
		text = []byte(fmt.Sprintf("# %s %s\n\n%s\n", e.Code, e.Name, e.Title))
	}
	_, err = fmt.Fprint(a.Out, plainMarkdown(string(text), widthOf(a.Out)))
	return err
}

// lookupCode finds a catalogue entry by code or name.
func lookupCode(word string) (diagnosis.Entry, error) {
	if e, ok := diagnosis.Lookup(word); ok {
		return e, nil
	}
	err := usageErrorf("no diagnosis %q", word)
	if near := nearest(word, codesAndNames()); near != "" {
		return diagnosis.Entry{}, err.hint("did you mean %s?", near)
	}
	return diagnosis.Entry{}, err.hint("`explain` without a code lists them all")
}

func codesAndNames() []string {
	var out []string
	for _, e := range diagnosis.Catalogue {
		out = append(out, string(e.Code), e.Name)
	}
	return out
}

func completeCodes(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, e := range diagnosis.Catalogue {
		if strings.HasPrefix(string(e.Code), strings.ToUpper(toComplete)) {
			out = append(out, string(e.Code)+"\t"+e.Title)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// plainMarkdown turns a page into what reads well on a terminal: headings
// without their marks, code blocks indented without their fences and never
// wrapped, prose wrapped at the width, tables as they are.
func plainMarkdown(page string, width int) string {
	var b strings.Builder
	code := false
	for _, line := range strings.Split(strings.TrimRight(page, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
			continue
		case code:
			line = strings.TrimRight("    "+line, " ")
		case strings.HasPrefix(line, "#"):
			line = strings.TrimLeft(strings.TrimLeft(line, "#"), " ")
		case !strings.HasPrefix(line, "|"):
			line = wrapProse(line, width)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// wrapProse wraps a paragraph; the lines of a list's item hang under its text.
func wrapProse(line string, width int) string {
	text := strings.TrimLeft(line, " ")
	indent := len(line) - len(text)
	hang := indent
	if strings.HasPrefix(text, "- ") {
		hang += 2
	}
	lines := report.Wrap(text, width-hang)
	return strings.Repeat(" ", indent) + strings.Join(lines, "\n"+strings.Repeat(" ", hang))
}
