package walk

import (
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// A Check looks for one diagnosis. It is a value, declared next to its Run
// function and listed in Checks; it gets the facts through a Pass and reports
// through it, and has no other input or output.
type Check struct {
	// Code is what it raises; the catalogue has its name, layer and title.
	Code diagnosis.Code
	// Needs are the resources without which it cannot tell, looked for in the
	// Service's namespace. Where one was not read the check does not run, and
	// its layer is unknown and says what was missing. What only enriches a
	// diagnosis is not listed here; Run asks Pass.Has.
	Needs []snapshot.Resource
	// Applies says whether there is anything to ask of this Service; nil means
	// always. A check that does not apply needs nothing.
	Applies func(*Pass) bool
	// Explains lists the codes that are consequences of this one where both are
	// raised for a Service; they fold under it. See also Finding.Explains.
	Explains []diagnosis.Code
	// Alone says that the check can speak of an address with a node's rules
	// alone, where no Service was read: Pass.Service is nil then, and Needs and
	// Applies are not asked.
	Alone bool
	Run   func(*Pass)
}

// layer is one of the four: its checks, and how its line in the report reads.
type layer struct {
	number diagnosis.Layer
	checks []*Check
	// summarise runs after every check of every layer; it says how the layer
	// came out apart from its diagnoses.
	summarise func(*Pass) Summary
}

// Summary is what a layer's line says.
type Summary struct {
	// Status is a floor: the layer's status is the worst of this, its
	// diagnoses and what it is missing. Skipped stands if nothing else was said.
	Status diagnosis.Status
	// Text is a short clause: "app=orders-api selects 0 of 41 pods".
	Text string
	// Because names the layers whose fault the status is.
	Because []diagnosis.Layer
}

// layers are the four, in order.
func layers() []layer {
	return []layer{
		{diagnosis.LayerSelector, selectorChecks, summariseSelector},
		{diagnosis.LayerEndpoints, endpointsChecks, summariseEndpoints},
		{diagnosis.LayerNode, nodeChecks, summariseNode},
		{diagnosis.LayerPolicy, policyChecks, summarisePolicy},
	}
}

// Checks lists every check of every layer, in order.
func Checks() []*Check {
	var all []*Check
	for _, l := range layers() {
		all = append(all, l.checks...)
	}
	return all
}
