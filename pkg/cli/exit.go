package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/report"
)

// The exit codes; docs/exit-codes.md explains them. They are the same for
// every output format.
const (
	exitOK          = 0   // walked; nothing at or above --fail-on
	exitDiagnosis   = 1   // at least one diagnosis at or above --fail-on
	exitUsage       = 2   // flag, argument, file
	exitUnknown     = 3   // could not tell
	exitInterrupted = 130 // as a shell reports a process ended by SIGINT
)

// exitError is an error with the code that it ends the program with. Without
// err there is nothing to say: the report has said it.
type exitError struct {
	code  int
	err   error
	hints []string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageErrorf is for a flag, an argument or a file that is wrong.
func usageErrorf(format string, args ...any) *exitError {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// unknownErrorf is for what could not be found out.
func unknownErrorf(format string, args ...any) *exitError {
	return &exitError{code: exitUnknown, err: fmt.Errorf(format, args...)}
}

func interrupted(err error) error {
	return &exitError{code: exitInterrupted, err: fmt.Errorf("interrupted: %w", err)}
}

// hint adds a line that says what to do.
func (e *exitError) hint(format string, args ...any) *exitError {
	e.hints = append(e.hints, fmt.Sprintf(format, args...))
	return e
}

// decided says whether the error is a report's verdict, which stands even if
// an interrupt came after it.
func decided(err error) bool {
	var e *exitError
	return errors.As(err, &e) && e.err == nil
}

// exit says what went wrong, if anything did, and gives the exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return exitOK
	}
	if isBrokenPipe(err) {
		return exitOK
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{code: exitUnknown, err: err}
	}
	if e.err != nil {
		// Messages may quote file contents and what a server said.
		fmt.Fprintf(a.Err, "error: %s\n", escapeMessage(err.Error()))
		for _, h := range e.hints {
			fmt.Fprintf(a.Err, "hint: %s\n", escapeMessage(h))
		}
	}
	return e.code
}

// escapeMessage keeps a message's own newlines and nothing else of what a
// terminal would obey.
func escapeMessage(s string) string { return report.EscapeLines(strings.TrimRight(s, "\n")) }

// criteria are what decides over a report's exit code.
type criteria struct {
	failOn  diagnosis.Severity // "" for never
	require []diagnosis.Layer
}

// code is the exit code for a report. A proof is a proof: a diagnosis counts
// before what could not be told.
func (c criteria) code(r *diagnosis.Report) int {
	for _, s := range r.Services {
		for _, d := range s.Diagnoses {
			if c.failOn != "" && !d.Ignored && d.Severity.Rank() >= c.failOn.Rank() {
				return exitDiagnosis
			}
		}
	}
	if !c.required(r) || refused(r) {
		return exitUnknown
	}
	return exitOK
}

// required says whether every layer that had to be examined was, for every
// Service.
func (c criteria) required(r *diagnosis.Report) bool {
	for _, s := range r.Services {
		for _, l := range s.Layers {
			if l.Status == diagnosis.Unknown && slices.Contains(c.require, l.Layer) {
				return false
			}
		}
	}
	return true
}

// refused says whether a Service could not be looked for at all, or a layer is
// unknown because the API would not give what was asked of it (forbidden,
// failed), as opposed to what nobody asked for.
func refused(r *diagnosis.Report) bool {
	var reasons []string
	asked := false // an API, as opposed to files that lack something
	for _, in := range r.Inputs {
		switch {
		case in.Kind != "api":
		case in.Error == "":
			asked = true
		default:
			reasons = append(reasons, in.Error)
		}
	}
	if !asked {
		reasons = nil
	}
	if len(reasons) > 0 && len(r.Services) == 0 {
		return true // nothing was walked, and that may be why
	}
	for _, s := range r.Services {
		if s.Type == "" && s.Verdict == diagnosis.Unknown && len(s.Paths) == 0 {
			return true // whether there is such a Service could not be told
		}
		for _, l := range s.Layers {
			if l.Status != diagnosis.Unknown {
				continue
			}
			for _, m := range l.Missing {
				if slices.Contains(reasons, m.Why) {
					return true
				}
			}
		}
	}
	return false
}

// isUsage says whether trying again cannot help.
func isUsage(err error) bool {
	var e *exitError
	return errors.As(err, &e) && e.code == exitUsage
}
