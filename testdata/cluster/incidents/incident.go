// Package incidents makes the faults that vipwalk is to find, for real, on a
// real cluster, one after another, and takes each of them back again.
package incidents

import (
	"context"
	"fmt"
)

// Incident is one fault.
type Incident struct {
	Name  string // of its bundle: selector-typo
	Fault string // in words, for docs/truth.md
	// Code is the diagnosis that names its root; empty where nothing is wrong.
	Code string
	// Target is what vipwalk is asked about, with flags.
	Target []string
	// Break makes the fault and returns when it has taken effect.
	Break func(context.Context, *Scene) error
	// Heal takes it back; Scene.Heal waits until the scene is healthy again.
	Heal func(context.Context, *Scene) error
	// Traffic is what real connections do meanwhile.
	Traffic []Probe
}

// Probe is a number of connections from one client to one address.
type Probe struct {
	From From
	To   To
	Want string // in the words of cluster.Tally
}

// From is a client.
type From string

// The clients of a scene.
const (
	Pod1     From = "pod on worker-1"
	Pod2     From = "pod on worker-2"
	Node1    From = "worker-1 itself"
	Node2    From = "worker-2 itself"
	External From = "outside host"
)

// To is what a client connects to.
type To string

// The addresses of a scene.
const (
	VIP       To = "VIP"
	NodePort1 To = "node port of worker-1"
	NodePort2 To = "node port of worker-2"
)

// tries is how many connections a Probe makes: enough that a fault of one of
// two backends shows in all but one of some millions of runs.
const tries = 24

// String says what the probe is expected to see.
func (p Probe) String() string { return fmt.Sprintf("%s to the %s: %s", p.From, p.To, p.Want) }

// orders is the target of most incidents.
var orders = []string{"orders", "-n", "production"}

// All returns every incident, the healthy one first.
func All() []Incident {
	all := []Incident{{
		Name: "healthy", Fault: "none", Target: orders, Break: nothing, Heal: nothing,
		Traffic: []Probe{{Pod1, VIP, "answered"}, {Pod2, VIP, "answered"}, {Node1, VIP, "answered"}, {Node2, VIP, "answered"}},
	}}
	return append(append(all, objectFaults()...), nodeFaults()...)
}

func nothing(context.Context, *Scene) error { return nil }
