package oracletest

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// File is one recording of what kube-proxy 1.37.2's own tests program.
type File struct {
	Name string `json:"-"` // without the ending
	Mode string
	// NodeIPs are the node's addresses that the recording takes for local.
	NodeIPs []string
	Proxier struct{ IPFamily, NodeIP string }
	// Flows are the packets that the tests trace; none in a file of rules.
	Flows    []Flow
	Services []Service

	kernel string
	texts  map[string]json.RawMessage
}

// Flow is a packet, and what kube-proxy's tracer says of it.
type Flow struct {
	Name, SourceIP, Protocol, DestIP string
	DestPort                         uint16
	// Output is every endpoint that may be drawn, or DROP, REJECT, ACCEPT, or
	// nothing; Masq says whether the packet is marked for masquerading.
	Output string
	Masq   bool
}

// Service is what of a Service says where it is reached.
type Service struct {
	Metadata struct{ Name string }
	Spec     struct {
		ClusterIP   string
		ExternalIPs []string
		Ports       []struct {
			Protocol       string
			Port, NodePort uint16
		}
	}
	Status struct {
		LoadBalancer struct{ Ingress []struct{ IP string } }
	}
}

// Files are the recordings of a mode (iptables, nftables), in their order;
// kind is flow, rules, or * for both. There are want of them.
func Files(t testing.TB, mode, kind string, want int) []*File {
	t.Helper()
	dir := Shared(t, "oracles", "kube-proxy")
	names, err := filepath.Glob(filepath.Join(dir, "v1.37.2", mode+"-"+kind+"-*.json"))
	if err != nil || len(names) != want {
		t.Fatalf("found %d files of %s mode, want %d (%v)", len(names), mode, want, err)
	}
	slices.Sort(names)
	var out []*File
	for _, path := range names {
		f := &File{Name: strings.TrimSuffix(filepath.Base(path), ".json")}
		ReadJSON(t, path, f)
		f.kernel = filepath.Join(dir, "v1.37.2-kernel", f.Name+".real.json")
		out = append(out, f)
	}
	return out
}

// Text is one form of the file's rules as the tools gave them back from a
// kernel: nftSave, legacySave (and each WithCounters), nftList,
// nftListHandles, nftJSON, nftJSONView. JSON is there as a string or as
// itself.
func (f *File) Text(t testing.TB, form string) string {
	t.Helper()
	if f.texts == nil {
		ReadJSON(t, f.kernel, &f.texts)
	}
	raw, ok := f.texts[form]
	if !ok {
		t.Fatalf("%s has no %s", f.kernel, form)
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// Host is the node of the recording: its own addresses are all known, and it
// forwards.
func (f *File) Host() *netfilter.StaticHost {
	h := &netfilter.StaticHost{Complete: true, Forward4: netfilter.True, Forward6: netfilter.True}
	for _, ip := range f.NodeIPs {
		h.Addresses = append(h.Addresses, netip.MustParseAddr(ip))
	}
	return h
}
