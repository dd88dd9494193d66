package proxy

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// oracleDir holds what kube-proxy 1.37.2's own rule generators do with given
// objects, and where packets go then.
const oracleDir = "../../../shared/oracles/kube-proxy/v1.37.2"

type oracle struct {
	Test       string
	HasObjects bool
	NodeIPs    []string
	Proxier    struct {
		IPFamily, NodeName, NodeIP string
		MasqueradeAll              bool
		LocalDetector              struct{ Implemented bool }
		// Which addresses serve node ports: ranges in brackets.
		NodePortAddresses  string
		LocalhostNodePorts bool
		ServiceCIDRs       string
	}
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Flows          []flow
}

type flow struct {
	Name, SourceIP, Protocol, DestIP string
	DestPort                         int32
	Output                           string
	Masq                             bool
}

// differs says why the model of the objects alone rightly says something else
// than the oracle; "" where it must agree.
func differs(mode string, o *oracle, f flow) string {
	switch {
	case strings.Contains(o.Test, "NodePorts") && (f.DestIP == "127.0.0.1" || f.DestIP == "::1"):
		return "node ports on loopback hang on localhostNodePorts and the mode"
	case strings.Contains(o.Test, "NodePorts") && f.Output == "":
		return "nodePortAddresses leaves this address out"
	case mode == "nftables" && f.Output == "REJECT" && frontendOf(o, f) == nil:
		return "nftables mode rejects unused ports of a ClusterIP"
	case mode == "nftables" && f.Output == "DROP" && frontendOf(o, f) == nil:
		return "nftables mode drops unallocated addresses of the service CIDR"
	}
	return ""
}

func TestAgainstKubeProxy(t *testing.T) {
	if _, err := os.Stat(oracleDir); err != nil {
		t.Skipf("kube-proxy's recorded behaviour is not here: %v", err)
	}
	// The number of flows is that of the recording, less those that differ
	// rightly (9 of iptables, 5 of nftables) and those without API objects.
	for mode, want := range map[string]int{"iptables": 230, "nftables": 202} {
		t.Run(mode, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(oracleDir, mode+"-flow-*.json"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no flow files (%v)", err)
			}
			compared, skipped := 0, map[string]int{}
			for _, name := range files {
				o := readOracle(t, name)
				if !o.HasObjects {
					continue
				}
				for _, f := range o.Flows {
					if why := differs(mode, o, f); why != "" {
						skipped[why]++
						t.Logf("differs rightly: %s: %s %s -> %s:%d: %s", o.Test, f.Name, f.SourceIP, f.DestIP, f.DestPort, why)
						continue
					}
					compared++
					compareFlow(t, o, f)
				}
			}
			t.Logf("%d flows compared, differing rightly: %v", compared, skipped)
			if compared != want {
				t.Errorf("%d flows were compared, want %d", compared, want)
			}
		})
	}
}

func readOracle(t *testing.T, name string) *oracle {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var o oracle
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(o.NodeIPs) == 0 && o.Proxier.NodeIP != "" {
		o.NodeIPs = []string{o.Proxier.NodeIP}
	}
	return &o
}

func (o *oracle) node() Node {
	n := Node{Name: o.Proxier.NodeName, DetectLocal: SettingOff, MasqueradeAll: SettingOff}
	if o.Proxier.LocalDetector.Implemented {
		n.DetectLocal = SettingOn
	}
	if o.Proxier.MasqueradeAll {
		n.MasqueradeAll = SettingOn
	}
	for _, s := range o.NodeIPs {
		n.Addresses = append(n.Addresses, netip.MustParseAddr(s))
	}
	return n
}

func frontendOf(o *oracle, f flow) *Frontend {
	dest := netip.MustParseAddr(f.DestIP)
	for _, svc := range o.Services {
		for _, fe := range Frontends(svc) {
			if !strings.EqualFold(string(fe.Protocol), f.Protocol) || fe.Port != f.DestPort || fe.V6 != dest.Is6() {
				continue
			}
			if fe.IP == dest || (fe.Kind == NodePort && (slices.Contains(o.NodeIPs, f.DestIP) || dest.IsLoopback())) {
				return &fe
			}
		}
	}
	return nil
}

func serviceOf(o *oracle, fe Frontend) *corev1.Service {
	for _, svc := range o.Services {
		if slices.Contains(Frontends(svc), fe) {
			return svc
		}
	}
	return nil
}

func compareFlow(t *testing.T, o *oracle, f flow) {
	t.Helper()
	where := o.Test + ": " + f.Name
	fe := frontendOf(o, f)
	if fe == nil {
		if f.Output != "" && f.Output != "ACCEPT" {
			t.Errorf("%s: kube-proxy says %q, and no frontend was found", where, f.Output)
		}
		return
	}
	svc := serviceOf(o, *fe)
	src := netip.MustParseAddr(f.SourceIP)
	client := ExternalClient
	switch {
	case slices.Contains(o.NodeIPs, f.SourceIP) || src.IsLoopback() || isLoadBalancerAddr(svc, src):
		client = NodeClient
	case netip.MustParsePrefix("10.0.0.0/8").Contains(src) || netip.MustParsePrefix("fd00:10::/64").Contains(src):
		client = PodClient
	}
	got := ExpectFrom(svc, o.EndpointSlices, o.node(), client, src, *fe)
	if s := outcome(got); s != sorted(f.Output) {
		t.Errorf("%s: %s client %s -> %s:%d: got %q, kube-proxy does %q (%s)", where, client, src, f.DestIP, f.DestPort, s, f.Output, got.Why)
		return
	}
	if got.Action != Forward {
		return
	}
	want := MasqNo
	if f.Masq {
		want = MasqYes
	}
	hairpin := slices.ContainsFunc(got.Backends, func(b Backend) bool { return b.Addr.Addr() == src })
	if got.Masquerade != want && !hairpin {
		t.Errorf("%s: %s client %s -> %s:%d: masquerade %s, kube-proxy %v", where, client, src, f.DestIP, f.DestPort, got.Masquerade, f.Masq)
	}
}

func outcome(e Expectation) string {
	switch e.Action {
	case Drop:
		return "DROP"
	case Reject:
		return "REJECT"
	case Ignore:
		return ""
	}
	var out []string
	for _, b := range e.Backends {
		out = append(out, b.Addr.String())
	}
	return sorted(strings.Join(out, ", "))
}

func sorted(list string) string {
	parts := strings.Split(list, ", ")
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
