package proxy

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
)

// TestAgainstWalk holds what is expected of the objects alone to what the
// rules do that kube-proxy wrote for the same objects: the verdict, the
// backends, the share of each, and whether each is masqueraded. It does so for
// every file that has objects, in both texts that the kernel's tools give, for
// the flows that the file records, and for a packet of every kind of client
// to every address of every Service.
func TestAgainstWalk(t *testing.T) {
	if _, err := os.Stat(oracleDir); err != nil {
		t.Skipf("kube-proxy's recorded rules are not here: %v", err)
	}
	// Files with objects, and the flows that they record.
	for mode, want := range map[string]struct{ files, recorded int }{"iptables": {67, 239}, "nftables": {57, 207}} {
		t.Run(mode, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(oracleDir, mode+"-*.json"))
			if err != nil {
				t.Fatal(err)
			}
			c := &comparison{reasons: map[string]int{}}
			for _, name := range files {
				o := readOracle(t, name)
				if !o.HasObjects {
					continue
				}
				c.files++
				for key, rs := range o.rulesets(t, mode, name) {
					for _, p := range o.packets() {
						c.hold(t, o, mode, fmt.Sprintf("%s %s: %s", filepath.Base(name), key, p), rs, p)
					}
				}
			}
			t.Logf("%s mode: %d files in 2 texts, %d flows compared (%d of them recorded), %d differences", mode, c.files, c.flows, c.recorded, c.differences)
			t.Logf("expected: %d forward (%d backends), %d reject, %d drop; otherwise, rightly: %v", c.forward, c.backends, c.reject, c.drop, c.reasons)
			if c.files != want.files || c.recorded != 2*want.recorded {
				t.Errorf("%d files and %d recorded flows in each text were compared, want %+v", c.files, c.recorded/2, want)
			}
		})
	}
}

// comparison counts what was compared.
type comparison struct {
	files, flows, recorded, differences int
	forward, backends, reject, drop     int
	// reasons why something else is expected than the objects alone call for,
	// or why a packet is for no Service.
	reasons map[string]int
}

// packet is a packet to compare by.
type packet struct {
	src      netip.Addr
	dst      netip.AddrPort
	protocol string
	recorded bool
}

func (p packet) String() string { return fmt.Sprintf("%s -> %s/%s", p.src, p.dst, p.protocol) }

// rulesets are the file's rules by each text.
func (o *oracle) rulesets(t *testing.T, mode, name string) map[string]*netfilter.Ruleset {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(oracleDir+"-kernel", strings.TrimSuffix(filepath.Base(name), ".json")+".real.json"))
	if err != nil {
		t.Fatal(err)
	}
	var texts map[string]json.RawMessage
	if err := json.Unmarshal(b, &texts); err != nil {
		t.Fatal(err)
	}
	keys := []string{"nftSave", "legacySave"}
	if mode == "nftables" {
		keys = []string{"nftList", "nftJSON"}
	}
	out := map[string]*netfilter.Ruleset{}
	for _, key := range keys {
		text := string(texts[key])
		if s := ""; json.Unmarshal(texts[key], &s) == nil {
			text = s
		}
		var rs *netfilter.Ruleset
		if mode == "nftables" {
			rs, _, err = nftables.Parse(text, nftables.Options{Source: key, Whole: true, Strict: true})
		} else {
			rs, _, err = iptables.Parse(text, iptables.Options{Source: key, Whole: true, Strict: true, Family: o.family()})
		}
		if err != nil {
			t.Fatalf("%s %s: %v", name, key, err)
		}
		out[key] = rs
	}
	return out
}

func (o *oracle) family() netfilter.Family {
	if o.Proxier.IPFamily == "IPv6" {
		return netfilter.IPv6
	}
	return netfilter.IPv4
}

// addresses are the node's own.
func (o *oracle) addresses() []netip.Addr {
	var out []netip.Addr
	for _, s := range o.NodeIPs {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// packets are the recorded flows, then for each frontend a packet of a pod, of
// the node, of two clients outside, and of each backend on the node.
func (o *oracle) packets() []packet {
	var out []packet
	for _, f := range o.Flows {
		out = append(out, packet{netip.MustParseAddr(f.SourceIP), netip.AddrPortFrom(netip.MustParseAddr(f.DestIP), uint16(f.DestPort)), strings.ToLower(f.Protocol), true})
	}
	v6 := o.family() == netfilter.IPv6
	clients := []string{"10.0.0.77", "203.0.113.77", "198.51.100.7", "127.0.0.1"}
	if v6 {
		clients = []string{"fd00:10::77", "2600:5200::77", "2001:db8:ffff::7"}
	}
	var from []netip.Addr
	for _, s := range clients {
		from = append(from, netip.MustParseAddr(s))
	}
	for _, a := range o.addresses() {
		if a.Is6() == v6 {
			from = append(from, a)
			break
		}
	}
	for _, sl := range o.EndpointSlices {
		for _, e := range sl.Endpoints {
			if e.NodeName == nil || *e.NodeName != o.Proxier.NodeName {
				continue // a pod elsewhere meets the rules of its own node
			}
			for _, s := range e.Addresses {
				if a, ok := ParseAddr(s); ok && a.Is6() == v6 && !slices.Contains(from, a) {
					from = append(from, a)
				}
			}
		}
	}
	for _, svc := range o.Services {
		for _, f := range Frontends(svc) {
			if f.V6 != v6 {
				continue // this kube-proxy is of the other family
			}
			to := []netip.Addr{f.IP}
			if f.Kind == NodePort {
				to = slices.DeleteFunc(o.addresses(), func(a netip.Addr) bool { return a.Is6() != v6 })
			}
			for _, dst := range to {
				for _, src := range from {
					if src.IsLoopback() && f.Kind != ClusterIP && dst.IsLoopback() {
						continue
					}
					out = append(out, packet{src, netip.AddrPortFrom(dst, uint16(f.Port)), strings.ToLower(string(f.Protocol)), false})
				}
			}
		}
	}
	return out
}

// hold compares one packet's outcomes with the expectation.
func (c *comparison) hold(t *testing.T, o *oracle, mode, where string, rs *netfilter.Ruleset, p packet) {
	t.Helper()
	c.flows++
	if p.recorded {
		c.recorded++
	}
	want, masquerade := c.expected(t, o, mode, where, p)
	outcomes := o.walk(rs, p)
	differs := func(format string, args ...any) {
		t.Helper()
		c.differences++
		t.Errorf("%s: "+format+"\n%s", append(append([]any{where}, args...), told(outcomes))...)
	}
	got := map[string]float64{}
	for _, oc := range outcomes {
		got[ending(oc)] += oc.Probability
		if oc.Verdict != netfilter.DNAT {
			continue
		}
		// A backend that draws itself is masqueraded always.
		must := netfilter.Of(masquerade == MasqYes || oc.To.Addr() == p.src)
		if masquerade == MasqMaybe || oc.Masquerade != must {
			differs("to %s: masqueraded %s, expected %s", oc.To, oc.Masquerade, masquerade)
			return
		}
	}
	for e, share := range want {
		// iptables writes 11 digits of a share.
		if math.Abs(got[e]-share) > 1e-8 {
			differs("%s: expected in %.9f of all cases, the rules do so in %.9f", e, share, got[e])
			return
		}
	}
	if len(got) != len(want) {
		differs("expected %v, the rules do %v", want, got)
	}
}

// expected is the share of each ending that the objects call for.
func (c *comparison) expected(t *testing.T, o *oracle, mode, where string, p packet) (map[string]float64, Masquerade) {
	t.Helper()
	f := flow{SourceIP: p.src.String(), DestIP: p.dst.Addr().String(), DestPort: int32(p.dst.Port()), Protocol: p.protocol}
	fe := frontendOf(o, f)
	if fe == nil {
		end, why := o.unserved(mode, p.dst.Addr())
		c.reasons[why]++
		return map[string]float64{end: 1}, MasqNo
	}
	client := o.client(p.src, fe)
	e := ExpectFrom(serviceOf(o, *fe), o.EndpointSlices, o.node(), client, p.src, *fe)
	if e.Unsure != "" {
		t.Errorf("%s: not sure: %s", where, e.Unsure)
	}
	if end, why := o.otherwise(mode, client, p.dst.Addr(), e); why != "" {
		c.reasons[why]++
		return map[string]float64{end: 1}, MasqNo
	}
	switch e.Action {
	case Reject:
		c.reject++
		return map[string]float64{"reject": 1}, MasqNo
	case Drop:
		c.drop++
		return map[string]float64{"drop": 1}, MasqNo
	case Ignore:
		c.reasons[e.Why]++
		return map[string]float64{"untouched": 1}, MasqNo
	}
	c.forward++
	c.backends += len(e.Backends)
	want := map[string]float64{}
	for _, b := range e.Backends {
		want[b.Addr.String()] += 1 / float64(len(e.Backends))
	}
	return want, e.Masquerade
}

// otherwise says where kube-proxy rightly does something else than the objects
// alone call for, and why; "" where it does not. This is the whole list.
func (o *oracle) otherwise(mode string, client ClientKind, dst netip.Addr, e Expectation) (end, why string) {
	if e.Frontend.Kind == NodePort {
		why = o.leavesOut(mode, dst)
		if why != "" && mode == "iptables" && e.Action == Reject && !dst.IsLoopback() {
			return "reject", "iptables mode rejects a node port without endpoints at addresses that nodePortAddresses leaves out, too"
		}
		return "untouched", why
	}
	if mode == "iptables" && client == NodeClient && e.Frontend.Kind != ClusterIP && e.Action == Reject && !slices.Contains(o.addresses(), dst) {
		return "untouched", "iptables mode rejects what comes in or through to an external address without endpoints, not what the node itself sends (KUBE-EXTERNAL-SERVICES is not called from OUTPUT)"
	}
	return "", ""
}

// leavesOut says why node ports are not served at an address of the node; ""
// where they are. Which addresses are is kube-proxy's configuration, not the
// objects'; the walk's layer 3 reads it.
func (o *oracle) leavesOut(mode string, a netip.Addr) string {
	if a.IsLoopback() {
		switch {
		case a.Is6():
			return "node ports are never served on ::1"
		case mode == "nftables":
			return "nftables mode never serves node ports on loopback"
		case !o.Proxier.LocalhostNodePorts:
			return "localhostNodePorts is off"
		}
	}
	for _, text := range strings.Fields(strings.Trim(o.Proxier.NodePortAddresses, "[]")) {
		if netip.MustParsePrefix(text).Contains(a) {
			return ""
		}
	}
	return "nodePortAddresses leaves the address out"
}

// unserved says how a packet ends that is for no Service, and why.
func (o *oracle) unserved(mode string, a netip.Addr) (end, why string) {
	if mode == "nftables" {
		for _, svc := range o.Services {
			for _, f := range Frontends(svc) {
				if f.Kind == ClusterIP && f.IP == a {
					return "reject", "nftables mode rejects ports that a cluster IP lacks"
				}
			}
		}
		if r, err := netip.ParsePrefix(o.Proxier.ServiceCIDRs); err == nil && r.Contains(a) {
			return "drop", "nftables mode drops what is for no Service of the service range"
		}
	}
	return "untouched", "no Service has the address and port"
}

// client is what kube-proxy takes a source for.
func (o *oracle) client(src netip.Addr, fe *Frontend) ClientKind {
	switch {
	case src.IsLoopback() || slices.Contains(o.addresses(), src) || isLoadBalancerAddr(serviceOf(o, *fe), src):
		return NodeClient
	case netip.MustParsePrefix("10.0.0.0/8").Contains(src) || netip.MustParsePrefix("fd00:10::/64").Contains(src):
		return PodClient
	}
	return ExternalClient
}

// walk walks the packet: what the node itself sends leaves by OUTPUT, and a
// source that is the destination can be no one else's.
func (o *oracle) walk(rs *netfilter.Ruleset, p packet) []netfilter.Outcome {
	host := &netfilter.StaticHost{Complete: true, Forward4: netfilter.True, Forward6: netfilter.True, Addresses: o.addresses()}
	if p.src == p.dst.Addr() {
		host.Addresses = append(host.Addresses, p.src)
	}
	return netfilter.Walk(rs, host, netfilter.Packet{
		Src: p.src, Dst: p.dst.Addr(), DstPort: p.dst.Port(), Protocol: netfilter.Protocol(p.protocol), LocalProcess: host.Local(p.src) == netfilter.True,
	})
}

// ending names how an outcome ends, for a packet to one of the frontends.
func ending(o netfilter.Outcome) string {
	switch o.Verdict {
	case netfilter.DNAT:
		return o.To.String()
	case netfilter.None, netfilter.Accept:
		return "untouched"
	case netfilter.Undecided:
		return "undecided: " + o.Unknowns[0].Why
	}
	return string(o.Verdict)
}

func told(outcomes []netfilter.Outcome) string {
	var b strings.Builder
	for _, o := range outcomes {
		fmt.Fprintf(&b, "  %s to %s p=%.9f masquerade %s\n", o.Verdict, o.To, o.Probability, o.Masquerade)
		for _, s := range o.Steps {
			fmt.Fprintf(&b, "    %s:%d %s\n", s.Source, s.Line, s.Text)
		}
	}
	return b.String()
}
