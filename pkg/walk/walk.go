// Package walk takes a Snapshot through the four layers of each Service and
// says where it breaks. It is pure: no I/O, no clock but the Snapshot's, no
// state between walks, the same input gives the same Report. That is what makes
// bundles, simulation of fixes and tests the same code as a live walk.
package walk

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// Walk walks the Services that the options name.
func Walk(s *snapshot.Snapshot, o Options) *diagnosis.Report {
	w := newWorld(s, o)
	r := &diagnosis.Report{
		APIVersion: diagnosis.APIVersion,
		Kind:       "WalkReport",
		Tool:       diagnosis.Tool{Version: o.Version},
		TakenAt:    s.TakenAt,
		Inputs:     inputs(s),
		Services:   []diagnosis.Service{},
	}
	if w.audits() {
		r.Audit = true
		r.Services = w.audit()
		r.Summary = summarise(r.Services)
		return r
	}
	for _, q := range w.resolve() {
		p := w.pass(q)
		p.run()
		w.simulate(p)
		r.Services = append(r.Services, p.report())
	}
	r.Summary = summarise(r.Services)
	return r
}

// question is one Service to walk, and what was asked about it. Service is nil
// where none was found for the target.
type question struct {
	service *corev1.Service
	target  Target
}

func (w *world) pass(q question) *Pass {
	return &Pass{world: w, Service: q.service, Target: q.target, Client: w.opts.Client}
}

// run lets every check that applies have its say, layer by layer.
func (p *Pass) run() {
	for _, l := range layers() {
		for _, c := range l.checks {
			p.runCheck(l.number, c)
		}
	}
}

func (p *Pass) runCheck(l diagnosis.Layer, c *Check) {
	if p.Service == nil {
		if c.Code != diagnosis.ServiceNotFound && !(c.Alone && p.nodeAlone()) {
			return
		}
	} else if !p.asks(l, c) {
		return
	}
	p.running = c
	c.Run(p)
	p.running = nil
}

// asks says whether the check applies to the Service and has what it needs.
func (p *Pass) asks(l diagnosis.Layer, c *Check) bool {
	if c.Applies != nil && !c.Applies(p) {
		return false
	}
	for _, r := range c.Needs {
		if !p.Need(l, r) {
			return false
		}
	}
	return true
}

// report puts the pass's findings together.
func (p *Pass) report() diagnosis.Service {
	out := diagnosis.Service{
		Namespace: p.Target.Namespace,
		Name:      p.Target.Name,
		Frontends: []diagnosis.Frontend{},
		Diagnoses: p.diagnoses(),
		Paths:     p.paths,
	}
	if out.Paths == nil {
		out.Paths = []diagnosis.Path{}
	}
	if p.Service == nil {
		if out.Name == "" {
			out.Name = p.Target.Text
		}
		out.Layers = p.layersWithoutService(out.Diagnoses)
		out.Consequence = p.consequence(out.Diagnoses)
	} else {
		out.Namespace, out.Name = p.Service.Namespace, p.Service.Name
		out.Type = string(p.Service.Spec.Type)
		if out.Type == "" {
			out.Type = string(corev1.ServiceTypeClusterIP)
		}
		for _, f := range p.Frontends() {
			out.Frontends = append(out.Frontends, reportFrontend(f))
		}
		out.Layers = p.layerResults(out.Diagnoses)
		out.Consequence = p.consequence(out.Diagnoses)
	}
	out.Verdict = diagnosis.Skipped
	for _, l := range out.Layers {
		out.Verdict = diagnosis.Worse(out.Verdict, l.Status)
	}
	if out.Verdict == diagnosis.Skipped {
		// Every layer was skipped: there is no VIP and nothing is wrong.
		out.Verdict = diagnosis.OK
	}
	return out
}

// layerResults sums up each layer: its own summary, its diagnoses, and what it
// lacked.
func (p *Pass) layerResults(ds []diagnosis.Diagnosis) []diagnosis.LayerResult {
	var out []diagnosis.LayerResult
	for _, l := range layers() {
		s := l.summarise(p)
		res := diagnosis.LayerResult{Layer: l.number, Name: l.number.Name(), Status: s.Status, Summary: s.Text, Because: s.Because}
		if res.Status == "" {
			res.Status = diagnosis.OK
		}
		for _, d := range ds {
			// What is only worth knowing changes no status; a layer that does not
			// exist stays skipped.
			if d.Layer == l.number && !d.Ignored && d.Severity != diagnosis.Info {
				res.Status = diagnosis.Worse(res.Status, statusOf(d.Severity))
			}
		}
		if missing := p.missing[l.number]; len(missing) > 0 && res.Status != diagnosis.Skipped {
			res.Missing = missing
			res.Status = diagnosis.Worse(res.Status, diagnosis.Unknown)
		}
		res.Missing = append(res.Missing, p.notes[l.number]...)
		out = append(out, res)
	}
	return out
}

// layersWithoutService are the layers where no Service was found: there is
// nothing to examine, or, where the Services were not read at all, only what
// the nodes' rules do with the address.
func (p *Pass) layersWithoutService(ds []diagnosis.Diagnosis) []diagnosis.LayerResult {
	alone := p.nodeAlone()
	var out []diagnosis.LayerResult
	for _, l := range diagnosis.Layers {
		res := diagnosis.LayerResult{Layer: l, Name: l.Name(), Status: diagnosis.Skipped, Summary: "no Service to examine"}
		switch {
		case alone && l == diagnosis.LayerNode:
			s := p.summariseAlone()
			res.Status, res.Summary = s.Status, s.Text
			for _, d := range ds {
				if d.Layer == l && !d.Ignored {
					res.Status = diagnosis.Worse(res.Status, statusOf(d.Severity))
				}
			}
			res.Missing = p.missing[l]
			if len(res.Missing) > 0 {
				res.Status = diagnosis.Worse(res.Status, diagnosis.Unknown)
			}
			res.Missing = append(res.Missing, p.notes[l]...)
		case alone:
			res.Status, res.Summary = diagnosis.Unknown, "no API objects were read"
			if l == diagnosis.LayerSelector {
				res.Missing = p.missing[l]
			}
		case l == diagnosis.LayerSelector:
			res.Status, res.Summary = diagnosis.Fail, "no such Service"
			if m := p.missing[l]; len(m) > 0 {
				res.Status, res.Summary, res.Missing = diagnosis.Unknown, "Services could not be read", m
			}
		}
		out = append(out, res)
	}
	return out
}

func statusOf(s diagnosis.Severity) diagnosis.Status {
	switch s {
	case diagnosis.Error:
		return diagnosis.Fail
	case diagnosis.Warning:
		return diagnosis.Warn
	}
	return diagnosis.OK
}

// diagnoses turns the findings into diagnoses, folded and in order: root
// causes first, the graver before the milder, then by layer, code and subject.
func (p *Pass) diagnoses() []diagnosis.Diagnosis {
	ds := make([]diagnosis.Diagnosis, 0, len(p.findings))
	for _, f := range p.findings {
		ds = append(ds, p.diagnosis(f))
	}
	fold(ds, p.findings)
	slices.SortStableFunc(ds, func(a, b diagnosis.Diagnosis) int {
		return cmp.Or(
			cmp.Compare(min(len(a.CausedBy), 1), min(len(b.CausedBy), 1)),
			cmp.Compare(b.Severity.Rank(), a.Severity.Rank()),
			cmp.Compare(a.Layer, b.Layer),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Subject.Node, b.Subject.Node),
			cmp.Compare(a.Subject.Name, b.Subject.Name),
		)
	})
	return ds
}

func (p *Pass) diagnosis(f *finding) diagnosis.Diagnosis {
	e, _ := diagnosis.Lookup(string(f.code))
	d := diagnosis.Diagnosis{
		Code: f.code, Name: e.Name, Severity: f.severity(), Layer: f.code.Layer(),
		Subject: f.Subject, Title: f.Title, Expected: f.Expected, Found: f.Found,
		Evidence: f.Evidence, Fixes: []diagnosis.Fix{}, Docs: f.code.Docs(),
	}
	if d.Title == "" {
		d.Title = e.Title
	}
	for _, pr := range f.Fixes {
		d.Fixes = append(d.Fixes, pr.Fix)
	}
	for _, ig := range p.opts.Ignore {
		if ig.Code == d.Code && (ig.Name == "" || (ig.Name == d.Subject.Name && ig.Namespace == d.Subject.Namespace)) {
			d.Ignored = true
		}
	}
	return d
}

func inputs(s *snapshot.Snapshot) []diagnosis.Input {
	out := []diagnosis.Input{}
	for _, in := range s.Inputs {
		d := diagnosis.Input{Kind: in.Kind, Ref: in.Ref, Node: in.Node, Error: in.Error}
		if !in.At.IsZero() {
			at := in.At.UTC().Truncate(time.Second)
			d.At = &at
		}
		out = append(out, d)
	}
	// What a request could not read. Of files, each layer says what it missed.
	for _, rd := range s.Reads {
		if rd.Status != snapshot.Failed || !slices.ContainsFunc(s.Inputs, func(in snapshot.Input) bool { return in.Kind == "api" }) {
			continue
		}
		d := diagnosis.Input{Kind: "api", Ref: string(rd.Resource), Error: rd.Why}
		if rd.Namespace != "" {
			d.Ref += " in " + rd.Namespace
		}
		out = append(out, d)
	}
	return out
}

func summarise(services []diagnosis.Service) diagnosis.Summary {
	sum := diagnosis.Summary{Services: len(services)}
	for _, s := range services {
		switch s.Verdict {
		case diagnosis.OK:
			sum.OK++
		case diagnosis.Warn:
			sum.Warn++
		case diagnosis.Fail:
			sum.Fail++
		default:
			sum.Unknown++
		}
		for _, d := range s.Diagnoses {
			switch {
			case d.Ignored:
				sum.Ignored++
			case d.Severity == diagnosis.Error:
				sum.Diagnoses.Error++
			case d.Severity == diagnosis.Warning:
				sum.Diagnoses.Warning++
			default:
				sum.Diagnoses.Info++
			}
		}
	}
	return sum
}
