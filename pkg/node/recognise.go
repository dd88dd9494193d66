package node

import (
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/cilium"
	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// tool is one of the tools whose output is recognised.
type tool struct {
	// name is what a user typed to get the output.
	name string
	// kind is what the output is kept as; "" for output that this version
	// recognises and does not read.
	kind snapshot.TextKind
	// rules is set for output that is not read and holds a node's rules: the
	// node's rules are then known to have been given, and not read.
	rules bool
	// begins matches a line that begins such output, or goes on with it.
	begins *lazyregexp.Regexp
}

// The tools, in the order in which a line is tried. iptables-save is none of
// them: see saveReader.
var tools = []*tool{
	{name: "ip addr", kind: snapshot.IPAddr, begins: lazyregexp.New(`^\d+: \S+: <[A-Z0-9_,-]*>`)},
	{name: "ip route", kind: snapshot.IPRoute, begins: lazyregexp.New(
		`^(default|(unreachable|blackhole|prohibit|throw|local|broadcast|multicast|anycast) \S+|[0-9a-f.:]+(/\d+)?) (.* )?(dev|via|metric|nexthop|proto) \S`)},
	{name: "ip rule", kind: snapshot.IPRule, begins: lazyregexp.New(`^\d+:\s+(not )?from \S+ `)},
	{name: "sysctl -a", kind: snapshot.Sysctl, begins: lazyregexp.New(`^(abi|crypto|debug|dev|fs|kernel|net|sunrpc|user|vm)[./]\S+ ?= ?`)},
	{name: "cat /proc/modules", kind: snapshot.ProcModules, begins: lazyregexp.New(`^\w+ \d+ -?\d+ \S+ (Live|Loading|Unloading) `)},
	{name: "cat /proc/net/ip_tables_names", kind: snapshot.TableNames, begins: lazyregexp.New(`^(raw|mangle|nat|filter|security)$`)},
	{name: "uname -a", kind: snapshot.Uname, begins: lazyregexp.New(`^Linux \S+ \d+\.\d+\S* `)},

	{name: "nft list tables", kind: snapshot.NftTables, begins: lazyregexp.New(`^table (ip|ip6|inet|arp|bridge|netdev) [^\s{]+( # handle \d+)?\s*$`)},
	{name: "nft list ruleset", kind: snapshot.NftRuleset, begins: lazyregexp.New(`^\s*(table (ip|ip6|inet|arp|bridge|netdev) \S+|chain \S+) \{`)},
	{name: "nft -j list ruleset", kind: snapshot.NftRuleset, begins: nftJSON},
	{name: "ipvsadm -Sn", kind: snapshot.Ipvsadm, begins: lazyregexp.New(`^(sudo )?(ipvsadm )?-[Aa] (-[tuf]|--(tcp|udp|sctp|fwmark)-service) \S+ `)},
	{name: "ipvsadm -Ln", kind: snapshot.Ipvsadm, begins: lazyregexp.New(
		`^(IP Virtual Server version|Prot LocalAddress:Port|(TCP|UDP|SCTP) +(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:]+\]|[0-9A-F]{8}):[0-9A-F]+ +[a-z0-9]+|FWM +[0-9A-F]+ +(IPv6 +)?[a-z])`)},
	{name: "ipvsadm -Lnc", begins: lazyregexp.New(`^(IPVS connection entries|Pro FromIP +FPrt )`)},
	{name: "cat /proc/net/ip_vs_stats", begins: lazyregexp.New(`^\s*Total Incoming Outgoing`)},
	{name: "ipset save", kind: snapshot.IpsetSave, begins: lazyregexp.New(`^create \S+ (hash|bitmap|list):`)},
	{name: "ipset list", kind: snapshot.IpsetSave, begins: lazyregexp.New(`^Name: \S+$`)},
	{name: "conntrack -L", kind: snapshot.Conntrack, begins: lazyregexp.New(`^(ipv[46]\s+\d+\s+)?\w+\s+\d+ (\d+ )?.*src=\S+ dst=\S+ `)},
	{name: "cat /proc/net/stat/nf_conntrack", kind: snapshot.ConntrackStat, begins: lazyregexp.New(`^entries +(clashres|searched) +found +`)},
	{name: "cat /lib/modules/RELEASE/modules.builtin", kind: snapshot.ModulesBuiltin, begins: lazyregexp.New(`^kernel/\S+\.ko$`)},
	{name: "pod sockets of vipwalk node-state", kind: snapshot.PodSockets, begins: lazyregexp.New(`^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f-]{19,23} (none|(tcp|udp)6? \S+:\d+)$`)},
	{name: "cilium-dbg service list", kind: snapshot.CiliumServices, begins: lazyregexp.New(`^(ID +Frontend +Service Type +Backend|SERVICE ADDRESS +BACKEND ADDRESS)`)},
	{name: "kubectl", begins: lazyregexp.New(`^\s*\{?\s*"?apiVersion"?:`)},
}

// procVirtualServer matches a virtual server as the kernel prints it, with eight
// hexadecimal digits for an address. Its header is ipvsadm's.
var procVirtualServer = lazyregexp.New(`(?m)^(TCP|UDP|SCTP) +([0-9A-F]{8}|\[[0-9a-f]{4}(:[0-9a-f]{4}){7}\]):[0-9A-F]{4} |^  -> RemoteAddress:Port Forward Weight ActiveConn`)

// nftJSON matches the beginning of what nft -j prints, as it is or with its
// lines broken by another tool.
var nftJSON = lazyregexp.New(`^\s*\{\s*"nftables"\s*:`)

var toolSave = &tool{name: "iptables-save"}

// toolListing is iptables -S and -L, and whatever people make of those and of
// iptables-save when they paste them.
var toolListing = &tool{name: "iptables -S"}

// mostLooked bounds how much of a line is looked at to recognise it.
const mostLooked = 4096

// mostStrange is the number of lines after which a file of which none was
// recognised is given up.
const mostStrange = 100_000

// mostTables bounds what is looked at to tell a list of nft's tables from all
// that is in them.
const mostTables = 1 << 20

// section is a run of lines of one tool's output.
type section struct {
	*tool
	from, to   int // the lines [from, to), from 0
	begin, end int // and where they stand in the text
	save       dump
	family     netfilter.Family // that the command line before it names
	// note says what is wrong with it, if anything is.
	note string
	// whole: the section is all of the text.
	whole bool
	// skim is the index of a large dump that is all of the text.
	skim *iptables.Skim
}

// dump is what is told of an iptables-save by its headers.
type dump struct {
	family  addressFamily
	variant variant
	tables  []string
}

type addressFamily int

const (
	familyUnknown addressFamily = iota
	familyIPv4
	familyIPv6
)

var (
	// Written by iptables since 1.3; "(nf_tables)", or -nft- in the name, by
	// the nft variant since 1.8.3, and xtables-save by it before that.
	saveHeader = lazyregexp.New(`^\s*# Generated by (ip6tables|iptables|xtables)(-nft|-legacy)?-save v\S+( \(nf_tables\))?`)
	saveTable  = lazyregexp.New(`^\s*\*(raw|mangle|nat|filter|security)\s*$`)
)

// tableOf is the table that a line of iptables-save begins, or "".
func tableOf(line string) string {
	if strings.IndexByte(line, '*') < 0 {
		return "" // most lines; the pattern costs much more
	}
	if m := saveTable.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return ""
}

func headerOf(line string) (d dump, ok bool) {
	if !strings.Contains(line, "# Generated by ") {
		return d, false
	}
	m := saveHeader.FindStringSubmatch(line)
	if m == nil {
		return d, false
	}
	d.variant = variantLegacy
	switch m[1] {
	case "iptables":
		d.family = familyIPv4
	case "ip6tables":
		d.family = familyIPv6
	default:
		d.variant = variantNft
	}
	if m[2] == "-nft" || m[3] != "" {
		d.variant = variantNft
	}
	return d, true
}

// recogniser goes through a file's lines.
type recogniser struct {
	sections []*section
	cur      *section
	at, next int // where the line at hand begins, and the one after it
	// head is the header of a dump whose first table has not come yet.
	head     *dump
	headLine int
	headAt   int
	inTable  bool
	// stranger is the first line that belongs to nothing.
	stranger stranger
}

// stranger is a line that belongs to no tool's output; line counts from 1, and
// is 0 where there is none.
type stranger struct {
	line int
	text string
}

// isCilium says whether it is Cilium's own JSON.
func isCilium(s string) bool {
	head := strings.TrimSpace(s[:min(len(s), mostLooked)])
	return head != "" && (head[0] == '{' || head[0] == '[') && cilium.Recognise(head)
}

// recognised says whether anything of a text is; else what the first line is
// that isn't.
func recognised(s string) (bool, stranger) {
	if nftJSON.MatchString(s) || isCilium(s) {
		return true, stranger{}
	}
	r := &recogniser{}
	i := 0
	for line := range strings.Lines(s) {
		r.at, r.next = r.next, r.next+len(line)
		r.line(i, strings.TrimSuffix(line, "\n"))
		if i++; len(r.sections) > 0 {
			return true, stranger{}
		}
	}
	return false, r.stranger
}

// recognise splits a text into the outputs of the tools that were put into it;
// file is where it is mapped from, or nil.
func recognise(s string, file io.ReaderAt) ([]*section, stranger) {
	if nftJSON.MatchString(s) {
		name := "nft -j list ruleset"
		if tables, ok := nftables.ReadTables(s[:min(len(s), mostTables)]); ok && len(tables) > 0 {
			name = "nft list tables"
		}
		return []*section{{tool: toolNamed(name), end: len(s), whole: true}}, stranger{}
	}
	if isCilium(s) {
		return []*section{{tool: toolNamed("cilium-dbg service list"), end: len(s), whole: true}}, stranger{}
	}
	if len(s) >= mapFrom {
		if one, ok := oneSave(s, file); ok {
			return []*section{one}, stranger{}
		}
	}
	r := &recogniser{}
	i := 0
	for line := range strings.Lines(s) {
		r.at, r.next = r.next, r.next+len(line)
		r.line(i, strings.TrimSuffix(line, "\n"))
		i++
		if i > mostStrange && len(r.sections) == 0 && r.head == nil {
			break // nothing will come of it
		}
	}
	if r.inTable {
		r.truncated()
	}
	if n := len(r.sections); n == 1 && r.sections[0].from == 0 && r.sections[0].to == i && r.next == len(s) {
		r.sections[0].whole = true
	}
	return r.sections, r.stranger
}

// extend takes the line at hand, i, into the present section.
func (r *recogniser) extend(i int) { r.cur.to, r.cur.end = i+1, r.next }

// insideNft says whether a line goes on with nft's listing: nft indents all
// lines of a table but the first and the last.
func (r *recogniser) insideNft(i int, line string) bool {
	return r.cur != nil && r.cur.kind == snapshot.NftRuleset && r.cur.to == i && line != "" &&
		(line[0] == '\t' || line[0] == ' ' || line[0] == '}')
}

// insideListing says whether a line goes on with what iptables -S prints.
func (r *recogniser) insideListing(i int, line string) bool {
	return r.cur != nil && r.cur.tool == toolListing && r.cur.to == i && strings.HasPrefix(line, "-A ") && !strings.Contains(line, `\n`)
}

func (r *recogniser) line(i int, line string) {
	if r.inTable && line != "" && (line[0] == '-' || line[0] == ':') {
		r.extend(i) // a rule or a chain, as most lines are
		return
	}
	if r.insideNft(i, line) || r.insideListing(i, line) {
		r.extend(i)
		return
	}
	if d, ok := headerOf(line); ok {
		if r.inTable {
			r.truncated()
		}
		r.head, r.headLine, r.headAt = &d, i, r.at
		return
	}
	if m := tableOf(line); m != "" {
		if r.inTable {
			r.truncated()
		}
		r.table(i, m)
		return
	}
	if r.inTable {
		r.extend(i)
		r.inTable = strings.TrimSpace(line) != "COMMIT"
		return
	}
	if t := toolOf(line); t != nil {
		if f, ok := iptables.CommandFamily(line); ok && t == toolListing && r.cur != nil && r.cur.tool == t && r.cur.family != f {
			r.cur = nil // the other family's rules come next
		}
		r.begin(i, t)
		if f, ok := iptables.CommandFamily(line); ok {
			r.cur.family = f
		}
		return
	}
	r.other(i, line)
}

func toolOf(line string) *tool {
	start := line[:min(len(line), mostLooked)]
	for _, t := range tools {
		if t.begins.MatchString(start) {
			return t
		}
	}
	if iptables.Prints(line) {
		return toolListing
	}
	return nil
}

func toolNamed(name string) *tool {
	return tools[slices.IndexFunc(tools, func(t *tool) bool { return t.name == name })]
}

// table begins a table: in the dump at hand, or in a new one if its header is
// of another program or the dump has that table already.
func (r *recogniser) table(i int, name string) {
	from, begin, d := i, r.at, dump{}
	if r.head != nil {
		from, begin, d = r.headLine, r.headAt, *r.head
	} else if r.cur != nil && r.cur.tool == toolSave {
		d = r.cur.save
		d.tables = nil
	}
	r.head, r.inTable = nil, true
	if c := r.cur; c != nil && c.tool == toolSave && c.save.family == d.family && c.save.variant == d.variant && !slices.Contains(c.save.tables, name) {
		c.save.tables = append(c.save.tables, name)
		r.extend(i)
		return
	}
	if from == i && r.cur != nil && r.cur.tool == toolSave {
		// A second dump without a header of its own: v6 after v4, mostly.
		d = dump{}
	}
	d.tables = []string{name}
	r.cur = &section{tool: toolSave, from: from, begin: begin, save: d}
	r.sections = append(r.sections, r.cur)
	r.extend(i)
}

func (r *recogniser) truncated() {
	tables := r.cur.save.tables
	r.cur.note = "cut short: table " + tables[len(tables)-1] + " has no COMMIT"
	r.inTable = false
}

func (r *recogniser) begin(i int, t *tool) {
	if r.cur == nil || r.cur.tool != t {
		r.cur = &section{tool: t, from: i, begin: r.at}
		r.sections = append(r.sections, r.cur)
	}
	r.extend(i)
}

// other is a line that begins nothing. After the head of a dump, and within
// the output of any other tool, it goes on with that; a blank or a comment is
// at home everywhere.
func (r *recogniser) other(i int, line string) {
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "" || trimmed[0] == '#':
		if r.cur != nil && r.cur.to == i && r.head == nil {
			r.extend(i)
		}
	case r.cur != nil && r.cur.tool != toolSave && r.cur.to == i:
		r.extend(i)
	default:
		r.cur = nil
		if r.stranger.line == 0 {
			r.stranger = stranger{i + 1, line}
		}
	}
}

// content is a section's text, with as many empty lines before it as make its
// lines keep the numbers that they have in the file.
func (s *section) content(text string) string {
	if s.whole && (len(text) >= mapFrom || strings.HasSuffix(text, "\n")) {
		return text // large, mostly: not to be copied
	}
	return strings.Repeat("\n", s.from) + strings.TrimSuffix(text[s.begin:s.end], "\n") + "\n"
}

// guessFamily tells IPv4 from IPv6 rules by the addresses and protocols in
// them, where no header does.
func guessFamily(text string) addressFamily {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		for i := 0; i+1 < len(fields); i++ {
			if f := familyOf(fields[i], fields[i+1]); f != familyUnknown {
				return f
			}
		}
	}
	return familyUnknown
}

func familyOf(option, value string) addressFamily {
	switch option {
	case "-p":
		switch value {
		case "icmp":
			return familyIPv4
		case "ipv6-icmp", "icmpv6", "icmp6":
			return familyIPv6
		}
	case "-s", "-d", "--to-destination", "--to-source", "--src-range", "--dst-range", "--ctorigdst":
		if strings.HasPrefix(value, "[") {
			return familyIPv6
		}
		if end := strings.IndexAny(value, "/-,"); end >= 0 {
			value = value[:end]
		}
		if ip, err := netip.ParseAddr(value); err == nil && ip.Is6() {
			return familyIPv6
		}
		if ap, err := netip.ParseAddrPort(value); err == nil && ap.Addr().Is4() {
			return familyIPv4
		}
		if ip, err := netip.ParseAddr(value); err == nil && ip.Is4() {
			return familyIPv4
		}
	}
	return familyUnknown
}
