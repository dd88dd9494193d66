package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proxyConfig is kube-proxy's configuration, laid out as kubeadm writes it, for
// a mode and the path of a kubeconfig.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: %[2]s
  qps: 0
clusterCIDR: ` + PodCIDR + `
conntrack:
  maxPerCore: 0
  min: null
  tcpCloseWaitTimeout: 0s
  tcpEstablishedTimeout: 0s
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 100ms
  syncPeriod: 0s
kind: KubeProxyConfiguration
metricsBindAddress: ""
mode: %[1]s
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 100ms
  syncPeriod: 0s
nodePortAddresses: null
`

const kubeconfigInPod = "/var/lib/kube-proxy/kubeconfig.conf"

// ConfigureProxyMode makes kube-proxy's ConfigMap ask for a mode; it asks for
// iptables to begin with. AddNode takes a mode of its own, so that a node may
// differ from what is configured.
func (c *Cluster) ConfigureProxyMode(ctx context.Context, mode string) error {
	maps := c.Client.CoreV1().ConfigMaps("kube-system")
	config, err := maps.Get(ctx, "kube-proxy", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading kube-proxy's ConfigMap: %w", err)
	}
	config.Data["config.conf"] = fmt.Sprintf(proxyConfig, mode, kubeconfigInPod)
	if _, err := maps.Update(ctx, config, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("changing kube-proxy's ConfigMap: %w", err)
	}
	return nil
}

// addProxyObjects creates what kubeadm creates for kube-proxy in kube-system:
// its configuration and its DaemonSet. The pods that the real controller makes
// of it stand for the kube-proxy processes that AddNode starts.
func (c *Cluster) addProxyObjects(ctx context.Context) error {
	labels := map[string]string{"k8s-app": "kube-proxy"}
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system", Labels: map[string]string{"app": "kube-proxy"}},
		Data:       map[string]string{"config.conf": fmt.Sprintf(proxyConfig, "iptables", kubeconfigInPod)},
	}
	if _, err := c.Client.CoreV1().ConfigMaps(config.Namespace).Create(ctx, config, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating kube-proxy's ConfigMap: %w", err)
	}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: "kube-system", Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork: true, NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:" + c.Binaries.Version,
						Command: []string{"/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"},
					}},
				},
			},
		},
	}
	if _, err := c.Client.AppsV1().DaemonSets(ds.Namespace).Create(ctx, ds, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating kube-proxy's DaemonSet: %w", err)
	}
	return nil
}

// StartProxy starts the node's kube-proxy, after KillProxy, and returns when it
// has written its rules.
func (n *Node) StartProxy(ctx context.Context) error {
	return n.startProxy(ctx, os.Getenv("PATH"))
}

// SwitchProxy ends the node's kube-proxy without a chance to tidy up, starts it
// again in a mode, and returns when it has written its rules. As everywhere,
// what the new one finds of another mode it removes, with the programs that it
// has: links names those, by the names that it calls them by
// ("iptables": "iptables-legacy"), and a container image without a program is
// one that links does not name. Nil links leave it all that the machine has.
func (n *Node) SwitchProxy(ctx context.Context, mode string, links map[string]string) error {
	path, err := n.programs(links)
	if err != nil {
		return fmt.Errorf("switching kube-proxy of %s: %w", n.Name, err)
	}
	if err := n.KillProxy(); err != nil {
		return fmt.Errorf("switching kube-proxy of %s: %w", n.Name, err)
	}
	n.Mode = mode
	return n.startProxy(ctx, path)
}

// programs makes a PATH of links to programs.
func (n *Node) programs(links map[string]string) (path string, err error) {
	if links == nil {
		return os.Getenv("PATH"), nil
	}
	if path, err = os.MkdirTemp(n.cluster.dir, "programs-"); err != nil {
		return "", err
	}
	for name, program := range links {
		target, err := exec.LookPath(program)
		if err != nil {
			return "", err
		}
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			return "", err
		}
	}
	return path, nil
}

func (n *Node) startProxy(ctx context.Context, path string) error {
	c := n.cluster
	kubeconfig := c.file("kube-proxy.kubeconfig")
	if err := c.credentials.writeKubeconfig(kubeconfig, c.InnerServer(), proxyUser); err != nil {
		return err
	}
	config := c.file("kube-proxy-" + n.Name + ".conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, proxyConfig, n.Mode, kubeconfig), 0o600); err != nil {
		return fmt.Errorf("writing kube-proxy's configuration: %w", err)
	}
	cmd := n.Command(context.Background(), c.Binaries.path("kube-proxy"), "--config", config, "--hostname-override", n.Name)
	cmd.Cancel = nil
	cmd.Env = append(os.Environ(), "PATH="+path)
	p, err := c.starter.start(n.space, "kube-proxy-"+n.Name, c.dir, cmd)
	if err != nil {
		return err
	}
	n.proxy = p
	return Until(ctx, "kube-proxy on "+n.Name+" has synced", func(ctx context.Context) (string, error) {
		if err := n.proxy.ended(); err != nil {
			return "", err
		}
		return n.neverSynced(ctx), nil
	})
}

var lastSync = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_timestamp_seconds(?:\{ip_family="IPv4"\})? (\S+)$`)

// neverSynced says why kube-proxy's rules are not there yet. kube-proxy answers
// its health port before it has written all of them, its metric only after.
func (n *Node) neverSynced(ctx context.Context) string {
	text, err := n.get(ctx, "http://127.0.0.1:10249/metrics")
	if err != nil {
		return err.Error()
	}
	m := lastSync.FindStringSubmatch(text)
	if m == nil {
		return "no metric of its last sync"
	}
	if at, err := strconv.ParseFloat(m[1], 64); err != nil || at <= 0 {
		return "it has not synced"
	}
	return ""
}

// get asks an HTTP server from the node.
func (n *Node) get(ctx context.Context, url string) (string, error) {
	client := http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return n.space.dial(ctx, network, addr)
		}},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return "", err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return string(body), statusError(resp.StatusCode)
	}
	return string(body), nil
}

// statusError is an HTTP status that a kubelet's probe takes for a failure, in
// the kubelet's words.
type statusError int

func (s statusError) Error() string {
	return "HTTP probe failed with statuscode: " + strconv.Itoa(int(s))
}

// StopProxy freezes the node's kube-proxy (SIGSTOP): its rules stay as they
// are and its ports hang.
func (n *Node) StopProxy(ctx context.Context) error {
	pid, err := n.signalProxy(syscall.SIGSTOP)
	if err != nil {
		return err
	}
	return Until(ctx, "kube-proxy on "+n.Name+" is stopped", func(context.Context) (string, error) {
		state, _, err := processStat(pid)
		if err == nil && state != "T" {
			return "its state is " + state, nil
		}
		return "", err
	})
}

// ContinueProxy lets a frozen kube-proxy run on.
func (n *Node) ContinueProxy() error {
	if _, err := n.signalProxy(syscall.SIGCONT); err != nil {
		return err
	}
	// nsenter stops itself when its child is stopped.
	return n.proxy.cmd.Process.Signal(syscall.SIGCONT)
}

// KillProxy ends the node's kube-proxy; its rules stay.
func (n *Node) KillProxy() error {
	if _, err := n.signalProxy(syscall.SIGKILL); err != nil {
		return err
	}
	return n.proxy.stop()
}

func (n *Node) signalProxy(s syscall.Signal) (pid int, err error) {
	if err := n.proxy.ended(); err != nil {
		return 0, err
	}
	if pid, err = childOf(n.proxy.cmd.Process.Pid); err != nil {
		return 0, err
	}
	if err := syscall.Kill(pid, s); err != nil {
		return 0, fmt.Errorf("sending %v to kube-proxy on %s: %w", s, n.Name, err)
	}
	return pid, nil
}

// proxyFrozen says whether StopProxy was called and not taken back.
func (n *Node) proxyFrozen() bool {
	pid, err := childOf(n.proxy.cmd.Process.Pid)
	if err != nil {
		return false
	}
	state, _, err := processStat(pid)
	return err == nil && state == "T"
}

// childOf finds the one process that nsenter forked.
func childOf(parent int) (int, error) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if _, p, err := processStat(pid); err == nil && p == parent {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d has no child", parent)
}

// processStat reads a process's state letter and parent.
func processStat(pid int) (state string, parent int, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	// The name in parentheses may hold anything, spaces too.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", 0, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return string(fields[0]), parent, err
}
