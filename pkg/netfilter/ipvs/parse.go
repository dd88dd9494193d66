package ipvs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// Errors of a text that no list of virtual servers can be made of.
var (
	// ErrNoServer: neither a header nor a virtual server is in the text.
	ErrNoServer = errors.New("no virtual server in the input: expected the output of ipvsadm -Ln or ipvsadm -Sn, or /proc/net/ip_vs")
	// ErrBinary: the text holds bytes that no such tool prints.
	ErrBinary = errors.New("binary input")
)

// Problem is a line that was not understood, or understood in part. The list is
// then not all that the node has.
type Problem struct {
	// Line and Column count from 1; Column 0 is the line as a whole.
	Line, Column  int
	Text, Message string
}

func (p Problem) String() string {
	if p.Column == 0 {
		return fmt.Sprintf("line %d: %s", p.Line, p.Message)
	}
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// Bounds of what is read of one text.
const (
	mostProblems = 1000
	mostLine     = 1 << 14
)

// Parse reads virtual servers. The forms may stand in one text, one after the
// other, with shell prompts between; of a virtual server that is there twice
// the fuller counts. The list is whole where the text begins with the header of
// a listing and every line was understood; a saved list has no header, so that
// its text alone does not tell. source names the text in errors and evidence.
func Parse(text, source string) (*netfilter.VirtualServers, []Problem, error) {
	return parse(text, source, false)
}

// ParseSaved is Parse for a text that is known to be all that ipvsadm -Sn
// printed; an empty one is a node without virtual servers.
func ParseSaved(text, source string) (*netfilter.VirtualServers, []Problem, error) {
	return parse(text, source, true)
}

func parse(text, source string, saved bool) (*netfilter.VirtualServers, []Problem, error) {
	if i := strings.IndexByte(text, 0); i >= 0 {
		line := strings.Count(text[:i], "\n") + 1
		return nil, nil, fmt.Errorf("read %s: line %d, column %d: a zero byte: %w", source, line, i-strings.LastIndexByte(text[:i], '\n'), ErrBinary)
	}
	p := &parser{source: source, saved: saved, proc: procText(text), byKey: map[key]*netfilter.VirtualServer{}}
	for line := range strings.Lines(text) {
		p.n++
		p.line(strings.TrimRight(line, " \t\r\n"))
		if p.n > 1<<20 && len(p.list) == 0 {
			break // nothing will come of it
		}
	}
	if len(p.list) == 0 && !p.header && (!saved || len(p.problems) > 0) {
		return nil, p.problems, fmt.Errorf("read %s: %w", source, ErrNoServer)
	}
	return netfilter.NewVirtualServers(p.list, p.partial()), p.problems, nil
}

// Merge makes one list of several texts of one node. Where one of them is whole
// and shows scheduler and weights, it is the node's; else they add to each
// other.
func Merge(parts ...*netfilter.VirtualServers) *netfilter.VirtualServers {
	for _, v := range parts {
		if v != nil && v.Partial() == "" && full(v) {
			return v
		}
	}
	var list []*netfilter.VirtualServer
	at := map[key]int{}
	partial, any := "", false
	for _, v := range parts {
		if v == nil {
			continue
		}
		if !any || v.Partial() == "" {
			partial = v.Partial()
		}
		any = true
		for _, s := range v.All() {
			k := keyOf(s)
			i, have := at[k]
			switch {
			case !have:
				at[k] = len(list)
				list = append(list, s)
			case !shows(list[i]) && shows(s):
				list[i] = s
			}
		}
	}
	if !any {
		return nil
	}
	return netfilter.NewVirtualServers(list, partial)
}

// full says whether every virtual server is shown with all that bears on a walk.
func full(v *netfilter.VirtualServers) bool {
	return !slices.ContainsFunc(v.All(), func(s *netfilter.VirtualServer) bool { return !shows(s) })
}

func shows(s *netfilter.VirtualServer) bool {
	return s.Scheduler != "" && !slices.ContainsFunc(s.Real, func(r netfilter.RealServer) bool { return r.Weight < 0 || r.Method == "" })
}

type key struct {
	protocol uint8
	addr     string
	mark     uint32
	family   netfilter.Family
}

func keyOf(s *netfilter.VirtualServer) key {
	k := key{protocol: s.Protocol, mark: s.Mark}
	if s.Mark == 0 {
		k.addr = s.Addr.String()
	} else {
		k.family = s.Family
	}
	return k
}

type parser struct {
	source   string
	saved    bool // the text is all of a saved list
	proc     bool // numbers are hexadecimal
	header   bool // a listing's header was seen
	form     form // of the listing that is being read
	list     []*netfilter.VirtualServer
	byKey    map[key]*netfilter.VirtualServer
	now      *netfilter.VirtualServer // that real servers belong to; nil where its line was not understood
	broken   bool                     // its line was not understood
	problems []Problem
	n        int
}

// partial says why the text may not be all that the node has.
func (p *parser) partial() string {
	if len(p.problems) > 0 {
		return fmt.Sprintf("%s is not whole (%s)", p.source, p.problems[0])
	}
	if !p.header && !p.saved {
		return p.source + " has no header, so that it may be an excerpt"
	}
	return ""
}

func (p *parser) problem(s string, column int, format string, a ...any) {
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	if p.now != nil {
		p.now.Cut = fmt.Sprintf("%s is not whole at line %d, where real servers of it may be missing", p.source, p.n)
	}
	if len(p.problems) < mostProblems {
		p.problems = append(p.problems, Problem{p.n, column, s, fmt.Sprintf(format, a...)})
	}
}

var (
	prompt = lazyregexp.New(`^(\S*@\S+[:~ ].*|\[.*\]|)\s*[#$>]( |$)`)
	// procLine is one that only the kernel prints: an address of eight hexadecimal
	// digits, or the header with single blanks.
	procLine = lazyregexp.New(`(?m)^(\s*(TCP|UDP|SCTP|->)\s+[0-9A-F]{8}:[0-9A-F]{4}(\s|$)|\s*-> RemoteAddress:Port Forward Weight ActiveConn InActConn\s*$|.* persistent \d+ [0-9A-F]{8}\s*$)`)
)

// procText says whether a text is the kernel's own.
func procText(text string) bool { return procLine.MatchString(text) }

// form is which columns a listing has.
type form uint8

const (
	plain       form = iota // Forward Weight ActiveConn InActConn
	statistics              // --stats, --rate
	persistence             // --persistent-conn: Weight PersistConn ActiveConn InActConn
	thresholds              // --thresholds: Uthreshold Lthreshold ActiveConn InActConn
)

func (p *parser) line(s string) {
	if len(s) > mostLine {
		p.problem(s, 0, "a line of %d bytes, which no virtual server has", len(s))
		p.now, p.broken = nil, true
		return
	}
	f := split(s)
	if len(f) == 0 {
		return
	}
	switch first := f[0].text; {
	case strings.HasPrefix(s, "IP Virtual Server version"):
		p.header, p.form, p.now = true, plain, nil
	case first == "Prot" && len(f) > 1 && strings.HasPrefix(f[1].text, "LocalAddress"):
		p.columns(f)
	case first == "->" && len(f) > 1 && strings.HasPrefix(f[1].text, "RemoteAddress"):
	case first == "->":
		p.real(s, f)
	case first == "TCP" || first == "UDP" || first == "SCTP" || first == "FWM":
		p.service(s, f)
	case strings.HasPrefix(s, "Timeout (tcp tcpfin udp):"), first[0] == '#', savedElse[first]:
	case p.isSaved(f):
		p.savedLine(s, f)
	case prompt.MatchString(s):
		p.now = nil
	case strings.Trim(s, ". \t[]") == "" || first == "..." || first == "…":
		p.problem(s, 0, "lines were left out here")
	default:
		p.problem(s, 0, "this is no line that ipvsadm prints")
	}
}

// savedElse are what ipvsadm-save scripts hold besides.
var savedElse = map[string]bool{"--set": true, "--start-daemon": true, "-C": true}

func (p *parser) columns(f []word) {
	p.now, p.form = nil, plain
	for _, w := range f {
		switch w.text {
		case "Conns", "CPS":
			p.form = statistics
		case "PersistConn":
			p.form = persistence
		case "Uthreshold":
			p.form = thresholds
		}
	}
}

// add keeps a virtual server; one that stands in the text already is left, or
// made anew where the text now shows more of it.
func (p *parser) add(s *netfilter.VirtualServer) {
	k := keyOf(s)
	old := p.byKey[k]
	p.broken = false
	switch {
	case old == nil:
		p.byKey[k] = s
		p.list = append(p.list, s)
	case old.Scheduler == "" && s.Scheduler != "":
		i := slices.Index(p.list, old)
		p.list[i], p.byKey[k] = s, s
	default:
		// A second listing of the same: its real servers go nowhere.
	}
	p.now = s
}

// word is a field with its column, from 1.
type word struct {
	text   string
	column int
}

func split(s string) []word {
	var out []word
	for i := 0; i < len(s); {
		for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
		from := i
		for i < len(s) && s[i] != ' ' && s[i] != '\t' {
			i++
		}
		if i > from {
			out = append(out, word{s[from:i], from + 1})
		}
	}
	return out
}
