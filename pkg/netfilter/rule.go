package netfilter

import "net/netip"

// Rule is one rule of a chain: expressions that are carried out in order. The
// first match that is false ends it.
type Rule struct {
	// Line counts from 1 in the text that the rule stands in.
	Line int
	// Text is the rule as written, without a counter prefix.
	Text string
	// Target is the verdict, target or chain that the rule ends in, as written
	// after -j or -g; "" for a rule that only matches.
	Target string
	// Jump is the chain that it jumps or goes to, if it does.
	Jump string
	// Goto: a RETURN from Jump does not come back here.
	Goto bool
	// Unconditional: nothing has to match.
	Unconditional bool
	// Exprs is what the walk carries out.
	Exprs []Expr
	// Problem says what of the text was not understood; such a rule may or may
	// not match.
	Problem string
}

// Expr is a match or an action: exactly one of the two is set.
type Expr struct {
	Match Match
	Do    Action
}

// Match is a condition on the packet.
type Match interface {
	// Eval must not change the state.
	Eval(*State) Tri
	// Why says why Eval answered Unknown, in a few lower-case words.
	Why(*State) string
}

// Random is the one match that is neither true, false nor unknown: it holds
// for a share P of new connections, independently of everything else.
type Random struct{ P float64 }

// Eval is not asked of a Random; the walk splits on P.
func (Random) Eval(*State) Tri { return Unknown }

// Why is not asked of a Random.
func (Random) Why(*State) string { return "chosen at random" }

// Action is what a rule does with a packet that it matched.
type Action interface{ action() }

// The actions that end a chain, or the walk.
type (
	// Accepted ends the base chain that the packet is in; the next base chain
	// of the hook still sees the packet.
	Accepted struct{}
	// Dropped ends the walk.
	Dropped struct{}
	// Rejected ends the walk with an error to the sender.
	Rejected struct{ With string }
	// Returned goes back to the rule after the jump, or to the policy.
	Returned struct{}
	// JumpTo goes to another chain of the table.
	JumpTo struct {
		Chain string
		// Goto: RETURN goes to where this chain's own RETURN would go.
		Goto bool
	}
	// Choose picks an action by the packet (verdict maps) or at random.
	Choose struct{ By Chooser }
	// Opaque is an action that can't be foretold: a queue to a program, a
	// target that is not known.
	Opaque struct{ Why string }
)

// Omitted stands where rules may have been left out of the input. The walk
// goes on as though there were none, and lists the doubt; a packet that then
// merely passes is Undecided.
type Omitted struct{ Why string }

// The actions after which the next expression, then the next rule, follows.
type (
	// Noted has no effect on where the packet goes: LOG, counters, TCPMSS.
	Noted struct{}
	// SetMark makes the packet's mark (mark &^ Clear) ^ Xor.
	SetMark struct{ Clear, Xor uint32 }
	// SetConnMark makes the connection's mark (ctmark &^ Clear) ^ Xor.
	SetConnMark struct{ Clear, Xor uint32 }
	// SaveMark copies the packet's mark to the connection's.
	SaveMark struct{ NFMask, CTMask uint32 }
	// RestoreMark copies the connection's mark to the packet's.
	RestoreMark struct{ NFMask, CTMask uint32 }
	// Untrack keeps the packet out of connection tracking, and so of NAT.
	Untrack struct{}
	// Remember adds the source to a list of -m recent.
	Remember struct{ List string }
)

// The NAT actions: they end the nat chain, and settle the connection's
// destination or source.
type (
	// DestinationNAT rewrites the destination.
	DestinationNAT struct{ To NATRange }
	// SourceNAT rewrites the source.
	SourceNAT struct{ To NATRange }
	// Masqueraded rewrites the source to an address of the outgoing interface.
	Masqueraded struct{}
	// Redirected rewrites the destination to the node itself.
	Redirected struct{ To NATRange }
	// Netmapped rewrites the network part of the destination, or of the source
	// on the way out.
	Netmapped struct{ To netip.Prefix }
)

func (Accepted) action()       {}
func (Dropped) action()        {}
func (Rejected) action()       {}
func (Returned) action()       {}
func (JumpTo) action()         {}
func (Choose) action()         {}
func (Opaque) action()         {}
func (Omitted) action()        {}
func (Noted) action()          {}
func (SetMark) action()        {}
func (SetConnMark) action()    {}
func (SaveMark) action()       {}
func (RestoreMark) action()    {}
func (Untrack) action()        {}
func (Remember) action()       {}
func (DestinationNAT) action() {}
func (SourceNAT) action()      {}
func (Masqueraded) action()    {}
func (Redirected) action()     {}
func (Netmapped) action()      {}

// NATRange is where a NAT action may rewrite to. A zero address or port stays
// as it is.
type NATRange struct {
	First, Last netip.Addr // Last is First for a single address
	// MinPort to MaxPort; MaxPort is MinPort for a single port.
	MinPort, MaxPort uint16
	// BasePort, where not 0, makes the port MinPort + (port - BasePort).
	BasePort uint16
	// Random: a port is picked even where the present one is in the range.
	Random bool
}

// Chooser picks one of several actions.
type Chooser interface {
	// Choices gives the actions that may follow; their P sum to 1. A Choice
	// with Why set is one that can't be decided. One with Maybe set may be the
	// one, or else the choices behind it hold.
	Choices(*State) []Choice
}

// Choice is one action that a Chooser may pick. A nil Do is to go on with the
// next expression; Skip is to go on with the next rule.
type Choice struct {
	P    float64
	Do   Action
	Skip bool
	Why  string
	// Maybe says why it isn't known whether this choice is taken. Choices
	// ahead of and behind one have P 1.
	Maybe string
}

// inertFrom says whether nothing that the rule does from expression i on can
// change what happens to the packet.
func (r *Rule) inertFrom(i int) bool {
	for _, e := range r.Exprs[i:] {
		if e.Do == nil {
			continue
		}
		if _, ok := e.Do.(Noted); !ok {
			return false
		}
	}
	return true
}
