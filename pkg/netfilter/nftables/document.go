package nftables

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// document is a text with what the first pass learned of it.
type document struct {
	text     string
	opt      Options
	json     bool
	tables   []*tableIndex
	byKey    map[tableKey]*tableIndex
	problems []Problem
	cutAt    int // offset at which a text breaks off that has no end; 0 for none
	parsers  sync.Pool

	linesOnce sync.Once
	lines     []uint32 // offsets of the newlines
}

type tableKey struct{ family, name string }

// tableIndex is what the first pass learns of a table.
type tableIndex struct {
	tableKey
	at     uint32
	doc    *document
	chains []chainIndex
	byName map[string]int32
	rules  []ruleAt
	sets   map[string]*set
	bodies []body
	// handle is nft's number of the table, 0 where the text does not show it.
	handle int
	// dormant: the table is there and does nothing.
	dormant bool
	// compat: a table of iptables-nft.
	compat bool
	// cut: the table's end is not in the text.
	cut  bool
	last int32 // the chain of the last rule
}

// ruleAt is where a rule stands, and the number of its chain.
type ruleAt struct {
	at    uint32
	chain int32
}

// chainIndex is what the first pass learns of a chain.
type chainIndex struct {
	name     string
	at       uint32
	from, to uint32 // its rules, of the table's
	base     *netfilter.Base
	policy   string
	cut      string
}

// table finds or makes a table.
func (d *document) table(family, name string, at int) *tableIndex {
	k := tableKey{family, name}
	t := d.byKey[k]
	if t == nil {
		t = &tableIndex{tableKey: k, at: uint32(at), doc: d, byName: map[string]int32{}, sets: map[string]*set{}, last: -1}
		d.byKey[k] = t
		d.tables = append(d.tables, t)
	}
	return t
}

// chain finds or makes a chain.
func (t *tableIndex) chain(name string, at int) int32 {
	if t.last >= 0 && t.chains[t.last].name == name {
		return t.last
	}
	i, ok := t.byName[name]
	if !ok {
		if len(t.chains) == 0 {
			t.expect(at)
		}
		i = int32(len(t.chains))
		t.chains = append(t.chains, chainIndex{name: name, at: uint32(at)})
		t.byName[name] = i
	}
	return i
}

// expect makes room for as many chains as the text from an offset on may have,
// so that a large table's index need not grow.
func (t *tableIndex) expect(at int) {
	word := "\tchain "
	if t.doc.json {
		word = `{"chain":`
	}
	if n := strings.Count(t.doc.text[at:], word); n > 64 {
		t.chains = make([]chainIndex, 0, n+1)
		t.byName = make(map[string]int32, n+1)
		t.rules = make([]ruleAt, 0, n+n/2)
	}
}

func (t *tableIndex) rule(chain int32, at int) {
	t.last = chain
	t.rules = append(t.rules, ruleAt{uint32(at), chain})
}

// group gives each chain its run of rules.
func (t *tableIndex) group() {
	byChain := func(a, b ruleAt) int { return int(a.chain) - int(b.chain) }
	if !slices.IsSortedFunc(t.rules, byChain) {
		slices.SortStableFunc(t.rules, byChain)
	}
	for i, r := range t.rules {
		c := &t.chains[r.chain]
		if c.to == 0 {
			c.from = uint32(i)
		}
		c.to = uint32(i + 1)
	}
}

// line is the number of the line that an offset is on, from 1.
func (d *document) line(at int) int { return d.newlines(at) + 1 }

// newlines counts the newlines ahead of an offset.
func (d *document) newlines(at int) int {
	d.linesOnce.Do(func() {
		for i := 0; ; i++ {
			n := strings.IndexByte(d.text[i:], '\n')
			if n < 0 {
				return
			}
			i += n
			d.lines = append(d.lines, uint32(i))
		}
	})
	return sort.Search(len(d.lines), func(i int) bool { return int(d.lines[i]) >= at })
}

// column is the column of an offset, from 1.
func (d *document) column(at int) int {
	if n := d.newlines(at); n > 0 {
		return at - int(d.lines[n-1])
	}
	return at + 1
}

// excerpt is what stands at an offset, up to the end of its line.
func (d *document) excerpt(at int) string {
	const most = 200
	s := d.text[at:min(at+most, len(d.text))]
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return strings.TrimRight(s, " \t\r")
}

// mostProblems bounds what is said of a text that is none of nft's.
const mostProblems = 1000

func (d *document) problem(kind ProblemKind, at int, format string, args ...any) {
	if len(d.problems) >= mostProblems {
		return
	}
	d.problems = append(d.problems, Problem{kind, d.line(at), d.column(at), d.excerpt(at), fmt.Sprintf(format, args...)})
}

// families are the address families whose packets a table sees.
func (t *tableIndex) families() []netfilter.Family {
	switch t.family {
	case "ip":
		return []netfilter.Family{netfilter.IPv4}
	case "ip6":
		return []netfilter.Family{netfilter.IPv6}
	case "inet":
		return []netfilter.Family{netfilter.IPv4, netfilter.IPv6}
	}
	return nil
}

// ruleset makes the tables of what was indexed. Their rules stay text.
func (d *document) ruleset() *netfilter.Ruleset {
	var tables []*netfilter.Table
	numbered := !slices.ContainsFunc(d.tables, func(t *tableIndex) bool { return t.handle == 0 })
	for place, t := range d.tables {
		t.group()
		fams := t.families()
		if fams == nil {
			d.problem(OtherFamily, int(t.at), "table %s %s sees packets of another family than IP; it is not walked", t.family, t.name)
			continue
		}
		t.compat = t.compat || t.looksCompat()
		if t.terse() {
			d.problem(UnknownElements, int(t.at), "the elements of sets and maps are not in the input: nft -t leaves them out")
		}
		if t.compat {
			d.problem(IptablesView, int(t.at), "table %s is one of iptables-nft, of which nft hides parts: iptables-save shows it whole", strings.TrimSpace(t.family+" "+t.name))
		}
		defs := t.defs()
		for _, f := range fams {
			info := t.info(f)
			if info.Created = t.handle; !numbered {
				// nft lists tables in the order in which they were made.
				info.Created, info.Placed = place+1, true
			}
			tables = append(tables, netfilter.NewTable(info, defs, t.byName))
		}
	}
	var contents []netfilter.Contents
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		contents = append(contents, netfilter.Contents{Family: f, Whole: d.opt.Whole && d.cutAt == 0})
	}
	return netfilter.New(contents, tables...)
}

func (t *tableIndex) info(f netfilter.Family) netfilter.TableInfo {
	info := netfilter.TableInfo{
		Source: t.doc.opt.Source, Name: t.name, Family: f, Backend: netfilter.NFT,
		Line: t.doc.line(int(t.at)), Compat: t.compat, Listed: t.family,
	}
	if t.cut {
		info.CutAt = t.doc.line(t.doc.cutAt)
	}
	return info
}

func (t *tableIndex) defs() []netfilter.ChainDef {
	t.bodies = make([]body, len(t.chains))
	defs := make([]netfilter.ChainDef, len(t.chains))
	for i := range t.chains {
		c := &t.chains[i]
		t.bodies[i] = body{table: t, chain: c}
		defs[i] = netfilter.ChainDef{
			Name: c.name, Declared: true, Line: t.doc.line(int(c.at)), Body: &t.bodies[i], Cut: t.cutOf(int32(i)),
		}
		if c.base != nil && !t.dormant {
			defs[i].Base, defs[i].Policy = c.base, c.policy
		}
	}
	return defs
}

// cutOf says why rules of a chain may be missing.
func (t *tableIndex) cutOf(i int32) string {
	c := &t.chains[i]
	switch {
	case c.cut != "":
		return c.cut
	case !t.cut:
		return ""
	case t.doc.json && (i >= t.last || c.to == 0), !t.doc.json && int(i) == len(t.chains)-1:
		return fmt.Sprintf("the input breaks off on line %d: rules of this chain may be missing", t.doc.line(t.doc.cutAt))
	}
	return ""
}

// terse recognises a listing without elements (nft -t): kube-proxy's table has
// chains for Services, and not one element anywhere leads to them.
func (t *tableIndex) terse() bool {
	service := func(c chainIndex) bool { return strings.HasPrefix(c.name, "service-") && strings.Contains(c.name, "/") }
	if t.name != "kube-proxy" || !slices.ContainsFunc(t.chains, service) {
		return false
	}
	for _, s := range t.sets {
		if s.elemsEnd > s.elems {
			return false
		}
	}
	for _, s := range t.sets {
		s.lack = "its elements are not in the input: nft -t leaves them out"
	}
	return len(t.sets) > 0
}

// compatTables are the tables that iptables-nft keeps, with the chains that it
// hooks in each.
var compatTables = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"}, "nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"raw":    {"PREROUTING", "OUTPUT"}, "security": {"INPUT", "FORWARD", "OUTPUT"},
}

// looksCompat recognises a table of iptables-nft by its name and by its base
// chains: all of them have names that iptables gives, in capitals.
func (t *tableIndex) looksCompat() bool {
	if t.name == "" { // chains posted without their table
		return slices.ContainsFunc(t.chains, func(c chainIndex) bool {
			return strings.HasPrefix(c.name, "KUBE-S") || strings.HasPrefix(c.name, "CNI-")
		})
	}
	names, ok := compatTables[t.name]
	if !ok || t.family == "inet" {
		return false
	}
	some := false
	for i := range t.chains {
		if t.chains[i].base == nil {
			continue
		}
		if !slices.Contains(names, t.chains[i].name) {
			return false
		}
		some = true
	}
	return some
}

// parseAll parses every rule and set, to know all problems.
func (d *document) parseAll() {
	for _, t := range d.tables {
		if t.families() == nil {
			continue
		}
		for i := range t.bodies {
			b := &t.bodies[i]
			for j := range b.Len() {
				if r, p := t.parseRule(int(t.rules[int(b.chain.from)+j].at)); r.Problem != "" && len(d.problems) < mostProblems {
					d.problems = append(d.problems, p)
				}
			}
		}
		names := make([]string, 0, len(t.sets))
		for name := range t.sets {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			s := t.sets[name]
			if s.load(); s.lack != "" {
				d.problem(UnknownElements, int(s.at), "set %s: %s", s.name, s.lack)
			}
		}
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int { return a.Line - b.Line })
}
