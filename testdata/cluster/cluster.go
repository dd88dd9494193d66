package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"
)

// Options say how to start a cluster.
type Options struct {
	// Binaries, where they are not to be found, or built, by FindBinaries.
	Binaries Binaries
	// KeepFiles leaves logs, the audit log and the database behind at Stop.
	KeepFiles bool
}

// Cluster is a running cluster. Its methods may be called from several
// goroutines, but for AddNode and Stop.
type Cluster struct {
	Binaries Binaries
	// Client is the Admin user's.
	Client kubernetes.Interface

	options     Options
	dir         string
	dirLock     func()
	credentials *credentials
	starter     *starter
	fabric      *netspace
	external    *netspace
	forward     *forwarder
	processes   []*process
	kubelet     *kubelet

	mu    sync.Mutex
	nodes []*Node

	product product
	marks   atomic.Int32 // of Settle and Audit, so that no two are alike
}

// Start starts a control plane, the fabric and a host outside of the cluster,
// and returns when the API server is ready: about 5 s. The caller must Stop it;
// should this process die before, the kernel takes all of it away but for a
// directory of files, which the next Start removes.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if why := Missing(); why != "" {
		return nil, errors.New(why)
	}
	if o.Binaries.Dir == "" {
		b, err := FindBinaries(ctx)
		if err != nil {
			return nil, err
		}
		o.Binaries = b
	}
	c := &Cluster{Binaries: o.Binaries, options: o, starter: newStarter()}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a cluster: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if c.dir, c.dirLock, err = newDir(); err != nil {
		return err
	}
	if err := c.makeFabric(); err != nil {
		return err
	}
	if c.forward, err = newForwarder(c.fabric, net.JoinHostPort(fabricAddress, apiPort)); err != nil {
		return err
	}
	addresses := []net.IP{net.ParseIP(fabricAddress), net.ParseIP("10.96.0.1"), net.ParseIP("127.0.0.1")}
	if c.credentials, err = newCredentials(c.dir, addresses); err != nil {
		return err
	}
	if c.Client, err = kubernetes.NewForConfig(c.credentials.restConfig(c.Server(), Admin)); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, start := range []func() error{c.startEtcd, c.startAPIServer} {
		if err := start(); err != nil {
			return err
		}
	}
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	// Not before: it gives up on an API server that is not healthy in ten
	// seconds, which on a busy machine is too soon.
	if err := c.startControllerManager(); err != nil {
		return err
	}
	if err := c.addProxyObjects(ctx); err != nil {
		return err
	}
	c.kubelet = startKubelet(c)
	return c.kubelet.waitSynced(ctx)
}

// makeFabric makes the network that the nodes are on. It forwards nothing: what
// a node sends to its default gateway for an address that it should have
// translated itself is lost without a word, as on most networks.
func (c *Cluster) makeFabric() (err error) {
	if c.fabric, err = newNetspace("fabric"); err != nil {
		return err
	}
	if err := c.fabric.sysctl("ipv4/ip_forward", "0"); err != nil {
		return err
	}
	if err := c.fabric.addBridge("nodes0", fabricAddress+"/24"); err != nil {
		return err
	}
	if c.external, err = newNetspace("external"); err != nil {
		return err
	}
	if err := c.fabric.plug("nodes0", "external", c.external, externalAddress+"/24", fabricAddress); err != nil {
		return err
	}
	// A node that does not know an address sends the packet on to the fabric, and
	// tells the sender to do so itself from then on; the next fault would be
	// measured past the node.
	for _, device := range []string{"all", "eth0"} {
		if err := c.external.sysctl("ipv4/conf/"+device+"/accept_redirects", "0"); err != nil {
			return err
		}
	}
	return nil
}

// RouteExternal leads what the host outside of the cluster sends to addresses
// (a CIDR) to a node, as a load balancer or a router before the nodes would.
func (c *Cluster) RouteExternal(addresses string, to *Node) error {
	return c.external.route(addresses, to.Address)
}

const externalAddress = "172.31.250.200"

// Server is the API server's URL for programs on this machine.
func (c *Cluster) Server() string { return "https://" + c.forward.address() }

// InnerServer is its URL for programs on a node.
func (c *Cluster) InnerServer() string { return "https://" + net.JoinHostPort(fabricAddress, apiPort) }

// Kubeconfig writes a kubeconfig for a user, for programs on this machine.
func (c *Cluster) Kubeconfig(user string) (path string, err error) {
	path = c.file(user + ".kubeconfig")
	return path, c.credentials.writeKubeconfig(path, c.Server(), user)
}

// InnerKubeconfig writes a kubeconfig for a user, for programs on a node.
func (c *Cluster) InnerKubeconfig(user string) (path string, err error) {
	path = c.file(user + ".inner.kubeconfig")
	return path, c.credentials.writeKubeconfig(path, c.InnerServer(), user)
}

// Dir holds the logs: NAME.log for each program.
func (c *Cluster) Dir() string { return c.dir }

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

// Stop ends every process, closes every namespace and removes the files.
func (c *Cluster) Stop() error {
	var errs []error
	if c.kubelet != nil {
		c.kubelet.stop()
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, n := range c.nodes { // at once: the end of a PID namespace takes the kernel a second
		all.Go(func() {
			err := n.stop()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	all.Wait()
	for i := len(c.processes) - 1; i >= 0; i-- {
		errs = append(errs, c.processes[i].stop())
	}
	if c.forward != nil {
		c.forward.close()
	}
	for _, ns := range []*netspace{c.external, c.fabric} {
		if ns != nil {
			ns.close()
		}
	}
	c.starter.close()
	if c.dir != "" && !c.options.KeepFiles {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	if c.dirLock != nil {
		c.dirLock()
	}
	return errors.Join(errs...)
}
