//go:build linux

package netfilter_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
)

// The bench: a client, a node that forwards and holds the rules, and a
// machine with the two backends.
var (
	clientIP = netip.MustParseAddr("10.91.1.2")
	nodeIPs  = []netip.Addr{netip.MustParseAddr("10.91.1.1"), netip.MustParseAddr("10.91.2.1")}
)

// dropAfter is how long a connection may take before it counts as dropped.
const dropAfter = 300 * time.Millisecond

type kernelFlow struct {
	name string
	// local: from a process on the node, not from the client.
	local bool
	to    string
	// tries is how often to connect at most, where the ruleset chooses at
	// random.
	tries int
}

// TestKernel makes real connections through real kernels' rules and compares
// where they end with what Walk says.
func TestKernel(t *testing.T) {
	b := newBench(t)
	services := []kernelFlow{
		{"random backends", false, "10.91.96.10:80", 40},
		{"goto, multiport", false, "10.91.96.11:8050", 1},
		{"to the node itself", false, "10.91.96.12:80", 1},
		{"redirect", false, "10.91.96.13:80", 1},
		{"node port, masqueraded", false, "10.91.1.1:30080", 1},
		{"rejected", false, "10.91.96.20:80", 1},
		{"dropped", false, "10.91.96.21:80", 1},
		{"dropped in INPUT", false, "10.91.1.1:9091", 1},
		{"untouched", false, "10.91.2.2:8080", 1},
		{"node's own, backends", true, "10.91.96.10:80", 40},
		{"node's own, to itself", true, "10.91.96.12:80", 1},
		{"node's own, rejected", true, "10.91.96.20:80", 1},
	}
	forwardDrop := []kernelFlow{
		{"policy DROP after DNAT", false, "10.91.96.10:80", 1},
		{"accepted by original destination", false, "10.91.96.11:80", 1},
		{"policy DROP without DNAT", false, "10.91.2.3:8080", 1},
		{"node's own, not forwarded", true, "10.91.96.10:80", 1},
	}
	for _, backend := range []string{"legacy", "nft"} {
		b.run(t, backend+"/services", []string{backend, "services"}, services)
		b.run(t, backend+"/forward-drop", []string{backend, "forward-drop"}, forwardDrop)
	}
	b.run(t, "legacy and nft", []string{"legacy", "services", "nft", "nft-forward-drop"}, []kernelFlow{
		{"one of two backends dropped by the other tool's rules", false, "10.91.96.10:80", 40},
		{"the other one", false, "10.91.96.11:443", 1},
	})
}

// bench is the three namespaces.
type bench struct {
	client, node, backends string
	in, out                string // the node's interfaces towards the client and the backends
}

func newBench(t *testing.T) *bench {
	if os.Getuid() != 0 {
		t.Skip("not root: network namespaces can't be made")
	}
	for _, tool := range []string{"ip", "iptables-legacy-restore", "iptables-legacy-save", "iptables-nft-restore", "iptables-nft-save", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s on this machine", tool)
		}
	}
	id := fmt.Sprint(os.Getpid())
	b := &bench{"nfc" + id, "nfn" + id, "nfb" + id, "na" + id, "nb" + id}
	for _, ns := range []string{b.client, b.node, b.backends} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("network namespaces can't be made here: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
		b.ip(t, "-n", ns, "link", "set", "lo", "up")
	}
	b.wire(t, b.client, "10.91.1.2/24", "10.91.1.1/24", "a"+id)
	b.wire(t, b.backends, "10.91.2.2/24", "10.91.2.1/24", "b"+id)
	b.ip(t, "-n", b.backends, "addr", "add", "10.91.2.3/24", "dev", "b"+id)
	b.ip(t, "-n", b.client, "route", "add", "default", "via", "10.91.1.1")
	b.ip(t, "-n", b.backends, "route", "add", "default", "via", "10.91.2.1")
	// A route to the service addresses, so that they reach the rules at all.
	b.ip(t, "-n", b.node, "route", "add", "10.91.96.0/24", "via", "10.91.2.2")
	b.command(t, nil, "ip", "netns", "exec", b.node, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	b.serve(t, b.backends, "10.91.2.2:8080")
	b.serve(t, b.backends, "10.91.2.3:8080")
	b.serve(t, b.node, "0.0.0.0:9090")
	b.serve(t, b.node, "0.0.0.0:9091")
	return b
}

// wire connects a namespace to the node.
func (b *bench) wire(t *testing.T, ns, addr, nodeAddr, link string) {
	b.ip(t, "link", "add", link, "netns", ns, "type", "veth", "peer", "name", "n"+link, "netns", b.node)
	b.ip(t, "-n", ns, "addr", "add", addr, "dev", link)
	b.ip(t, "-n", ns, "link", "set", link, "up")
	b.ip(t, "-n", b.node, "addr", "add", nodeAddr, "dev", "n"+link)
	b.ip(t, "-n", b.node, "link", "set", "n"+link, "up")
}

func (b *bench) ip(t *testing.T, args ...string) { b.command(t, nil, "ip", args...) }

func (b *bench) command(t *testing.T, in io.Reader, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = in
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inside runs f on a thread in the namespace; sockets made there stay there.
func inside(ns string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open(filepath.Join("/run/netns", ns))
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			file.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// serve answers each connection with the server's and the client's address.
func (b *bench) serve(t *testing.T, ns, addr string) {
	t.Helper()
	var l net.Listener
	err := inside(ns, func() (err error) {
		l, err = net.Listen("tcp4", addr)
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s\n", c.LocalAddr(), c.RemoteAddr())
			c.Close()
		}
	}()
}

// seen is what became of a connection: which server answered, and whether it
// saw the client's own address; or how it failed.
type seen struct {
	verdict netfilter.Verdict
	server  string
	masq    bool
}

func (b *bench) connect(f kernelFlow) (seen, error) {
	ns := b.client
	if f.local {
		ns = b.node
	}
	var s seen
	err := inside(ns, func() error {
		c, err := net.DialTimeout("tcp4", f.to, dropAfter)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH): // the latter for admin-prohibited
			s.verdict = netfilter.Reject
			return nil
		case os.IsTimeout(err):
			s.verdict = netfilter.Drop
			return nil
		case err != nil:
			return err
		}
		defer c.Close()
		var server, client string
		if _, err := fmt.Fscan(c, &server, &client); err != nil {
			return err
		}
		s.verdict, s.server = netfilter.DNAT, server
		s.masq = client != c.LocalAddr().String()
		return nil
	})
	return s, err
}

// run loads rulesets (pairs of backend and name) into the node, makes the
// connections, and walks the same packets through what the kernel gives back.
func (b *bench) run(t *testing.T, name string, load []string, flows []kernelFlow) {
	t.Run(name, func(t *testing.T) {
		var parts []*netfilter.Ruleset
		for i := 0; i < len(load); i += 2 {
			parts = append(parts, b.load(t, load[i], load[i+1]))
		}
		defer b.flush(t)
		rs := netfilter.Merge(parts...)
		for _, f := range flows {
			t.Run(f.name, func(t *testing.T) { b.compare(t, rs, f) })
		}
	})
}

func (b *bench) load(t *testing.T, backend, file string) *netfilter.Ruleset {
	t.Helper()
	rules, err := os.Open(filepath.Join("testdata", "kernel", file+".rules"))
	if err != nil {
		t.Fatal(err)
	}
	defer rules.Close()
	b.command(t, rules, "ip", "netns", "exec", b.node, "iptables-"+backend+"-restore")
	text := b.command(t, nil, "ip", "netns", "exec", b.node, "iptables-"+backend+"-save", "-c")
	rs, problems, err := iptables.Parse(text, iptables.Options{Source: backend, Backend: netfilter.Backend(backend), Whole: true, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Kind != iptables.LegacyPresent {
			t.Errorf("%s", p)
		}
	}
	return rs
}

// flush empties both backends.
func (b *bench) flush(t *testing.T) {
	const empty = "*nat\n:PREROUTING ACCEPT\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\nCOMMIT\n*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n"
	for _, backend := range []string{"legacy", "nft"} {
		b.command(t, strings.NewReader(empty), "ip", "netns", "exec", b.node, "iptables-"+backend+"-restore")
	}
}

// walk walks the flow's packet through rules.
func (b *bench) walk(rs *netfilter.Ruleset, f kernelFlow) []netfilter.Outcome {
	to := netip.MustParseAddrPort(f.to)
	p := netfilter.Packet{Src: clientIP, Dst: to.Addr(), DstPort: to.Port(), Protocol: netfilter.TCP, LocalProcess: f.local, In: b.in}
	if f.local {
		p.Src = nodeIPs[1]
	}
	return netfilter.Walk(rs, &netfilter.StaticHost{
		Complete: true, Forward4: netfilter.True,
		Links: []netfilter.Link{
			{Name: b.in, Addrs: []netip.Prefix{netip.PrefixFrom(nodeIPs[0], 24)}},
			{Name: b.out, Addrs: []netip.Prefix{netip.PrefixFrom(nodeIPs[1], 24)}},
		},
		Routes: []netfilter.StaticRoute{{To: netip.MustParsePrefix("10.91.96.0/24"), Iface: b.out}},
	}, p)
}

func (b *bench) compare(t *testing.T, rs *netfilter.Ruleset, f kernelFlow) {
	outcomes := b.walk(rs, f)
	want := map[seen]bool{}
	for _, o := range outcomes {
		want[expected(o)] = true
	}
	got := map[seen]bool{}
	for i := range f.tries {
		s, err := b.connect(f)
		if err != nil {
			t.Fatalf("connect to %s: %v", f.to, err)
		}
		if f.local {
			s.masq = false // the node's address is the source either way
		}
		got[s] = true
		if i >= 3 && len(got) >= len(want) {
			break // every way was seen
		}
	}
	if f.local {
		local := map[seen]bool{}
		for s := range want {
			s.masq = false
			local[s] = true
		}
		want = local
	}
	if !same(got, want) {
		t.Errorf("to %s the kernel does %v, the walk says %v\n%s", f.to, got, want, describe(outcomes))
	}
}

// expected is what a client sees of an outcome.
func expected(o netfilter.Outcome) seen {
	s := seen{verdict: o.Verdict}
	switch o.Verdict {
	case netfilter.DNAT, netfilter.Accept, netfilter.None:
		s.verdict = netfilter.DNAT
		s.server, s.masq = o.To.String(), o.Masquerade == netfilter.True
		if !o.To.Addr().IsValid() { // REDIRECT: to the interface's own address
			s.server = netip.AddrPortFrom(nodeIPs[0], o.To.Port()).String()
		}
	}
	return s
}

func same(a, b map[seen]bool) bool {
	for s := range a {
		if !b[s] {
			return false
		}
	}
	return len(a) == len(b)
}

func describe(outcomes []netfilter.Outcome) string {
	var b strings.Builder
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%s to %s p=%.3f masquerade %s at %s\n", o.Verdict, o.To, o.Probability, o.Masquerade, o.Hook)
		for _, s := range o.Steps {
			fmt.Fprintf(&b, "  %s:%d %s/%s %s\n", s.Source, s.Line, s.Table, s.Chain, s.Text)
		}
		for _, u := range o.Unknowns {
			fmt.Fprintf(&b, "  ? %s:%d %s/%s %s: %s\n", u.Source, u.Line, u.Table, u.Chain, u.Text, u.Why)
		}
	}
	return b.String()
}
