package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/vipwalk/vipwalk/pkg/report"
)

// maxWidth bounds the width of prose on a wide terminal; longer lines are hard
// to read.
const maxWidth = 100

// isTerminal says whether a stream is one; a buffer or a pipe is not.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colorFor decides whether colour may be written to a stream: the flag first,
// then NO_COLOR (if it is not empty), then TERM=dumb, then whether the stream
// is a terminal.
func (a *app) colorFor(stream io.Writer, mode string) bool {
	switch {
	case mode == "always":
		return true
	case mode == "never", a.getenv("NO_COLOR") != "", a.getenv("TERM") == "dumb":
		return false
	}
	return isTerminal(stream)
}

// widthOf is the width for text on a stream.
func widthOf(stream io.Writer) int {
	if f, ok := stream.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return min(w, maxWidth)
		}
	}
	return report.DefaultWidth
}

// progress says on stderr what is being done, if stderr is a terminal, and
// returns the function that erases it again.
func (a *app) progress(quiet bool, format string, args ...any) (done func()) {
	if quiet || !isTerminal(a.Err) || a.getenv("TERM") == "dumb" {
		return func() {}
	}
	fmt.Fprintf(a.Err, "\r\x1b[K%s", report.Escape(fmt.Sprintf(format, args...)))
	return func() { fmt.Fprint(a.Err, "\r\x1b[K") }
}
