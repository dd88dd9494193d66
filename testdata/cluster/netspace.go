package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netspace is a network namespace that this process holds open. It has no name
// under /run/netns: when the last file and the last process in it are gone,
// the kernel removes it with its devices, rules and connections.
type netspace struct {
	name string
	file *os.File
}

// newNetspace makes a namespace with its loopback device up.
func newNetspace(name string) (*netspace, error) {
	ns := &netspace{name: name}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making the network namespace of %s: %w", name, err)
		}
		f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err != nil {
			return fmt.Errorf("holding the network namespace of %s: %w", name, err)
		}
		ns.file = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ns, ns.link("lo", func(h *netlink.Handle, lo netlink.Link) error { return h.LinkSetUp(lo) })
}

func (n *netspace) close() { n.file.Close() }

// onThread runs f on a thread of its own that ends with it, because a thread
// whose namespace was changed must not run anything else.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// do runs f in the namespace. Sockets that f opens stay in it; f must start
// neither goroutines that open sockets nor processes.
func (n *netspace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the network namespace of %s: %w", n.name, err)
		}
		return f()
	})
}

// dial connects from the namespace. The address must hold an IP, because the
// resolver's goroutines would run elsewhere.
func (n *netspace) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = n.do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// listen opens a listening socket in the namespace.
func (n *netspace) listen(addr string) (l net.Listener, err error) {
	err = n.do(func() error {
		l, err = net.Listen("tcp4", addr)
		return err
	})
	return l, err
}

// sysctl sets a value below /proc/sys/net of the namespace.
func (n *netspace) sysctl(name, value string) error {
	return n.do(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644); err != nil {
			return fmt.Errorf("setting net/%s of %s: %w", name, n.name, err)
		}
		return nil
	})
}

// handle opens a netlink connection to the namespace for f.
func (n *netspace) handle(f func(h *netlink.Handle) error) error {
	return n.handleOf(unix.NETLINK_ROUTE, f)
}

func (n *netspace) handleOf(family int, f func(h *netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(n.file.Fd()), family)
	if err != nil {
		return fmt.Errorf("opening netlink in %s: %w", n.name, err)
	}
	defer h.Close()
	return f(h)
}

// link looks a device up for f.
func (n *netspace) link(device string, f func(h *netlink.Handle, l netlink.Link) error) error {
	return n.handle(func(h *netlink.Handle) error {
		l, err := h.LinkByName(device)
		if err != nil {
			return fmt.Errorf("finding device %s of %s: %w", device, n.name, err)
		}
		if err := f(h, l); err != nil {
			return fmt.Errorf("setting up device %s of %s: %w", device, n.name, err)
		}
		return nil
	})
}

// addBridge makes a bridge with an address ("10.244.1.1/24").
func (n *netspace) addBridge(device, cidr string) error {
	err := n.handle(func(h *netlink.Handle) error {
		return h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: device}})
	})
	if err != nil {
		return fmt.Errorf("making bridge %s in %s: %w", device, n.name, err)
	}
	return n.address(device, cidr)
}

// address gives a device an address and sets it up.
func (n *netspace) address(device, cidr string) error {
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return fmt.Errorf("address for %s of %s: %w", device, n.name, err)
	}
	return n.link(device, func(h *netlink.Handle, l netlink.Link) error {
		if err := h.AddrAdd(l, addr); err != nil {
			return err
		}
		return h.LinkSetUp(l)
	})
}

// plug connects the eth0 of another namespace to a bridge of this one with a
// veth pair, hairpin on: a pod that draws itself as its backend gets its packet
// back through the port it came from. Both ends vanish with either namespace.
func (n *netspace) plug(bridge, port string, other *netspace, cidr, gateway string) error {
	err := n.link(bridge, func(h *netlink.Handle, br netlink.Link) error {
		veth := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: port, MasterIndex: br.Attrs().Index},
			PeerName:      "eth0",
			PeerNamespace: netlink.NsFd(other.file.Fd()),
		}
		if err := h.LinkAdd(veth); err != nil {
			return err
		}
		l, err := h.LinkByName(port)
		if err != nil {
			return err
		}
		if err := h.LinkSetHairpin(l, true); err != nil {
			return err
		}
		return h.LinkSetUp(l)
	})
	if err != nil {
		return err
	}
	if err := other.address("eth0", cidr); err != nil {
		return err
	}
	return other.route("default", gateway)
}

// unplug removes a port at once, without waiting for the other namespace's end.
func (n *netspace) unplug(port string) error {
	return n.link(port, func(h *netlink.Handle, l netlink.Link) error { return h.LinkDel(l) })
}

// route adds a route by way of a gateway; destination is a CIDR or "default".
func (n *netspace) route(destination, gateway string) error {
	r := &netlink.Route{Gw: net.ParseIP(gateway)}
	if destination != "default" {
		_, dst, err := net.ParseCIDR(destination)
		if err != nil {
			return fmt.Errorf("route of %s: %w", n.name, err)
		}
		r.Dst = dst
	}
	err := n.handle(func(h *netlink.Handle) error { return h.RouteReplace(r) })
	if err != nil {
		return fmt.Errorf("adding route %s via %s in %s: %w", destination, gateway, n.name, err)
	}
	return nil
}
