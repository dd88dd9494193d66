package nftables

import "github.com/vipwalk/vipwalk/pkg/netfilter"

// mangle reads the value behind "meta mark set" and its like. start is the
// first word of what is set.
func (p *ruleParser) mangle(start token) {
	what := p.setWords(start)
	switch {
	case what == "mark" || what == "meta mark":
		p.setMark(false)
	case what == "ct mark":
		p.setMark(true)
	case start.is("ip") || start.is("ip6") || transports[start.text] != 0 && !p.hasWord(start, "option") || start.is("th"):
		p.do(netfilter.Opaque{Why: "what a packet becomes whose headers are rewritten without NAT is not followed"})
		p.at = len(p.toks)
	default: // a priority, a trace flag, a zone, the MSS: it goes where it went
		p.value()
		p.do(netfilter.Noted{})
	}
}

// setWords are the one or two words of what is set.
func (p *ruleParser) setWords(start token) string {
	for i, t := range p.toks {
		if t.at == start.at {
			if i+1 < len(p.toks) && !p.toks[i+1].is("set") {
				return t.text + " " + p.toks[i+1].text
			}
			return t.text
		}
	}
	return ""
}

func (p *ruleParser) hasWord(start token, word string) bool {
	for _, t := range p.toks[:p.at] {
		if t.at > start.at && t.is(word) {
			return true
		}
	}
	return false
}

// value passes over a value that nothing hangs on.
func (p *ruleParser) value() {
	for first := true; p.at < len(p.toks); first = false {
		t := p.peek()
		switch {
		case t.is("{"):
			if !p.braces() {
				return
			}
			continue
		case !first && (verdictWords[t.text] || t.is("counter") || t.is("comment") || t.is("log")) && !t.quoted:
			return
		case !first && startsStatement[t.text] && !t.quoted && p.peekAt(1).text != "map":
			return
		}
		p.at++
	}
}

var verdictWords = map[string]bool{
	"accept": true, "drop": true, "return": true, "continue": true, "jump": true, "goto": true, "queue": true,
	"reject": true, "dnat": true, "snat": true, "masquerade": true, "redirect": true, "notrack": true,
}

var startsStatement = map[string]bool{"ip": true, "ip6": true, "tcp": true, "udp": true, "meta": true, "ct": true, "iifname": true, "oifname": true, "limit": true}

// bitwise is (source & and) ^ xor; source is the packet's mark, the
// connection's, or none.
type bitwise struct {
	from     byte // 'm', 'c', or 0
	and, xor uint32
}

// apply goes on with an operator and a constant.
func (b bitwise) apply(op byte, v uint32) bitwise {
	switch op {
	case '&':
		b.and, b.xor = b.and&v, b.xor&v
	case '|':
		b.and, b.xor = b.and&^v, b.xor&^v|v
	case '^':
		b.xor ^= v
	case '<':
		b.from, b.and, b.xor = b.shiftable(v), b.and<<(v&31), b.xor<<(v&31)
	case '>':
		b.from, b.and, b.xor = b.shiftable(v), b.and>>(v&31), b.xor>>(v&31)
	}
	return b
}

// shiftable keeps a source whose bits stay in place.
func (b bitwise) shiftable(v uint32) byte {
	if b.from == 0 || b.and == 0 {
		return 0
	}
	if v == 0 {
		return b.from
	}
	return '?'
}

// setMark reads "meta mark & MASK | VALUE" and makes the action of it.
func (p *ruleParser) setMark(ofConnection bool) {
	start := p.peek()
	b := p.bitwise()
	if p.err != nil {
		return
	}
	self, other := byte('m'), byte('c')
	if ofConnection {
		self, other = 'c', 'm'
	}
	set := func(clear, xor uint32) netfilter.Action {
		if ofConnection {
			return netfilter.SetConnMark{Clear: clear, Xor: xor}
		}
		return netfilter.SetMark{Clear: clear, Xor: xor}
	}
	const all = ^uint32(0)
	switch b.from {
	case 0:
		p.do(set(all, b.xor))
	case self:
		p.do(set(^b.and, b.xor))
	case other:
		if ofConnection {
			p.do(netfilter.SaveMark{NFMask: b.and, CTMask: all})
		} else {
			p.do(netfilter.RestoreMark{NFMask: all, CTMask: b.and})
		}
		if b.xor != 0 {
			p.do(set(0, b.xor))
		}
	default:
		p.failf(start, "how this mark is reckoned is not understood")
	}
}

// bitwise reads operands and constants with operators between, from left to
// right as nft prints them.
func (p *ruleParser) bitwise() bitwise {
	b := p.bitwiseOperand()
	for p.err == nil {
		t := p.peek()
		op, ok := bitOperators[t.text]
		if !ok || t.quoted {
			return b
		}
		p.at++
		v := p.bitwiseOperand()
		switch {
		case v.from == 0:
			b = b.apply(op, v.xor)
		case b.from == 0 && op != '<' && op != '>':
			b = v.apply(op, b.xor)
		default:
			p.failf(t, "a mark that is reckoned from two others is not followed")
		}
	}
	return b
}

func (p *ruleParser) bitwiseOperand() bitwise {
	const all = ^uint32(0)
	switch t := p.next(); {
	case t.is("("):
		b := p.bitwise()
		if !p.take(")") {
			p.failf(t, "a parenthesis is not closed")
		}
		return b
	case t.is("mark"):
		return bitwise{from: 'm', and: all}
	case t.is("meta") && p.take("mark"):
		return bitwise{from: 'm', and: all}
	case t.is("ct") && p.take("mark"):
		return bitwise{from: 'c', and: all}
	default:
		d, err := parseDatum(kindMark, t.text)
		if err != nil {
			p.failf(t, "%q is not a mark that is understood", t.text)
		}
		return bitwise{xor: uint32(d.num)}
	}
}
