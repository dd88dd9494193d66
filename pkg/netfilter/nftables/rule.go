package nftables

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// fault is what is wrong in a rule, and at which offset of its text.
type fault struct {
	at      int
	message string
}

// ruleParser reads one rule.
type ruleParser struct {
	table *tableIndex
	rule  netfilter.Rule
	toks  []token
	at    int
	exprs []netfilter.Expr
	err   *fault
	// matches: something has to match before the rule acts.
	matches bool
}

// parseRule parses the rule at an offset. A rule that isn't wholly understood
// has a Problem, and may or may not match.
func (t *tableIndex) parseRule(at int) (*netfilter.Rule, Problem) {
	d := t.doc
	p, _ := d.parsers.Get().(*ruleParser)
	if p == nil {
		p = &ruleParser{}
	}
	defer d.parsers.Put(p)
	*p = ruleParser{table: t, toks: p.toks[:0]}
	text, problem := t.ruleText(at)
	p.rule = netfilter.Rule{Line: d.line(at), Text: text}
	if problem != "" {
		p.fail(len(text), problem)
	}
	p.parse()
	r := p.rule
	if p.err == nil {
		return &r, Problem{}
	}
	r.Problem = p.err.message
	col := d.column(at)
	if !d.json {
		col += p.err.at
	}
	return &r, Problem{UnknownRule, r.Line, col, text, p.err.message}
}

// ruleText gives the rule at an offset as nft prints it; problem says what of
// it can't be shown.
func (t *tableIndex) ruleText(at int) (text, problem string) {
	d := t.doc
	if d.json {
		return t.printRule(at)
	}
	const long = 64 << 10 // a line of many rules is not looked through for each
	end := d.lineEnd(at)
	if end-at > long || !wholeLine(d.text[at:end]) {
		end = d.ruleEnd(at)
	}
	text = strings.TrimRight(d.text[at:end], " \t\r\n;")
	if i := strings.Index(text, "#"); i >= 0 && !inQuotes(text, i) {
		text = strings.TrimRight(text[:i], " \t")
	}
	if rest := d.text[at+len(text) : min(d.lineEnd(at+len(text)), len(d.text))]; hidden(rest) {
		problem = "nft has no words for what stands behind the #"
	}
	if d.cutAt > 0 && d.lineEnd(at+len(text)) == len(d.text) {
		problem = "the input breaks off in this rule"
	}
	if strings.IndexByte(text, '\n') >= 0 {
		text = strings.Join(strings.Fields(text), " ")
	}
	return text, problem
}

// inQuotes says whether offset i of a rule is inside a string.
func inQuotes(s string, i int) bool { return strings.Count(s[:i], `"`)%2 == 1 }

// hidden says whether what follows a rule is a part of it that nft could not
// put into words ("# recent: CHECK ..."), and not its handle.
func hidden(rest string) bool {
	rest = strings.TrimSpace(rest)
	note, ok := strings.CutPrefix(rest, "#")
	return ok && !strings.HasPrefix(strings.TrimSpace(note), "handle ")
}

func (p *ruleParser) fail(at int, message string) {
	if p.err == nil {
		p.err = &fault{at, message}
	}
}

func (p *ruleParser) failf(t token, format string, a ...any) {
	p.fail(t.at, fmt.Sprintf(format, a...))
}

// peek is the next token; a token without text behind the last.
func (p *ruleParser) peek() token { return p.peekAt(0) }

func (p *ruleParser) peekAt(n int) token {
	if p.at+n >= len(p.toks) {
		return token{at: len(p.rule.Text)}
	}
	return p.toks[p.at+n]
}

func (p *ruleParser) next() token {
	t := p.peek()
	if p.at < len(p.toks) {
		p.at++
	}
	return t
}

// take takes the next token if it is that word.
func (p *ruleParser) take(word string) bool {
	if p.at < len(p.toks) && p.toks[p.at].is(word) {
		p.at++
		return true
	}
	return false
}

func (p *ruleParser) do(a netfilter.Action) { p.exprs = append(p.exprs, netfilter.Expr{Do: a}) }

func (p *ruleParser) match(m netfilter.Match) {
	p.matches = true
	p.exprs = append(p.exprs, netfilter.Expr{Match: m})
}

// parse turns the rule's text into expressions. Whatever is wrong, the rule
// keeps what was understood, and from there on it can't be decided what it
// does.
func (p *ruleParser) parse() {
	bad := -1
	p.toks, bad = lexRule(p.rule.Text, p.toks)
	for p.err == nil && p.at < len(p.toks) {
		p.statement()
	}
	if bad >= 0 { // whatever else was missed, is missed because of it
		p.err = nil
		p.fail(bad, "the quote is not closed")
	}
	if p.err != nil {
		p.match(netfilter.Undecidably{Because: p.err.message})
		p.do(netfilter.Opaque{Why: p.err.message})
	}
	p.rule.Unconditional = !p.matches
	p.rule.Exprs = p.exprs
}

// statement reads one match or one statement.
func (p *ruleParser) statement() {
	t := p.peek()
	if !t.quoted && (p.verdict(t) || p.effect(t)) {
		return
	}
	p.comparison()
}

// verdict reads what ends a chain; false where the token is none.
func (p *ruleParser) verdict(t token) bool {
	a := netfilter.Action(nil)
	switch t.text {
	case "accept":
		a = netfilter.Accepted{}
	case "drop":
		a = netfilter.Dropped{}
	case "return":
		a = netfilter.Returned{}
	case "continue":
		a = netfilter.Noted{}
	case "jump", "goto":
		p.at++
		name := p.next()
		if name.text == "" {
			p.failf(t, "%s to no chain", t.text)
			return true
		}
		p.rule.Target, p.rule.Jump, p.rule.Goto = name.text, name.text, t.text == "goto"
		p.do(netfilter.JumpTo{Chain: name.text, Goto: t.text == "goto"})
		return true
	case "queue":
		p.at = len(p.toks)
		p.rule.Target = t.text
		p.do(netfilter.Opaque{Why: "the packet is queued to a program, which decides"})
		return true
	case "reject":
		p.reject()
		return true
	case "dnat", "snat", "masquerade", "redirect":
		p.nat()
		return true
	case "tproxy", "synproxy", "fwd":
		p.at = len(p.toks)
		p.rule.Target = t.text
		p.do(netfilter.Opaque{Why: "what " + t.text + " does is not followed"})
		return true
	default:
		return false
	}
	p.at++
	p.rule.Target = t.text
	p.do(a)
	return true
}

// effect reads a statement that lets the packet go on; false where the token
// is none.
func (p *ruleParser) effect(t token) bool {
	switch t.text {
	case "counter":
		p.counter()
	case "comment":
		p.at++
		if p.next().text == "" {
			p.failf(t, "a comment is missing")
			return true
		}
		p.do(netfilter.Noted{})
	case "log":
		p.log()
	case "limit":
		p.limited("whether the rate limit is exceeded is not known")
	case "quota":
		p.limited("whether the quota is used up is not known")
	case "last":
		p.at++
		if p.take("used") {
			p.at++
		}
		p.do(netfilter.Noted{})
	case "notrack":
		p.at++
		p.do(netfilter.Untrack{})
	case "update", "add", "delete":
		p.setStatement()
	case "meter", "flow":
		p.flow()
	case "dup":
		p.at = len(p.toks)
		p.do(netfilter.Noted{})
	case "xt":
		p.xt()
	case "ct", "tcp", "th", "ip", "ip6", "meta":
		return p.connection(t)
	default:
		return false
	}
	return true
}

// connection reads the statements of ct and tcp that are no comparisons.
func (p *ruleParser) connection(t token) bool {
	switch second := p.peekAt(1); {
	case t.text == "ct" && second.is("count"):
		p.at++
		p.limited("how many connections there are is not known")
	case t.text == "ct" && (second.is("helper") || second.is("timeout") || second.is("expectation")) && p.peekAt(2).is("set"):
		p.at += 4
		p.do(netfilter.Noted{})
	default:
		return false
	}
	return true
}

func (p *ruleParser) counter() {
	p.at++
	p.do(netfilter.Noted{})
	switch {
	case p.take("name"):
		p.at++
	case p.take("packets"):
		p.at++
		if p.take("bytes") {
			p.at++
		}
	}
}

// log reads "log" and its options.
func (p *ruleParser) log() {
	p.at++
	p.do(netfilter.Noted{})
	for {
		switch t := p.peek(); {
		case t.is("prefix"), t.is("level"), t.is("group"), t.is("snaplen"), t.is("queue-threshold"):
			p.at += 2
		case t.is("flags"):
			p.at += 2
			for p.peekAt(-1).is("tcp") || p.peekAt(-1).is("ip") || p.take(",") {
				p.at++
			}
		default:
			return
		}
	}
}

// limited reads limit, quota and ct count, with their options.
func (p *ruleParser) limited(why string) {
	first := p.next()
	words := map[string]bool{
		"rate": true, "over": true, "until": true, "burst": true, "packets": true, "bytes": true, "kbytes": true,
		"mbytes": true, "used": true, "name": true, "kbytes/second": true, "mbytes/second": true, "bytes/second": true,
	}
	for n := 0; p.at < len(p.toks); n++ {
		t := p.peek()
		numeric := t.text != "" && t.text[0] >= '0' && t.text[0] <= '9'
		unit := strings.Contains(t.text, "/") && p.peekAt(-1).text != "" && !t.quoted && (strings.HasSuffix(t.text, "/second") || strings.HasSuffix(t.text, "/minute") || strings.HasSuffix(t.text, "/hour") || strings.HasSuffix(t.text, "/day"))
		if !words[t.text] && !numeric && !unit && !p.peekAt(-1).is("name") {
			break
		}
		p.at++
	}
	if p.peekAt(-1) == first {
		p.failf(first, "what %s limits to is missing", first.text)
		return
	}
	p.match(netfilter.Undecidably{Because: why})
}

// setStatement reads "update @SET { ELEMENT }": the packet is put into a set.
// What that changes is for packets to come.
func (p *ruleParser) setStatement() {
	first := p.next()
	if t := p.next(); !strings.HasPrefix(t.text, "@") {
		p.failf(first, "%s is followed by no set", first.text)
		return
	}
	if t := p.peek(); !t.is("{") {
		p.failf(t, "the element is missing")
		return
	}
	inside := p.toks[p.at:]
	if !p.braces() {
		return
	}
	for _, t := range inside[:len(inside)-len(p.toks[p.at:])] {
		if t.is("limit") || t.is("quota") || t.is("count") {
			p.match(netfilter.Undecidably{Because: "whether the rate limit of this packet's element is exceeded is not known"})
			return
		}
	}
	p.do(netfilter.Noted{})
}

// flow reads "flow add @FT", which takes later packets out of the rules, and
// "meter NAME { KEY STATEMENT }".
func (p *ruleParser) flow() {
	first := p.next()
	if first.is("flow") && (p.take("add") || p.take("offload")) {
		p.at++
		p.do(netfilter.Noted{})
		return
	}
	for p.at < len(p.toks) && !p.peek().is("{") {
		p.at++
	}
	if p.braces() {
		p.match(netfilter.Undecidably{Because: "whether the rate limit of this meter is exceeded is not known"})
	}
}

// braces passes over what stands in braces.
func (p *ruleParser) braces() bool {
	open := p.peek()
	for depth := 0; p.at < len(p.toks); {
		switch t := p.next(); {
		case t.is("{"):
			depth++
		case t.is("}"):
			if depth--; depth == 0 {
				return true
			}
		}
	}
	p.failf(open, "a brace is not closed")
	return false
}

// xt reads a match or target of iptables-nft that nft names and does not show:
// xt match "recent". A comment changes nothing.
func (p *ruleParser) xt() {
	p.at++
	what, name := p.next(), p.next()
	why := fmt.Sprintf("nft does not show what iptables' %s %s asks; iptables-save does", what.text, name.text)
	switch {
	case name.text == "comment":
		p.do(netfilter.Noted{})
	case what.is("match"):
		p.match(netfilter.Undecidably{Because: why})
	default:
		p.rule.Target = name.text
		p.xtTarget(name.text, why)
	}
}

// xtTarget knows what some targets do without their arguments.
func (p *ruleParser) xtTarget(name, why string) {
	switch name {
	case "LOG", "NFLOG", "TCPMSS", "AUDIT", "TRACE", "CHECKSUM", "CLASSIFY":
		p.do(netfilter.Noted{})
	case "MASQUERADE":
		p.do(netfilter.Masqueraded{})
	case "REJECT":
		p.do(netfilter.Rejected{})
	default:
		p.do(netfilter.Opaque{Why: strings.Replace(why, " asks;", " does;", 1)})
	}
}

// reject reads "reject with icmp TYPE", "reject with tcp reset".
func (p *ruleParser) reject() {
	p.at++
	p.rule.Target = "reject"
	r := netfilter.Rejected{}
	if p.take("with") {
		proto := p.next()
		p.take("type")
		name := p.next().text
		switch {
		case proto.is("tcp"):
			r.With = "tcp-reset"
			p.match(netfilter.Proto{Number: 6})
		case proto.is("icmp"):
			p.match(ofFamily{netfilter.IPv4})
			if name = rejectName(rejectICMP[:], name); name != "port-unreachable" {
				r.With = "icmp-" + name
			}
		case proto.is("icmpv6"):
			p.match(ofFamily{netfilter.IPv6})
			if name = rejectName(rejectICMPv6[:], name); name != "port-unreachable" {
				r.With = "icmp6-" + name
			}
		case proto.is("icmpx"):
			if name = rejectName(rejectICMPX[:], name); name != "port-unreachable" {
				r.With = "icmpx-" + name
			}
		default:
			p.failf(proto, "%q is nothing to reject with", proto.text)
			return
		}
	}
	p.do(r)
}

// The codes of ICMP's destination-unreachable, as nft names them.
var (
	rejectICMP   = [...]string{"net-unreachable", "host-unreachable", "prot-unreachable", "port-unreachable", 9: "net-prohibited", 10: "host-prohibited", 13: "admin-prohibited"}
	rejectICMPv6 = [...]string{"no-route", "admin-prohibited", 3: "addr-unreachable", 4: "port-unreachable", 5: "policy-fail", 6: "reject-route"}
	rejectICMPX  = [...]string{"no-route", "port-unreachable", "host-unreachable", "admin-prohibited"}
)

func rejectName(names []string, s string) string {
	for i, name := range names {
		if s == fmt.Sprint(i) && name != "" {
			return name
		}
	}
	return s
}
