package walk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// Pass is one Service under examination: the facts about it, and the way to
// report. Facts are computed once and shared by the checks; nothing that a Pass
// hands out may be changed.
type Pass struct {
	*world
	// Service is nil only where no Service was found for the target; only the
	// check for that runs then.
	Service *corev1.Service
	// Target is what the user named; its zero value where Services were chosen
	// by -A, --all or -l.
	Target Target
	// Client is who is calling.
	Client Client

	facts    facts
	running  *Check
	findings []*finding
	missing  map[diagnosis.Layer][]diagnosis.Missing
	notes    map[diagnosis.Layer][]diagnosis.Missing
	paths    []diagnosis.Path
	node     nodeLayer
	audit    *audit // nil but for a Service that rules alone tell of: auditOf
	auditOf  *auditGroup
	policy   policyLayer
}

// Finding is what a check reports; the catalogue supplies the rest.
type Finding struct {
	// Subject defaults to the Service.
	Subject diagnosis.Subject
	// Severity defaults to the catalogue's.
	Severity diagnosis.Severity
	Title    string
	Expected string
	Found    string
	// Evidence must not be empty.
	Evidence []diagnosis.Evidence
	// Fixes are alternatives, best first.
	Fixes []Proposal
	// Explains adds to what the check's declaration says, for what is a
	// consequence only in this case.
	Explains []diagnosis.Code
}

// Proposal is a fix that has yet to be tried. Exactly one of Change and
// NotSimulated is set.
type Proposal struct {
	Fix diagnosis.Fix
	// Change applies the fix to a copy of the snapshot, with what controllers
	// would do in consequence (see simulate.go). It may add pods and take them
	// out, but not change one, because the copy shares them (see cloneFor).
	Change func(*snapshot.Snapshot) error
	// Assuming is what Change takes for granted, for the reader of a confirmed
	// simulation: "the new pods become ready". Empty where nothing.
	Assuming string
	// NotSimulated says why this cannot be tried on paper: it changes a node,
	// or hangs on what only the cluster can tell.
	NotSimulated string
}

// finding is a Finding with what it came from.
type finding struct {
	Finding
	code diagnosis.Code
	by   *Check
}

// severity is the finding's own, or else the catalogue's.
func (f *finding) severity() diagnosis.Severity {
	if f.Severity != "" {
		return f.Severity
	}
	e, _ := diagnosis.Lookup(string(f.code))
	return e.Severity
}

// Report records a diagnosis under the running check's code.
func (p *Pass) Report(f Finding) {
	if len(f.Evidence) == 0 {
		// Without evidence it is no diagnosis, and no reason to call the layer ok.
		// It is a defect of the check; every check has a test that raises it.
		p.Missing(p.running.Code.Layer(), diagnosis.Missing{
			What: string(p.running.Code) + ": " + f.Title, Why: "it was suspected, and nothing that was read shows it",
			Supply: "vipwalk explain " + string(p.running.Code) + "   (how to confirm it by hand)",
		})
		return
	}
	if f.Subject == (diagnosis.Subject{}) {
		f.Subject = p.ServiceSubject()
	}
	f.Title = strings.Join(strings.Fields(f.Title), " ") // one line, whatever a label or message holds
	p.findings = append(p.findings, &finding{Finding: f, code: p.running.Code, by: p.running})
}

// ServiceSubject is the Service as a diagnosis' subject.
func (p *Pass) ServiceSubject() diagnosis.Subject {
	if p.Service == nil {
		return diagnosis.Subject{Kind: "Service", Namespace: p.Target.Namespace, Name: cmp.Or(p.Target.Name, p.Target.Text)}
	}
	return diagnosis.Subject{Kind: "Service", Namespace: p.Service.Namespace, Name: p.Service.Name}
}

// Raised says whether the code has been reported for this Service so far.
// Checks run in order of layer and declaration.
func (p *Pass) Raised(codes ...diagnosis.Code) bool {
	for _, f := range p.findings {
		for _, c := range codes {
			if f.code == c {
				return true
			}
		}
	}
	return false
}

// Has says whether a resource was read where this Service's objects of it
// would be: its namespace, or the cluster.
func (p *Pass) Has(r snapshot.Resource) bool { return p.read(r).Status == snapshot.Done }

func (p *Pass) read(r snapshot.Resource) snapshot.Read {
	if !r.Namespaced() {
		return p.snap.Reads.Of(r, "")
	}
	ns := p.Target.Namespace
	if p.Service != nil {
		ns = p.Service.Namespace
	}
	return p.snap.Reads.Of(r, ns)
}

// Need is Has for what the layer cannot do without: where it was not read, the
// layer becomes unknown and says so.
func (p *Pass) Need(l diagnosis.Layer, r snapshot.Resource) bool {
	rd := p.read(r)
	if rd.Status == snapshot.Done {
		return true
	}
	p.Missing(l, missingResource(rd, p.namespaceFlag(r)))
	return false
}

// Missing records that a layer lacks something; the layer is then unknown
// unless it fails. Saying the same thing twice is harmless.
func (p *Pass) Missing(l diagnosis.Layer, m diagnosis.Missing) {
	for _, have := range p.missing[l] {
		if have == m {
			return
		}
	}
	if p.missing == nil {
		p.missing = map[diagnosis.Layer][]diagnosis.Missing{}
	}
	p.missing[l] = append(p.missing[l], m)
}

// Note records something that was not examined and that the layer's status does
// not claim to cover; it is listed with what is missing, and changes no status.
func (p *Pass) Note(l diagnosis.Layer, m diagnosis.Missing) {
	if p.notes == nil {
		p.notes = map[diagnosis.Layer][]diagnosis.Missing{}
	}
	if !slices.Contains(p.notes[l], m) {
		p.notes[l] = append(p.notes[l], m)
	}
}

func (p *Pass) namespaceFlag(r snapshot.Resource) string {
	switch {
	case !r.Namespaced():
		return ""
	case r == snapshot.NetworkPolicies || (p.Service == nil && p.Target.Namespace == ""):
		return " -A"
	case p.Service == nil:
		return " -n " + shellQuote(p.Target.Namespace)
	}
	return " -n " + shellQuote(p.Service.Namespace)
}

func missingResource(rd snapshot.Read, nsFlag string) diagnosis.Missing {
	m := diagnosis.Missing{What: string(rd.Resource), Why: "not read", Supply: rd.Supply}
	if rd.Namespace != "" {
		m.What += " in namespace " + rd.Namespace
	}
	if rd.Status == snapshot.Failed {
		m.Why = rd.Why
	}
	if m.Supply == "" {
		m.Supply = fmt.Sprintf("kubectl get %s%s -o yaml > %s.yaml   (then: --objects %[3]s.yaml)", rd.Resource, nsFlag, shortName(rd.Resource))
	}
	return m
}

// shortName is the resource without its group.
func shortName(r snapshot.Resource) string {
	s := string(r)
	for i := range s {
		if s[i] == '.' {
			return s[:i]
		}
	}
	return s
}
