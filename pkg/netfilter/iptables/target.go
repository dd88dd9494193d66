package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// target is the rule's -j or -g, while its options are being read.
type target struct {
	name    token
	isGoto  bool
	isChain bool // the table declares a chain of that name

	actions []netfilter.Action
	to      netfilter.NATRange
	hasTo   int // how often --to-... was given
	random  bool
	nfmask  uint32
	ctmask  uint32
	masked  bool
	netmap  netip.Prefix
	reject  string
	why     string // why the target can't be foretold
}

// verdicts are the targets whose names no chain can have.
var verdicts = map[string]bool{"ACCEPT": true, "DROP": true, "RETURN": true, "QUEUE": true}

// noted are the targets after which the packet goes on as it came.
var noted = map[string]bool{
	"LOG": true, "NFLOG": true, "ULOG": true, "TRACE": true, "AUDIT": true, "CHECKSUM": true, "TCPMSS": true,
	"NFACCT": true, "DSCP": true, "TOS": true, "TTL": true, "HL": true, "ECN": true, "CLASSIFY": true, "SECMARK": true,
	"CONNSECMARK": true, "RATEEST": true, "IDLETIMER": true, "LED": true, "TEE": true, "TCPOPTSTRIP": true, "SET": true,
	"LOGMARK": true, "ACCOUNT": true, "CT": true,
}

// opaque are the targets that hand the packet to something that rules don't
// show.
var opaque = map[string]string{
	"NFQUEUE": "a program decides (NFQUEUE)", "QUEUE": "a program decides (QUEUE)",
	"TPROXY": "the packet is handed to a local proxy (TPROXY)", "SYNPROXY": "the kernel answers in the server's place (SYNPROXY)",
	"CLUSTERIP": "which node answers is not known (CLUSTERIP)", "HMARK": "the mark is computed from a hash (HMARK)",
	"DNPT": "stateless translation is not walked (DNPT)", "SNPT": "stateless translation is not walked (SNPT)",
	"RAWDNAT": "stateless NAT is not walked (RAWDNAT)", "RAWSNAT": "stateless NAT is not walked (RAWSNAT)",
	"MIRROR": "the packet is sent back (MIRROR)", "TARPIT": "the connection is held (TARPIT)", "SAME": "the old SAME target is not walked",
	"BALANCE": "the old BALANCE target is not walked", "DELUDE": "the kernel answers in the server's place (DELUDE)",
}

// option reads the option if it is one of the target's.
func (t *target) option(p *ruleParser, o *option) bool {
	if t.isChain {
		return false
	}
	switch name := t.name.text; name {
	case "":
		return false
	case "DNAT", "SNAT", "REDIRECT", "MASQUERADE", "NETMAP":
		return t.nat(p, o)
	case "MARK", "CONNMARK":
		return t.mark(p, o)
	case "REJECT":
		return t.rejectWith(p, o)
	case "NOTRACK":
		return false
	case "CT":
		if o.text == "--notrack" {
			t.actions = append(t.actions, netfilter.Untrack{})
			return true
		}
		return t.skip(p, o, "--helper", "--ctevents", "--expevents", "--zone", "--zone-orig", "--zone-reply", "--timeout")
	default:
		if noted[name] || opaque[name] != "" {
			return t.anything(p, o)
		}
	}
	return false
}

// skip passes over the options whose values say nothing of the way.
func (t *target) skip(p *ruleParser, o *option, names ...string) bool {
	for _, n := range names {
		if o.text == n {
			p.value(o)
			return true
		}
	}
	return false
}

// anything passes over any option of a target that needs none to be known.
func (t *target) anything(p *ruleParser, o *option) bool {
	if !strings.HasPrefix(o.text, "--") {
		return false
	}
	for i := range p.match {
		if p.match[i].option(p, o) {
			return true
		}
	}
	p.skipValues()
	return true
}

func (t *target) nat(p *ruleParser, o *option) bool {
	switch o.text {
	case "--random", "--random-fully":
		t.random = true
		return true
	case "--persistent":
		return true
	case "--to-destination", "--to-source", "--to-ports", "--to":
	default:
		return false
	}
	v, ok := p.value(o)
	if !ok {
		return true
	}
	t.hasTo++
	var err error
	switch {
	case o.text == "--to-ports":
		err = parseNATPorts(v.text, &t.to)
	case t.name.text == "NETMAP":
		m, perr := parseNet(v.text, netfilter.Dst)
		in, isNet := m.(netfilter.AddrIn)
		if err = perr; perr == nil && !isNet {
			err = fmt.Errorf("%q is not a network", v.text)
		}
		t.netmap = in.Prefix
	default:
		t.to, err = parseNATRange(v.text)
	}
	if err != nil {
		t.why = err.Error()
		p.failf(v, "%s", err)
	}
	return true
}

func (t *target) mark(p *ruleParser, o *option) bool {
	switch o.text {
	case "--set-xmark", "--set-mark", "--or-mark", "--and-mark", "--xor-mark":
	case "--save-mark", "--restore-mark":
		t.masks()
		t.actions = append(t.actions, netfilter.Action(netfilter.SaveMark{}))
		if o.text == "--restore-mark" {
			t.actions[len(t.actions)-1] = netfilter.RestoreMark{}
		}
		return true
	case "--nfmask", "--ctmask", "--mask":
		t.masks()
		if v, ok := p.value(o); ok {
			n, err := parseUint32(v.text)
			if err != nil {
				p.failf(v, "%s", err)
			}
			if o.text != "--ctmask" {
				t.nfmask = n
			}
			if o.text != "--nfmask" {
				t.ctmask = n
			}
		}
		return true
	default:
		return false
	}
	v, ok := p.value(o)
	if !ok {
		return true
	}
	value, mask, err := parseMark(v.text)
	if err != nil {
		t.why = err.Error()
		p.failf(v, "%s", err)
		return true
	}
	clear, xor := xmark(o.text, value, mask)
	if t.name.text == "CONNMARK" {
		t.actions = append(t.actions, netfilter.SetConnMark{Clear: clear, Xor: xor})
	} else {
		t.actions = append(t.actions, netfilter.SetMark{Clear: clear, Xor: xor})
	}
	return true
}

func (t *target) masks() {
	if !t.masked {
		t.masked, t.nfmask, t.ctmask = true, ^uint32(0), ^uint32(0)
	}
}

// xmark turns the five ways of setting a mark into one.
func xmark(option string, value, mask uint32) (clear, xor uint32) {
	switch option {
	case "--set-mark":
		return mask | value, value
	case "--or-mark":
		return value, value
	case "--and-mark":
		return ^value, 0
	case "--xor-mark":
		return 0, value
	}
	return mask, value
}

func (t *target) rejectWith(p *ruleParser, o *option) bool {
	if o.text != "--reject-with" {
		return false
	}
	if v, ok := p.value(o); ok {
		t.reject = v.text
	}
	return true
}

// finish makes the rule's actions.
func (t *target) finish(p *ruleParser) []netfilter.Expr {
	if t.name.text == "" {
		return nil
	}
	if t.why != "" {
		return []netfilter.Expr{doing(netfilter.Opaque{Why: fmt.Sprintf("target %s is not understood: %s", t.name.text, t.why)})}
	}
	var out []netfilter.Expr
	for _, a := range t.final(p) {
		out = append(out, doing(a))
	}
	return out
}

func (t *target) final(p *ruleParser) []netfilter.Action {
	one := func(a netfilter.Action) []netfilter.Action { return []netfilter.Action{a} }
	name := t.name.text
	if t.isGoto || t.isChain {
		return t.toChain(p)
	}
	switch name {
	case "ACCEPT":
		return one(netfilter.Accepted{})
	case "DROP":
		return one(netfilter.Dropped{})
	case "RETURN":
		return one(netfilter.Returned{})
	case "REJECT":
		return one(netfilter.Rejected{With: t.reject})
	case "NOTRACK":
		return one(netfilter.Untrack{})
	case "DNAT", "SNAT", "REDIRECT", "MASQUERADE", "NETMAP":
		return one(t.rewrite())
	case "MARK", "CONNMARK":
		if len(t.actions) == 0 {
			return one(netfilter.Opaque{Why: fmt.Sprintf("target %s does not say which mark", name)})
		}
		return t.withMasks()
	}
	switch {
	case opaque[name] != "":
		return one(netfilter.Opaque{Why: opaque[name]})
	case noted[name]:
		return append(t.actions, netfilter.Noted{})
	}
	return t.toChain(p)
}

func (t *target) toChain(p *ruleParser) []netfilter.Action {
	p.rule.Jump, p.rule.Goto = t.name.text, t.isGoto
	return []netfilter.Action{netfilter.JumpTo{Chain: t.name.text, Goto: t.isGoto}}
}

func (t *target) withMasks() []netfilter.Action {
	t.masks()
	for i, a := range t.actions {
		switch a.(type) {
		case netfilter.SaveMark:
			t.actions[i] = netfilter.SaveMark{NFMask: t.nfmask, CTMask: t.ctmask}
		case netfilter.RestoreMark:
			t.actions[i] = netfilter.RestoreMark{NFMask: t.nfmask, CTMask: t.ctmask}
		}
	}
	return t.actions
}

func (t *target) rewrite() netfilter.Action {
	t.to.Random = t.random
	name := t.name.text
	switch {
	case t.hasTo > 1:
		return netfilter.Opaque{Why: fmt.Sprintf("target %s has several addresses, which kernels since 2.6.11 don't have", name)}
	case t.hasTo == 0 && (name == "DNAT" || name == "SNAT" || name == "NETMAP"):
		return netfilter.Opaque{Why: fmt.Sprintf("target %s does not say what to rewrite to", name)}
	}
	switch name {
	case "DNAT":
		return netfilter.DestinationNAT{To: t.to}
	case "SNAT":
		return netfilter.SourceNAT{To: t.to}
	case "REDIRECT":
		return netfilter.Redirected{To: t.to}
	case "NETMAP":
		return netfilter.Netmapped{To: t.netmap}
	}
	return netfilter.Masqueraded{}
}
