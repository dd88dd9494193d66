package walk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// TestNodeHealthCases walks the public reports whose cause is a node's table of
// connections or a setting: the report's own text, beside a Service and node
// that fit it.
func TestNodeHealthCases(t *testing.T) {
	if _, err := os.Stat(casesDir); err != nil {
		t.Skipf("the public reports are not here: %v", err)
	}
	for _, tt := range []struct {
		id, file string
		kind     snapshot.TextKind
		change   []change
		roots    string
		says     string
	}{
		{"060-conntrack-udp-blackhole-zero-to-one", "conntrack.txt", snapshot.Conntrack, []change{udp, readdressed("10.96.0.50", "10.15.240.10", "10.244.2.6", "10.12.0.11", "--dport 80 ", "--dport 53 "), servicePort(53)}, "VIP324", "the address itself, as before there were rules"},
		{"062-conntrack-tcp-syn-sent", "conntrack.txt", snapshot.Conntrack, []change{readdressed("10.96.0.50", "10.10.10.10")}, "VIP324", "10.244.2.3:80, no endpoint any more"},
		{"084-bridge-nf-call-iptables", "sysctl-00-system.conf", snapshot.Sysctl, []change{onBridge}, "VIP322", "net.bridge.bridge-nf-call-iptables = 0"},
	} {
		t.Run(tt.id, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(casesDir, tt.id, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			s := nodeFixture()
			for _, c := range tt.change {
				c(s)
			}
			give(tt.kind, string(b))(s)
			svc := Walk(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}).Services[0]
			if got := nodeRoots(svc); got != tt.roots {
				t.Errorf("got %q, want %q\n%s", got, tt.roots, describe(svc))
			}
			said := ""
			for _, d := range svc.Diagnoses {
				if d.Layer == diagnosis.LayerNode {
					said += everything(d)
				}
			}
			if !strings.Contains(said, tt.says) {
				t.Errorf("it does not say %q:\n%s", tt.says, said)
			}
		})
	}
}

// readdressed gives the Service and its endpoints the addresses of a report.
func readdressed(pairs ...string) change {
	return func(s *snapshot.Snapshot) {
		r := strings.NewReplacer(pairs...)
		svc := &s.Objects.Services[0]
		svc.Spec.ClusterIP = r.Replace(svc.Spec.ClusterIP)
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
		for i := range s.Objects.EndpointSlices[0].Endpoints {
			e := &s.Objects.EndpointSlices[0].Endpoints[i]
			e.Addresses[0] = r.Replace(e.Addresses[0])
		}
		for i := range s.Objects.Pods {
			pod := &s.Objects.Pods[i]
			pod.Status.PodIP = r.Replace(pod.Status.PodIP)
			pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		}
		setText(s, snapshot.IptablesSave, r.Replace)
	}
}

func servicePort(port int32) change {
	return func(s *snapshot.Snapshot) { s.Objects.Services[0].Spec.Ports[0].Port = port }
}
