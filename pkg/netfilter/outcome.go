package netfilter

import "net/netip"

// Verdict is how a walk through a ruleset ends for the packet.
type Verdict string

const (
	// DNAT: delivered or forwarded to a rewritten destination.
	DNAT Verdict = "dnat"
	// Reject: answered with an error (ICMP unreachable, TCP reset).
	Reject Verdict = "reject"
	// Drop: silently gone.
	Drop Verdict = "drop"
	// Accept: delivered or forwarded with its destination as it was, and a
	// rule said so. A packet that no rule spoke of is None.
	Accept Verdict = "accept"
	// None: passes the ruleset untouched.
	None Verdict = "none"
	// Undecided: what happens hangs on a match that could not be decided.
	Undecided Verdict = "unknown"
)

// Step is one rule that the packet met and that matched, or might have.
type Step struct {
	// Source is the text that the rule stands in, as Ruleset was told.
	Source string
	Table  string
	Chain  string
	// Line counts from 1 in Source; 0 for a chain's policy, which has the
	// line of the chain's declaration where there is one.
	Line int
	// Text is the rule as it was written, or "policy DROP".
	Text string
}

// Undecidable is a rule whose match could not be decided, and why.
type Undecidable struct {
	Step
	Why string
}

// Outcome is one way in which the packet may end.
type Outcome struct {
	Verdict Verdict
	// To is the destination when it leaves the ruleset: after DNAT, or as it
	// came. For Undecided it is set where every possibility agrees.
	To netip.AddrPort
	// Rewritten says whether To differs from the packet's own destination
	// because of a NAT rule. A dropped packet may have been rewritten before.
	Rewritten bool
	// Probability of this outcome given the packet; the outcomes of a walk
	// sum to 1.
	Probability float64
	// Masquerade says whether the source is rewritten on the way out.
	Masquerade Tri
	// Mark is the packet's mark when the walk ended.
	Mark uint32
	// RejectWith is the kind of error for Reject (icmp-port-unreachable).
	RejectWith string
	// Hook is where the packet met its end: for Drop and Reject the hook of the rule.
	Hook Hook
	// Steps are the rules that matched, in the order in which they were met.
	Steps []Step
	// Unknowns are the rules that could not be decided on this way. For an
	// Undecided outcome they are the reason; for any other they did not matter.
	Unknowns []Undecidable
}

// Hook is a netfilter hook of the IPv4 and IPv6 families.
type Hook string

const (
	Prerouting  Hook = "PREROUTING"
	Input       Hook = "INPUT"
	Forward     Hook = "FORWARD"
	Output      Hook = "OUTPUT"
	Postrouting Hook = "POSTROUTING"
)
