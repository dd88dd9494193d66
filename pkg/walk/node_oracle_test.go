package walk

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// oracleDir holds what kube-proxy 1.37.2's own rule generators write for given
// objects; oracleDir-kernel the same rules, as the tools read them back from a
// kernel.
const oracleDir = "../../../shared/oracles/kube-proxy/v1.37.2"

type oracle struct {
	Mode       string
	Test       string
	HasObjects bool
	NodeIPs    []string
	Proxier    struct {
		IPFamily, NodeName, NodeIP string
		NodePortAddresses          string
		MasqueradeAll              bool
		LocalDetector              struct {
			Implemented bool
		}
		TopologyLabels map[string]string
	}
	Services       []corev1.Service
	EndpointSlices []discoveryv1.EndpointSlice
}

// oracleTexts are the texts of a kernel file that a user may have of a node.
var oracleTexts = map[string][]string{
	"iptables": {"nftSave", "legacySave"},
	"nftables": {"nftList", "nftJSON"},
}

// TestOracleControls walks every Service that kube-proxy's own tests program,
// through the very rules that it wrote for them: there is nothing to find.
func TestOracleControls(t *testing.T) {
	if _, err := os.Stat(oracleDir); err != nil {
		t.Skipf("kube-proxy's recorded rules are not here: %v", err)
	}
	for mode, want := range map[string]int{"iptables": 67, "nftables": 57} {
		t.Run(mode, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(oracleDir, mode+"-*.json"))
			if err != nil {
				t.Fatal(err)
			}
			walked, n := 0, controls{}
			for _, name := range files {
				var o oracle
				readJSON(t, name, &o)
				if !o.HasObjects {
					continue // the rules alone, to test a tracer with
				}
				var texts map[string]any
				readJSON(t, filepath.Join(oracleDir+"-kernel", strings.TrimSuffix(filepath.Base(name), ".json")+".real.json"), &texts)
				walked++
				for _, key := range oracleTexts[mode] {
					t.Run(filepath.Base(name)+"/"+key, func(t *testing.T) { o.control(t, textOf(t, texts[key]), &n) })
				}
			}
			if walked != want {
				t.Errorf("%d files were walked, want %d", walked, want)
			}
			t.Logf("%d files in 2 texts, %d healthy controls (a Service, for one kind of client): %d packet paths, %d diagnoses of layer 3", walked, n.services, n.paths, n.diagnoses)
			if n.services == 0 || n.paths == 0 {
				t.Error("nothing was walked")
			}
		})
	}
}

func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func textOf(t *testing.T, v any) string {
	t.Helper()
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil || v == nil {
		t.Fatalf("the kernel's file has no such text (%v)", err)
	}
	return string(b)
}

// controls counts what was walked and found.
type controls struct{ services, paths, diagnoses int }

// control walks every Service from every kind of client.
func (o *oracle) control(t *testing.T, rules string, n *controls) {
	s := o.snapshot(rules)
	clients := []Client{{}, {Kind: OnNode, Name: o.Proxier.NodeName}, {Kind: FromExternal}, {Kind: FromAddress, Addr: o.podClient()}}
	for _, c := range clients {
		r := Walk(s, Options{All: true, Client: c})
		for _, svc := range r.Services {
			n.services++
			n.paths += len(svc.Paths)
			if l := svc.Layers[2]; l.Status != diagnosis.OK && l.Status != diagnosis.Skipped && !onlyExcludedNodePorts(l) {
				t.Errorf("from %s: layer 3 of %s is %s\n%s", c, svc.Name, l.Status, describe(svc))
			}
			for _, d := range svc.Diagnoses {
				if d.Layer == diagnosis.LayerNode {
					n.diagnoses++
					t.Errorf("from %s: %s %s\n%s", c, d.Code, d.Title, describe(svc))
				}
			}
		}
	}
}

// onlyExcludedNodePorts is the one rightful unknown: a client outside has no
// other way in than node ports, at addresses that nodePortAddresses leaves out.
func onlyExcludedNodePorts(l diagnosis.LayerResult) bool {
	return len(l.Missing) == 1 && strings.Contains(l.Missing[0].Why, "nodePortAddresses")
}

func (o *oracle) podClient() netip.Addr {
	if o.Proxier.IPFamily == "IPv6" {
		return netip.MustParseAddr("fd00:10::77")
	}
	return netip.MustParseAddr("10.0.0.77")
}

// snapshot is the cluster as that kube-proxy saw it, and its node's state.
func (o *oracle) snapshot(rules string) *snapshot.Snapshot {
	s := &snapshot.Snapshot{TakenAt: takenAt}
	for _, r := range snapshot.Resources {
		s.Reads.Add(snapshot.Read{Resource: r, Status: snapshot.Done})
	}
	s.Objects.Services, s.Objects.EndpointSlices = o.Services, o.EndpointSlices
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Proxier.NodeName, Labels: o.Proxier.TopologyLabels}}
	addrs := o.NodeIPs
	if o.Proxier.NodeIP != "" && !slices.Contains(addrs, o.Proxier.NodeIP) {
		addrs = append([]string{o.Proxier.NodeIP}, addrs...)
	}
	ipAddr := "1: lo: <UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n    inet6 ::1/128 scope host\n2: eth0: <UP> mtu 1500\n"
	for _, text := range addrs {
		a := netip.MustParseAddr(text)
		word := "inet"
		if a.Is6() {
			word = "inet6"
		}
		ipAddr += fmt.Sprintf("    %s %s/%d scope global eth0\n", word, a, a.BitLen())
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: text})
	}
	s.Objects.Nodes = []corev1.Node{node}
	s.Objects.ConfigMaps = []corev1.ConfigMap{o.configMap()}
	kind := snapshot.IptablesSave
	switch {
	case o.Mode == "nftables":
		kind = snapshot.NftRuleset
	case o.Proxier.IPFamily == "IPv6":
		kind = snapshot.Ip6tablesSave
	}
	ref := "" // all of the node's rules, not kube-proxy's table alone
	if o.Mode == "nftables" {
		ref = "nft list ruleset"
	}
	s.Nodes = []*snapshot.NodeState{{Name: o.Proxier.NodeName, At: takenAt, Via: "node-state", Texts: []snapshot.Text{
		{Kind: kind, Ref: ref, Status: snapshot.Done, Content: rules}, text(snapshot.IPAddr, ipAddr), text(snapshot.ProxyMode, o.Mode),
		text(snapshot.ProxyProcess, "1201 S kube-proxy\n"), text(snapshot.Sysctl, "net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\n"),
	}}}
	return s
}

func (o *oracle) configMap() corev1.ConfigMap {
	cidr := ""
	if o.Proxier.LocalDetector.Implemented {
		cidr = "10.0.0.0/8,fd00:10::/64"
	}
	nodePorts := "[" + strings.Join(strings.Fields(strings.Trim(o.Proxier.NodePortAddresses, "[]")), ", ") + "]"
	conf := fmt.Sprintf("kind: KubeProxyConfiguration\nmode: %s\nclusterCIDR: %q\nnodePortAddresses: %s\niptables:\n  masqueradeAll: %t\nnftables:\n  masqueradeAll: %t\n",
		o.Mode, cidr, nodePorts, o.Proxier.MasqueradeAll, o.Proxier.MasqueradeAll)
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Data: map[string]string{"config.conf": conf}}
}
