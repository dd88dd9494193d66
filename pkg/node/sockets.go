package node

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// podCgroup finds a pod's UID in the name of a control group, as the kubelet
// makes it: kubepods-burstable-podUID.slice with underscores by systemd,
// kubepods/burstable/podUID without; a static pod's is a hash.
var podCgroup = lazyregexp.New(`kubepods[^\n]*[/-]pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})\b`)

// mostPodProcesses bounds the processes that are looked at.
const mostPodProcesses = 50_000

// podNet is one pod, by what its processes show.
type podNet struct {
	uid  string
	pids []string
	// net is the network namespace; own says that it is the node's.
	net string
	own bool
}

// podSockets lists which sockets of each pod of this node listen, as
// "UID PROTO ADDRESS:PORT"; "UID none" where a pod has no such socket. They are
// read through /proc/PID/net of one process of the pod's: no namespace is
// entered and no socket opened, as ss would, which loads modules. Of pods on the
// node's own network only the sockets that their processes have open are told.
// Neither names nor arguments of processes are read.
func (m Machine) podSockets() snapshot.Text {
	t := snapshot.Text{Kind: snapshot.PodSockets, Ref: "/proc/PID/net/{tcp,tcp6,udp,udp6}", Status: snapshot.Done}
	if !m.Root {
		t.Status, t.Why, t.Supply = snapshot.Failed, "other users' processes cannot be looked at without root", rerun
		return t
	}
	own, err := fs.ReadLink(m.FS, "proc/self/ns/net")
	if err != nil {
		return m.unreadable(snapshot.PodSockets, "proc/self/ns/net", err)
	}
	pods, err := m.podNets(own)
	if err != nil {
		return m.unreadable(snapshot.PodSockets, "proc", err)
	}
	for _, pod := range pods {
		lines, err := m.listeners(pod)
		if err != nil {
			continue // gone meanwhile, or not to be looked at: nothing is said of it
		}
		if len(lines) == 0 {
			lines = []string{"none"}
		}
		for _, l := range lines {
			t.Content += pod.uid + " " + l + "\n"
		}
	}
	return t
}

// podNets finds the pods among the processes, sorted by UID.
func (m Machine) podNets(own string) ([]*podNet, error) {
	entries, err := fs.ReadDir(m.FS, "proc")
	if err != nil {
		return nil, err
	}
	byUID := map[string]*podNet{}
	seen := 0
	for _, e := range entries {
		pid := e.Name()
		if strings.Trim(pid, "0123456789") != "" {
			continue
		}
		if seen++; seen > mostPodProcesses {
			return nil, fmt.Errorf("over %d processes", mostPodProcesses)
		}
		uid := m.podOf(pid)
		if uid == "" {
			continue
		}
		net, err := fs.ReadLink(m.FS, "proc/"+pid+"/ns/net")
		if err != nil {
			continue
		}
		pod := byUID[uid]
		switch {
		case pod == nil:
			byUID[uid] = &podNet{uid: uid, pids: []string{pid}, net: net, own: net == own}
		case pod.net == net:
			pod.pids = append(pod.pids, pid)
		default:
			// A process of a pod's with a network of its own (a nested container).
			// The pod's is the one that more of its processes share: the first.
		}
	}
	out := make([]*podNet, 0, len(byUID))
	for _, p := range byUID {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *podNet) int { return cmp.Compare(a.uid, b.uid) })
	return out, nil
}

func (m Machine) podOf(pid string) string {
	content, err := m.readFile("proc/" + pid + "/cgroup")
	if err != nil {
		return ""
	}
	if found := podCgroup.FindStringSubmatch(content); found != nil {
		return strings.ReplaceAll(found[1], "_", "-")
	}
	return ""
}

var errNoSockets = errors.New("no table of sockets could be read")

// listeners are "PROTO ADDRESS:PORT" of the pod's listening sockets, sorted.
func (m Machine) listeners(pod *podNet) ([]string, error) {
	var inodes map[string]bool
	if pod.own {
		var err error
		if inodes, err = m.socketInodes(pod.pids); err != nil {
			return nil, err
		}
	}
	for _, pid := range pod.pids {
		var out []string
		read := 0
		for _, proto := range []string{"tcp", "tcp6", "udp", "udp6"} {
			content, err := m.readFile("proc/" + pid + "/net/" + proto)
			if err != nil {
				continue
			}
			read++
			out = append(out, listening(proto, content, inodes)...)
		}
		// The process may have ended in between, and another stands for it.
		if net, err := fs.ReadLink(m.FS, "proc/"+pid+"/ns/net"); read > 0 && err == nil && net == pod.net {
			slices.Sort(out)
			return slices.Compact(out), nil
		}
	}
	return nil, errNoSockets
}

// socketInodes are the sockets that the processes have open.
func (m Machine) socketInodes(pids []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, pid := range pids {
		entries, err := fs.ReadDir(m.FS, "proc/"+pid+"/fd")
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			to, err := fs.ReadLink(m.FS, "proc/"+pid+"/fd/"+e.Name())
			if inode, ok := strings.CutPrefix(to, "socket:["); err == nil && ok {
				out[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return out, nil
}

// The states of sockets in /proc/net (include/net/tcp_states.h): a listening
// one, and one of UDP that is bound and not connected.
const (
	stateListen  = "0A"
	stateUnbound = "07"
)

// listening reads a table of /proc/net: "sl local_address rem_address st ...",
// addresses in the machine's byte order. inodes, if not nil, are the only
// sockets that count.
func listening(proto, table string, inodes map[string]bool) []string {
	want := stateListen
	if strings.HasPrefix(proto, "udp") {
		want = stateUnbound
	}
	var out []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != want || inodes != nil && !inodes[f[9]] {
			continue
		}
		if at, ok := socketAddress(f[1]); ok {
			out = append(out, proto+" "+at.String())
		}
	}
	return out
}

// socketAddress reads "0100007F:1F90": words of four bytes, each in the
// machine's order, which is little-endian on what Kubernetes runs on but s390x.
func socketAddress(s string) (netip.AddrPort, bool) {
	addr, port, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	b, err2 := hex.DecodeString(addr)
	if !ok || err != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	if littleEndian {
		for i := 0; i < len(b); i += 4 {
			slices.Reverse(b[i : i+4])
		}
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(n)), ok
}
