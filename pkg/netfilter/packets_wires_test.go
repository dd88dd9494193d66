//go:build linux

package netfilter_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// wires is what a node is put between: a namespace of clients, that sends from
// any address, and one of everything else. Both take packets to any address,
// and answer on every port that a flow may end at.
type wires struct {
	id              string
	clients, others string
	at              string // the namespace that has the node's ends
	ports           []uint16
	nodes           int
	lastPort        uint16
}

// wire is an interface of the node, its addresses, and those of the other end.
type wire struct {
	name, there    string
	v4, v6         netip.Prefix
	there4, there6 netip.Prefix
}

// Where packets come in, and where they leave by: networks that no rule speaks
// of (RFC 2544, RFC 4193).
var (
	wireIn  = newWire("in", "c", 1)
	wireOut = newWire("out", "o", 2)
)

func newWire(name, there string, n int) wire {
	p := func(format string) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf(format, n)) }
	return wire{name, there, p("198.18.%d.1/24"), p("fd99:%d::1/64"), p("198.18.%d.2/24"), p("fd99:%d::2/64")}
}

// Ports that connections are made from; no flow goes to one of them.
const firstPort, lastPort = 20000, 28999

// newWires makes the i-th wires of this process.
func newWires(t *testing.T, i int, files []*packetFile) *wires {
	if os.Getuid() != 0 {
		t.Skip("not root: network namespaces can't be made")
	}
	for _, tool := range []string{"ip", "nft", "iptables-legacy-restore", "iptables-legacy-save", "ip6tables-legacy-restore", "iptables-nft-restore", "iptables-nft-save", "ip6tables-nft-restore"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s on this machine", tool)
		}
	}
	id := fmt.Sprintf("%d-%d", os.Getpid(), i)
	w := &wires{id: id, clients: "nfpc" + id, others: "nfpo" + id, lastPort: firstPort}
	for _, ns := range []string{w.clients, w.others} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("network namespaces can't be made here: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
		w.quiet(t, ns)
	}
	if err := inside(w.clients, func() error { _, err := os.Stat(conntrackFile); return err }); err != nil {
		t.Skipf("this kernel does not list connections: %v", err)
	}
	for _, f := range files {
		w.ports = append(w.ports, f.ports(t)...)
	}
	slices.Sort(w.ports)
	w.ports = slices.Compact(w.ports)
	w.at = w.clients
	t.Cleanup(func() { removeNamespace(w.at) })
	w.end(t, w.clients, wireIn, w.at)
	w.end(t, w.others, wireOut, w.at)
	return w
}

// end makes a wire that ends in a namespace where what comes in is for the
// machine itself, whatever its address.
func (w *wires) end(t *testing.T, ns string, l wire, other string) {
	w.batch(t, ns, "link add "+l.there+" type veth peer name "+l.name+" netns "+other,
		fmt.Sprintf("addr add %s dev %s", l.there4, l.there), fmt.Sprintf("addr add %s dev %s nodad", l.there6, l.there), "link set "+l.there+" up",
		"route add default via "+l.v4.Addr().String(), "route add ::/0 via "+l.v6.Addr().String(),
		"rule add iif "+l.there+" lookup 100", "route add local 0.0.0.0/0 dev lo table 100", "route add local ::/0 dev lo table 100")
	w.command(t, ns, "", "ip", "-6", "rule", "add", "iif", l.there, "lookup", "100")
	w.serve(t, ns, w.ports)
}

// quiet readies a namespace: no waiting for other owners of an address, no
// filter of sources, no limit to errors.
func (w *wires) quiet(t *testing.T, ns string) {
	t.Helper()
	err := inside(ns, func() error {
		for name, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
			"ipv4/conf/all/route_localnet": "1", "ipv4/conf/all/send_redirects": "0", "ipv4/conf/default/send_redirects": "0",
			"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0", "ipv4/icmp_ratelimit": "0", "ipv6/icmp/ratelimit": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("set up %s: %v", ns, err)
	}
	w.batch(t, ns, "link set lo up")
}

// command runs a program in a namespace.
func (w *wires) command(t *testing.T, ns, stdin, name string, args ...string) string {
	t.Helper()
	var out []byte
	err := inside(ns, func() (err error) {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		var errs strings.Builder
		cmd.Stderr = &errs
		if out, err = cmd.Output(); err != nil {
			err = fmt.Errorf("%w: %s", err, errs.String())
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stdin)
	}
	return string(out)
}

// batch gives ip its commands, in a namespace.
func (w *wires) batch(t *testing.T, ns string, lines ...string) {
	t.Helper()
	w.command(t, ns, strings.Join(lines, "\n")+"\n", "ip", "-batch", "-")
}

// serve answers each connection with the server's and the client's address.
func (w *wires) serve(t *testing.T, ns string, ports []uint16) {
	t.Helper()
	for _, port := range ports {
		var l net.Listener
		err := inside(ns, func() (err error) {
			l, err = listenAsAny.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
			return err
		})
		if err != nil {
			t.Fatalf("listen on port %d: %v", port, err)
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
}

// listenAsAny makes listeners that may answer from addresses that are not the
// machine's own.
var listenAsAny = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) }); failed != nil {
		return failed
	}
	return err
}}

// port is one to connect from that no connection has had.
func (w *wires) port() uint16 {
	w.lastPort++
	if w.lastPort > lastPort {
		w.lastPort = firstPort
	}
	return w.lastPort
}

var ruleCounters = regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+|(?m:^#.*$)`)

// hostRules are all rules outside of the namespaces, without their counters.
// Reading them loads no module and makes no table.
func hostRules() string {
	var b bytes.Buffer
	for _, argv := range [][]string{{"nft", "list", "ruleset"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}} {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		fmt.Fprintf(&b, "%s %v\n%s\n", argv, err, out)
	}
	return ruleCounters.ReplaceAllString(b.String(), "")
}

// packetNode is the namespace that one file's rules are loaded into.
type packetNode struct {
	w    *wires
	ns   string
	own  []netip.Addr // its addresses besides those of its wires
	from []netip.Addr // of the clients
	// affinity are the sets of its rules that hold session affinity, as
	// "family table name"; recent says that -m recent does.
	affinity []string
	recent   bool
	// refused are the ports from which packets were turned away by an error.
	refused []uint16
}

// node makes a namespace that has no rules yet, between the wires.
func (w *wires) node(t *testing.T, f *packetFile) *packetNode {
	w.nodes++
	n := &packetNode{w: w, ns: fmt.Sprintf("nfpn%s-%d", w.id, w.nodes), own: f.addresses()}
	if err := makeNamespace(n.ns); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() {
		if w.at != n.ns {
			removeNamespace(n.ns)
		}
	})
	n.isFresh(t)
	w.quiet(t, n.ns)
	// The wires come from the node before; its namespace then goes.
	before := w.at
	w.batch(t, before, "link set in netns "+n.ns, "link set out netns "+n.ns)
	w.at = n.ns
	t.Cleanup(func() {
		if before != w.clients {
			removeNamespace(before)
		}
	})
	var lines []string
	for _, l := range []wire{wireIn, wireOut} {
		lines = append(lines, fmt.Sprintf("addr add %s dev %s", l.v4, l.name), fmt.Sprintf("addr add %s dev %s nodad", l.v6, l.name), "link set "+l.name+" up")
	}
	lines = append(lines, "route add default via "+wireOut.there4.Addr().String(), "route add ::/0 via "+wireOut.there6.Addr().String())
	for _, a := range n.own {
		lines = append(lines, fmt.Sprintf("addr add %s dev lo", one(a)))
	}
	for _, flow := range f.packets(t) {
		if n.isOwn(flow.src) || flow.src == flow.dst.Addr() || slices.Contains(n.from, flow.src) {
			continue
		}
		n.from = append(n.from, flow.src)
		via := wireIn.there4
		if flow.src.Is6() {
			via = wireIn.there6
		}
		lines = append(lines, fmt.Sprintf("route add %s via %s", one(flow.src), via.Addr()))
	}
	w.batch(t, n.ns, lines...)
	w.serve(t, n.ns, f.ports(t))
	return n
}

// makeNamespace does what ip netns add does, in this process.
func makeNamespace(name string) error {
	path := filepath.Join("/run/netns", name)
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
		}
		done <- err
	}()
	return <-done
}

func removeNamespace(name string) {
	path := filepath.Join("/run/netns", name)
	if unix.Unmount(path, unix.MNT_DETACH) == nil {
		os.Remove(path)
	}
}

func one(a netip.Addr) string { return fmt.Sprintf("%s/%d", a, a.BitLen()) }

// isOwn says whether a packet from the address is sent by the node itself.
func (n *packetNode) isOwn(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(n.own, a) }

// isFresh makes sure that what is loaded next is loaded into a namespace other
// than the host's, in which there are no rules.
func (n *packetNode) isFresh(t *testing.T) {
	t.Helper()
	host, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	err = inside(n.ns, func() error {
		here, err := os.Stat("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		if os.SameFile(here, host) {
			return fmt.Errorf("%s is the host's own namespace", n.ns)
		}
		for _, name := range []string{"ip_tables_names", "ip6_tables_names"} {
			if b, err := os.ReadFile("/proc/thread-self/net/" + name); err != nil || len(b) > 0 {
				return fmt.Errorf("%s: %q (%v)", name, b, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("not a fresh namespace: %v", err)
	}
	if out := n.w.command(t, n.ns, "", "nft", "list", "ruleset"); out != "" {
		t.Fatalf("not a fresh namespace:\n%s", out)
	}
}

// noting notes the ports of our packets as they enter, ahead of all rules, and
// as they leave, behind all.
const noting = `table inet packets {
	set entered { type inet_service; size 65535; flags dynamic; }
	set left { type inet_service; size 65535; flags dynamic; }
	chain prerouting { type filter hook prerouting priority -500; meta l4proto { tcp, udp, sctp } th sport 20000-28999 add @entered { th sport }; }
	chain output { type filter hook output priority -500; meta l4proto { tcp, udp, sctp } th sport 20000-28999 add @entered { th sport }; }
	chain input { type filter hook input priority 500; meta l4proto { tcp, udp, sctp } ct original proto-src 20000-28999 add @left { ct original proto-src }; }
	chain postrouting { type filter hook postrouting priority 500; meta l4proto { tcp, udp, sctp } oifname != "lo" ct original proto-src 20000-28999 add @left { ct original proto-src }; }
}
`

// load gives the node its rules, and returns them as the kernel gives them
// back.
func (n *packetNode) load(t *testing.T, f *packetFile, tool, text string) string {
	t.Helper()
	var back string
	if tool == "nft" {
		n.w.command(t, n.ns, text, "nft", "-f", "-")
		back = n.w.command(t, n.ns, "", "nft", "list", "ruleset")
		family := "ip"
		if f.v6() {
			family = "ip6"
		}
		for _, m := range affinitySet.FindAllStringSubmatch(text, -1) {
			n.affinity = append(n.affinity, family+" kube-proxy "+m[1])
		}
	} else {
		n.recent = strings.Contains(text, "--rcheck")
		n.accounts(t, text)
		if f.v6() {
			tool = strings.Replace(tool, "iptables", "ip6tables", 1)
		}
		n.w.command(t, n.ns, text, tool+"-restore")
		back = n.w.command(t, n.ns, "", tool+"-save")
	}
	n.w.command(t, n.ns, noting, "nft", "-f", "-")
	return back
}

var affinitySet = regexp.MustCompile(`\tset (affinity-\S+) \{`)

// accounts makes the nfacct objects that rules name, without which the kernel
// does not take them.
func (n *packetNode) accounts(t *testing.T, text string) {
	t.Helper()
	names := map[string]bool{}
	for _, m := range nfacctName.FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	err := inside(n.ns, func() error {
		for name := range names {
			if err := makeAccount(name); err != nil {
				return fmt.Errorf("nfacct object %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var nfacctName = regexp.MustCompile(`--nfacct-name +(\S+)`)

// makeAccount makes an nfacct object: NFNL_MSG_ACCT_NEW (0) of the subsystem
// NFNL_SUBSYS_ACCT (7), with NFACCT_NAME (1), of linux/netfilter/nfnetlink_acct.h.
func makeAccount(name string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := append([]byte(name), 0)
	body := []byte{unix.AF_UNSPEC, 0, 0, 0} // struct nfgenmsg
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(attr)))
	body = binary.NativeEndian.AppendUint16(body, 1)
	body = append(body, attr...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, 7<<8)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	msg = binary.NativeEndian.AppendUint32(msg, 1)
	msg = binary.NativeEndian.AppendUint32(msg, 0)
	if err := unix.Sendto(fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	k, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return err
	}
	if k < unix.NLMSG_HDRLEN+4 {
		return fmt.Errorf("an answer of %d bytes", k)
	}
	if e := int32(binary.NativeEndian.Uint32(buf[unix.NLMSG_HDRLEN:])); e != 0 {
		return unix.Errno(-e)
	}
	return nil
}

// host is what Walk is told of the node.
func (n *packetNode) host() netfilter.Host {
	h := &netfilter.StaticHost{Complete: true, Forward4: netfilter.True, Forward6: netfilter.True, Addresses: n.own}
	for _, l := range []wire{wireIn, wireOut} {
		h.Links = append(h.Links, netfilter.Link{Name: l.name, Addrs: []netip.Prefix{l.v4, l.v6}})
	}
	for _, a := range n.from {
		h.Routes = append(h.Routes, netfilter.StaticRoute{To: netip.PrefixFrom(a, a.BitLen()), Iface: wireIn.name})
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		h.Routes = append(h.Routes, netfilter.StaticRoute{To: netip.MustParsePrefix(all), Iface: wireOut.name})
	}
	return h
}

// place says whether the flow's packet is the node's own. One from the address
// that it is for can be no other's: a node that has a load balancer's address
// on an interface sends it. The node has it for as long as the flow lasts.
func (n *packetNode) place(t *testing.T, f packetFlow) (local bool, undo func()) {
	if n.isOwn(f.src) {
		return true, func() {}
	}
	if f.src != f.dst.Addr() {
		return false, func() {}
	}
	n.w.batch(t, n.ns, fmt.Sprintf("addr add %s dev lo", one(f.src)))
	own := n.own
	n.own = append(slices.Clone(own), f.src)
	return true, func() {
		n.own = own
		n.w.batch(t, n.ns, fmt.Sprintf("addr del %s dev lo", one(f.src)))
	}
}

// forget empties what session affinity remembers, so that the next client is
// new.
func (n *packetNode) forget(t *testing.T) {
	t.Helper()
	if n.recent {
		err := inside(n.ns, func() error {
			lists, err := filepath.Glob("/proc/thread-self/net/xt_recent/*")
			if err != nil || len(lists) == 0 {
				return fmt.Errorf("no lists of -m recent (%v)", err)
			}
			for _, list := range lists {
				if err := os.WriteFile(list, []byte("/"), 0o600); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var flush strings.Builder
	for _, set := range n.affinity {
		flush.WriteString("flush set " + set + "\n")
	}
	if flush.Len() > 0 {
		n.w.command(t, n.ns, flush.String(), "nft", "-f", "-")
	}
}
