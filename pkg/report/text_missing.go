package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// gap is something missing, with the layers that would have needed it. Where
// several Services lack the same and the command that supplies it names one of
// them, it is the first one's.
type gap struct {
	diagnosis.Missing
	layers   []diagnosis.Layer
	services int
	various  bool
}

// notExamined says what the layers lacked and how to supply it, each thing
// once however many layers and Services lacked it.
func (p *printer) notExamined(r *diagnosis.Report) {
	gs := gaps(r)
	if len(gs) > 0 {
		p.line()
	}
	const most = 20
	for i, g := range gs {
		if r.Audit && i == most {
			p.line(fmt.Sprintf("not examined: %d things more (-o json lists them)", len(gs)-most))
			break
		}
		text := Escape(g.What)
		if g.Why != "" {
			text += ": " + Escape(g.Why)
		}
		word := "layer"
		if len(g.layers) > 1 {
			word = "layers"
		}
		text += fmt.Sprintf(" (%s %s", word, layerNumbers(g.layers))
		if g.services > 1 {
			text += fmt.Sprintf(" of %d Services", g.services)
		}
		if g.various {
			text += "; the command is for one of them"
		}
		const indent = 14
		p.wrapped(p.unknown.Sprint("not examined:")+" ", indent, text+")")
		if g.Supply == "" {
			continue
		}
		for _, l := range strings.Split(g.Supply, "\n") {
			p.line(strings.Repeat(" ", indent), p.quote.Sprint(Escape(l)))
		}
	}
}

func gaps(r *diagnosis.Report) []gap {
	var out []gap
	for i := range r.Services {
		var counted []int
		for _, l := range r.Services[i].Layers {
			for _, m := range l.Missing {
				j := slices.IndexFunc(out, func(g gap) bool { return g.What == m.What && g.Why == m.Why })
				if j < 0 {
					j = len(out)
					out = append(out, gap{Missing: m})
				}
				out[j].various = out[j].various || out[j].Supply != m.Supply
				if !slices.Contains(out[j].layers, l.Layer) {
					out[j].layers = append(out[j].layers, l.Layer)
				}
				if !slices.Contains(counted, j) {
					counted = append(counted, j)
					out[j].services++
				}
			}
		}
	}
	for _, g := range out {
		slices.Sort(g.layers)
	}
	return out
}

// unreadable lists the inputs that could not be read and that no layer's gap
// has told of: a file that was skipped, a node that did not answer. Kinds of
// objects that were not read are told of where a layer missed them, and not
// where none did.
func (p *printer) unreadable(r *diagnosis.Report) {
	told := gaps(r)
	first := true
	for _, in := range r.Inputs {
		if in.Error == "" || in.Kind == "api" || in.Kind == "objects" || slices.ContainsFunc(told, func(g gap) bool { return g.Why == in.Error }) {
			continue
		}
		if first {
			p.line()
			first = false
		}
		ref := in.Kind + " " + in.Ref
		if in.Node != "" {
			ref += " (" + in.Node + ")"
		}
		p.wrapped(p.unknown.Sprint("not read:")+" ", 10, Escape(ref+": "+in.Error))
	}
}
