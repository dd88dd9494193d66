package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Client is a place that connections are tried from.
type Client struct {
	Name  string // "pod on n1" is for a person; see Pod, Node.Client and External
	space *netspace
}

// PodClient is a pod that runs, as a client.
func (c *Cluster) PodClient(namespace, name string) (Client, error) {
	s := c.kubelet.sandbox(namespace, name)
	if s == nil || s.space == nil {
		return Client{}, fmt.Errorf("pod %s/%s does not run, or has no network of its own", namespace, name)
	}
	return Client{Name: "pod on " + s.node.Name, space: s.space}, nil
}

// Client is the node itself, as a client.
func (n *Node) Client() Client { return Client{Name: "node " + n.Name, space: n.space} }

// External is a host outside of the cluster, on the nodes' network.
func (c *Cluster) External() Client { return Client{Name: "external", space: c.external} }

// Result is how a try of a connection ended.
type Result string

const (
	Answered    Result = "answered"    // by the pod that Try.Pod names
	Partial     Result = "partial"     // answered, but a packet was lost before
	Refused     Result = "refused"     // by an RST or an ICMP port unreachable
	TimedOut    Result = "timed out"   // nothing within TryTimeout
	Unreachable Result = "unreachable" // ICMP host or network unreachable
	Broken      Result = "broken"      // connected, but no proper answer
)

// TryTimeout bounds a try. Within it a SYN that was lost is sent once more,
// after a second, and may then draw another backend.
const TryTimeout = 2 * time.Second

// Try is one connection with one HTTP request.
type Try struct {
	Result Result
	Pod    string // who answered
	Err    error
}

// Connect makes n connections at once from a client to an address (IP:port),
// asks each for the name of the pod that answers, and closes it first, so that
// TIME_WAIT stays with the client and no server refuses a later connection
// because of it.
func (c *Cluster) Connect(ctx context.Context, from Client, addr string, n int) []Try {
	tries := make([]Try, n)
	var all sync.WaitGroup
	for i := range tries {
		all.Go(func() { tries[i] = try(ctx, from, addr) })
	}
	all.Wait()
	return tries
}

func try(ctx context.Context, from Client, addr string) Try {
	deadline := time.Now().Add(TryTimeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := from.space.dial(ctx, "tcp4", addr)
	if err != nil {
		return Try{Result: dialResult(err), Err: err}
	}
	defer conn.Close()
	conn.SetDeadline(deadline)
	pod, err := ask(conn)
	if err != nil {
		return Try{Result: Broken, Err: err}
	}
	lost, err := retransmitted(conn)
	switch {
	case err != nil:
		return Try{Result: Broken, Pod: pod, Err: err}
	case lost:
		return Try{Result: Partial, Pod: pod}
	}
	return Try{Result: Answered, Pod: pod}
}

func dialResult(err error) Result {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Unreachable
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, syscall.ETIMEDOUT), errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	}
	return Broken
}

// ask sends one request and reads the whole answer, whose length the server
// gives, so that the client need not wait for it to close.
func ask(conn net.Conn) (pod string, err error) {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: cluster\r\n\r\n"); err != nil {
		return "", fmt.Errorf("asking: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return strings.TrimSpace(string(body)), nil
}

// retransmitted asks the kernel whether any segment had to be sent again.
func retransmitted(conn net.Conn) (bool, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return false, err
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(err, infoErr); err != nil {
		return false, fmt.Errorf("reading TCP_INFO: %w", err)
	}
	return info.Total_retrans > 0, nil
}

// Tally puts tries into few words that are the same in every run: "answered",
// "refused", "no answer", or, where they differ, "part answered, part refused".
// A time-out and an ICMP unreachable are both "no answer": which it is depends
// on how old the neighbour's entry is.
func Tally(tries []Try) string {
	seen := map[string]bool{}
	for _, t := range tries {
		switch t.Result {
		case TimedOut, Unreachable:
			seen["no answer"] = true
		case Partial:
			seen["answered late"] = true
		default:
			seen[string(t.Result)] = true
		}
	}
	var parts []string
	for _, word := range []string{"answered", "answered late", "refused", "no answer", "broken"} {
		if seen[word] {
			parts = append(parts, word)
		}
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return "part " + strings.Join(parts, ", part ")
}
