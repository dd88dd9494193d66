package node

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// addresses reads the machine's own addresses and routes. The ip program
// speaks rtnetlink, which loads nothing.
func (m Machine) addresses(ctx context.Context) []snapshot.Text {
	program := m.find("ip")
	if program == "" {
		missing := func(kind snapshot.TextKind, ref string) snapshot.Text {
			return snapshot.Text{Kind: kind, Ref: ref, Status: snapshot.Failed, Why: "no ip program is installed", Supply: "install the iproute2 package, then: " + rerun}
		}
		return []snapshot.Text{missing(snapshot.IPAddr, "ip addr"), missing(snapshot.IPRoute, "ip route show table all"), missing(snapshot.IPRule, "ip rule"), missing(snapshot.IP6Rule, "ip -6 rule")}
	}
	return []snapshot.Text{
		m.command(ctx, snapshot.IPAddr, program, "addr"),
		m.command(ctx, snapshot.IPRoute, program, "route", "show", "table", "all"),
		m.command(ctx, snapshot.IPRule, program, "rule"),
		m.command(ctx, snapshot.IP6Rule, program, "-6", "rule"),
	}
}

// find returns the absolute path of a program, or "".
func (m Machine) find(name string) string {
	for _, dir := range programDirs {
		if info, err := fs.Stat(m.FS, strings.TrimPrefix(dir, "/")+"/"+name); err == nil && info.Mode().IsRegular() {
			return dir + "/" + name
		}
	}
	return ""
}

// sysctlFiles are the settings that decide what a node does with a packet for
// a Service, as patterns below /proc/sys.
var sysctlFiles = []string{
	"net/bridge/bridge-nf-call-ip6tables",
	"net/bridge/bridge-nf-call-iptables",
	"net/ipv4/conf/*/accept_local",
	"net/ipv4/conf/*/forwarding",
	"net/ipv4/conf/*/route_localnet",
	"net/ipv4/conf/*/rp_filter",
	"net/ipv4/conf/*/src_valid_mark",
	"net/ipv4/ip_forward",
	"net/ipv4/ip_local_port_range",
	"net/ipv4/ip_local_reserved_ports",
	"net/ipv4/vs/conn_reuse_mode",
	"net/ipv4/vs/conntrack",
	"net/ipv4/vs/expire_nodest_conn",
	"net/ipv6/conf/*/disable_ipv6",
	"net/ipv6/conf/*/forwarding",
	"net/netfilter/nf_conntrack_buckets",
	"net/netfilter/nf_conntrack_count",
	"net/netfilter/nf_conntrack_max",
	"net/netfilter/nf_conntrack_tcp_be_liberal",
	"net/netfilter/nf_conntrack_tcp_loose",
	"net/netfilter/nf_conntrack_tcp_timeout_close_wait",
	"net/netfilter/nf_conntrack_tcp_timeout_established",
	"net/netfilter/nf_conntrack_udp_timeout",
	"net/netfilter/nf_conntrack_udp_timeout_stream",
}

// sysctls reads the settings in the form of `sysctl -a`.
func (m Machine) sysctls() snapshot.Text {
	t := snapshot.Text{Kind: snapshot.Sysctl, Ref: "sysctl -a", Status: snapshot.Done}
	sys, err := fs.Sub(m.FS, "proc/sys")
	if err != nil {
		return m.unreadable(snapshot.Sysctl, "proc/sys", err)
	}
	var lines []string
	for _, pattern := range sysctlFiles {
		names, err := fs.Glob(sys, pattern)
		if err != nil {
			return m.unreadable(snapshot.Sysctl, "proc/sys/"+pattern, err)
		}
		for _, name := range names {
			if v, err := m.readFile("proc/sys/" + name); err == nil {
				lines = append(lines, sysctlName(name)+" = "+strings.TrimSpace(v)+"\n")
			}
		}
	}
	if len(lines) == 0 {
		t.Status, t.Why, t.Supply = snapshot.Failed, "nothing could be read below /proc/sys/net", rerun
		return t
	}
	slices.Sort(lines)
	t.Content = strings.Join(lines, "")
	return t
}

// sysctlName swaps the separators as sysctl does: the dot in the name of an
// interface (eth0.100) becomes a slash.
func sysctlName(file string) string {
	return strings.NewReplacer("/", ".", ".", "/").Replace(file)
}

// proxies are the names of programs that program a node for Services, or hold
// a proxy that does. The kernel cuts names to 15 bytes.
var proxies = []string{
	"kube-proxy", "k3s", "k3s-server", "k3s-agent", "rke2", "rke2-server", "rke2-agent", "kubelite", "k0s", "hyperkube",
	"cilium-agent", "calico-node", "calico-felix", "kube-router", "antrea-agent", "antrea-ovs",
	"ovnkube", "ovnkube-node", "openshift-sdn", "kube-ovn-daemon",
}

// initialPIDNamespace is the inode of the namespace that the machine booted
// with (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h).
const initialPIDNamespace = "pid:[4026531836]"

// processes lists the processes of this network namespace that may be the
// Service proxy, as "PID STATE NAME". Their arguments are not read: they may
// hold tokens.
func (m Machine) processes() snapshot.Text {
	t := snapshot.Text{Kind: snapshot.ProxyProcess, Ref: "ps -eo pid,stat,comm", Status: snapshot.Done}
	own, err := fs.ReadLink(m.FS, "proc/self/ns/net")
	if err != nil {
		return m.unreadable(snapshot.ProxyProcess, "proc/self/ns/net", err)
	}
	entries, err := fs.ReadDir(m.FS, "proc")
	if err != nil {
		return m.unreadable(snapshot.ProxyProcess, "proc", err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		return cmp.Or(cmp.Compare(len(a.Name()), len(b.Name())), cmp.Compare(a.Name(), b.Name()))
	})
	hidden := false
	for _, e := range entries {
		pid := e.Name()
		comm, ok := m.proxyComm(pid)
		if !ok {
			continue
		}
		switch ns, err := fs.ReadLink(m.FS, "proc/"+pid+"/ns/net"); {
		case errors.Is(err, fs.ErrPermission):
			hidden = true
		case err == nil && ns == own:
			t.Content += pid + " " + m.processState(pid) + " " + comm + "\n"
		}
	}
	if t.Content != "" {
		return t
	}
	if pidns, err := fs.ReadLink(m.FS, "proc/self/ns/pid"); err == nil && pidns != initialPIDNamespace {
		t.Status, t.Why = snapshot.Failed, "this process is in a PID namespace of its own, in which the node's processes are not seen"
		t.Supply = "run on the node itself: " + rerun
	} else if _, err := fs.Stat(m.FS, "proc/1"); hidden || err != nil {
		t.Status, t.Why, t.Supply = snapshot.Failed, "other users' processes cannot be looked at without root", rerun
	}
	return t
}

// proxyComm returns the name of a process, if it may be a proxy.
func (m Machine) proxyComm(pid string) (string, bool) {
	if strings.Trim(pid, "0123456789") != "" {
		return "", false
	}
	comm, err := m.readFile(path.Join("proc", pid, "comm"))
	comm = strings.TrimSuffix(comm, "\n")
	return comm, err == nil && slices.Contains(proxies, comm)
}

// processState is the letter that the kernel gives: R, S, D, T (stopped), Z.
// It follows the name, which stands in parentheses and may hold any byte.
func (m Machine) processState(pid string) string {
	stat, err := m.readFile("proc/" + pid + "/stat")
	if err != nil {
		return "?"
	}
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) == 0 {
		return "?"
	}
	return fields[0]
}
