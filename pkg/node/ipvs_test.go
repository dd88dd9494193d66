package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter/ipvs"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const procIPVS = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> 0A000203:192B      Masq    1      0          0
TCP  [fd00:0010:0096:0000:0000:0000:0000:0001]:0050 rr persistent 10800 128
`

func TestVirtualServers(t *testing.T) {
	tests := []struct {
		name   string
		setup  func(*fake)
		status snapshot.ReadStatus
		text   string // the content, or how the reason begins
	}{
		{"there", func(f *fake) { f.files["proc/net/ip_vs"] = file(procIPVS) }, snapshot.Done, procIPVS},
		{"no ip_vs in the kernel", func(f *fake) { f.files["proc/net/dev"] = file("") }, snapshot.Done, "the file is absent: ip_vs is not in the kernel"},
		{"no /proc/net", func(*fake) {}, snapshot.Failed, "open proc/net/ip_vs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.setup(f)
			x := f.virtualServers()
			if x.Kind != snapshot.ProcIPVS || x.Status != tt.status || x.Content != tt.text && !strings.HasPrefix(x.Why, tt.text) || tt.status == snapshot.Failed && x.Supply == "" {
				t.Errorf("got %+v", x)
			}
			if len(f.ran) > 0 {
				t.Errorf("ran %q", f.ran)
			}
		})
	}
}

// What the kernel's file says is what the walk reads.
func TestVirtualServersParse(t *testing.T) {
	f := newFake()
	f.files["proc/net/ip_vs"] = file(procIPVS)
	if _, problems, err := ipvs.Parse(f.virtualServers().Content, "/proc/net/ip_vs"); err != nil || len(problems) > 0 {
		t.Errorf("got %v, %v", err, problems)
	}
}

func TestSets(t *testing.T) {
	const out = "output of ipset save\n"
	fails := func(message string) Runner {
		return func(context.Context, string, ...string) (string, error) { return "", errors.New(message) }
	}
	tests := []struct {
		name   string
		setup  func(*fake)
		status snapshot.ReadStatus
		text   string
		ran    []string
	}{
		{"ip_set loaded", func(f *fake) { f.files["proc/modules"] = file("ip_set 1 0 - Live 0x0\n") }, snapshot.Done, out, []string{"ipset save"}},
		{"ip_set built in", func(f *fake) { f.files["proc/kallsyms"] = file("0 T ip_set_type_register\n") }, snapshot.Done, out, []string{"ipset save"}},
		{"not loaded, never run", func(*fake) {}, snapshot.Done, "the kernel has no ip_set loaded", nil},
		{"a type of set alone is not ip_set", func(f *fake) { f.files["proc/modules"] = file("ip_set_hash_ip 1 0 - Live 0x0\n") }, snapshot.Done, "the kernel has no ip_set loaded", nil},
		{"cannot tell", func(f *fake) { delete(f.files, "proc/kallsyms") }, snapshot.Failed, "not run: it cannot be told whether ip_set", nil},
		{"cannot tell, and nothing can be loaded", func(f *fake) {
			delete(f.files, "proc/kallsyms")
			delete(f.files, "proc/modules")
		}, snapshot.Done, out, []string{"ipset save"}},
		{"nothing can be loaded, and there is none", func(f *fake) {
			delete(f.files, "proc/kallsyms")
			delete(f.files, "proc/modules")
			f.Run = fails("exit status 1: ipset v7.17: Cannot open session to kernel.")
		}, snapshot.Done, "the kernel has no ip_set loaded", nil},
		{"no program", func(f *fake) {
			f.files["proc/modules"] = file("ip_set 1 0 - Live 0x0\n")
			delete(f.files, "usr/sbin/ipset")
		}, snapshot.Failed, "no ipset is installed", nil},
		{"not root", func(f *fake) {
			f.files["proc/modules"] = file("ip_set 1 0 - Live 0x0\n")
			f.Root, f.Run = false, fails("exit status 1: ipset v7.17: Kernel error received: Operation not permitted")
		}, snapshot.Failed, "needs root", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.files["usr/sbin/ipset"] = file("")
			tt.setup(f)
			x := f.sets(context.Background(), f.kernel())
			if x.Kind != snapshot.IpsetSave || x.Status != tt.status || x.Content != tt.text && !strings.HasPrefix(x.Why, tt.text) || tt.status == snapshot.Failed && x.Supply == "" {
				t.Errorf("got %+v", x)
			}
			if diff := cmp.Diff(tt.ran, f.ran); diff != "" {
				t.Errorf("ran: %s", diff)
			}
		})
	}
}
