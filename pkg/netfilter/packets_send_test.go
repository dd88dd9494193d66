//go:build linux

package netfilter_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// conntrackFile lists the connections of the calling thread's namespace.
const conntrackFile = "/proc/thread-self/net/nf_conntrack"

// A packet's fate is looked for every pollFor milliseconds, at most polls
// times. Nothing is concluded from a time: a drop is a packet that was noted
// ahead of the rules and not behind them.
const pollFor, polls = 20, 250

// send makes the flow's connection and says what became of its first packet,
// by the node's list of connections: the kernel keeps one there once its
// packet has passed all hooks, with the addresses and ports of the reply.
func (n *packetNode) send(t *testing.T, f packetFlow, local bool, port uint16) fate {
	t.Helper()
	ns := n.w.clients
	if local {
		ns = n.ns
	}
	s := &sender{flow: f, port: port, local: local}
	defer s.close()
	if err := inside(ns, s.start); err != nil {
		t.Fatalf("%q: from %s to %s: %v", f.name, f.src, f.dst, err)
	}
	quiet := 0
	for range polls {
		s.poll(t)
		if got, ok := n.tracked(t, f, port); ok {
			if f.proto == netfilter.TCP && !got.replyTo.IsLoopback() {
				// A packet that left with a loopback source has no way back.
				if !s.connected {
					continue
				}
				n.holds(t, s, got)
			}
			return got.fate(f)
		}
		if s.err != nil {
			n.refused = append(n.refused, port)
			return fate{verdict: netfilter.Reject, with: refusal(s.err)}
		}
		if quiet++; quiet < 3 {
			continue // an answer may be under way
		}
		if entered, left := n.noted(t); entered[port] && !left[port] {
			return fate{verdict: netfilter.Drop}
		}
	}
	t.Fatalf("%q: nothing is known of the packet from %s to %s (%v)\n%s", f.name, f.src, f.dst, s.err, n.connections(t))
	return fate{}
}

// refusal is the ICMP error behind a socket's.
func refusal(err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "port-unreachable"
	case errors.Is(err, unix.EHOSTUNREACH):
		return "host-unreachable"
	case errors.Is(err, unix.EACCES):
		return "admin-prohibited"
	}
	return err.Error()
}

// sender is one connection from the client's side.
type sender struct {
	flow      packetFlow
	port      uint16
	local     bool
	fd        int
	connected bool
	err       error
	answer    string
}

// start opens the socket and sends the first packet.
func (s *sender) start() error {
	f := s.flow
	family := unix.AF_INET
	if f.src.Is6() {
		family = unix.AF_INET6
	}
	kind, proto := unix.SOCK_STREAM, 0
	from, to := netip.AddrPortFrom(f.src, s.port), f.dst
	switch f.proto {
	case netfilter.UDP:
		kind = unix.SOCK_DGRAM
	case netfilter.SCTP:
		// Made by hand, so that it is sent where the kernel has no SCTP.
		kind, proto = unix.SOCK_RAW, unix.IPPROTO_SCTP
		from, to = netip.AddrPortFrom(f.src, 0), netip.AddrPortFrom(f.dst.Addr(), 0)
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	s.fd = fd
	if !s.local {
		// From an address that is not the machine's own.
		level, option := unix.SOL_IP, unix.IP_TRANSPARENT
		if f.src.Is6() {
			level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return fmt.Errorf("bind to any address: %w", err)
		}
	}
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return fmt.Errorf("bind to %s: %w", from, err)
	}
	s.note(unix.Connect(fd, sockaddr(to)))
	switch f.proto {
	case netfilter.UDP:
		_, err = unix.Write(fd, []byte("packet"))
		s.note(err)
	case netfilter.SCTP:
		_, err = unix.Write(fd, sctpInit(s.port, f.dst.Port()))
		s.note(err)
	}
	return nil
}

// sctpInit is a packet with an INIT chunk (RFC 9260).
func sctpInit(from, to uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = append(b, make([]byte, 8)...)                    // verification tag 0, checksum
	b = append(b, 1, 0, 0, 20)                           // INIT, its length
	b = binary.BigEndian.AppendUint32(b, 0x5ca1ab1e)     // initiate tag
	b = binary.BigEndian.AppendUint32(b, 65536)          // window
	b = append(b, 0, 1, 0, 1)                            // streams out and in
	b = binary.BigEndian.AppendUint32(b, uint32(from)+1) // initial TSN
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(b[8:], sum)
	return b
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// note keeps an error. EPERM only says that the node did not let its own packet
// out; whether an error came back is told by the socket then.
func (s *sender) note(err error) {
	if err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EPERM) && s.err == nil {
		s.err = err
	}
}

// poll waits a moment for an answer or an error.
func (s *sender) poll(t *testing.T) {
	t.Helper()
	if s.err != nil {
		return
	}
	events := int16(unix.POLLIN)
	if s.flow.proto == netfilter.TCP && !s.connected {
		events = unix.POLLOUT
	}
	wait := pollFor
	if s.flow.proto != netfilter.TCP {
		wait = 1
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
	if _, err := unix.Poll(fds, wait); err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatalf("poll: %v", err)
	}
	// Asked for even when nobody was woken: an error that comes back while
	// connect still holds the socket is only kept.
	e, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		t.Fatalf("SO_ERROR: %v", err)
	}
	if e != 0 {
		s.err = unix.Errno(e)
		return
	}
	s.connected = s.connected || fds[0].Revents&unix.POLLOUT != 0
}

// read is what the server said.
func (s *sender) read(t *testing.T) (server, client netip.AddrPort) {
	t.Helper()
	buf := make([]byte, 256)
	for range polls {
		k, err := unix.Read(s.fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, pollFor); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			continue
		case err != nil:
			t.Fatalf("read from %s: %v", s.flow.dst, err)
		}
		s.answer += string(buf[:k])
		if k == 0 || strings.HasSuffix(s.answer, "\n") {
			break
		}
	}
	a, b, _ := strings.Cut(strings.TrimSpace(s.answer), " ")
	server, err := netip.ParseAddrPort(a)
	if err != nil {
		t.Fatalf("the server of %s said %q", s.flow.dst, s.answer)
	}
	if client, err = netip.ParseAddrPort(b); err != nil {
		t.Fatalf("the server of %s said %q", s.flow.dst, s.answer)
	}
	return netip.AddrPortFrom(server.Addr().Unmap(), server.Port()), netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
}

func (s *sender) close() {
	if s.fd > 0 {
		unix.Close(s.fd)
	}
}

// reply is the tuple in which the kernel expects a connection's replies.
type reply struct {
	from    netip.AddrPort
	replyTo netip.Addr
	port    uint16
}

func (r reply) fate(f packetFlow) fate {
	s := fate{verdict: netfilter.Accept, to: r.from, masq: r.replyTo != f.src}
	if r.from != f.dst {
		s.verdict = netfilter.DNAT
	}
	return s
}

// holds compares the tuple with what the server saw of the connection.
func (n *packetNode) holds(t *testing.T, s *sender, r reply) {
	t.Helper()
	server, client := s.read(t)
	if server != r.from || client != netip.AddrPortFrom(r.replyTo, r.port) {
		t.Errorf("%q: the server is %s and saw %s, the kernel's tuple is %+v", s.flow.name, server, client, r)
	}
}

var tuple = regexp.MustCompile(`src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)`)

func (n *packetNode) connections(t *testing.T) string {
	t.Helper()
	var out []byte
	err := inside(n.ns, func() (err error) {
		out, err = os.ReadFile(conntrackFile)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// tracked looks for the flow's connection on the node.
func (n *packetNode) tracked(t *testing.T, f packetFlow, port uint16) (reply, bool) {
	t.Helper()
	for line := range strings.Lines(n.connections(t)) {
		m := tuple.FindAllStringSubmatch(line, 2)
		if len(m) != 2 || !strings.Contains(line, " "+string(f.proto)+" ") {
			continue
		}
		if addr(m[0][1]) != f.src || addr(m[0][2]) != f.dst.Addr() || number(m[0][3]) != port || number(m[0][4]) != f.dst.Port() {
			continue
		}
		return reply{netip.AddrPortFrom(addr(m[1][1]), number(m[1][3])), addr(m[1][2]), number(m[1][4])}, true
	}
	return reply{}, false
}

func addr(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

func number(s string) uint16 {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

var notedSet = regexp.MustCompile(`set (entered|left) \{[^}]*elements = \{([^}]*)\}`)

// noted are the ports of our packets that entered the node, and that left it.
func (n *packetNode) noted(t *testing.T) (entered, left map[uint16]bool) {
	t.Helper()
	entered, left = map[uint16]bool{}, map[uint16]bool{}
	for _, m := range notedSet.FindAllStringSubmatch(n.w.command(t, n.ns, "", "nft", "list", "table", "inet", "packets"), -1) {
		into := entered
		if m[1] == "left" {
			into = left
		}
		for _, word := range strings.FieldsFunc(m[2], func(r rune) bool { return r < '0' || r > '9' }) {
			into[number(word)] = true
		}
	}
	return entered, left
}

// proveRefusals makes sure that it was the node's rules that refused: the
// packets came there and went no further.
func (n *packetNode) proveRefusals(t *testing.T) {
	t.Helper()
	if len(n.refused) == 0 {
		return
	}
	entered, left := n.noted(t)
	for _, port := range n.refused {
		if !entered[port] || left[port] {
			t.Errorf("the packet from port %d was refused, but not by the node's rules: it entered: %t, it left: %t", port, entered[port], left[port])
		}
	}
}
