package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// TestRecogniseIPVS: virtual servers in each form, alone and after other output.
func TestRecogniseIPVS(t *testing.T) {
	const (
		listed = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\nTCP  10.96.0.1:443 rr\n  -> 10.0.0.1:6443                Masq    1      0          0         \n"
		saved  = "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 10.0.0.1:6443 -m -w 1\n"
		proc   = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\nTCP  0A600001:01BB rr  \n  -> 0A000001:192B      Masq    1      0          0         \n"
		addr   = "9: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default \n    inet 10.96.0.1/32 scope global kube-ipvs0\n"
	)
	done := snapshot.Done
	for _, tt := range []struct {
		name, content string
		want          []described
	}{
		{"listed", listed, []described{{snapshot.Ipvsadm, 1, done, ""}}},
		{"saved", saved, []described{{snapshot.Ipvsadm, 1, done, ""}}},
		{"the kernel's", proc, []described{{snapshot.ProcIPVS, 1, done, ""}}},
		{"without a header", strings.SplitAfterN(listed, "\n", 4)[3], []described{{snapshot.Ipvsadm, 1, done, ""}}},
		{"after addresses", addr + listed, []described{{snapshot.IPAddr, 1, done, ""}, {snapshot.Ipvsadm, 3, done, ""}}},
		{"commands", "sudo ipvsadm -A -t 10.96.0.1:443 -s rr\n", []described{{snapshot.Ipvsadm, 1, done, ""}}},
		{"kube-proxy's mode", "ipvs", []described{{snapshot.ProxyMode, 1, done, ""}}},
		{"SCTP", "-A --sctp-service 10.96.0.1:443 -s rr\n", []described{{snapshot.Ipvsadm, 1, done, ""}}},
		{"IPv6 of the kernel's", "TCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:1F90 rr  \n", []described{{snapshot.ProcIPVS, 1, done, ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			states, _, err := readOne(t, "state.txt", tt.content)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, describe(states[0].Texts)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestIPVSFolder reads the state of a real node in IPVS mode as the folder that
// it was captured into.
func TestIPVSFolder(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "rig", "ipvs", "captures", "healthy")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the captures of a node in IPVS mode are not here: %v", err)
	}
	states, _, err := ReadFiles([]string{"ipvs-n3=" + dir}, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[snapshot.TextKind]int{}
	for _, x := range states[0].Texts {
		got[x.Kind]++
	}
	for kind, want := range map[snapshot.TextKind]int{snapshot.Ipvsadm: 3, snapshot.ProcIPVS: 1, snapshot.IpsetSave: 1, snapshot.ProxyMode: 1, snapshot.Hostname: 0, snapshot.IptablesSave: 1, snapshot.Ip6tablesSave: 1} {
		if got[kind] != want {
			t.Errorf("%s: %d, want %d", kind, got[kind], want)
		}
	}
	t.Log(got)
}
