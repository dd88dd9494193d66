package walk

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// judgement sorts a probe's outcomes by what is wrong with each, given what
// kube-proxy ought to do. An outcome that is right is in none of the lists.
type judgement struct {
	// untouched: a frontend that ought to be served passes the rules as it came,
	// or is rejected as a port that no Service has.
	untouched []netfilter.Outcome
	// refused: turned away by kube-proxy's own rule for a Service without
	// endpoints, although there are some.
	refused []netfilter.Outcome
	// blocked: dropped or rejected by any other rule.
	blocked []netfilter.Outcome
	// stale: sent to an address that is no endpoint that may be drawn.
	stale []netfilter.Outcome
	// wrongPort: sent to a backend's address on a port that it does not have.
	wrongPort []netfilter.Outcome
	// captured: rewritten by a rule that is not kube-proxy's, to what is none of
	// the backends, or handed to a process of the node's.
	captured []netfilter.Outcome
	// walled: dropped by kube-proxy's or the kubelet's own firewall chains.
	walled []netfilter.Outcome
	// unmasked: sent to a backend with the client's source, where replies then
	// would not come back.
	unmasked []netfilter.Outcome
	// stuck: sent to a backend elsewhere with a loopback address as the source,
	// which the kernel does not let out.
	stuck []netfilter.Outcome
	// filtered: rejected by a rule around IPVS, because a set lacks its member.
	filtered []netfilter.Outcome
	// undecided: hangs on a rule that could not be decided.
	undecided []netfilter.Outcome
	// unfiltered: rewritten rightly, but the filter table was not read.
	unfiltered []netfilter.Outcome
	// missing are the backends that ought to be drawn and never are.
	missing []proxy.Backend
	// fresh are backends that are missing, but became ready so shortly before
	// the rules were read that kube-proxy may be about to add them.
	fresh []proxy.Backend
}

// freshness is how long kube-proxy may take to program a change before it
// counts as late: its minimum sync period, the duration of a sync on a large
// node, and the delays of two watches. Beyond it a difference is an error.
const freshness = 15 * time.Second

func (j *judgement) bad() bool {
	return len(j.untouched)+len(j.refused)+len(j.blocked)+len(j.stale)+len(j.wrongPort)+len(j.captured)+len(j.walled)+len(j.filtered)+len(j.unmasked)+len(j.stuck)+len(j.missing) > 0
}

// judge compares the outcomes with the expectation.
func (p *Pass) judge(pr *probe) {
	want := map[netip.AddrPort]bool{}
	wantAddr := map[netip.Addr]bool{}
	for _, b := range pr.expect.Backends {
		want[b.Addr], wantAddr[b.Addr.Addr()] = true, true
	}
	pr.stuck = pr.stuckAtHome()
	drawn := map[netip.AddrPort]bool{}
	for _, o := range pr.outcomes {
		if lacksFilter(o) {
			pr.unfiltered = append(pr.unfiltered, o)
		}
		if o.Rewritten {
			drawn[o.To] = true
		}
		p.judgeOutcome(pr, o, want, wantAddr)
	}
	// With the packet turned away or untouched there is one thing to say, not
	// one for each backend that is thereby missed; and where a rule could not
	// be decided, nothing can be called missing; nor for a client that session
	// affinity keeps at what it drew before.
	if pr.expect.Action != proxy.Forward || len(pr.untouched)+len(pr.refused)+len(pr.undecided) > 0 || !rewrittenByProxy(pr.outcomes) || pr.remembered() {
		return
	}
	wrong := map[netip.Addr]bool{}
	for _, o := range pr.wrongPort {
		wrong[o.To.Addr()] = true
	}
	for _, b := range pr.expect.Backends {
		switch {
		case drawn[b.Addr] || wrong[b.Addr.Addr()]:
		case p.becameReady(b, pr.view) && len(pr.view.frozenProxy()) == 0:
			pr.fresh = append(pr.fresh, b)
		default:
			pr.missing = append(pr.missing, b)
		}
	}
}

func (p *Pass) judgeOutcome(pr *probe, o netfilter.Outcome, want map[netip.AddrPort]bool, wantAddr map[netip.Addr]bool) {
	forward := pr.expect.Action == proxy.Forward
	switch {
	case pr.expect.Action == proxy.Ignore:
	case !want[o.To] && captures(o):
		pr.captured = append(pr.captured, o)
	case o.Verdict == netfilter.Undecided:
		pr.undecided = append(pr.undecided, o)
	case !o.Rewritten && (o.Verdict == netfilter.None || o.Verdict == netfilter.Accept):
		if forward && !want[o.To] {
			pr.untouched = append(pr.untouched, o)
		}
	case !o.Rewritten:
		// Turned away. Without a usable endpoint that is as it should be.
		switch {
		case !forward:
		case nftUnknownPort(o) || unfenced(o):
			pr.untouched = append(pr.untouched, o)
		case saysEmpty(o):
			pr.refused = append(pr.refused, o)
		default:
			pr.block(o)
		}
	case !want[o.To] && wantAddr[o.To.Addr()]:
		pr.wrongPort = append(pr.wrongPort, o)
	case !want[o.To]:
		pr.stale = append(pr.stale, o)
	case o.Verdict != netfilter.DNAT:
		pr.block(o)
	case pr.expect.Masquerade == proxy.MasqYes && o.Masquerade == netfilter.False && pr.view.host.Local(o.To.Addr()) != netfilter.True && !(captures(o) && pr.onThisNode(o.To)):
		// What is delivered to the node itself answers through it as it is.
		pr.unmasked = append(pr.unmasked, o)
	}
}

// onThisNode says whether a backend is on the probe's node: its answers come
// back through the node's connection tracking as they are.
func (pr *probe) onThisNode(to netip.AddrPort) bool {
	return slices.ContainsFunc(pr.expect.Backends, func(b proxy.Backend) bool { return b.Addr == to && b.Local })
}

// judgeAlone sorts a probe's outcomes where no objects say what ought to
// happen: the address was asked about, so it ought to be sent somewhere.
func (pr *probe) judgeAlone() {
	for _, o := range pr.outcomes {
		if lacksFilter(o) {
			pr.unfiltered = append(pr.unfiltered, o)
		}
		switch {
		case captures(o) && pr.servedByProxy():
			pr.captured = append(pr.captured, o)
		case o.Verdict == netfilter.Undecided:
			pr.undecided = append(pr.undecided, o)
		case o.Verdict == netfilter.DNAT:
		case o.Verdict == netfilter.None || o.Verdict == netfilter.Accept:
			pr.untouched = append(pr.untouched, o)
		case !o.Rewritten && saysEmpty(o):
			pr.refused = append(pr.refused, o)
		default:
			pr.block(o)
		}
	}
}

// block sorts an outcome that a rule turned away by whose rule it is.
func (j *judgement) block(o netfilter.Outcome) {
	if firewallChain(lastStep(o)) {
		j.walled = append(j.walled, o)
		return
	}
	j.blocked = append(j.blocked, o)
}

// wantText says what ought to happen to the packet.
func (pr *probe) wantText() string {
	if len(pr.expect.Backends) == 0 {
		return "sent to a backend"
	}
	return "sent to one of " + listBackends(pr.expect.Backends)
}

func anyRewritten(os []netfilter.Outcome) bool {
	for _, o := range os {
		if o.Rewritten {
			return true
		}
	}
	return false
}

// lastStep is the rule at which the packet met its end.
func lastStep(o netfilter.Outcome) netfilter.Step {
	if len(o.Steps) == 0 {
		return netfilter.Step{}
	}
	return o.Steps[len(o.Steps)-1]
}

// saysEmpty recognises kube-proxy's rules for a Service that has no endpoints
// (or none here): they stand in the filter table, in KUBE-SERVICES for cluster
// IPs and KUBE-EXTERNAL-SERVICES for the rest. Up to 1.24 a Local policy without
// local endpoints marked the packet in nat for KUBE-FIREWALL to drop.
func saysEmpty(o netfilter.Outcome) bool {
	last := lastStep(o)
	if nftSaysEmpty(o) || last.Table == ipvsTable || last.Table == ciliumTable || last.Table == "filter" && (last.Chain == "KUBE-SERVICES" || last.Chain == "KUBE-EXTERNAL-SERVICES") {
		return true
	}
	if last.Chain != "KUBE-FIREWALL" || firewallOf(o) != "" {
		return false
	}
	for _, s := range o.Steps {
		if s.Chain == "KUBE-MARK-DROP" {
			return true
		}
	}
	return false
}

// lacksFilter says whether an outcome is as far as the nat table goes, because
// the filter table was not in the input.
func lacksFilter(o netfilter.Outcome) bool {
	for _, u := range o.Unknowns {
		if u.Table == "filter" && u.Chain == "" {
			return true
		}
	}
	return false
}

// becameReady says whether the backend's pod became ready within freshness
// before the node was read.
func (p *Pass) becameReady(b proxy.Backend, v *nodeView) bool {
	at := v.state.At
	if at.IsZero() {
		at = p.snap.TakenAt
	}
	for _, pod := range p.podsByIP[b.Addr.Addr()] {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
				return at.Sub(c.LastTransitionTime.Time) < freshness
			}
		}
	}
	return false
}
