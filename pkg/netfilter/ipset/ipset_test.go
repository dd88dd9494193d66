package ipset

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// sets has one of each type that kube-proxy, kube-router and Calico make.
const sets = `create IPS hash:ip family inet hashsize 1024 maxelem 65536 timeout 0 counters comment bucketsize 12 initval 0x1
add IPS 10.96.0.1 timeout 0 packets 1 bytes 2 comment "the nomatch one"
add IPS 10.96.0.2 timeout 598
create NETS hash:net family inet hashsize 1024 maxelem 65536
add NETS 10.0.0.0/8
add NETS 10.1.0.0/16 nomatch
add NETS 10.1.2.3
create CLUSTER hash:ip,port family inet hashsize 1024 maxelem 65536
add CLUSTER 10.96.0.10,udp:53
add CLUSTER 10.96.0.10,tcp:53
create LOOP hash:ip,port,ip family inet hashsize 1024 maxelem 65536
add LOOP 10.244.1.5,tcp:8080,10.244.1.5
create CIDR hash:ip,port,net family inet hashsize 1024 maxelem 65536
add CIDR 203.0.113.9,tcp:80,198.51.100.0/24
create PORTS bitmap:port range 0-65535
add PORTS 30080
create RANGE bitmap:port range 0-65535
add RANGE 30000-30010
create LIST list:set size 8
add LIST NETS
add LIST IPS
create SIX hash:ip,port family inet6 hashsize 1024 maxelem 65536
add SIX fd00::a,tcp:53
create PAIRS hash:net,net family inet hashsize 1024 maxelem 65536
add PAIRS 10.244.0.0/16,10.96.0.0/12
add PAIRS 10.244.9.0/24,10.96.0.0/12 nomatch
create EMPTY hash:ip family inet hashsize 1024 maxelem 65536
create MASKED hash:ip family inet netmask 24 hashsize 1024 maxelem 65536
add MASKED 10.5.6.0
create MARKS hash:ip,mark family inet markmask 0xffffffff hashsize 1024 maxelem 65536
add MARKS 10.96.0.1,0x00000004
create NP hash:net,port family inet hashsize 1024 maxelem 65536
add NP 10.96.0.0/16,tcp:80
`

func TestContains(t *testing.T) {
	s, problems, err := Parse(sets, "sets")
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	for _, c := range []struct {
		set, sides, src, dst string
		sport                uint16
		proto                uint8
		mark                 uint32
		want                 netfilter.Tri
	}{
		{"IPS", "dst", "10.244.1.5", "10.96.0.1:80", 0, 6, 0, netfilter.True},
		{"IPS", "src", "10.96.0.2", "10.96.0.9:80", 0, 6, 0, netfilter.True},
		{"IPS", "dst", "10.244.1.5", "10.96.0.3:80", 0, 6, 0, netfilter.False},
		{"IPS", "dst,dst", "10.244.1.5", "10.96.0.1:80", 0, 6, 0, netfilter.True},
		{"NETS", "dst", "10.244.1.5", "10.2.0.1:80", 0, 6, 0, netfilter.True},
		{"NETS", "dst", "10.244.1.5", "10.1.0.1:80", 0, 6, 0, netfilter.False},
		{"NETS", "dst", "10.244.1.5", "10.1.2.3:80", 0, 6, 0, netfilter.True},
		{"CLUSTER", "dst,dst", "10.244.1.5", "10.96.0.10:53", 0, 17, 0, netfilter.True},
		{"CLUSTER", "dst,dst", "10.244.1.5", "10.96.0.10:53", 0, 132, 0, netfilter.False},
		{"CLUSTER", "dst,dst", "10.244.1.5", "10.96.0.10:54", 0, 17, 0, netfilter.False},
		{"CLUSTER", "dst", "10.244.1.5", "10.96.0.10:53", 0, 17, 0, netfilter.False},
		{"CLUSTER", "src,src", "10.96.0.10", "10.0.0.1:53", 0, 17, 0, netfilter.Unknown},
		{"CLUSTER", "src,src", "10.96.0.10", "10.0.0.1:1", 53, 17, 0, netfilter.True},
		{"LOOP", "dst,dst,src", "10.244.1.5", "10.244.1.5:8080", 0, 6, 0, netfilter.True},
		{"LOOP", "dst,dst,src", "10.244.1.6", "10.244.1.5:8080", 0, 6, 0, netfilter.False},
		{"CIDR", "dst,dst,src", "198.51.100.7", "203.0.113.9:80", 0, 6, 0, netfilter.True},
		{"CIDR", "dst,dst,src", "198.51.101.7", "203.0.113.9:80", 0, 6, 0, netfilter.False},
		{"PORTS", "dst", "192.0.2.1", "10.0.0.1:30080", 0, 6, 0, netfilter.True},
		{"PORTS", "dst", "192.0.2.1", "10.0.0.1:30081", 0, 17, 0, netfilter.False},
		{"RANGE", "dst", "192.0.2.1", "10.0.0.1:30005", 0, 17, 0, netfilter.True},
		{"LIST", "dst", "10.244.1.5", "10.96.0.1:80", 0, 6, 0, netfilter.True},
		{"LIST", "dst", "10.244.1.5", "11.96.0.1:80", 0, 6, 0, netfilter.False},
		{"SIX", "dst,dst", "fd00::1", "[fd00::a]:53", 0, 6, 0, netfilter.True},
		{"SIX", "dst,dst", "10.0.0.1", "10.0.0.2:53", 0, 6, 0, netfilter.False},
		{"PAIRS", "src,dst", "10.244.1.5", "10.97.0.1:80", 0, 6, 0, netfilter.True},
		{"PAIRS", "src,dst", "10.244.9.5", "10.97.0.1:80", 0, 6, 0, netfilter.False},
		{"PAIRS", "dst,src", "10.244.1.5", "10.97.0.1:80", 0, 6, 0, netfilter.False},
		{"EMPTY", "dst", "10.244.1.5", "10.97.0.1:80", 0, 6, 0, netfilter.False},
		{"MASKED", "dst", "10.244.1.5", "10.5.6.77:80", 0, 6, 0, netfilter.True},
		{"MARKS", "dst,dst", "10.244.1.5", "10.96.0.1:80", 0, 6, 4, netfilter.True},
		{"MARKS", "dst,dst", "10.244.1.5", "10.96.0.1:80", 0, 6, 5, netfilter.False},
		{"NP", "dst,dst", "10.244.1.5", "10.96.7.1:80", 0, 6, 0, netfilter.True},
		{"NP", "dst,dst", "10.244.1.5", "10.96.7.1:81", 0, 6, 0, netfilter.False},
		{"ABSENT", "dst", "10.244.1.5", "10.96.0.1:80", 0, 6, 0, netfilter.Unknown},
	} {
		dst := netip.MustParseAddrPort(c.dst)
		st := &netfilter.State{Flow: netfilter.Flow{
			Src: netip.MustParseAddr(c.src), SrcPort: c.sport, Dst: dst.Addr(), DstPort: dst.Port(), Protocol: c.proto, Mark: c.mark, Hook: netfilter.Forward,
		}}
		got, why := s.Contains(c.set, strings.Split(c.sides, ","), st)
		if got != c.want || (got == netfilter.Unknown) != (why != "") {
			t.Errorf("%s %s from %s to %s/%d: %v %q, want %v", c.set, c.sides, c.src, c.dst, c.proto, got, why, c.want)
		}
	}
}

// TestNotWhole: what may be missing from a set is not taken to be absent.
func TestNotWhole(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       netfilter.Tri
		says       string
		problems   int
	}{
		{"whole", "create A hash:ip family inet\nadd A 10.0.0.1\n", netfilter.False, "", 0},
		{"cut", "create A hash:ip family inet\nadd A 10.0.0.1\nadd A 10.0.0.2", netfilter.Unknown, "breaks off", 0},
		{"an element", "create A hash:ip family inet\nadd A 10.0.0.x\n", netfilter.Unknown, "line 2", 1},
		{"no create", "add A 10.0.0.1\ncreate B hash:ip\n", netfilter.Unknown, "create line", 1},
		{"another type", "create A hash:colour family inet\nadd A red\n", netfilter.Unknown, "hash:colour", 1},
		{"list, whole", "Name: A\nType: hash:ip\nHeader: family inet hashsize 1024\nNumber of entries: 1\nMembers:\n10.0.0.1\n", netfilter.False, "", 0},
		{"list, cut", "Name: A\nType: hash:ip\nHeader: family inet hashsize 1024\nNumber of entries: 2\nMembers:\n10.0.0.1\n", netfilter.Unknown, "1 of its 2 members", 0},
		{"list -t", "Name: A\nType: hash:ip\nHeader: family inet hashsize 1024\n\nName: B\nType: hash:ip\nHeader: family inet\nMembers:\n", netfilter.Unknown, "members are not in the input", 0},
		{"a member masked by hand", "Name: A\nType: hash:ip\nHeader: family inet timeout 0\nMembers:\nXXX.XXX.1.2 timeout 0\n10.0.0.1 timeout 0\n", netfilter.Unknown, "line 5", 1},
	} {
		s, problems, err := Parse(c.text, "x")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		st := &netfilter.State{Flow: netfilter.Flow{Src: netip.MustParseAddr("10.9.9.9"), Dst: netip.MustParseAddr("10.9.9.8"), Protocol: 6, DstPort: 80}}
		got, why := s.Contains("A", []string{"dst"}, st)
		if got != c.want || !strings.Contains(why, c.says) || len(problems) != c.problems {
			t.Errorf("%s: %v %q %v, want %v %q and %d problems", c.name, got, why, problems, c.want, c.says, c.problems)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]error{"": ErrNoSet, "hello\n": ErrNoSet, "create A hash:ip\nadd A \x00\n": ErrBinary, strings.Repeat("x\n", 4<<20): ErrNoSet} {
		if _, _, err := Parse(text, "x"); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", text, err, want)
		}
	}
}

// TestPublicListing reads a public report's listing of kube-router's sets.
func TestPublicListing(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "cases", "107-kube-router-ipsets-timeouts")
	text, err := os.ReadFile(filepath.Join(dir, "ipset-list.txt"))
	if err != nil {
		t.Skipf("the shared cases are not beside the repository: %v", err)
	}
	s, problems, err := Parse(string(text), "ipset list")
	if err != nil || len(problems) != 1 || problems[0].Line != 10 {
		t.Fatalf("%v %v", err, problems)
	}
	if want := []string{"kube-router-ipvs-services", "kube-router-local-ips", "kube-router-service-ips"}; !slices.Equal(s.Names(), want) || s.Size(want[0]) != 6 {
		t.Errorf("%v, %d", s.Names(), s.Size(want[0]))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sets)
	f.Add("Name: A\nType: hash:ip,port,net\nHeader: family inet6\nNumber of entries: 2\nMembers:\nfd00::1,tcp:80,fd00::/64 nomatch\n\nName: B\nType: list:set\nMembers:\nA\nB\n")
	f.Add("create A bitmap:ip range 10.0.0.0/28\nadd A 10.0.0.0/28\ncreate B hash:net,net,net\n-A A 1.2.3.4-5.6.7.8\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, _, err := Parse(text, "x")
		if err != nil {
			return
		}
		for _, n := range s.Names() {
			for _, st := range []*netfilter.State{
				{Flow: netfilter.Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.96.0.1"), Protocol: 6, DstPort: 80, Hook: netfilter.Forward}},
				{Flow: netfilter.Flow{Dst: netip.MustParseAddr("fd00::1"), Protocol: 58}},
			} {
				if in, why := s.Contains(n, []string{"dst", "dst", "src"}, st); in == netfilter.Unknown && why == "" {
					t.Errorf("set %s is unknown for no reason", n)
				}
			}
		}
	})
}
