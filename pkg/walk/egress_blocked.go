package walk

import (
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

// egressBlocked: the client is isolated for egress and no rule lets it out to
// the backend on the pod's port.
var egressBlocked = &Check{
	Code: diagnosis.EgressBlocked, Needs: needsOfPolicy, Applies: toPods,
	Run: func(p *Pass) { p.reportBlocked(netpol.Egress) },
}
