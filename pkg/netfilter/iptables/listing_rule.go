package iptables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// row reads a row of iptables -L: it is put into the words of iptables -S,
// which the parser then reads, so that both give the same rule.
func (p *ruleParser) row(l layout) {
	r, ok := splitFields(fields(p.rule.Text, nil), l)
	if !ok {
		p.fail(1, "this is no row of a listing")
		return
	}
	start := r.prot.col
	if r.target.text != "" {
		start = r.target.col
	}
	goesto := len(r.rest) > 0 && r.rest[0].text == "[goto]"
	if goesto {
		r.rest = r.rest[1:]
	}
	if r.target.text != "" {
		jump := "-j"
		if goesto {
			jump = "-g"
		}
		p.emit(r.target, jump, r.target.text)
	}
	if proto := strings.TrimPrefix(r.prot.text, "!"); proto != "all" && proto != "0" {
		p.emitNot(r.prot, "-p")
	}
	switch r.opt.text {
	case "-f":
		p.emit(r.opt, "-f")
	case "!f":
		p.emit(r.opt, "!", "-f")
	}
	for option, t := range map[string]token{"-i": r.in, "-o": r.out} {
		if name := strings.TrimPrefix(t.text, "!"); name != "" && name != "*" && name != "any" {
			p.emitNot(t, option)
		}
	}
	p.listedAddress("-s", netfilter.Src, r.src)
	p.listedAddress("-d", netfilter.Dst, r.dst)
	e := extras{ruleParser: p, words: r.rest, target: r.target.text}
	for e.at < len(e.words) && p.err == nil {
		e.one()
	}
	if l&counted == 0 {
		p.mayHaveInterface(r)
	}
	p.rule.Text = p.rule.Text[start-1:]
	p.shift = start - 1
}

// mayHaveInterface doubts a row without -v that has no condition: its
// interfaces are not printed, and such a rule often has one (-i lo, -o
// docker0). The rules of kube-proxy and of Calico that look so have none.
func (p *ruleParser) mayHaveInterface(r listedRow) {
	ours := func(name string) bool { return strings.HasPrefix(name, "KUBE-") || strings.HasPrefix(name, "cali-") }
	if ours(p.chain) || ours(r.target.text) || len(p.exprs) > 0 {
		return
	}
	for _, a := range p.args {
		switch a.text {
		case "-p", "-s", "-d", "-f", "-m":
			if !a.quoted {
				return
			}
		}
	}
	p.exprs = append(p.exprs, matching(netfilter.Undecidably{
		Because: "the rule may be for one interface alone: iptables -L prints none without -v"}))
}

// emit adds arguments that stand at one place of the row.
func (p *ruleParser) emit(at token, words ...string) {
	for _, w := range words {
		p.args = append(p.args, token{text: w, col: at.col})
	}
}

// emitValue adds a value, which is no option whatever it looks like.
func (p *ruleParser) emitValue(t token) {
	t.quoted = true
	p.args = append(p.args, t)
}

// emitNot adds an option and its value, which a "!" in front negates.
func (p *ruleParser) emitNot(t token, option string) {
	if v, not := strings.CutPrefix(t.text, "!"); not {
		t.text = v
		p.emit(t, "!")
	}
	p.emit(t, option)
	p.emitValue(t)
}

// awsName is the name that AWS gives a private address in its DNS.
var awsName = lazyregexp.New(`^ip-(\d+)-(\d+)-(\d+)-(\d+)\.(?:[a-z0-9.-]+\.compute|ec2)\.internal$`)

// listedAddress reads an address column. Without -n it may hold a name; one
// that stands for no certain address is kept as what can't be decided.
func (p *ruleParser) listedAddress(option string, side netfilter.Side, t token) {
	name, not := strings.CutPrefix(t.text, "!")
	switch name {
	case "anywhere", "0.0.0.0/0", "::/0", "default":
		if not {
			p.exprs = append(p.exprs, matching(netfilter.Never{}))
		}
		return
	}
	host, mask, masked := strings.Cut(name, "/")
	if _, err := netip.ParseAddr(host); err == nil {
		p.emitNot(t, option)
		return
	}
	addr := ""
	switch m := awsName.FindStringSubmatch(host); {
	case m != nil:
		addr = strings.Join(m[1:], ".")
	case host == "localhost" && p.family == netfilter.IPv6, host == "ip6-localhost", host == "ip6-loopback":
		addr = "::1"
	case host == "localhost":
		addr = "127.0.0.1"
	case host == "loopback":
		addr = "127.0.0.0"
	case host == "link-local":
		addr = "169.254.0.0"
	}
	if addr == "" {
		p.exprs = append(p.exprs, matching(netfilter.Undecidably{
			Because: fmt.Sprintf("%s %s is a name that iptables looked up: its address is not in the input (iptables -n prints it)", side, host)}))
		return
	}
	t.text = addr
	if masked {
		t.text += "/" + mask
	}
	if not {
		t.text = "!" + t.text
	}
	p.emitNot(t, option)
}

// extras are the words after a row's columns: what each match and the target
// print of themselves.
type extras struct {
	*ruleParser
	words  []token
	at     int
	target string
}

// word is the next word, or the zero token.
func (e *extras) word() token {
	if e.at < len(e.words) {
		return e.words[e.at]
	}
	return token{col: len(e.rule.Text)}
}

func (e *extras) take() token {
	t := e.word()
	e.at++
	return t
}

// is takes the next word if it is w.
func (e *extras) is(w string) bool {
	if e.word().text == w {
		e.at++
		return true
	}
	return false
}

// option adds an option with the next word as its value. A "!" before the
// value, or at its beginning, negates.
func (e *extras) option(at token, not bool, name string) {
	not = not != e.is("!")
	v := e.take()
	if v.text == "" {
		e.failf(at, "%s has no value", at.text)
		return
	}
	if rest, ok := strings.CutPrefix(v.text, "!"); ok {
		v.text, not = rest, !not
	}
	e.set(at, not, name, v)
}

func (e *extras) set(at token, not bool, name string, values ...token) {
	if not {
		e.emit(at, "!")
	}
	e.emit(at, name)
	for _, v := range values {
		e.emitValue(v)
	}
}

// undecided are what matches print whose options the walk has no use for, and
// the match that prints it.
var undecided = map[string]string{
	"limit:": "limit", "#conn": "connlimit", "length": "length", "MAC": "mac", "TTL": "ttl", "HL": "hl", "DSCP": "dscp", "TOS": "tos", "tos": "tos",
	"tcpmss": "tcpmss", "policy": "policy", "socket": "socket", "u32": "u32", "TIME": "time",
	"STRING": "string", "bpf": "bpf", "ipvs": "ipvs", "vaddr": "ipvs", "vproto": "ipvs", "vport": "ipvs", "connbytes": "connbytes", "quota:": "quota",
	"cpu": "cpu", "helper": "helper", "realm": "realm", "ah": "ah", "esp": "esp", "devgroup": "devgroup", "avg": "limit", "ipv4options": "ipv4options", "rt": "rt", "frag": "frag", "dst": "dst", "hbh": "hbh", "cluster": "cluster", "osf": "osf", "time": "time", "connlabel": "connlabel",
}

// one reads what one match, or the target, printed.
func (e *extras) one() {
	t := e.take()
	not := t.text == "!"
	if not {
		t = e.take()
	}
	if rest, ok := strings.CutPrefix(t.text, "!"); ok && rest != "" && !not {
		t.text, not = rest, true
	}
	switch {
	case strings.HasPrefix(t.text, "/*"):
		e.comment(t)
	case e.ofTarget(t):
	case e.protocolMatch(t), e.conntrackMatch(t, not), e.markMatch(t), e.otherMatch(t, not):
	case undecided[t.text] != "":
		name := undecided[t.text]
		if w := e.word().text; t.text == "limit:" && (w == "up" || w == "above") {
			name = "hashlimit"
		}
		e.emit(t, "-m", name)
		e.skip()
	case noted[e.target] || opaque[e.target] != "":
		e.at = len(e.words) // what such a target prints says nothing of the way
	case t.text == "Chain" || isOpt(e.word().text) || t.text == "target" && e.word().text == "prot":
		e.failf(t, "lines of the listing are run together here, so rules are lost: iptables-save prints each on a line of its own")
	default:
		e.failf(t, "%q is not understood in a listing", t.text)
	}
}

// comment passes over a comment, which may hold anything but its own end.
func (e *extras) comment(t token) {
	if t.text != "/*" && strings.HasSuffix(t.text, "*/") && len(t.text) >= 4 {
		return
	}
	for e.at < len(e.words) {
		if w := e.take(); strings.HasSuffix(w.text, "*/") {
			return
		}
	}
	e.failf(t, "the comment is not closed: the input breaks off in this line")
}

// skip passes over words that belong to no match that is known.
func (e *extras) skip() {
	quote := false
	for ; e.at < len(e.words); e.at++ {
		w := e.word().text
		if strings.Count(w, `"`)%2 == 1 {
			quote = !quote
			continue
		}
		if !quote && (starters[w] || strings.HasPrefix(w, "/*") || strings.HasPrefix(w, "to:") || w == e.target) {
			return
		}
	}
}

// starters are the words that what a match or target prints begins with.
var starters = map[string]bool{
	"tcp": true, "udp": true, "sctp": true, "icmptype": true, "ipv6-icmptype": true, "multiport": true, "ctstate": true, "state": true, "mark": true,
	"connmark": true, "MARK": true, "CONNMARK": true, "ADDRTYPE": true, "statistic": true, "recent:": true, "reject-with": true, "match-set": true,
	"PHYSDEV": true, "owner": true, "source": true, "destination": true, "PKTTYPE": true, "nfacct-name": true, "!": true, "[goto]": true, "LOG": true,
	"redir": true, "masq": true, "ctorigdst": true, "ctorigsrc": true, "random-fully": true, "limit:": true, "CT": true,
}

// ofTarget reads what the target prints.
func (e *extras) ofTarget(t token) bool {
	switch e.target {
	case "DNAT", "SNAT", "NETMAP", "REDIRECT", "MASQUERADE":
		return e.natTarget(t)
	case "MARK", "CONNMARK":
		if t.text != e.target || e.word().text == "match" {
			return false
		}
		e.markTarget(t)
		return true
	case "REJECT":
		if t.text != "reject-with" {
			return false
		}
		e.option(t, false, "--reject-with")
		return true
	case "CT", "NOTRACK":
		switch {
		case t.text == "NOTRACK", t.text == "CT" && e.is("notrack"):
			if e.target == "CT" {
				e.emit(t, "--notrack")
			}
		case t.text == "CT":
			e.skip()
		default:
			return false
		}
		return true
	}
	if t.text == e.target && (noted[e.target] || opaque[e.target] != "") {
		e.at = len(e.words)
		return true
	}
	return false
}

func (e *extras) natTarget(t token) bool {
	if v, ok := strings.CutPrefix(t.text, "to:"); ok {
		option := map[string]string{"DNAT": "--to-destination", "SNAT": "--to-source", "NETMAP": "--to"}[e.target]
		if option == "" {
			return false
		}
		e.set(t, false, option, token{text: v, col: t.col + 3})
		return true
	}
	switch t.text {
	case "persistent", "random", "random-fully":
		e.emit(t, "--"+t.text)
	case "redir", "masq":
		if e.word().text != "ports" && e.word().text != "ports:" {
			return false
		}
		e.at++
		e.option(t, false, "--to-ports")
	default:
		return false
	}
	return true
}

func (e *extras) markTarget(t token) {
	verb := e.take()
	switch verb.text {
	case "set", "xset":
		e.option(verb, false, "--set-xmark")
	case "or", "and", "xor":
		e.option(verb, false, "--"+verb.text+"-mark")
	case "save", "restore":
		e.emit(verb, "--"+verb.text+"-mark")
		for e.word().text == "mask" || e.word().text == "nfmask" || e.word().text == "ctmask" {
			which := e.take()
			v := e.take()
			v.text = strings.TrimPrefix(v.text, "~") // it prints the mask itself behind the ~
			e.set(which, false, "--"+which.text, v)
		}
	default:
		e.failf(verb, "%s %q is not understood in a listing", t.text, verb.text)
	}
}

func (e *extras) protocolMatch(t token) bool {
	switch t.text {
	case "tcp", "udp", "sctp", "dccp", "udplite":
		e.emit(t, "-m", t.text)
		e.ports(t.text)
	case "icmptype", "ipv6-icmptype":
		e.emit(t, "-m", map[string]string{"icmptype": "icmp", "ipv6-icmptype": "icmp6"}[t.text])
		e.icmpNumber(t)
	case "icmp", "ipv6-icmp", "icmpv6":
		e.icmpName(t)
	case "multiport":
		which := e.take()
		e.emit(t, "-m", "multiport")
		e.option(which, false, "--"+which.text)
	default:
		return false
	}
	return true
}

// ports reads what follows the name of a protocol's match.
func (e *extras) ports(proto string) {
	for e.at < len(e.words) {
		t := e.word()
		name, v, ok := strings.Cut(t.text, ":")
		option := map[string]string{"dpt": "--dport", "dpts": "--dport", "spt": "--sport", "spts": "--sport"}[name]
		not := strings.HasPrefix(v, "!")
		v = strings.TrimPrefix(v, "!")
		value := token{text: v, col: t.col + len(t.text) - len(v)}
		switch {
		case ok && option != "":
			e.set(t, not, option, value)
		case ok && name == "flags" && proto == "tcp":
			mask, set, _ := strings.Cut(v, "/")
			e.set(t, not, "--tcp-flags", token{text: mask, col: value.col}, token{text: set, col: value.col})
		case strings.HasPrefix(t.text, "option="):
			e.set(t, false, "--tcp-option", token{text: t.text[7:], col: t.col})
		case proto == "sctp" && (t.text == "any" || t.text == "all" || t.text == "only"):
			e.at++
			e.set(t, false, "--chunk-types", t, e.word())
		default:
			return
		}
		e.at++
	}
}

func (e *extras) icmpNumber(t token) {
	typ := e.take()
	not := strings.HasPrefix(typ.text, "!")
	typ.text = strings.TrimPrefix(typ.text, "!")
	if e.is("code") {
		typ.text += "/" + e.take().text
	}
	if e.is("codes") {
		codes := e.take() // "0-1": no option can ask that of iptables itself
		e.failf(codes, "ICMP codes %q are not understood", codes.text)
	}
	e.set(t, not, "--"+map[string]string{"icmptype": "icmp-type", "ipv6-icmptype": "icmpv6-type"}[t.text], typ)
}

// icmpName reads "icmp echo-request", and "icmp type 255" for any.
func (e *extras) icmpName(t token) {
	option := "--icmpv6-type"
	e.emit(t, "-m")
	if t.text == "icmp" {
		option = "--icmp-type"
		e.emit(t, "icmp")
	} else {
		e.emit(t, "icmp6")
	}
	v := e.take()
	not := strings.HasPrefix(v.text, "!")
	v.text = strings.TrimPrefix(v.text, "!")
	if v.text == "type" {
		v = e.take()
	}
	if e.is("code") {
		v.text += "/" + e.take().text
	}
	e.set(t, not, option, v)
}

func (e *extras) conntrackMatch(t token, not bool) bool {
	switch t.text {
	case "ctstate", "ctproto", "ctorigsrc", "ctorigdst", "ctreplsrc", "ctrepldst", "ctorigsrcport", "ctorigdstport",
		"ctreplsrcport", "ctrepldstport", "ctstatus", "ctexpire", "ctdir":
		e.emit(t, "-m", "conntrack")
	case "state":
		e.emit(t, "-m", "state")
	default:
		return false
	}
	e.option(t, not, "--"+t.text)
	return true
}

func (e *extras) markMatch(t token) bool {
	name := strings.ToLower(t.text)
	if name != "mark" && name != "connmark" || !e.is("match") {
		return false
	}
	e.emit(t, "-m", name)
	e.option(t, false, "--mark")
	return true
}

func (e *extras) otherMatch(t token, not bool) bool {
	switch t.text {
	case "ADDRTYPE":
		e.is("match")
		e.addrtype(t)
	case "statistic":
		e.statisticMatch(t)
	case "recent:":
		e.recentMatch(t, not)
	case "match-set":
		name := e.take()
		e.emit(t, "-m", "set")
		e.set(t, not, "--match-set", name, e.take())
		for e.is("return-nomatch") {
			e.emit(t, "--return-nomatch")
		}
	case "PHYSDEV":
		e.is("match")
		e.physdevMatch(t)
	case "owner":
		e.ownerMatch(t, not)
	case "source", "destination":
		if !e.is("IP") || !e.is("range") {
			return false
		}
		e.emit(t, "-m", "iprange")
		e.option(t, not, map[string]string{"source": "--src-range", "destination": "--dst-range"}[t.text])
	case "PKTTYPE":
		not = e.word().text == "!="
		e.at++
		e.emit(t, "-m", "pkttype")
		e.option(t, not, "--pkt-type")
	case "rpfilter":
		e.emit(t, "-m", "rpfilter")
		for w := e.word().text; w == "loose" || w == "validmark" || w == "invert" || w == "accept-local"; w = e.word().text {
			e.emit(e.take(), "--"+w)
		}
	case "cgroup":
		e.emit(t, "-m", "cgroup")
		e.option(t, not, "--cgroup")
	case "nfacct-name":
		e.emit(t, "-m", "nfacct")
		e.option(t, false, "--nfacct-name")
	default:
		return false
	}
	return true
}

func (e *extras) addrtype(t token) {
	e.emit(t, "-m", "addrtype")
	for e.at < len(e.words) {
		switch w := e.word(); w.text {
		case "src-type", "dst-type":
			e.at++
			e.option(w, false, "--"+w.text)
		case "limit-in", "limit-out":
			e.at++
			e.emit(w, strings.Replace(w.text, "limit-", "--limit-iface-", 1))
		default:
			return
		}
	}
}

func (e *extras) statisticMatch(t token) {
	e.emit(t, "-m", "statistic")
	for e.at < len(e.words) {
		w := e.word()
		ahead := w.text == "!"
		if ahead && e.at+1 < len(e.words) {
			w = e.words[e.at+1]
		}
		switch w.text {
		case "mode", "probability", "every", "packet":
		default:
			return
		}
		if e.at++; ahead {
			e.at++
		}
		e.option(w, ahead, "--"+w.text)
	}
}

func (e *extras) recentMatch(t token, not bool) {
	verb := e.take()
	option := map[string]string{"SET": "--set", "CHECK": "--rcheck", "UPDATE": "--update", "REMOVE": "--remove"}[verb.text]
	if option == "" {
		e.failf(verb, "recent %q is not understood in a listing", verb.text)
		return
	}
	e.emit(t, "-m", "recent")
	e.set(t, not, option)
	for e.at < len(e.words) {
		switch w := e.word(); w.text {
		case "seconds:", "hit_count:", "name:", "mask:":
			e.at++
			e.option(w, false, map[string]string{"seconds:": "--seconds", "hit_count:": "--hitcount", "name:": "--name", "mask:": "--mask"}[w.text])
		case "side:":
			e.at++
			e.emit(w, map[bool]string{true: "--rsource", false: "--rdest"}[e.take().text == "source"])
		case "reap":
			e.at++
			e.emit(w, "--reap")
		case "TTL-Match":
			e.at++
			e.emit(w, "--rttl")
		default:
			return
		}
	}
}

func (e *extras) physdevMatch(t token) {
	e.emit(t, "-m", "physdev")
	for e.at < len(e.words) {
		w := e.word()
		ahead := w.text == "!"
		if ahead && e.at+1 < len(e.words) {
			w = e.words[e.at+1]
		}
		if !strings.HasPrefix(w.text, "--physdev-") {
			return
		}
		if e.at++; ahead {
			e.at++
		}
		if w.text == "--physdev-in" || w.text == "--physdev-out" {
			e.option(w, ahead, w.text)
		} else {
			e.set(w, ahead, w.text)
		}
	}
}

func (e *extras) ownerMatch(t token, not bool) {
	e.emit(t, "-m", "owner")
	what := e.take()
	switch what.text {
	case "socket":
		e.is("exists")
		e.set(t, not, "--socket-exists")
	case "UID", "GID", "PID", "SID", "CMD":
		e.is("match")
		e.option(t, not, "--"+strings.ToLower(what.text)+"-owner")
	default:
		e.failf(what, "owner %q is not understood in a listing", what.text)
	}
}
