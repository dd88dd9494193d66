// Package incidents makes the faults that vipwalk is to find, for real, on a
// real cluster, one after another, and takes each of them back again.
package incidents

import (
	"context"
	"fmt"
	"slices"
)

// Incident is one fault.
type Incident struct {
	Name  string // of its bundle: selector-typo
	Fault string // in words, for docs/truth.md
	// Mode is the proxy mode of the scene that it is made in.
	Mode string
	// Code is the diagnosis that names its root; empty where nothing is wrong.
	Code string
	// Warns: the root is a warning, because traffic gets through.
	Warns bool
	// Target is what vipwalk is asked about, with flags.
	Target []string
	// Missing says why it can't be made on this machine; nil where it always can.
	Missing func() string
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
	Want string // in the words of Scene.Measure
	Kind Kind
}

// Kind is what of its connections a Probe is about.
type Kind string

const (
	// Outcome: whether they are answered, refused, lost.
	Outcome Kind = ""
	// Backends: how many pods answer one client, after a first connection.
	Backends Kind = "backends"
	// Shares: how often the pod answers that answers most.
	Shares Kind = "shares"
)

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
	VIP             To = "VIP"
	NodePort1       To = "node port of worker-1"
	NodePort2       To = "node port of worker-2"
	PublicNodePort1 To = "public node port of worker-1"
	PublicNodePort2 To = "public node port of worker-2"
	PublicVIP       To = "public Service's VIP"
	LoadBalancer1   To = "load balancer's address on worker-1"
)

const (
	// tries is how many connections a Probe makes: enough that a fault of one
	// of two backends shows in all but one of some millions of runs.
	tries = 24
	// shareTries tell a half from three quarters: 5 standard deviations.
	shareTries = 400
)

func probe(from From, to To, want string) Probe { return Probe{From: from, To: to, Want: want} }

// String says what the probe is expected to see.
func (p Probe) String() string { return fmt.Sprintf("%s to the %s: %s", p.From, p.To, p.Want) }

// orders is the target of most incidents.
var orders = []string{"orders", "-n", "production"}

// public is the target of those of the public Service.
var public = []string{publicName, "-n", "production"}

// The proxy modes.
const (
	iptablesMode = "iptables"
	nftablesMode = "nftables"
)

// All returns every incident of nodes in iptables mode, the healthy one first.
func All() []Incident {
	return inMode(iptablesMode, healthy(), objectFaults(), proxyFaults(), iptablesFaults(), publicFaults(iptablesMode), backendFaults())
}

// Nftables returns every incident of nodes in nftables mode, the healthy one
// first. The names of those that are not among All begin with nft-.
func Nftables() []Incident {
	return inMode(nftablesMode, healthy(), objectFaults(), switched(), proxyFaults(), nftFaults(), publicFaults(nftablesMode), leftovers())
}

func inMode(mode string, lists ...[]Incident) []Incident {
	all := slices.Concat(lists...)
	for i := range all {
		all[i].Mode = mode
	}
	return all
}

func healthy() []Incident {
	return []Incident{{
		Name: "healthy", Fault: "none", Target: orders, Break: nothing, Heal: nothing,
		Traffic: []Probe{probe(Pod1, VIP, "answered"), probe(Pod2, VIP, "answered"), probe(Node1, VIP, "answered"), probe(Node2, VIP, "answered")},
	}}
}

func nothing(context.Context, *Scene) error { return nil }
