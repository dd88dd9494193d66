package walk

import "github.com/vipwalk/vipwalk/pkg/diagnosis"

// nodeChecks are layer 3: what each examined node does with a packet.
var nodeChecks = []*Check{}

// nodeLayer is what the node checks share of one Service.
type nodeLayer struct{}

// nodeView is one node's state as the walk sees it.
type nodeView struct{}

func summariseNode(p *Pass) Summary { return Summary{} }

func (p *Pass) consequence([]diagnosis.Diagnosis) string { return "" }
