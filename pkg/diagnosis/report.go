package diagnosis

import "time"

// APIVersion is the version of every report's schema; docs/ has the schemas.
const APIVersion = "vipwalk.dev/v1"

// Report is the result of one walk: what -o json prints, and all that a
// renderer may know.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // WalkReport
	Tool       Tool      `json:"tool"`
	TakenAt    time.Time `json:"takenAt"` // when the facts were read, not when the report was made
	Inputs     []Input   `json:"inputs"`
	// Audit: the Services are what nodes' rules name, walked without any object.
	Audit    bool      `json:"audit,omitempty"`
	Services []Service `json:"services"`
	Summary  Summary   `json:"summary"`
}

// Tool identifies the program that walked.
type Tool struct {
	Version string `json:"version"`
}

// Input is one thing that was read, or could not be, and why.
type Input struct {
	Kind  string     `json:"kind"`           // api, objects, node-state, bundle, local, exec
	Ref   string     `json:"ref"`            // the resource, file or node
	Node  string     `json:"node,omitempty"` // for a node's state
	At    *time.Time `json:"at,omitempty"`
	Error string     `json:"error,omitempty"`
}

// Service is one walked Service, or one address that no Service owns.
type Service struct {
	Namespace   string        `json:"namespace"`
	Name        string        `json:"name"`
	Type        string        `json:"type"`
	Verdict     Status        `json:"verdict"`
	Frontends   []Frontend    `json:"frontends"`
	Layers      []LayerResult `json:"layers"` // always four, in order
	Diagnoses   []Diagnosis   `json:"diagnoses"`
	Paths       []Path        `json:"paths"`
	Consequence string        `json:"consequence,omitempty"` // what a client sees: "refused for every client"
}

// Frontend is one address and port at which a Service is reached.
type Frontend struct {
	Kind       FrontendKind `json:"kind"`
	IP         string       `json:"ip,omitempty"` // empty for a nodePort: any node address
	Port       int32        `json:"port"`
	Protocol   string       `json:"protocol"` // TCP, UDP, SCTP
	Name       string       `json:"name,omitempty"`
	TargetPort string       `json:"targetPort,omitempty"`
}

// FrontendKind is where a frontend's address comes from.
type FrontendKind string

const (
	ClusterIP    FrontendKind = "clusterIP"
	NodePort     FrontendKind = "nodePort"
	ExternalIP   FrontendKind = "externalIP"
	LoadBalancer FrontendKind = "loadBalancer"
)

// LayerResult is how one layer came out.
type LayerResult struct {
	Layer   Layer     `json:"layer"`
	Name    string    `json:"name"`
	Status  Status    `json:"status"`
	Summary string    `json:"summary"`
	Because []Layer   `json:"because,omitempty"` // the layers whose fault this layer's status is
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is something that would have been needed: what, why it is not
// there, and the command that would supply it.
type Missing struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Supply string `json:"supply"`
}

// Path is what one node does with one client's packet to one frontend.
type Path struct {
	Node     string `json:"node"`
	Client   string `json:"client"` // "any pod", "pod ns/name", "node worker-1", "external", an IP
	Frontend string `json:"frontend"`
	// Status and Summary say of an audit's path how it came out, and where
	// packets go: "10 backends, 10% each". An audit keeps the rules of outcomes
	// only where something is the matter.
	Status   Status    `json:"status,omitempty"`
	Summary  string    `json:"summary,omitempty"`
	Outcomes []Outcome `json:"outcomes"`
}

// Outcome is one way a packet may end; the probabilities of a path's outcomes
// sum to 1.
type Outcome struct {
	Verdict     string  `json:"verdict"`      // dnat, reject, drop, accept, none, unknown
	To          string  `json:"to,omitempty"` // ip:port after DNAT
	Probability float64 `json:"probability"`
	Masquerade  bool    `json:"masquerade"`
	// MasqueradeUnknown: whether the source is rewritten could not be decided;
	// Masquerade is false then.
	MasqueradeUnknown bool          `json:"masqueradeUnknown,omitempty"`
	Endpoint          string        `json:"endpoint,omitempty"` // pod/ns/name
	Rules             []Rule        `json:"rules"`
	Unknowns          []UnknownRule `json:"unknowns,omitempty"`
}

// Rule is one rule that the packet passed and that matched.
type Rule struct {
	Source string `json:"source,omitempty"` // which text it stands in, where there are several
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	Line   int    `json:"line"`
	Text   string `json:"text"`
}

// UnknownRule is one rule that could not be decided.
type UnknownRule struct {
	Rule
	Why string `json:"why"`
}

// Summary counts a report.
type Summary struct {
	Services  int            `json:"services"`
	OK        int            `json:"ok"`
	Warn      int            `json:"warn"`
	Fail      int            `json:"fail"`
	Unknown   int            `json:"unknown"`
	Diagnoses SeverityCounts `json:"diagnoses"`
	Ignored   int            `json:"ignored"`
}

// SeverityCounts counts diagnoses by severity.
type SeverityCounts struct {
	Error   int `json:"error"`
	Warning int `json:"warning"`
	Info    int `json:"info"`
}
