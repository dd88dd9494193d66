package walk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// simulate tries every proposed fix of a Service: it is applied to a copy of
// the snapshot, with what controllers would do in consequence, and the Service
// is walked again. Only what makes the diagnosis go away, brings no new error
// and mends the layers that failed because of it is confirmed. A fix of what
// only follows from something else is not tried: that has to be mended first.
func (w *world) simulate(p *Pass) {
	before := w.observe(p)
	for i, f := range p.findings {
		for j := range f.Fixes {
			pr := &f.Fixes[j]
			switch {
			case pr.NotSimulated != "":
				pr.Fix.Simulated = diagnosis.Simulation{Status: diagnosis.NotSimulated, Why: pr.NotSimulated}
			case len(before.ds[i].CausedBy) > 0:
				pr.Fix.Simulated = diagnosis.Simulation{Status: diagnosis.NotSimulated, Why: fmt.Sprintf("it follows from %s, which comes first", before.ds[i].CausedBy[0])}
			default:
				pr.Fix.Simulated = w.try(p, before, i, pr)
			}
		}
	}
}

// observed is how a Service came out: its diagnoses in the order of the
// findings, folded, and its layers.
type observed struct {
	ds     []diagnosis.Diagnosis
	layers []diagnosis.LayerResult
	ready  string // "3 ready backends", "" where it is not known
}

func (w *world) observe(p *Pass) observed {
	o := observed{}
	for _, f := range p.findings {
		o.ds = append(o.ds, p.diagnosis(f))
	}
	fold(o.ds, p.findings)
	if p.Service == nil {
		return o
	}
	o.layers = p.layerResults(o.ds)
	if p.Has(snapshot.EndpointSlices) && !isExternalName(p) {
		o.ready = count(p.usableEndpoints(), "ready backend")
	}
	return o
}

// try walks the Service as it would be after one fix.
func (w *world) try(p *Pass, before observed, i int, pr *Proposal) diagnosis.Simulation {
	s := cloneFor(w.snap, p.Service.Namespace)
	if err := pr.Change(s); err != nil {
		return diagnosis.Simulation{Status: diagnosis.NotSimulated, Why: err.Error()}
	}
	opts := w.opts
	opts.resynced = p.resynced(before)
	w2 := w.changed(s, opts)
	svc := findService(s, p.Service.Namespace, p.Service.Name)
	if svc == nil {
		return diagnosis.Simulation{Status: diagnosis.NotSimulated, Why: "the Service would be gone"}
	}
	p2 := w2.pass(question{svc, p.Target})
	p2.run()
	after := w2.observe(p2)

	sim := diagnosis.Simulation{Status: diagnosis.Confirmed, Before: before.text(false), After: after.text(true)}
	if pr.Assuming != "" {
		sim.Why = "assuming " + pr.Assuming
	}
	if why := refutation(before, after, i); why != "" {
		sim.Status, sim.Why = diagnosis.Refuted, why
	}
	return sim
}

// resynced are the nodes whose rules agreed with the objects before: their
// kube-proxy follows the API, so it would follow the change too. One with a
// fault of its own would not, for all that is known.
func (p *Pass) resynced(before observed) map[string]bool {
	out := map[string]bool{}
	for _, v := range p.node.views {
		out[v.name] = !slices.ContainsFunc(before.ds, func(d diagnosis.Diagnosis) bool {
			return d.Layer == diagnosis.LayerNode && len(d.CausedBy) == 0 && d.Subject.Node == v.name
		})
	}
	return out
}

// refutation says why a fix is none, "" if it is one.
func refutation(before, after observed, i int) string {
	d := before.ds[i]
	if slices.ContainsFunc(after.ds, func(a diagnosis.Diagnosis) bool { return sameDiagnosis(a, d) }) {
		return fmt.Sprintf("%s would still be there", d.Code)
	}
	for _, a := range after.ds {
		if a.Severity == diagnosis.Error && !a.Ignored && before.newTo(a) {
			return fmt.Sprintf("it would bring %s: %s", a.Code, a.Title)
		}
	}
	for _, l := range failedBecauseOf(before, d) {
		if r := after.layers[l-1]; r.Status == diagnosis.Fail && !failsForAnother(after, l) {
			return fmt.Sprintf("layer %d (%s) would still fail: %s", l, r.Name, r.Summary)
		}
	}
	return ""
}

// newTo says whether a diagnosis was not there, and does not follow from one
// that was: a node whose kube-proxy has stopped goes on being wrong.
func (o observed) newTo(a diagnosis.Diagnosis) bool {
	return !slices.ContainsFunc(o.ds, func(b diagnosis.Diagnosis) bool {
		return sameDiagnosis(a, b) || slices.Contains(a.CausedBy, b.Code)
	})
}

func sameDiagnosis(a, b diagnosis.Diagnosis) bool { return a.Code == b.Code && a.Subject == b.Subject }

// failedBecauseOf are the layers that failed by a diagnosis: its own, those of
// its consequences, and those that name its layer as the reason.
func failedBecauseOf(o observed, d diagnosis.Diagnosis) []diagnosis.Layer {
	var out []diagnosis.Layer
	for _, r := range o.layers {
		if r.Status != diagnosis.Fail {
			continue
		}
		follows := r.Layer == d.Layer || slices.Contains(r.Because, d.Layer) ||
			slices.ContainsFunc(d.Causes, func(c diagnosis.Code) bool { return c.Layer() == r.Layer })
		if follows {
			out = append(out, r.Layer)
		}
	}
	return out
}

// failsForAnother: an error that is still there, and that was there before
// (else it were a new one), accounts for the layer.
func failsForAnother(o observed, l diagnosis.Layer) bool {
	because := o.layers[l-1].Because
	return slices.ContainsFunc(o.ds, func(d diagnosis.Diagnosis) bool {
		return d.Severity == diagnosis.Error && !d.Ignored && (d.Layer == l || slices.Contains(because, d.Layer))
	})
}

// text sums up for one line: "3 ready backends, layers 1, 2 ok; 3 not examined".
// Before a fix only what fails is told.
func (o observed) text(all bool) string {
	order := []struct {
		status diagnosis.Status
		word   string
	}{{diagnosis.OK, "ok"}, {diagnosis.Warn, "warn"}, {diagnosis.Fail, "fail"}, {diagnosis.Unknown, "not examined"}}
	var parts []string
	for _, g := range order {
		if !all && g.status != diagnosis.Fail && g.status != diagnosis.Warn {
			continue
		}
		var ls []diagnosis.Layer
		for _, r := range o.layers {
			if r.Status == g.status {
				ls = append(ls, r.Layer)
			}
		}
		if len(ls) > 0 {
			parts = append(parts, layersText(ls)+" "+g.word)
		}
	}
	text := strings.Join(parts, "; ")
	switch {
	case text == "":
	case strings.ContainsAny(parts[0], ",-"):
		text = "layers " + text
	default:
		text = "layer " + text
	}
	switch {
	case o.ready == "":
		return text
	case text == "":
		return o.ready
	}
	return o.ready + ", " + text
}

// layersText writes layer numbers, a run of three or more as a range: "1, 2", "1-4".
func layersText(ls []diagnosis.Layer) string {
	var out []string
	for i := 0; i < len(ls); {
		j := i
		for j+1 < len(ls) && ls[j+1] == ls[j]+1 {
			j++
		}
		if j-i >= 2 {
			out = append(out, fmt.Sprintf("%d-%d", ls[i], ls[j]))
			i = j + 1
			continue
		}
		out = append(out, fmt.Sprint(int(ls[i])))
		i++
	}
	return strings.Join(out, ", ")
}
