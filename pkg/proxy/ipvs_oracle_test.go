package proxy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// ipvsOracle is what kube-proxy 1.37.2 in IPVS mode made of objects.
type ipvsOracle struct {
	Test    string
	Proxier struct {
		NodeName, IPFamily, NodePortAddresses string
	}
	NodeAddresses  []string
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	VirtualServers []struct {
		Protocol, Address, Scheduler string
		Port                         int
		Flags, Timeout               uint32
		RealServers                  []struct {
			Address      string
			Port, Weight int
		}
	}
	IPSets map[string]struct {
		Entries []string
	}
	KubeIPVS0 []string
}

// ipvsDiffers says why a recorded state rightly is another than objects alone
// call for; "" where it must agree.
func ipvsDiffers(o *ipvsOracle) string {
	switch name, _, _ := strings.Cut(o.Test, ":"); name {
	case "TestHealthCheckNodePort":
		return "three Services share one cluster IP and one node port, which the API does not admit"
	}
	return ""
}

// TestAgainstKubeProxyIPVS compares virtual servers, their real servers, the
// addresses of kube-ipvs0 and the members of all sets.
func TestAgainstKubeProxyIPVS(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(oracleDir, "ipvs-state-*.json"))
	if len(files) == 0 {
		t.Skip("kube-proxy's recorded IPVS states are not here")
	}
	counts := map[string]int{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var o ipvsOracle
		if err := json.Unmarshal(b, &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if why := ipvsDiffers(&o); why != "" {
			counts["named differences"]++
			t.Logf("differs rightly: %s: %s", o.Test, why)
			continue
		}
		counts["states"]++
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json"), func(t *testing.T) { o.compare(t, counts) })
	}
	t.Logf("compared: %v", counts)
	want := map[string]int{"states": 57, "named differences": 1, "virtual servers": 102, "real servers": 95, "addresses of kube-ipvs0": 79, "members of sets": 217}
	if d := cmp.Diff(want, counts); d != "" {
		t.Errorf("compared (-want +got):\n%s", d)
	}
}

func (o *ipvsOracle) compare(t *testing.T, counts map[string]int) {
	t.Helper()
	v6 := o.Proxier.IPFamily == "IPv6"
	node := Node{Name: o.Proxier.NodeName, DetectLocal: SettingOff, MasqueradeAll: SettingOff}
	var at []netip.Addr
	for _, s := range o.NodeAddresses {
		at = append(at, netip.MustParseAddr(s))
	}
	if o.Proxier.NodePortAddresses == "[100.101.102.0/24]" && len(at) == 0 {
		at = append(at, netip.MustParseAddr("100.101.102.103")) // the recording leaves it out
	}
	var servers, reals, dummy, members []string
	for _, svc := range o.Services {
		for _, v := range VirtualServers(svc, o.EndpointSlices, node, at) {
			if v.Frontend.V6 != v6 {
				continue
			}
			name := fmt.Sprintf("%s %s", v.Frontend.Protocol, v.Addr)
			servers = append(servers, fmt.Sprintf("%s timeout %d", name, v.Timeout))
			for _, b := range v.Backends {
				reals = append(reals, name+" -> "+b.Addr.String())
			}
		}
		for _, a := range DummyAddresses(svc) {
			if a.Is6() == v6 {
				dummy = append(dummy, a.String())
			}
		}
		for _, m := range SetMembers(svc, o.EndpointSlices, node, at) {
			if m.Frontend.V6 == v6 {
				// The recording's sets of IPv6 have the names of IPv4's.
				members = append(members, strings.Replace(m.Set, "KUBE-6-", "KUBE-", 1)+" "+m.Member)
			}
		}
	}
	var wantServers, wantReals, wantMembers []string
	for _, v := range o.VirtualServers {
		addr := netip.AddrPortFrom(netip.MustParseAddr(v.Address), uint16(v.Port))
		name := fmt.Sprintf("%s %s", v.Protocol, addr)
		wantServers = append(wantServers, fmt.Sprintf("%s timeout %d", name, v.Timeout))
		for _, r := range v.RealServers {
			if r.Weight > 0 { // 0: on its way out
				wantReals = append(wantReals, name+" -> "+netip.AddrPortFrom(netip.MustParseAddr(r.Address), uint16(r.Port)).String())
			}
		}
	}
	for set, s := range o.IPSets {
		for _, e := range s.Entries {
			wantMembers = append(wantMembers, set+" "+e)
		}
	}
	for what, lists := range map[string][2][]string{
		"virtual servers": {wantServers, servers}, "real servers": {wantReals, reals},
		"addresses of kube-ipvs0": {o.KubeIPVS0, dummy}, "members of sets": {wantMembers, members},
	} {
		counts[what] += len(lists[0])
		if d := cmp.Diff(unique(lists[0]), unique(lists[1])); d != "" {
			t.Errorf("%s (-kube-proxy +ours):\n%s", what, d)
		}
	}
}

func unique(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return append([]string{}, slices.Compact(out)...)
}
