//go:build linux

package netfilter_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
)

// TestPackets loads what kube-proxy's own rule generators wrote into kernels
// of their own (a network namespace for each load), makes the connections that
// its tests only trace, and compares what became of each with what Walk says
// of it: the connection's tracked tuple, the refusal, or the drop.
//
// The rules of iptables mode are loaded with the legacy and the nft tools in
// turn, file by file. Every file and every flow is in it: the flows that the
// file records, or where it has none, a packet to each address of its
// Services.
func TestPackets(t *testing.T) {
	files := packetFiles(t)
	pool := make(chan *wires, 4)
	for i := range min(cap(pool), runtime.GOMAXPROCS(0)) {
		pool <- newWires(t, i, files)
	}
	host := hostRules()
	c := counts{}
	var mu sync.Mutex
	t.Run("rules", func(t *testing.T) {
		for i, f := range files {
			tool := "nft"
			if f.Mode == "iptables" {
				tool = []string{"iptables-legacy", "iptables-nft"}[i%2]
			}
			t.Run(f.Name+"/"+tool, func(t *testing.T) {
				t.Parallel()
				w := <-pool
				t.Cleanup(func() { pool <- w })
				n := f.run(t, w, tool)
				mu.Lock()
				defer mu.Unlock()
				c.add(tool, n)
			})
		}
	})
	if now := hostRules(); now != host {
		t.Errorf("the host's own rules are not what they were before\n%s\nnow\n%s", host, now)
	}
	t.Log(c.table())
	if c["nft"].files+c["iptables-nft"].files+c["iptables-legacy"].files < len(files) {
		return // some were not asked for, or failed
	}
	if nft, ipt := c["nft"].recorded, c["iptables-nft"].recorded+c["iptables-legacy"].recorded; nft != 218 || ipt != 246 {
		t.Errorf("%d of kube-proxy's flows of nftables mode were connected and %d of iptables mode, want 218 and 246", nft, ipt)
	}
}

// run loads the file's rules and sends its flows.
func (f *packetFile) run(t *testing.T, w *wires, tool string) count {
	text := f.Text(t, forms[tool])
	n := w.node(t, f)
	rulesets := map[string]*netfilter.Ruleset{
		"the file":   f.parse(t, tool, text),
		"the kernel": f.parse(t, tool, n.load(t, f, tool, text)),
	}
	c := count{files: 1}
	for _, flow := range f.packets(t) {
		n.compare(t, &c, rulesets, flow)
	}
	n.proveRefusals(t)
	return c
}

// forms are the forms of the file's rules that the tools load.
var forms = map[string]string{"nft": "nftList", "iptables-legacy": "legacySave", "iptables-nft": "nftSave"}

func (f *packetFile) parse(t *testing.T, tool, text string) *netfilter.Ruleset {
	t.Helper()
	if tool == "nft" {
		rs, problems, err := nftables.Parse(text, nftables.Options{Source: f.Name, Whole: true, Strict: true})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v %v\n%s", err, problems, text)
		}
		return rs
	}
	// iptables-save names no family where nothing tells it.
	family := netfilter.IPv4
	if f.v6() {
		family = netfilter.IPv6
	}
	rs, problems, err := iptables.Parse(text, iptables.Options{Source: f.Name, Whole: true, Strict: true, Family: family})
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v %v\n%s", err, problems, text)
	}
	return rs
}

// compare sends a flow's packet until every way in which Walk says that it may
// end has been seen, and no other one was.
func (n *packetNode) compare(t *testing.T, c *count, rulesets map[string]*netfilter.Ruleset, f packetFlow) {
	t.Helper()
	where := fmt.Sprintf("%q %s %s -> %s", f.name, f.proto, f.src, f.dst)
	local, undo := n.place(t, f)
	defer undo()
	want, outcomes := n.foretold(t, rulesets, f, local)
	if len(want) == 0 {
		t.Errorf("%s: the walk says nothing", where)
		return
	}
	affinity := slices.ContainsFunc(outcomes, remembered)
	got := map[fate]int{}
	for try := range 1 + 25*(len(want)-1) {
		if affinity {
			n.forget(t)
		}
		got[n.send(t, f, local, n.w.port())]++
		if len(got) >= len(want) && try >= 2*(len(want)-1) {
			break
		}
	}
	for s := range got {
		if !want[s] {
			t.Errorf("%s: the kernel does %v, the walk says %v\n%s", where, got, want, describe(outcomes))
			return
		}
	}
	if len(got) < len(want) {
		t.Errorf("%s: of %v the kernel only does %v, in %d tries\n%s", where, want, got, sum(got), describe(outcomes))
		return
	}
	if affinity {
		n.sticks(t, f, local, where)
		c.affinity++
	}
	c.tell(f, got)
	if d := f.differs(got); d != "" {
		t.Errorf("%s: %s", where, d)
	}
}

// foretold is what Walk says of the packet, the same by every ruleset.
func (n *packetNode) foretold(t *testing.T, rulesets map[string]*netfilter.Ruleset, f packetFlow, local bool) (map[fate]bool, []netfilter.Outcome) {
	t.Helper()
	p := netfilter.Packet{Src: f.src, Dst: f.dst.Addr(), DstPort: f.dst.Port(), Protocol: f.proto, LocalProcess: local}
	if !local {
		p.In = wireIn.name
	}
	var want map[fate]bool
	var outcomes []netfilter.Outcome
	for source, rs := range rulesets {
		os := netfilter.Walk(rs, n.host(), p)
		w := map[fate]bool{}
		for _, o := range os {
			w[fateOf(t, o)] = true
		}
		if want != nil && !sameFates(w, want) {
			t.Errorf("%q: by %s the walk says %v, else %v", f.name, source, w, want)
		}
		want, outcomes = w, os
	}
	return want, outcomes
}

// remembered says whether the rules of an outcome's way keep in mind whom they
// sent where.
func remembered(o netfilter.Outcome) bool {
	return slices.ContainsFunc(o.Steps, func(s netfilter.Step) bool {
		return strings.Contains(s.Text, "-m recent --set") || strings.Contains(s.Text, "update @affinity-")
	})
}

// sticks checks that a client with a history stays where it was.
func (n *packetNode) sticks(t *testing.T, f packetFlow, local bool, where string) {
	t.Helper()
	n.forget(t)
	first := n.send(t, f, local, n.w.port())
	for range 3 {
		if next := n.send(t, f, local, n.w.port()); next != first {
			t.Errorf("%s: with session affinity %v came after %v", where, next, first)
		}
	}
}

// fate is what became of a packet.
type fate struct {
	verdict netfilter.Verdict
	// to is where a packet that got through went, masq whether its source was
	// rewritten on the way.
	to   netip.AddrPort
	masq bool
	// with is the kind of the refusal.
	with string
}

func (s fate) String() string {
	switch {
	case s.verdict == netfilter.Reject:
		return "reject with " + s.with
	case s.masq:
		return fmt.Sprintf("%s %s masqueraded", s.verdict, s.to)
	case s.verdict == netfilter.Drop:
		return "drop"
	}
	return fmt.Sprintf("%s %s", s.verdict, s.to)
}

// fateOf is what a client sees of an outcome. A packet that passes looks the
// same whether or not a rule spoke of it.
func fateOf(t *testing.T, o netfilter.Outcome) fate {
	t.Helper()
	switch o.Verdict {
	case netfilter.Drop:
		return fate{verdict: netfilter.Drop}
	case netfilter.Reject:
		return fate{verdict: netfilter.Reject, with: strings.TrimPrefix(strings.TrimPrefix(o.RejectWith, "icmp6-"), "icmp-")}
	case netfilter.Undecided:
		t.Errorf("the walk can't tell:\n%s", describe([]netfilter.Outcome{o}))
		return fate{verdict: netfilter.Undecided}
	}
	if o.Masquerade == netfilter.Unknown {
		t.Errorf("the walk can't tell whether it is masqueraded:\n%s", describe([]netfilter.Outcome{o}))
	}
	s := fate{verdict: netfilter.Accept, to: o.To, masq: o.Masquerade == netfilter.True}
	if o.Rewritten {
		s.verdict = netfilter.DNAT
	}
	return s
}

func sameFates(a, b map[fate]bool) bool {
	for s := range a {
		if !b[s] {
			return false
		}
	}
	return len(a) == len(b)
}

func sum(m map[fate]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// count is what was done with one tool.
type count struct {
	files, flows, packets      int
	dnat, accept, reject, drop int
	// v6 are flows of IPv6, several those with more than one backend.
	masqueraded, v6, several, affinity int
	// recorded are flows that kube-proxy's tracer speaks of: the kernel does in
	// each what that says.
	recorded int
}

func (c *count) tell(f packetFlow, got map[fate]int) {
	c.flows++
	c.packets += sum(got)
	if len(got) > 1 {
		c.several++
	}
	if f.src.Is6() {
		c.v6++
	}
	if f.recorded {
		c.recorded++
	}
	for s := range got {
		switch s.verdict {
		case netfilter.DNAT:
			c.dnat++
		case netfilter.Accept:
			c.accept++
		case netfilter.Reject:
			c.reject++
		case netfilter.Drop:
			c.drop++
		}
		if s.masq {
			c.masqueraded++
		}
		break // all ways of one flow are of one kind
	}
}

type counts map[string]count

func (c counts) add(tool string, n count) {
	all := c[tool]
	for _, p := range []struct{ to, from *int }{
		{&all.files, &n.files}, {&all.flows, &n.flows}, {&all.packets, &n.packets}, {&all.dnat, &n.dnat}, {&all.accept, &n.accept},
		{&all.reject, &n.reject}, {&all.drop, &n.drop}, {&all.masqueraded, &n.masqueraded}, {&all.v6, &n.v6}, {&all.several, &n.several},
		{&all.affinity, &n.affinity}, {&all.recorded, &n.recorded},
	} {
		*p.to += *p.from
	}
	c[tool] = all
}

func (c counts) table() string {
	var b strings.Builder
	for _, tool := range []string{"iptables-legacy", "iptables-nft", "nft"} {
		n := c[tool]
		fmt.Fprintf(&b, "\n%-15s %3d loads, %3d flows connected (%d packets): %d dnat (%d masqueraded), %d reject, %d drop, %d untouched; %d with several backends, all seen; %d with session affinity; %d IPv6; %d of kube-proxy's own flows",
			tool, n.files, n.flows, n.packets, n.dnat, n.masqueraded, n.reject, n.drop, n.accept, n.several, n.affinity, n.v6, n.recorded)
	}
	return b.String()
}

// packetFiles are the oracle's files of rules, in their order.
func packetFiles(t *testing.T) []*packetFile {
	var out []*packetFile
	for _, f := range append(oracletest.Files(t, "iptables", "*", 68), oracletest.Files(t, "nftables", "*", 59)...) {
		out = append(out, &packetFile{f})
	}
	return out
}
