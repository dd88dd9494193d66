package node

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const (
	flowsFile     = "proc/net/nf_conntrack"
	flowStatsFile = "proc/net/stat/nf_conntrack"
	// mostFlows bounds what is kept of the connection tracking table, in bytes.
	mostFlows = 8 << 20
)

// frontends are where Services of the node are asked for, as far as its own
// rules tell: what decides which connections are kept.
type frontends struct {
	at        map[netip.AddrPort]bool
	nodePorts map[uint16]bool
	own       map[netip.Addr]bool
}

func (f frontends) none() bool { return len(f.at)+len(f.nodePorts) == 0 }

var (
	ruleDest = lazyregexp.New(` -d ([0-9a-f.:]+)/(?:32|128) `)
	rulePort = lazyregexp.New(` --dport ([0-9]+)\b`)
	// Elements of nft maps and sets, in JSON and as text.
	nftAddr     = lazyregexp.New(`"concat":\s*\[\s*"([0-9a-f.:]+)",\s*"(?:tcp|udp|sctp)",\s*([0-9]+)\s*\]`)
	nftPort     = lazyregexp.New(`"concat":\s*\[\s*"(?:tcp|udp|sctp)",\s*([0-9]+)\s*\]`)
	nftAddrText = lazyregexp.New(`([0-9a-f.:]+) \. (?:tcp|udp|sctp) \. ([0-9]+)\b`)
	nftPortText = lazyregexp.New(`[{,]\s*(?:tcp|udp|sctp) \. ([0-9]+) `)
	virtualLine = lazyregexp.New(`(?m)^(?:TCP|UDP|SCTP) +(\[[0-9a-fA-F:]+\]|[0-9A-F]{8}):([0-9A-F]{4}) `)
)

// frontendsOf looks through the node's rules of kube-proxy, and its virtual
// servers.
func (m Machine) frontendsOf(texts []snapshot.Text) frontends {
	f := frontends{at: map[netip.AddrPort]bool{}, nodePorts: map[uint16]bool{}}
	for _, t := range texts {
		switch t.Kind {
		case snapshot.IptablesSave, snapshot.Ip6tablesSave, snapshot.IptablesLegacySave, snapshot.Ip6tablesLegacySave:
			f.ofIptables(t.Content)
		case snapshot.NftRuleset:
			if strings.Contains(t.Content, "kube-proxy") {
				f.ofNft(t.Content)
			}
		case snapshot.IPAddr:
			f.own = Addresses(t.Content)
		}
	}
	if content, err := m.readFile(virtualServersFile); err == nil {
		f.ofVirtualServers(content)
	}
	return f
}

func (f frontends) ofIptables(rules string) {
	for line := range strings.Lines(rules) {
		i := strings.Index(line, "-A KUBE-")
		if i < 0 {
			continue
		}
		port := rulePort.FindStringSubmatch(line[i:])
		if port == nil {
			continue
		}
		if dest := ruleDest.FindStringSubmatch(line[i:]); dest != nil {
			f.add(dest[1], port[1], 10)
		} else {
			f.add("", port[1], 10)
		}
	}
}

func (f frontends) ofNft(table string) {
	for _, re := range []*lazyregexp.Regexp{nftAddr, nftAddrText} {
		for _, m := range re.FindAllStringSubmatch(table, -1) {
			f.add(m[1], m[2], 10)
		}
	}
	for _, re := range []*lazyregexp.Regexp{nftPort, nftPortText} {
		for _, m := range re.FindAllStringSubmatch(table, -1) {
			f.add("", m[1], 10)
		}
	}
}

// ofVirtualServers reads /proc/net/ip_vs, which has addresses and ports in
// hexadecimal.
func (f frontends) ofVirtualServers(content string) {
	for _, m := range virtualLine.FindAllStringSubmatch(content, -1) {
		addr := strings.Trim(m[1], "[]")
		if b, err := hex.DecodeString(addr); err == nil && len(b) == 4 {
			addr = netip.AddrFrom4([4]byte(b)).String()
		}
		f.add(addr, m[2], 16)
	}
}

// add takes a frontend; an empty address is any of the node's own.
func (f frontends) add(addr, port string, base int) {
	n, err := strconv.ParseUint(port, base, 16)
	if err != nil || n == 0 {
		return
	}
	if addr == "" {
		f.nodePorts[uint16(n)] = true
		return
	}
	if a, err := netip.ParseAddr(addr); err == nil {
		f.at[netip.AddrPortFrom(a.Unmap(), uint16(n))] = true
	}
}

// has says whether a connection's first destination is a frontend.
func (f frontends) has(dst netip.AddrPort) bool {
	return f.at[dst] || f.nodePorts[dst.Port()] && (f.own[dst.Addr()] || dst.Addr().IsLoopback())
}

// flows reads the connections that go to Services, and the table's counters.
// All others are left out: whom a node talks to besides is nobody's business.
// What counts is the destination before any rewriting, compared with the
// addresses and node ports in kube-proxy's own rules on this node.
//
// The table is read from /proc, which loads nothing.
func (m Machine) flows(texts []snapshot.Text) []snapshot.Text {
	stats := m.whole(snapshot.ConntrackStat, flowStatsFile)
	t := snapshot.Text{Kind: snapshot.Conntrack, Ref: "/" + flowsFile, Status: snapshot.Failed, Supply: rerun}
	f := m.frontendsOf(texts)
	if f.none() {
		t.Why = "not read: no rules of kube-proxy were found, which would tell which connections are to Services"
		return []snapshot.Text{t, stats}
	}
	file, err := m.FS.Open(flowsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// conntrack -L would load nf_conntrack_netlink, so it is not run.
		t.Why, t.Supply = "the kernel has no such file", "sudo conntrack -L > FILE   (then: --node-state FILE)"
		return []snapshot.Text{t, stats}
	case err != nil:
		return []snapshot.Text{m.unreadable(snapshot.Conntrack, flowsFile, err), stats}
	}
	defer file.Close()
	t.Status, t.Supply = snapshot.Done, ""
	if t.Content, t.Why, err = f.keep(file); err != nil {
		t.Status, t.Why, t.Supply = snapshot.Failed, err.Error(), rerun
	}
	return []snapshot.Text{t, stats}
}

// keep reads a table's lines and keeps those of connections to frontends.
func (f frontends) keep(r io.Reader) (content, why string, err error) {
	var b strings.Builder
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line := sc.Bytes()
		dst, ok := firstDestination(line)
		if !ok || !f.has(dst) {
			continue
		}
		if b.Len()+len(line) > mostFlows {
			return b.String(), fmt.Sprintf("only the first %d MiB of the connections to Services are kept", mostFlows>>20), nil
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String(), "", sc.Err()
}

// firstDestination is the destination of a connection as its first packet had
// it: the first dst= and dport= of the line.
func firstDestination(line []byte) (netip.AddrPort, bool) {
	var addr netip.Addr
	for word := range strings.FieldsSeq(string(line)) {
		if a, ok := strings.CutPrefix(word, "dst="); ok && !addr.IsValid() {
			parsed, err := netip.ParseAddr(a)
			if err != nil {
				return netip.AddrPort{}, false
			}
			addr = parsed.Unmap()
		}
		if p, ok := strings.CutPrefix(word, "dport="); ok && addr.IsValid() {
			n, err := strconv.ParseUint(p, 10, 16)
			return netip.AddrPortFrom(addr, uint16(n)), err == nil
		}
	}
	return netip.AddrPort{}, false
}

// whole reads a file as a Text.
func (m Machine) whole(kind snapshot.TextKind, name string) snapshot.Text {
	content, err := m.readFile(name)
	if err != nil {
		return m.unreadable(kind, name, err)
	}
	return snapshot.Text{Kind: kind, Ref: "/" + name, Status: snapshot.Done, Content: content}
}

// builtinModules are the parts for networks that are built into the kernel:
// they are missing from /proc/modules, and not missing.
func (m Machine) builtinModules() snapshot.Text {
	release, err := m.readFile("proc/sys/kernel/osrelease")
	if err != nil {
		return m.unreadable(snapshot.ModulesBuiltin, "proc/sys/kernel/osrelease", err)
	}
	t := m.whole(snapshot.ModulesBuiltin, "lib/modules/"+strings.TrimSpace(release)+"/modules.builtin")
	var keep []string
	for line := range strings.Lines(t.Content) {
		if strings.Contains(line, "/net/") {
			keep = append(keep, line)
		}
	}
	if t.Content != "" {
		slices.Sort(keep)
		t.Content = strings.Join(keep, "")
	}
	return t
}
