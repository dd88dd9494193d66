// Package diagnosis is the vocabulary of a walk's result: what is wrong, how
// it is known, and what a person could do about it. It holds the catalogue of
// codes and the Report, and it imports nothing but the standard library, so
// that the walk can fill these types and the renderers can print them without
// knowing each other.
package diagnosis

// Severity says how much a diagnosis hurts.
type Severity string

const (
	// Error: the traffic asked about does not get through, or part of it doesn't.
	Error Severity = "error"
	// Warning: it gets through now but is about to hurt, or surprises.
	Warning Severity = "warning"
	// Info: worth knowing while reading the rest.
	Info Severity = "info"
)

// Rank orders severities, the worst highest; an unknown severity ranks 0.
func (s Severity) Rank() int {
	switch s {
	case Error:
		return 3
	case Warning:
		return 2
	case Info:
		return 1
	}
	return 0
}

// Layer is one of the four layers of a Service's path.
type Layer int

const (
	LayerSelector  Layer = 1
	LayerEndpoints Layer = 2
	LayerNode      Layer = 3
	LayerPolicy    Layer = 4
)

// Layers are the four, in the order in which a report lists them.
var Layers = [...]Layer{LayerSelector, LayerEndpoints, LayerNode, LayerPolicy}

// Name is the layer's word in reports: selector, endpoints, node, policy.
func (l Layer) Name() string {
	switch l {
	case LayerSelector:
		return "selector"
	case LayerEndpoints:
		return "endpoints"
	case LayerNode:
		return "node"
	case LayerPolicy:
		return "policy"
	}
	return ""
}

// Status is how a layer, or a Service, came out.
type Status string

const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Fail    Status = "fail"
	Unknown Status = "unknown" // something needed was not read; never shown as ok
	Skipped Status = "skipped" // the layer does not exist for this Service (no VIP, say)
)

// Worse returns the worse of two statuses: fail beats all, unknown beats ok
// and warn, and skipped weighs nothing.
func Worse(a, b Status) Status {
	if statusRank(a) >= statusRank(b) {
		return a
	}
	return b
}

func statusRank(s Status) int {
	switch s {
	case Fail:
		return 4
	case Unknown:
		return 3
	case Warn:
		return 2
	case OK:
		return 1
	}
	return 0
}

// Subject is what a diagnosis is about. Node is set where it is about one
// node's view of the object.
type Subject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
}

// Evidence is one observation from which a diagnosis was concluded, quoted as
// the user would see it, with a read-only command that shows it again.
type Evidence struct {
	// Source names where it was seen: "service/orders .spec.selector",
	// "iptables-save on worker-2", "event of pod/orders-1".
	Source string `json:"source"`
	// Ref is the object (kind/namespace/name) or the file and chain.
	Ref string `json:"ref,omitempty"`
	// Line is the line number in the source text; 0 where there are no lines.
	Line int `json:"line,omitempty"`
	// Quote is the field, rule or line itself.
	Quote string `json:"quote"`
	// Command shows it again; it only reads.
	Command string `json:"command,omitempty"`
}

// SimulationStatus says what became of trying a fix on the snapshot.
type SimulationStatus string

const (
	Confirmed    SimulationStatus = "confirmed"
	Refuted      SimulationStatus = "refuted"
	NotSimulated SimulationStatus = "notSimulated"
)

// Simulation is the result of applying a fix to the in-memory snapshot and
// walking again.
type Simulation struct {
	Status SimulationStatus `json:"status"`
	Before string           `json:"before,omitempty"` // "0 ready backends, layers 1 and 2 fail"
	After  string           `json:"after,omitempty"`  // "3 ready backends, layers 1-4 ok"
	Why    string           `json:"why,omitempty"`    // for refuted and notSimulated: the reason
}

// Fix is one way to repair the cause; several fixes of a diagnosis are
// alternatives, best first. This program never runs one. Only a Fix whose
// simulation is confirmed is called a fix in text.
type Fix struct {
	// Title is a verb phrase: "point the Service at these pods".
	Title       string     `json:"title"`
	Commands    []string   `json:"commands"`
	BlastRadius string     `json:"blastRadius"`
	Undo        []string   `json:"undo"`
	Verify      []string   `json:"verify"`
	Simulated   Simulation `json:"simulated"`
}

// Diagnosis is one thing that is wrong, or worth knowing.
type Diagnosis struct {
	Code     Code       `json:"code"`
	Name     string     `json:"name"`
	Severity Severity   `json:"severity"`
	Layer    Layer      `json:"layer"`
	Subject  Subject    `json:"subject"`
	Title    string     `json:"title"` // one line, lower case, no stop
	Expected string     `json:"expected"`
	Found    string     `json:"found"`
	Evidence []Evidence `json:"evidence"` // never empty
	CausedBy []Code     `json:"causedBy,omitempty"`
	Causes   []Code     `json:"causes,omitempty"`
	Fixes    []Fix      `json:"fixes"`
	Docs     string     `json:"docs"`
	Ignored  bool       `json:"ignored,omitempty"`
}
