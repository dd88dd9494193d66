package report

import (
	"strings"

	"github.com/fatih/color"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// palette has a style for each meaning. Call sites name the meaning; only this
// file knows colours. Each style is an instance with its own switch, because
// the colour package's own default looks at stdout alone.
type palette struct {
	ok, warn, fail, unknown, code, quote, label *color.Color
}

func newPalette(on bool) palette {
	style := func(attrs ...color.Attribute) *color.Color {
		c := color.New(attrs...)
		if on {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
		return c
	}
	return palette{
		ok:      style(color.FgGreen),
		warn:    style(color.FgYellow),
		fail:    style(color.FgRed, color.Bold),
		unknown: style(color.FgMagenta),
		code:    style(color.Bold),
		quote:   style(color.FgCyan),
		label:   style(color.Faint),
	}
}

// status colours text by a status.
func (p palette) status(s diagnosis.Status, text string) string {
	switch s {
	case diagnosis.OK:
		return p.ok.Sprint(text)
	case diagnosis.Warn:
		return p.warn.Sprint(text)
	case diagnosis.Fail:
		return p.fail.Sprint(text)
	case diagnosis.Unknown:
		return p.unknown.Sprint(text)
	}
	return text
}

// verdictWord is a Service's verdict at the head of its line.
func verdictWord(s diagnosis.Status) string { return strings.ToUpper(Escape(string(s))) }

// layerWord is a layer's status: what is in order is in small letters, so that
// the rest stands out.
func layerWord(s diagnosis.Status) string {
	if s == diagnosis.OK || s == diagnosis.Skipped {
		return string(s)
	}
	return verdictWord(s)
}
