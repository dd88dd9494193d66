package iptables

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// conclude finds out of which table the lines are that no "*table" line names,
// and puts those of one table together: a paste may show it in several pieces.
func (x *indexer) conclude() {
	var out []*tableIndex
	for _, t := range x.tables {
		x.identify(t)
		if !t.loose {
			out = append(out, t)
			continue
		}
		x.endOf(t)
		for _, part := range x.apart(t) {
			if into := sameTable(out, part); into != nil {
				x.mergeTable(into, part)
			} else {
				out = append(out, part)
			}
		}
	}
	x.tables = out
	x.settleBackends()
}

// settleBackends: where one command is called iptables-legacy, the plain one
// beside it is the other backend's.
func (x *indexer) settleBackends() {
	legacy := false
	for _, t := range x.tables {
		legacy = legacy || t.loose && t.Backend == netfilter.Legacy
	}
	for _, t := range x.tables {
		if legacy && t.loose && t.Backend == netfilter.AnyBackend {
			t.Backend = netfilter.NFT
		}
	}
}

func sameTable(ts []*tableIndex, t *tableIndex) *tableIndex {
	for _, o := range ts {
		if o.Name == t.Name && o.Family == t.Family && o.Backend == t.Backend {
			return o
		}
	}
	return nil
}

// endOf says of which chains rules may be missing at the end of a loose table.
func (x *indexer) endOf(t *tableIndex) {
	broken := t.lastLine == x.lastLine() && x.breaksOff(t)
	for i := range t.chains {
		c := &t.chains[i]
		switch {
		case !c.declared || c.cut != "":
		case t.filtered:
			c.cut = "the input was filtered, so rules of this chain may be missing"
		case broken && (int32(i) == t.last || int32(i) == x.lastListed(t) || c.len() == 0 && x.paste.layout == 0 && !x.isListing(t)):
			c.cut = fmt.Sprintf("the input breaks off on line %d: rules of this chain may be missing", t.lastLine)
		}
	}
	if broken {
		t.CutAt = t.lastLine
		x.problems = append(x.problems, Problem{Truncated, t.lastLine, 1, "", fmt.Sprintf("the input breaks off on line %d: rules may be missing", t.lastLine)})
	}
}

// isListing says whether the table was read from iptables -L, which prints
// each chain's rules under its header.
func (x *indexer) isListing(t *tableIndex) bool {
	for i := range t.chains {
		if c := &t.chains[i]; c.len() > 0 {
			return x.rules[c.at(0)].layout&(listed|garbled) != 0
		}
	}
	return true
}

// lastListed is the chain whose header came last.
func (x *indexer) lastListed(t *tableIndex) int32 {
	if !x.isListing(t) {
		return -1
	}
	last := int32(-1)
	for i := range t.chains {
		if last < 0 || t.chains[i].line > t.chains[last].line {
			last = int32(i)
		}
	}
	return last
}

// lastLine is the number of the input's last line that says something.
func (x *indexer) lastLine() int {
	last := x.paste.broken
	for _, t := range x.tables {
		last = max(last, t.lastLine)
	}
	return last
}

// breaksOff says whether the last line of a loose table looks like one that
// was cut in two.
func (x *indexer) breaksOff(t *tableIndex) bool {
	if x.paste.broken == t.lastLine {
		return true
	}
	if t.last < 0 || len(x.rules) == 0 {
		return false
	}
	c := &t.chains[t.last]
	if c.len() == 0 {
		return false
	}
	at := x.rules[c.at(c.len()-1)]
	if int(at.line) != t.lastLine || at.layout&omitted != 0 {
		return false
	}
	r, _ := x.parseRule(t, c.name, at)
	if r.Problem != "" {
		return true
	}
	if at.layout&listed != 0 {
		return false
	}
	if _, declared := t.byName[r.Target]; r.Jump == "" || declared {
		return r.Target == ""
	}
	return !strings.HasSuffix(x.text, "\n") || t.begins(r.Target)
}

// begins says whether the name is the beginning of a chain's.
func (t *tableIndex) begins(name string) bool {
	for i := range t.chains {
		if strings.HasPrefix(t.chains[i].name, name) {
			return true
		}
	}
	return false
}

// apart splits a loose table whose name is not given into the tables that its
// lines are of. Where a policy shows that it is one table's output, it is one.
func (x *indexer) apart(t *tableIndex) []*tableIndex {
	if t.Name != "" {
		return []*tableIndex{t}
	}
	if name, certain := x.byPolicies(t); name != "" {
		t.Name = name
		x.concluded(t, certain)
		return []*tableIndex{t}
	}
	return x.byRules(t)
}

// concluded says how a table's name was found.
func (x *indexer) concluded(t *tableIndex, certain bool) {
	message := fmt.Sprintf("no line says of which table these are; by their chains and targets it is %s", t.Name)
	kind := TableConcluded
	if !certain {
		kind, message = UnknownTable, fmt.Sprintf("no line says of which table these are; taken as %s, which they may not be", t.Name)
		if t.Name == "" {
			message = "no line says of which table these are, nor does anything in them: no packet is walked through them"
		}
	}
	x.problems = append(x.problems, Problem{kind, t.Line, 1, quoted(x.lineAt(t.from)), message})
}

// byPolicies tells a table by the chains that have a policy, which are those
// that the kernel calls.
func (x *indexer) byPolicies(t *tableIndex) (name string, certain bool) {
	hooks := map[string]bool{}
	for i := range t.chains {
		if c := &t.chains[i]; c.declared && c.policy != "" {
			hooks[c.name] = true
		}
	}
	if len(hooks) == 0 || t.filtered {
		return "", false
	}
	votes := x.votes(t)
	switch {
	case hooks["FORWARD"] && (hooks["PREROUTING"] || hooks["POSTROUTING"]):
		return "mangle", true
	case hooks["FORWARD"]:
		if votes["mangle"] > 0 && len(hooks) == 1 {
			return "mangle", true
		}
		return "filter", len(hooks) > 1 || votes["filter"] > 0
	case hooks["POSTROUTING"] && len(hooks) > 1:
		return "nat", true
	case hooks["PREROUTING"] && hooks["OUTPUT"]:
		if votes["nat"] > 0 {
			return "nat", true
		}
		return "raw", true
	}
	for _, name := range []string{"nat", "filter", "raw", "mangle"} {
		if votes[name] > 0 {
			return name, true
		}
	}
	if hooks["INPUT"] || hooks["OUTPUT"] {
		return "filter", false
	}
	return "nat", false
}

// votes counts what the table's rules and chains tell of its name.
func (x *indexer) votes(t *tableIndex) map[string]int {
	votes := map[string]int{}
	for i := range t.chains {
		c := &t.chains[i]
		votes[tableOfChain(c.name)]++
		for j := range min(c.len(), 50) {
			votes[x.clue(x.rules[c.at(j)])]++
		}
	}
	delete(votes, "")
	return votes
}

// byRules sorts each rule into its table: what grep finds in an iptables-save
// is of several.
func (x *indexer) byRules(t *tableIndex) []*tableIndex {
	of := x.tablesOfChains(t)
	byName := map[string]*tableIndex{}
	var out []*tableIndex
	get := func(name string, line int) *tableIndex {
		if byName[name] == nil {
			n := *t
			n.Name, n.Line, n.chains, n.byName, n.last = name, line, nil, map[string]int32{}, -1
			byName[name] = &n
			out = append(out, &n)
		}
		return byName[name]
	}
	for i := range t.chains {
		c := &t.chains[i]
		if c.len() == 0 {
			x.sorted(get(of[c.name], c.line), c)
		}
		for j := range c.len() {
			k := c.at(j)
			name := x.clue(x.rules[k])
			if _, target := x.jump(x.rules[k]); name == "" && target != "" {
				name = of[target]
			}
			if name == "" {
				name = of[c.name]
			}
			into := get(name, int(x.rules[k].line))
			at := x.sorted(into, c)
			into.chains[at].add(uint32(k))
			if int32(i) == t.last {
				into.last = at
			}
		}
	}
	for _, n := range out {
		n.from = t.from
		x.concluded(n, n.Name != "" && x.votes(n)[n.Name] > 0)
	}
	return out
}

// sorted makes a chain like c in the table, if it has none.
func (x *indexer) sorted(t *tableIndex, c *chainIndex) int32 {
	if i, ok := t.byName[c.name]; ok {
		return i
	}
	i := int32(len(t.chains))
	t.chains = append(t.chains, chainIndex{name: c.name, line: c.line, declared: c.declared, policy: c.policy, cut: c.cut})
	t.byName[c.name] = i
	return i
}

// tablesOfChains says of which table each chain is: by its name, by what its
// rules do, by what jumps to it and where it jumps.
func (x *indexer) tablesOfChains(t *tableIndex) map[string]string {
	of := map[string]string{}
	for i := range t.chains {
		c := &t.chains[i]
		of[c.name] = tableOfChain(c.name)
		for j := 0; of[c.name] == "" && j < c.len(); j++ {
			of[c.name] = x.clue(x.rules[c.at(j)])
		}
	}
	for range 4 { // as deep as jumps usually are
		for i := range t.chains {
			c := &t.chains[i]
			for j := range min(c.len(), 1000) {
				_, target := x.jump(x.rules[c.at(j)])
				if _, known := of[target]; !known {
					continue
				}
				if of[target] == "" && !several[c.name] {
					of[target] = of[c.name]
				}
				if of[c.name] == "" {
					of[c.name] = of[target]
				}
			}
		}
	}
	for i := range t.chains {
		if c := &t.chains[i]; of[c.name] == "" {
			of[c.name] = usual[c.name]
		}
	}
	return of
}

// several are the chains that more than one table has.
var several = map[string]bool{
	"PREROUTING": true, "INPUT": true, "FORWARD": true, "OUTPUT": true, "POSTROUTING": true, "KUBE-SERVICES": true, "KUBE-NODEPORTS": true,
	"KUBE-NODE-PORT": true, "KUBE-FIREWALL": true, "KUBE-PROXY-CANARY": true, "KUBE-KUBELET-CANARY": true, "DOCKER": true,
	"cali-PREROUTING": true, "cali-OUTPUT": true, "cali-POSTROUTING": true, "cali-FORWARD": true, "cali-INPUT": true,
}

// usual is the table where nothing tells of which such a chain is.
var usual = map[string]string{
	"PREROUTING": "nat", "POSTROUTING": "nat", "FORWARD": "filter", "INPUT": "filter", "OUTPUT": "filter", "KUBE-SERVICES": "nat",
	"KUBE-NODEPORTS": "nat", "KUBE-NODE-PORT": "nat", "KUBE-FIREWALL": "filter", "KUBE-PROXY-CANARY": "nat", "KUBE-KUBELET-CANARY": "nat", "DOCKER": "nat",
}

// tableOfChain says of which table a chain is by its name alone; "" where that
// doesn't tell.
func tableOfChain(name string) string {
	if several[name] {
		return ""
	}
	for _, k := range chainTables {
		if strings.HasPrefix(name, k.prefix) {
			return k.table
		}
	}
	return ""
}

// chainTables are the chains of kube-proxy, kubelet and CNI plugins that are of
// one table.
var chainTables = []struct{ prefix, table string }{
	{"KUBE-SVC-", "nat"}, {"KUBE-SVL-", "nat"}, {"KUBE-SEP-", "nat"}, {"KUBE-EXT-", "nat"}, {"KUBE-XLB-", "nat"}, {"KUBE-FW-", "nat"},
	{"KUBE-MARK-MASQ", "nat"}, {"KUBE-MARK-DROP", "nat"}, {"KUBE-POSTROUTING", "nat"}, {"KUBE-LOAD-BALANCER", "nat"}, {"KUBE-FIRE-WALL", "nat"},
	{"KUBE-PORTALS-", "nat"}, {"KUBE-NODEPORT-CONTAINER", "nat"}, {"KUBE-NODEPORT-HOST", "nat"}, {"KUBE-HOSTPORTS", "nat"}, {"KUBE-HP-", "nat"},
	{"CNI-", "nat"}, {"AWS-", "nat"}, {"IP-MASQ", "nat"}, {"FLANNEL-POSTRTG", "nat"}, {"LIBVIRT_PRT", "nat"}, {"ANTREA-POSTROUTING", "nat"}, {"WEAVE", "nat"},
	{"ISTIO_", "nat"}, {"PROXY_INIT_", "nat"}, {"DOCKER_OUTPUT", "nat"}, {"DOCKER_POSTROUTING", "nat"}, {"CILIUM_POST_nat", "nat"}, {"CILIUM_PRE_nat", "nat"}, {"CILIUM_OUTPUT_nat", "nat"},
	{"cali-nat-outgoing", "nat"}, {"cali-fip-", "nat"}, {"OVN-KUBE-", "nat"},
	{"KUBE-FORWARD", "filter"}, {"KUBE-EXTERNAL-SERVICES", "filter"}, {"KUBE-PROXY-FIREWALL", "filter"}, {"KUBE-SOURCE-RANGES-FIREWALL", "filter"},
	{"KUBE-NODEPORT-NON-LOCAL", "filter"}, {"KUBE-IPVS-", "filter"}, {"KUBE-ROUTER-", "filter"}, {"KUBE-POD-FW-", "filter"}, {"KUBE-NWPLCY-", "filter"},
	{"KUBE-IPTABLES-HINT", "mangle"}, {"DOCKER-", "filter"}, {"LIBVIRT_", "filter"}, {"ufw-", "filter"}, {"ufw6-", "filter"}, {"FLANNEL-FWD", "filter"}, {"WEAVE-NPC", "filter"},
	{"cali-fw-", "filter"}, {"cali-tw-", "filter"}, {"cali-pri-", "filter"}, {"cali-pro-", "filter"}, {"cali-wl-to-host", "filter"}, {"cali-from-wl-dispatch", "filter"}, {"cali-to-wl-dispatch", "filter"},
	{"CILIUM_FORWARD", "filter"}, {"CILIUM_INPUT", "filter"}, {"ANTREA-FORWARD", "filter"}, {"InstanceServices", "filter"},
}

// targetTables are the targets that the kernel takes in one table only.
var targetTables = map[string]string{
	"DNAT": "nat", "SNAT": "nat", "MASQUERADE": "nat", "REDIRECT": "nat", "NETMAP": "nat",
	"REJECT": "filter", "DROP": "filter", // the nat table takes no DROP
	"CT": "raw", "NOTRACK": "raw",
	"TPROXY": "mangle", "TTL": "mangle", "HL": "mangle", "DSCP": "mangle", "TOS": "mangle", "CHECKSUM": "mangle", "CLASSIFY": "mangle", "ECN": "mangle",
}

// clue is the table that a rule's target tells of.
func (x *indexer) clue(at place) string {
	_, target := x.jump(at)
	if t := targetTables[target]; t != "" {
		return t
	}
	return tableOfChain(target)
}

// jump reads the target of the rule at a place.
func (x *indexer) jump(at place) (option, target string) {
	if at.layout&(omitted|garbled) != 0 {
		return "", ""
	}
	line := x.lineAt(int(at.offset))
	if at.layout&listed != 0 {
		r, _ := splitRow(line, at.layout)
		return "-j", r.target.text
	}
	args, _ := lex(line, nil)
	for i := 0; i+1 < len(args); i++ {
		if a := args[i]; !a.quoted && (a.text == "-j" || a.text == "-g" || a.text == "--jump" || a.text == "--goto") {
			return a.text, args[i+1].text
		}
	}
	return "", ""
}

// mergeTable takes the chains of a loose table into another of the same name.
// Of a chain that both show whole, the first counts.
func (x *indexer) mergeTable(into, t *tableIndex) {
	for i := range t.chains {
		c := &t.chains[i]
		at, ok := into.byName[c.name]
		if !ok {
			into.byName[c.name] = int32(len(into.chains))
			into.chains = append(into.chains, *c)
			continue
		}
		x.mergeChain(into, &into.chains[at], c)
	}
	if t.CutAt > into.CutAt {
		into.CutAt = t.CutAt
	}
	into.filtered = into.filtered && t.filtered
}

func (x *indexer) mergeChain(t *tableIndex, into, c *chainIndex) {
	whole := func(c *chainIndex) bool { return c.declared && c.cut == "" }
	switch {
	case x.sameRules(into, c):
		if whole(c) {
			into.declared, into.cut = true, ""
		}
	case whole(into) && !whole(c):
		return // a piece of what is there
	case whole(c) && !whole(into):
		*into = *c
		return
	case whole(c):
		x.problems = append(x.problems, Problem{Duplicate, max(c.line, 1), 1, "", fmt.Sprintf("chain %s of table %s is here twice, with other rules (first on line %d): the first counts", c.name, t.Name, into.line)})
		return
	default:
		x.moreRules(into, c)
	}
	if into.policy == "" {
		into.policy = c.policy
	}
	if !into.declared && c.declared {
		into.declared, into.line, into.cut = true, c.line, c.cut
	}
}

func (x *indexer) ruleText(c *chainIndex, i int) string {
	return afterCounters(x.lineAt(int(x.rules[c.at(i)].offset)) + " ")
}

func (x *indexer) sameRules(a, b *chainIndex) bool {
	if a.len() != b.len() {
		return false
	}
	for i := range a.len() {
		if x.ruleText(a, i) != x.ruleText(b, i) {
			return false
		}
	}
	return true
}

// moreRules adds those rules of c that a chain does not have yet: two greps
// may find the same line.
func (x *indexer) moreRules(into, c *chainIndex) {
	have := map[string]bool{}
	for i := range into.len() {
		have[x.ruleText(into, i)] = true
	}
	for i := range c.len() {
		if !have[x.ruleText(c, i)] {
			into.add(uint32(c.at(i)))
		}
	}
}
