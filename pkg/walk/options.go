package walk

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// Options say what to walk and how; the facts are the Snapshot's.
type Options struct {
	// Targets are walked in the order given, each once.
	Targets []Target
	// All walks every Service of Namespaces (of every namespace, where there
	// are none), those that Selector matches where it is set. Targets are
	// ignored then.
	All        bool
	Namespaces []string
	Selector   labels.Selector
	// Port restricts the walk to one Service port, by name or number; "" is all.
	Port string
	// Client is who is calling; the zero value is any pod.
	Client Client
	// Nodes restricts whose node states are used; empty is all that there are.
	Nodes []string
	// Ignore suppresses diagnoses: they are counted and marked, not hidden.
	Ignore []Ignore
	// Version of the program, for the report.
	Version string

	// resynced names the nodes whose rules are taken to be what kube-proxy would
	// write anew for the objects, instead of what was read; only the simulation
	// of a fix sets it (see simulate.go).
	resynced map[string]bool
}

// Ignore names diagnoses to suppress.
type Ignore struct {
	Code diagnosis.Code
	// Namespace and Name restrict it to one Service; empty for all.
	Namespace, Name string
}
