package node

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/cilium"
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
	begins *regexp.Regexp
}

// The tools, in the order in which a line is tried. iptables-save is none of
// them: see saveReader.
var tools = []*tool{
	{name: "ip addr", kind: snapshot.IPAddr, begins: regexp.MustCompile(`^\d+: \S+: <[A-Z0-9_,-]*>`)},
	{name: "ip route", kind: snapshot.IPRoute, begins: regexp.MustCompile(
		`^(default|(unreachable|blackhole|prohibit|throw|local|broadcast|multicast|anycast) \S+|[0-9a-f.:]+(/\d+)?) (.* )?(dev|via|metric|nexthop|proto) \S`)},
	{name: "ip rule", kind: snapshot.IPRule, begins: regexp.MustCompile(`^\d+:\s+(not )?from \S+ `)},
	{name: "sysctl -a", kind: snapshot.Sysctl, begins: regexp.MustCompile(`^(abi|crypto|debug|dev|fs|kernel|net|sunrpc|user|vm)[./]\S+ ?= ?`)},
	{name: "cat /proc/modules", kind: snapshot.ProcModules, begins: regexp.MustCompile(`^\w+ \d+ -?\d+ \S+ (Live|Loading|Unloading) `)},
	{name: "cat /proc/net/ip_tables_names", kind: snapshot.TableNames, begins: regexp.MustCompile(`^(raw|mangle|nat|filter|security)$`)},
	{name: "uname -a", kind: snapshot.Uname, begins: regexp.MustCompile(`^Linux \S+ \d+\.\d+\S* `)},

	{name: "nft list tables", kind: snapshot.NftTables, begins: regexp.MustCompile(`^table (ip|ip6|inet|arp|bridge|netdev) [^\s{]+( # handle \d+)?\s*$`)},
	{name: "nft list ruleset", kind: snapshot.NftRuleset, begins: regexp.MustCompile(`^\s*(table (ip|ip6|inet|arp|bridge|netdev) \S+|chain \S+) \{`)},
	{name: "nft -j list ruleset", kind: snapshot.NftRuleset, begins: nftJSON},
	{name: "ipvsadm -Sn", kind: snapshot.Ipvsadm, begins: regexp.MustCompile(`^(sudo )?(ipvsadm )?-[Aa] (-[tuf]|--(tcp|udp|sctp|fwmark)-service) \S+ `)},
	{name: "ipvsadm -Ln", kind: snapshot.Ipvsadm, begins: regexp.MustCompile(
		`^(IP Virtual Server version|Prot LocalAddress:Port|(TCP|UDP|SCTP) +(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:]+\]|[0-9A-F]{8}):[0-9A-F]+ +[a-z0-9]+|FWM +[0-9A-F]+ +(IPv6 +)?[a-z])`)},
	{name: "ipvsadm -Lnc", begins: regexp.MustCompile(`^(IPVS connection entries|Pro FromIP +FPrt )`)},
	{name: "cat /proc/net/ip_vs_stats", begins: regexp.MustCompile(`^\s*Total Incoming Outgoing`)},
	{name: "ipset save", kind: snapshot.IpsetSave, begins: regexp.MustCompile(`^create \S+ (hash|bitmap|list):`)},
	{name: "ipset list", kind: snapshot.IpsetSave, begins: regexp.MustCompile(`^Name: \S+$`)},
	{name: "conntrack -L", kind: snapshot.Conntrack, begins: regexp.MustCompile(`^(ipv[46]\s+\d+\s+)?\w+\s+\d+ (\d+ )?.*src=\S+ dst=\S+ `)},
	{name: "cat /proc/net/stat/nf_conntrack", kind: snapshot.ConntrackStat, begins: regexp.MustCompile(`^entries +(clashres|searched) +found +`)},
	{name: "cat /lib/modules/RELEASE/modules.builtin", kind: snapshot.ModulesBuiltin, begins: regexp.MustCompile(`^kernel/\S+\.ko$`)},
	{name: "pod sockets of vipwalk node-state", kind: snapshot.PodSockets, begins: regexp.MustCompile(`^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f-]{19,23} (none|(tcp|udp)6? \S+:\d+)$`)},
	{name: "cilium-dbg service list", kind: snapshot.CiliumServices, begins: regexp.MustCompile(`^(ID +Frontend +Service Type +Backend|SERVICE ADDRESS +BACKEND ADDRESS)`)},
	{name: "kubectl", begins: regexp.MustCompile(`^\s*\{?\s*"?apiVersion"?:`)},
}

// procVirtualServer matches a virtual server as the kernel prints it, with eight
// hexadecimal digits for an address. Its header is ipvsadm's.
var procVirtualServer = regexp.MustCompile(`(?m)^(TCP|UDP|SCTP) +([0-9A-F]{8}|\[[0-9a-f]{4}(:[0-9a-f]{4}){7}\]):[0-9A-F]{4} |^  -> RemoteAddress:Port Forward Weight ActiveConn`)

// nftJSON matches the beginning of what nft -j prints, as it is or with its
// lines broken by another tool.
var nftJSON = regexp.MustCompile(`^\s*\{\s*"nftables"\s*:`)

var toolSave = &tool{name: "iptables-save"}

// toolListing is iptables -S and -L, and whatever people make of those and of
// iptables-save when they paste them.
var toolListing = &tool{name: "iptables -S"}

// mostLooked bounds how much of a line is looked at to recognise it.
const mostLooked = 4096

// mostStrange is the number of lines after which a file of which none was
// recognised is given up.
const mostStrange = 100_000

// section is a run of lines of one tool's output.
type section struct {
	*tool
	from, to int // the lines [from, to), from 0
	save     dump
	family   netfilter.Family // that the command line before it names
	// note says what is wrong with it, if anything is.
	note string
	// whole is the file's text, where the section is all of it.
	whole string
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
	saveHeader = regexp.MustCompile(`^\s*# Generated by (ip6tables|iptables|xtables)(-nft|-legacy)?-save v\S+( \(nf_tables\))?`)
	saveTable  = regexp.MustCompile(`^\s*\*(raw|mangle|nat|filter|security)\s*$`)
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
	lines    []string
	sections []*section
	cur      *section
	// head is the header of a dump whose first table has not come yet.
	head     *dump
	headLine int
	inTable  bool
	// stranger is the first line that belongs to nothing, from 1; 0 if none.
	stranger int
}

// recognise splits a file, given whole and by lines, into the outputs of the tools that were put into it.
// stranger is the number of the first line that belongs to none, or 0.
func recognise(s string, lines []string) (sections []*section, stranger int) {
	r := &recogniser{lines: lines}
	if nftJSON.MatchString(s) {
		name := "nft -j list ruleset"
		if tables, ok := nftables.ReadTables(s); ok && len(tables) > 0 {
			name = "nft list tables"
		}
		return []*section{{tool: toolNamed(name), to: len(r.lines), whole: s}}, 0
	}
	if head := strings.TrimSpace(s[:min(len(s), mostLooked)]); head != "" && (head[0] == '{' || head[0] == '[') && cilium.Recognise(head) {
		return []*section{{tool: toolNamed("cilium-dbg service list"), to: len(r.lines), whole: s}}, 0
	}
	for i, line := range r.lines {
		r.line(i, line)
		if i > mostStrange && len(r.sections) == 0 && r.head == nil {
			break // nothing will come of it
		}
	}
	if r.inTable {
		r.truncated()
	}
	if n := len(r.sections); n == 1 && r.sections[0].from == 0 && r.sections[0].to == len(r.lines) {
		r.sections[0].whole = s
	}
	return r.sections, r.stranger
}

// insideNft says whether a line goes on with nft's listing: nft indents all
// lines of a table but the first and the last.
func (r *recogniser) insideNft(i int, line string) bool {
	return r.cur != nil && r.cur.kind == snapshot.NftRuleset && r.cur.to == i && line != "" &&
		(line[0] == '\t' || line[0] == ' ' || line[0] == '}')
}

func (r *recogniser) line(i int, line string) {
	if r.inTable && line != "" && (line[0] == '-' || line[0] == ':') {
		r.cur.to = i + 1 // a rule or a chain, as most lines are
		return
	}
	if r.insideNft(i, line) {
		r.cur.to = i + 1
		return
	}
	if d, ok := headerOf(line); ok {
		if r.inTable {
			r.truncated()
		}
		r.head, r.headLine = &d, i
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
		r.cur.to = i + 1
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
	from, d := i, dump{}
	if r.head != nil {
		from, d = r.headLine, *r.head
	} else if r.cur != nil && r.cur.tool == toolSave {
		d = r.cur.save
		d.tables = nil
	}
	r.head, r.inTable = nil, true
	if c := r.cur; c != nil && c.tool == toolSave && c.save.family == d.family && c.save.variant == d.variant && !slices.Contains(c.save.tables, name) {
		c.save.tables = append(c.save.tables, name)
		c.to = i + 1
		return
	}
	if from == i && r.cur != nil && r.cur.tool == toolSave {
		// A second dump without a header of its own: v6 after v4, mostly.
		d = dump{}
	}
	d.tables = []string{name}
	r.cur = &section{tool: toolSave, from: from, to: i + 1, save: d}
	r.sections = append(r.sections, r.cur)
}

func (r *recogniser) truncated() {
	tables := r.cur.save.tables
	r.cur.note = "cut short: table " + tables[len(tables)-1] + " has no COMMIT"
	r.inTable = false
}

func (r *recogniser) begin(i int, t *tool) {
	if r.cur == nil || r.cur.tool != t {
		r.cur = &section{tool: t, from: i}
		r.sections = append(r.sections, r.cur)
	}
	r.cur.to = i + 1
}

// other is a line that begins nothing. After the head of a dump, and within
// the output of any other tool, it goes on with that; a blank or a comment is
// at home everywhere.
func (r *recogniser) other(i int, line string) {
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "" || trimmed[0] == '#':
		if r.cur != nil && r.cur.to == i && r.head == nil {
			r.cur.to = i + 1
		}
	case r.cur != nil && r.cur.tool != toolSave && r.cur.to == i:
		r.cur.to = i + 1
	default:
		r.cur = nil
		if r.stranger == 0 {
			r.stranger = i + 1
		}
	}
}

// content is a section's text, with as many empty lines before it as make its
// lines keep the numbers that they have in the file.
func (s *section) content(lines []string) string {
	if strings.HasSuffix(s.whole, "\n") {
		return s.whole // large, mostly: not to be copied
	}
	return strings.Repeat("\n", s.from) + strings.Join(lines[s.from:s.to], "\n") + "\n"
}

// guessFamily tells IPv4 from IPv6 rules by the addresses and protocols in
// them, where no header does.
func guessFamily(lines []string) addressFamily {
	for _, line := range lines {
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
