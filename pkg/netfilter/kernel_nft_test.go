//go:build linux

package netfilter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
)

// TestKernelNft makes real connections through rules that nft loaded, of
// kube-proxy's nftables mode and of other tools, and compares where they end
// with what Walk says of each form in which nft lists them.
func TestKernelNft(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft on this machine")
	}
	b := newBench(t)
	b.runNft(t, "kube-proxy", []string{"kube-proxy"}, []kernelFlow{
		{"random backends", false, "10.91.96.10:80", 40},
		{"one backend", false, "10.91.96.11:80", 1},
		{"no endpoints", false, "10.91.96.20:80", 1},
		{"none of this node", false, "10.91.96.21:80", 1},
		{"a port that the Service lacks", false, "10.91.96.11:81", 1},
		{"an address of no Service", false, "10.91.96.40:80", 1},
		{"outside of the service range", false, "10.91.2.2:8080", 1},
		{"node port, masqueraded", false, "10.91.1.1:30080", 1},
		{"node port without endpoints", false, "10.91.1.1:30081", 1},
		{"no node port on another address", false, "10.91.2.1:9090", 1},
		{"source not in the ranges", false, "10.91.96.30:80", 1},
		{"source in the ranges", false, "10.91.96.31:80", 1},
		{"node's own, backends", true, "10.91.96.10:80", 40},
		{"node's own, no endpoints", true, "10.91.96.20:80", 1},
		{"node's own, unknown port", true, "10.91.96.11:81", 1},
	})
	b.runNft(t, "kube-proxy 1.29", []string{"kube-proxy-1.29"}, []kernelFlow{
		{"random backends", false, "10.91.96.10:80", 40},
		{"no endpoints", false, "10.91.96.20:80", 1},
		{"node port, masqueraded", false, "10.91.1.1:30080", 40},
		{"node's own, backends", true, "10.91.96.10:80", 40},
	})
	b.runNft(t, "firewalld beside", []string{"kube-proxy", "firewalld"}, []kernelFlow{
		{"one backend rejected with a reset", false, "10.91.96.10:80", 40},
		{"dropped by its original destination", false, "10.91.96.11:80", 1},
		{"accepted after NAT", false, "10.91.96.31:80", 1},
		{"forwarded without NAT", false, "10.91.2.2:8080", 1},
		{"rejected without NAT", false, "10.91.2.3:8080", 1},
		{"to the node, open", false, "10.91.1.1:9090", 1},
		{"to the node, closed", false, "10.91.1.1:9091", 1},
	})
	b.runNft(t, "docker beside", []string{"kube-proxy", "docker"}, []kernelFlow{
		{"one backend dropped", false, "10.91.96.10:80", 40},
		{"a map of destinations", false, "10.91.1.1:8888", 1},
		{"the other key of the map", false, "10.91.2.1:8888", 1},
		{"dropped in raw", false, "10.91.2.2:81", 1},
		{"kube-proxy's own", false, "10.91.96.11:80", 1},
	})
}

// runNft loads files with nft, lists what the kernel then has in each form,
// makes the connections, and walks the same packets through each form.
func (b *bench) runNft(t *testing.T, name string, files []string, flows []kernelFlow) {
	t.Run(name, func(t *testing.T) {
		defer b.command(t, nil, "ip", "netns", "exec", b.node, "nft", "flush", "ruleset")
		for _, file := range files {
			rules, err := os.Open(filepath.Join("testdata", "kernel", file+".nft"))
			if err != nil {
				t.Fatal(err)
			}
			b.command(t, rules, "ip", "netns", "exec", b.node, "nft", "-f", "-")
			rules.Close()
		}
		forms := map[string]*netfilter.Ruleset{}
		for _, flags := range []string{"", "-j", "-a", "-n", "-nn"} {
			argv := append([]string{"netns", "exec", b.node, "nft"}, strings.Fields(flags)...)
			text := b.command(t, nil, "ip", append(argv, "list", "ruleset")...)
			rs, problems, err := nftables.Parse(text, nftables.Options{Source: "nft " + flags, Whole: true, Strict: true})
			if err != nil || len(problems) > 0 {
				t.Fatalf("nft %s: %v %v", flags, err, problems)
			}
			forms["nft "+flags] = rs
		}
		for _, f := range flows {
			t.Run(f.name, func(t *testing.T) { b.compareForms(t, forms, f) })
		}
	})
}

// compareForms walks the packet through the first form as compare does, and
// holds the others to the same outcomes.
func (b *bench) compareForms(t *testing.T, forms map[string]*netfilter.Ruleset, f kernelFlow) {
	b.compare(t, forms["nft "], f)
	want := endsOf(b.walk(forms["nft "], f))
	for name, rs := range forms {
		if got := endsOf(b.walk(rs, f)); !slices.Equal(got, want) {
			t.Errorf("%s gives %v, nft %v", name, got, want)
		}
	}
}

func endsOf(outcomes []netfilter.Outcome) []string {
	var out []string
	for _, o := range outcomes {
		out = append(out, string(o.Verdict)+" "+o.To.String()+" "+o.Masquerade.String()+" "+o.RejectWith)
	}
	return out
}
