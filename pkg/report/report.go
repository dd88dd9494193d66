// Package report renders a diagnosis.Report: as text for a person, as a table,
// as names for a script, as JSON and YAML. It only renders. What is printed was
// decided by the walk; nothing here looks at a cluster, a node or the clock,
// and the same report gives the same bytes.
//
// The rules of the text forms:
//
//   - Words carry the meaning (OK, WARN, FAIL, UNKNOWN, the code); colour only
//     helps, and is off unless asked for.
//   - Everything that came from outside is escaped (see Escape), so that a label
//     or a rule's comment cannot move the cursor or turn the text around.
//   - Prose is wrapped at the width. Quotes and commands are never wrapped: they
//     are there to be compared and copied.
//   - Only a fix that the simulation confirmed is called a fix.
package report

import (
	"io"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// DefaultWidth is the width of text where the output is not a terminal.
const DefaultWidth = 80

// Options say how to render; the zero value is plain text of DefaultWidth.
type Options struct {
	// Width in columns of text; 0 means DefaultWidth.
	Width int
	// Color says whether ANSI colours may be written.
	Color bool
	// NoHeaders leaves out the column headings of tables.
	NoHeaders bool
	// ShowOK also details what is in order: healthy Services among many, every
	// path with every backend, all evidence.
	ShowOK bool
	// Program is what the user typed to run this, for the hints: "vipwalk" or
	// "kubectl vipwalk". Empty means vipwalk.
	Program string
}

func (o Options) width() int {
	if o.Width <= 0 {
		return DefaultWidth
	}
	return max(o.Width, 40)
}

func (o Options) program() string {
	if o.Program == "" {
		return "vipwalk"
	}
	return o.Program
}

// Renderer writes one report.
type Renderer func(io.Writer, *diagnosis.Report, Options) error

// Format is one value of -o.
type Format struct {
	Name   string
	Render Renderer
}

// Formats are those that this package renders, in the order of the help.
func Formats() []Format {
	return []Format{
		{"text", Text},
		{"wide", Wide},
		{"json", JSON},
		{"yaml", YAML},
		{"name", Name},
	}
}
