package iptables

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// parseRule parses the rule at a place. A rule that isn't wholly understood
// has a Problem, and may or may not match.
func (x *indexer) parseRule(t *tableIndex, chain string, at place) (*netfilter.Rule, Problem) {
	line := x.lineAt(int(at.offset))
	if at.layout&(omitted|garbled) != 0 {
		return notARule(at, line)
	}
	text := line
	if at.layout&listed == 0 {
		text = afterCounters(line)
	}
	p := x.parsers.Get().(*ruleParser)
	defer x.parsers.Put(p)
	p.reset(t, chain, netfilter.Rule{Line: int(at.line), Text: text})
	p.family = t.Family
	if x.brokenLine(at.offset) {
		p.fail(len(text), "the input breaks off in this line")
	}
	if at.layout&listed != 0 {
		p.row(at.layout)
	} else {
		p.words()
	}
	p.parse()
	r := p.rule
	if p.err == nil {
		return &r, Problem{}
	}
	r.Problem = p.err.message
	shift := x.column(int(at.offset)) - 1 + len(line) - len(text) // what stands before the rule
	line = quoted(line)
	return &r, Problem{UnknownRule, int(at.line), p.err.col + shift, line, p.err.message}
}

// notARule stands in a chain where rules were left out, or where a line stands
// that isn't understood.
func notARule(at place, line string) (*netfilter.Rule, Problem) {
	r := netfilter.Rule{Line: int(at.line), Text: line}
	if at.layout&omitted != 0 {
		r.Exprs = []netfilter.Expr{doing(netfilter.Omitted{Why: "rules of this chain may have been left out here"})}
		return &r, Problem{}
	}
	r.Problem = "this line of the chain is not understood"
	r.Exprs = []netfilter.Expr{
		matching(netfilter.Undecidably{Because: r.Problem}),
		doing(netfilter.Opaque{Why: r.Problem}),
	}
	return &r, Problem{}
}

// fault is what is wrong in a rule, and where.
type fault struct {
	col     int
	message string
}

// chainNames knows the chains of a rule's table.
type chainNames interface{ named(chain string) bool }

func (t *tableIndex) named(chain string) bool {
	_, ok := t.byName[chain]
	return ok
}

// ruleParser reads the arguments of one rule.
type ruleParser struct {
	chains chainNames
	family netfilter.Family
	rule   netfilter.Rule
	args   []token
	at     int
	err    *fault
	chain  string // that the rule is in
	shift  int    // what of a listing's row stands before the rule's Text

	proto  *netfilter.Proto // from -p, not negated
	match  []module         // in the order of -m
	exprs  []netfilter.Expr
	target target
}

// reset makes the parser ready for another rule; its memory serves again.
func (p *ruleParser) reset(chains chainNames, chain string, r netfilter.Rule) {
	*p = ruleParser{chains: chains, rule: r, chain: chain, args: p.args[:0], match: p.match[:0]}
}

// words splits the rule's text into arguments.
func (p *ruleParser) words() {
	args, fault := lex(p.rule.Text, p.args)
	p.args = args
	if fault != nil {
		p.fail(fault.col, fault.message)
	}
	p.at = 2 // after -A CHAIN
}

// parse turns the rule's arguments into expressions. Whatever is wrong, the
// rule keeps what was understood, plus a match that can't be decided.
func (p *ruleParser) parse() {
	for p.at < len(p.args) {
		p.argument()
	}
	var actions []netfilter.Expr // what a match does besides matching comes after all have matched
	for i := range p.match {
		for _, e := range p.match[i].finish() {
			if e.Do != nil {
				actions = append(actions, e)
			} else {
				p.exprs = append(p.exprs, e)
			}
		}
	}
	p.rule.Unconditional = len(p.exprs) == 0 && p.err == nil
	actions = append(actions, p.target.finish(p)...)
	if p.err != nil {
		p.exprs = append(p.exprs, matching(netfilter.Undecidably{Because: p.err.message}))
		if p.rule.Target == "" { // it may have had one
			actions = append(actions, doing(netfilter.Opaque{Why: p.err.message}))
		}
	}
	p.rule.Exprs = append(p.exprs, actions...)
}

func matching(m netfilter.Match) netfilter.Expr { return netfilter.Expr{Match: m} }

func doing(a netfilter.Action) netfilter.Expr { return netfilter.Expr{Do: a} }

// fail notes what is wrong; the first fault counts.
func (p *ruleParser) fail(col int, message string) {
	if p.err == nil {
		p.err = &fault{max(col, 1), message}
	}
}

func (p *ruleParser) failf(t token, format string, a ...any) {
	p.fail(t.col, fmt.Sprintf(format, a...))
}

// option is one option with its negation, while its values are being read.
type option struct {
	token
	not bool
}

// add puts a match in place, negated where the option is.
func (o option) add(to *[]netfilter.Expr, m netfilter.Match) {
	if o.not {
		m = netfilter.Not{Match: m}
	}
	*to = append(*to, matching(m))
}

// value takes the option's next value. A "!" before it negates the option, as
// old versions wrote it.
func (p *ruleParser) value(o *option) (token, bool) {
	if p.at < len(p.args) && p.args[p.at].text == "!" && !p.args[p.at].quoted {
		o.not = !o.not
		p.at++
	}
	if p.at >= len(p.args) {
		p.failf(o.token, "option %s has no value", o.text)
		return token{}, false
	}
	t := p.args[p.at]
	p.at++
	return t, true
}

// argument reads one option and its values.
func (p *ruleParser) argument() {
	var o option
	for p.at < len(p.args) && p.args[p.at].text == "!" && !p.args[p.at].quoted {
		o.not = !o.not
		p.at++
	}
	if p.at >= len(p.args) {
		p.fail(len(p.rule.Text), `the rule ends in "!"`)
		return
	}
	o.token = p.args[p.at]
	p.at++
	if o.quoted || !strings.HasPrefix(o.text, "-") {
		p.failf(o.token, "%q is not an option", o.text)
		return
	}
	if name, value, ok := strings.Cut(o.text, "="); ok && strings.HasPrefix(name, "--") {
		o.text = name // --dport=80
		p.at--
		p.args[p.at].text = value
	}
	if !p.common(&o) && !p.ofModule(&o) {
		p.unknown(o)
	}
}

// common reads the options that every rule may have.
func (p *ruleParser) common(o *option) bool {
	switch o.text {
	case "-s", "--source", "--src":
		p.address(o, netfilter.Src)
	case "-d", "--destination", "--dst":
		p.address(o, netfilter.Dst)
	case "-i", "--in-interface":
		p.iface(o, netfilter.Src)
	case "-o", "--out-interface":
		p.iface(o, netfilter.Dst)
	case "-p", "--protocol", "--proto":
		p.protocol(o)
	case "-m", "--match":
		if v, ok := p.value(o); ok {
			p.match = append(p.match, newModule(v.text))
		}
	case "-j", "--jump", "-g", "--goto":
		if v, ok := p.value(o); ok {
			p.setTarget(v, o.text == "-g" || o.text == "--goto")
		}
	case "-f", "--fragment":
		o.add(&p.exprs, netfilter.Never{}) // a first packet is no later fragment
	case "-c", "--set-counters":
		p.value(o)
		p.value(o)
	case "-4", "--ipv4", "-6", "--ipv6":
	default:
		return false
	}
	return true
}

func (p *ruleParser) setTarget(v token, jump bool) {
	if p.rule.Target != "" {
		p.failf(v, "the rule has two targets, %s and %s", p.rule.Target, v.text)
		return
	}
	p.rule.Target = v.text
	// A chain may bear the name of a target that this table's tools don't have.
	p.target = target{name: v, isGoto: jump, isChain: !verdicts[v.text] && p.chains.named(v.text)}
}

// ofModule gives the option to whom it belongs: what was named last comes
// first, as iptables does it, then every other match, then the protocol.
func (p *ruleParser) ofModule(o *option) bool {
	if p.target.option(p, o) {
		return true
	}
	for i := len(p.match) - 1; i >= 0; i-- {
		if p.match[i].option(p, o) {
			return true
		}
	}
	if p.proto != nil {
		if name := protoModule(p.proto.Number); name != "" {
			m := newModule(name)
			if m.option(p, o) {
				p.match = append(p.match, m)
				return true
			}
		}
	}
	// An option of a module that is not known to us: its values go with it.
	if n := len(p.match); n > 0 && p.match[n-1].foreign {
		p.skipValues()
		return true
	}
	return false
}

// skipValues passes over what is no option.
func (p *ruleParser) skipValues() {
	for p.at < len(p.args) {
		t := p.args[p.at]
		if !t.quoted && (t.text == "!" || strings.HasPrefix(t.text, "-") && len(t.text) > 1 && !isDigit(t.text[1])) {
			return
		}
		p.at++
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (p *ruleParser) unknown(o option) {
	p.skipValues()
	p.failf(o.token, "option %s is not understood", o.text)
}
