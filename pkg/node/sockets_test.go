package node

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const tcpHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func socketLine(at, state, inode string) string {
	return "   0: " + at + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000     0        0 " + inode + " 1 0000000000000000 100 0 0 10 0\n"
}

// addPod gives the machine a process of a pod's.
func (f *fake) addPod(pid, cgroup, netns string, tables map[string]string, sockets ...string) {
	f.files["proc/"+pid+"/cgroup"] = file(cgroup)
	f.files["proc/"+pid+"/ns/net"] = link(netns)
	for proto, table := range tables {
		f.files["proc/"+pid+"/net/"+proto] = file(tcpHead + table)
	}
	for i, inode := range sockets {
		f.files["proc/"+pid+"/fd/"+string(rune('3'+i))] = link("socket:[" + inode + "]")
	}
}

func TestPodSockets(t *testing.T) {
	if !littleEndian {
		t.Skip("the tables below are a little-endian machine's")
	}
	const (
		systemd  = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod27f56717_78e0_4d6c_8513_9f5933dfe3a7.slice/cri-containerd-0123.scope\n"
		cgroupfs = "11:memory:/kubepods/besteffort/poddd3e9f1f-9cba-4bf2-9f5c-c39502194838/abc\n0::/\n"
		static   = "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod0123456789abcdef0123456789abcdef.slice/cri-x.scope\n"
	)
	f := newFake()
	f.addPod("100", systemd, "net:[7]", map[string]string{
		"tcp":  socketLine("0100007F:1F90", "0A", "11") + socketLine("00000000:1F91", "0A", "12") + socketLine("0500F40A:1F91", "01", "13"),
		"tcp6": socketLine("00000000000000000000000001000000:2328", "0A", "14") + socketLine("00000000000000000000000000000000:2329", "0A", "15"),
		"udp":  socketLine("00000000:0035", "07", "16") + socketLine("0500F40A:C000", "01", "17"),
	})
	f.addPod("101", systemd, "net:[7]", nil) // another process of it
	f.addPod("102", systemd, "net:[8]", map[string]string{"tcp": socketLine("00000000:0001", "0A", "18")})
	f.addPod("200", cgroupfs, "net:[9]", map[string]string{"tcp": ""})
	// On the node's own network, by what it has open.
	f.addPod("300", static, "net:[1]", map[string]string{"tcp": socketLine("00000000:2810", "0A", "21") + socketLine("00000000:0016", "0A", "22")}, "21")
	f.addPod("400", "0::/kubepods/podnot-a-uid/x\n", "net:[9]", nil)
	f.addPod("500", "0::/system.slice/sshd.service\n", "net:[1]", nil)
	want := `0123456789abcdef0123456789abcdef tcp 0.0.0.0:10256
27f56717-78e0-4d6c-8513-9f5933dfe3a7 tcp 0.0.0.0:8081
27f56717-78e0-4d6c-8513-9f5933dfe3a7 tcp 127.0.0.1:8080
27f56717-78e0-4d6c-8513-9f5933dfe3a7 tcp6 [::1]:9000
27f56717-78e0-4d6c-8513-9f5933dfe3a7 tcp6 [::]:9001
27f56717-78e0-4d6c-8513-9f5933dfe3a7 udp 0.0.0.0:53
dd3e9f1f-9cba-4bf2-9f5c-c39502194838 none
`
	got := f.podSockets()
	if got.Status != snapshot.Done {
		t.Fatal(got.Why)
	}
	if diff := cmp.Diff(want, got.Content); diff != "" {
		t.Error(diff)
	}
	if len(f.ran) > 0 {
		t.Errorf("ran %q", f.ran)
	}
	f.Root = false
	if got := f.podSockets(); got.Status != snapshot.Failed || !strings.Contains(got.Why, "without root") {
		t.Errorf("not root: %+v", got)
	}
}

// TestListeningIsTheKernels reads this machine's own table for a socket that
// the test opens.
func TestListeningIsTheKernels(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no socket can be opened here: %v", err)
	}
	defer l.Close()
	b, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Skipf("no table of sockets here: %v", err)
	}
	want := "tcp " + netip.MustParseAddrPort(l.Addr().String()).String()
	if got := listening("tcp", string(b), nil); !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
		t.Errorf("%s is not among %q", want, got)
	}
}

func FuzzListening(f *testing.F) {
	f.Add(tcpHead + socketLine("0100007F:1F90", "0A", "11") + socketLine("00000000000000000000000001000000:2328", "07", "14"))
	f.Fuzz(func(t *testing.T, table string) {
		for _, proto := range []string{"tcp", "udp6"} {
			for _, l := range listening(proto, table, nil) {
				if _, err := netip.ParseAddrPort(strings.TrimPrefix(l, proto+" ")); err != nil {
					t.Errorf("%q: %v", l, err)
				}
			}
		}
	})
}
