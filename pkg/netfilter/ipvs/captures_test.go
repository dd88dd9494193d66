package ipvs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// captureDir holds what the tools printed on a node with a real IPVS, healthy
// and under faults.
const captureDir = "../../../../shared/rig/ipvs/captures"

// TestCaptures holds the forms against each other: on each of the 16 states the
// listing, the saved list, the statistics and the kernel's own text tell the
// same.
func TestCaptures(t *testing.T) {
	dirs, _ := filepath.Glob(filepath.Join(captureDir, "*", "ipvsadm-Ln.txt"))
	if len(dirs) == 0 {
		t.Skip("the captures of a node with IPVS are not here")
	}
	for _, listing := range dirs {
		dir := filepath.Dir(listing)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			read := func(name string) *netfilter.VirtualServers {
				b, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				parse := Parse
				if strings.Contains(name, "-Sn") {
					parse = ParseSaved
				}
				v, problems, err := parse(string(b), name)
				if err != nil || len(problems) > 0 || v.Partial() != "" {
					t.Fatalf("%s: %v, %v, partial %q", name, err, problems, v.Partial())
				}
				return v
			}
			want := plainly(read("ipvsadm-Ln.txt"), true)
			if len(want) < 11 {
				t.Fatalf("%d virtual servers", len(want))
			}
			for _, name := range []string{"ipvsadm-Sn.txt", "proc-net-ip_vs.txt"} {
				if d := cmp.Diff(want, plainly(read(name), true)); d != "" {
					t.Errorf("%s (-ipvsadm -Ln +it):\n%s", name, d)
				}
			}
			if d := cmp.Diff(plainly(read("ipvsadm-Ln.txt"), false), plainly(read("ipvsadm-Ln-stats.txt"), false)); d != "" {
				t.Errorf("statistics (-ipvsadm -Ln +they):\n%s", d)
			}
		})
	}
	t.Logf("%d states", len(dirs))
}

// plainly is a list, sorted, without what one of the forms does not show: the
// kernel's has the time-out in ticks.
func plainly(v *netfilter.VirtualServers, weights bool) []string {
	var out []string
	for _, s := range v.All() {
		c := *s
		c.Timeout = 0
		c.Real = slices.Clone(s.Real)
		slices.SortFunc(c.Real, func(a, b netfilter.RealServer) int { return a.Addr.Compare(b.Addr) })
		if !weights {
			c.Scheduler, c.Persistent = "", false
			for i := range c.Real {
				c.Real[i].Weight, c.Real[i].Method = 0, ""
			}
		}
		out = append(out, brief(netfilter.NewVirtualServers([]*netfilter.VirtualServer{&c}, ""))...)
	}
	slices.Sort(out)
	return out
}

// TestPublicReports reads what people posted: with lines left out, in the middle
// of other tools' output, cut.
func TestPublicReports(t *testing.T) {
	const cases = "../../../../shared/cases"
	for name, want := range map[string]int{
		"041-ipvs-all-empty-real-servers/ipvsadm.txt": 16, "043-ipvs-healthy-but-noarp-down/ipvsadm.txt": 1, "046-ipvs-nodeport-host-firewall/ipvsadm.txt": 7,
		"048-ipvs-session-affinity-persistent/ipvsadm.txt": 3, "049-ipvs-sctp/ipvsadm.txt": 7, "118-ipvsadm-S-format-calico/ipvsadm-S-n.txt": 6,
	} {
		b, err := os.ReadFile(filepath.Join(cases, name))
		if err != nil {
			t.Skipf("the public reports are not here: %v", err)
		}
		v, problems, err := Parse(string(b), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(v.All()) != want {
			t.Errorf("%s: %d virtual servers, want %d: %v", name, len(v.All()), want, problems)
		}
	}
}
