package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// forwarder carries connections from a free port of this machine's own
// loopback to an address in a namespace, so that a program outside of the
// cluster reaches the API server as an engineer's machine would.
type forwarder struct {
	listener net.Listener
	space    *netspace
	to       string
}

func newForwarder(space *netspace, to string) (*forwarder, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("opening a port for the API server: %w", err)
	}
	f := &forwarder{listener: l, space: space, to: to}
	go f.accept()
	return f, nil
}

func (f *forwarder) address() string { return f.listener.Addr().String() }
func (f *forwarder) close()          { f.listener.Close() }

func (f *forwarder) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		go f.carry(conn)
	}
}

func (f *forwarder) carry(outer net.Conn) {
	defer outer.Close()
	inner, err := f.space.dial(context.Background(), "tcp4", f.to)
	if err != nil {
		return // the caller sees its connection closed
	}
	defer inner.Close()
	var both sync.WaitGroup
	both.Go(func() { pour(inner, outer) })
	both.Go(func() { pour(outer, inner) })
	both.Wait()
}

// pour copies one direction to its end, and tells the other side of it.
func pour(to, from net.Conn) {
	io.Copy(to, from)
	if c, ok := to.(*net.TCPConn); ok {
		c.CloseWrite()
	}
}
