package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is a machine of the cluster.
type Node struct {
	Name    string
	Address string // InternalIP
	PodCIDR string
	Mode    string // kube-proxy's: iptables, nftables

	cluster *Cluster
	index   int
	space   *netspace
	init    *process // process 1 of the node's PID namespace
	proxy   *process
	lastPod int
}

// initScript makes the node a machine of its own as far as a program on it can
// see, and then holds its namespaces open.
const initScript = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
echo "$1" >/proc/sys/kernel/hostname
echo ready
exec sleep infinity`

// AddNode adds a node with a kube-proxy of the given mode, in a zone of its own
// (zone-1, zone-2, ...), and returns when its kube-proxy has written its rules.
func (c *Cluster) AddNode(ctx context.Context, name, mode string) (*Node, error) {
	i := len(c.nodes) + 1
	n := &Node{
		Name: name, Mode: mode, cluster: c, index: i, lastPod: 1,
		Address: fmt.Sprintf("172.31.250.%d", 10+i),
		PodCIDR: fmt.Sprintf("10.244.%d.0/24", i),
	}
	if err := n.add(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("adding node %s: %w", name, err), n.stop())
	}
	return n, nil
}

func (n *Node) add(ctx context.Context) error {
	if err := n.makeNetwork(); err != nil {
		return err
	}
	if err := n.startInit(ctx); err != nil {
		return err
	}
	if err := n.createObject(ctx); err != nil {
		return err
	}
	if err := n.StartProxy(ctx); err != nil {
		return err
	}
	n.cluster.mu.Lock()
	n.cluster.nodes = append(n.cluster.nodes, n)
	n.cluster.mu.Unlock()
	n.cluster.kubelet.enqueueAll()
	return nil
}

// Nodes returns the nodes in the order in which they were added.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Node(nil), c.nodes...)
}

func (c *Cluster) node(name string) *Node {
	for _, n := range c.Nodes() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (n *Node) makeNetwork() (err error) {
	if n.space, err = newNetspace(n.Name); err != nil {
		return err
	}
	if err := n.cluster.fabric.plug("nodes0", "node"+strconv.Itoa(n.index), n.space, n.Address+"/24", fabricAddress); err != nil {
		return err
	}
	if err := n.space.addBridge("cni0", n.gateway()+"/24"); err != nil {
		return err
	}
	if err := n.space.sysctl("ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if err := unlimitICMP(n.space); err != nil {
		return err
	}
	for _, other := range n.cluster.Nodes() {
		if err := n.space.route(other.PodCIDR, other.Address); err != nil {
			return err
		}
		if err := other.space.route(n.PodCIDR, n.Address); err != nil {
			return err
		}
	}
	return nil
}

// gateway is cni0's address.
func (n *Node) gateway() string { return fmt.Sprintf("10.244.%d.1", n.index) }

// unlimitICMP lets every REJECT be answered, so that many tries at once are not
// mistaken for time-outs. Older kernels have the second limit for the whole
// machine only.
func unlimitICMP(ns *netspace) error {
	if err := ns.sysctl("ipv4/icmp_ratelimit", "0"); err != nil {
		return err
	}
	if err := ns.sysctl("ipv4/icmp_msgs_per_sec", "100000"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (n *Node) startInit(ctx context.Context) (err error) {
	cmd := exec.Command("sh", "-c", initScript, "sh", n.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	if n.init, err = n.cluster.starter.start(n.space, "node-"+n.Name, n.cluster.dir, cmd); err != nil {
		return err
	}
	return Until(ctx, "the node's namespaces are set up", func(context.Context) (string, error) {
		if err := n.init.ended(); err != nil {
			return "", err
		}
		if out := tail(n.init.log, 100); !strings.Contains(out, "ready") {
			return "not ready: " + out, nil
		}
		return "", nil
	})
}

// createObject registers the node as its kubelet would.
func (n *Node) createObject(ctx context.Context) error {
	now := metav1.NewTime(time.Now())
	condition := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelTopologyRegion: "region-1", corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", n.index),
		}},
		Spec: corev1.NodeSpec{PodCIDR: n.PodCIDR, PodCIDRs: []string{n.PodCIDR}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Address}, {Type: corev1.NodeHostName, Address: n.Name}},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
			},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: "amd64", OSImage: "Debian GNU/Linux", ContainerRuntimeVersion: "containerd://2.1.0",
				KubeletVersion: n.cluster.Binaries.Version, KernelVersion: kernelVersion(),
			},
		},
	}
	nodes := n.cluster.Client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the Node: %w", err)
	}
	// The API server taints every new node as not ready; the controller that
	// would take the taint off again does not run here.
	_, err := nodes.Patch(ctx, n.Name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("removing the Node's taints: %w", err)
	}
	return nil
}

func kernelVersion() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(release))
}

// Command prepares a program to be run on the node, as root. Its working
// directory is the root directory.
func (n *Node) Command(ctx context.Context, argv ...string) *exec.Cmd {
	args := append([]string{"--target", strconv.Itoa(n.init.cmd.Process.Pid), "--net", "--mount", "--uts", "--pid", "--"}, argv...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// nsenter forks for the PID namespace; the program itself must end too.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// Exec runs a program on the node and returns its standard output.
func (n *Node) Exec(ctx context.Context, argv ...string) (string, error) {
	return n.ExecInput(ctx, "", argv...)
}

// ExecInput is Exec with a standard input.
func (n *Node) ExecInput(ctx context.Context, stdin string, argv ...string) (string, error) {
	cmd := n.Command(ctx, argv...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("running %s on node %s: %w: %s", strings.Join(argv, " "), n.Name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// ReadFile reads a file as a process on the node sees it, /proc included.
func (n *Node) ReadFile(ctx context.Context, path string) (string, error) {
	out, err := n.Exec(ctx, "cat", path)
	if err != nil && strings.Contains(err.Error(), "No such file") {
		return "", fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	return out, err
}

// ForgetConnections empties the node's connection tracking table. A SYN that
// was lost leaves an entry for two minutes, which sends a later connection from
// the same port to the same, perhaps dead, backend; without this one fault
// would show in the measurements of the next.
func (n *Node) ForgetConnections() error {
	err := n.space.handleOf(unix.NETLINK_NETFILTER, func(h *netlink.Handle) error {
		return h.ConntrackTableFlush(netlink.ConntrackTable)
	})
	if err != nil {
		return fmt.Errorf("emptying the connection tracking table of %s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) stop() error {
	var errs []error
	// The end of process 1 is the end of every process in its PID namespace; it
	// must then reap kube-proxy, whose parent has to be gone for that.
	for _, p := range []*process{n.proxy, n.init} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	if n.space != nil {
		n.space.close()
	}
	return errors.Join(errs...)
}
