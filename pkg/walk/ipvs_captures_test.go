package walk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// ipvsRig holds what was captured on a real node in IPVS mode: its state healthy
// and under faults, each with the traffic that was measured.
const ipvsRig = "../../../shared/rig/ipvs"

// ipvsRigSnapshot is the rig's cluster with the node's state of one folder.
func ipvsRigSnapshot(t *testing.T, dir string) *snapshot.Snapshot {
	t.Helper()
	s := &snapshot.Snapshot{TakenAt: takenAt}
	for _, r := range snapshot.Resources {
		s.Reads.Add(snapshot.Read{Resource: r, Status: snapshot.Done})
	}
	for _, doc := range strings.Split(readRig(t, "objects.yaml"), "\n---\n") {
		var svc corev1.Service
		if strings.Contains(doc, "kind: Service") {
			if err := yaml.Unmarshal([]byte(doc), &svc); err != nil {
				t.Fatal(err)
			}
			svc.Spec.ClusterIPs, svc.Spec.IPFamilies = []string{svc.Spec.ClusterIP}, []corev1.IPFamily{corev1.IPv4Protocol}
			for i := range svc.Spec.Ports {
				if p := &svc.Spec.Ports[i]; p.Protocol == "" {
					p.Protocol = corev1.ProtocolTCP
				}
			}
			s.Objects.Services = append(s.Objects.Services, svc)
		}
	}
	s.Objects.Nodes = []corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "ipvs-n3"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.3.0/24"},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.250.13"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}}
	for i, name := range []string{"ipvs-a", "ipvs-b"} {
		pod := readyPod("default", name, fmt.Sprintf("10.244.3.%d", 5+i), "ipvs-n3")
		pod.Labels = map[string]string{"app": "ipvs-orders"}
		s.Objects.Pods = append(s.Objects.Pods, pod)
	}
	s.Objects.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	for i := range s.Objects.Services {
		reconcileSlices(s, &s.Objects.Services[i])
	}
	// The node's own kube-proxy answers; the other node's pods are not of these
	// objects.
	state := &snapshot.NodeState{Name: "ipvs-n3", At: takenAt, Via: "node-state"}
	for _, f := range []struct {
		kind snapshot.TextKind
		name string
	}{
		{snapshot.IptablesSave, "iptables-save.txt"}, {snapshot.Ip6tablesSave, "ip6tables-save.txt"}, {snapshot.IpsetSave, "ipset-save.txt"},
		{snapshot.Ipvsadm, "ipvsadm-Ln.txt"}, {snapshot.Ipvsadm, "ipvsadm-Ln-stats.txt"}, {snapshot.Ipvsadm, "ipvsadm-Sn.txt"}, {snapshot.ProcIPVS, "proc-net-ip_vs.txt"},
		{snapshot.IPAddr, "ip-addr.txt"}, {snapshot.IPRoute, "ip-route.txt"}, {snapshot.IPRoute, "ip-route-local.txt"},
		{snapshot.Sysctl, "sysctl-misc.txt"}, {snapshot.Sysctl, "sysctl-vs.txt"}, {snapshot.ProcModules, "modules.txt"},
	} {
		state.Texts = append(state.Texts, snapshot.Text{Kind: f.kind, Ref: f.name, Status: snapshot.Done, Content: readRig(t, filepath.Join("captures", dir, f.name))})
	}
	s.Nodes = []*snapshot.NodeState{state}
	s.Objects.Sort()
	return s
}

func readRig(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(ipvsRig, name))
	if err != nil {
		t.Skipf("the rig's captures are not here: %v", err)
	}
	return string(b)
}

// withProxyConfig adds kube-proxy's configuration as the rig's node had it.
func withProxyConfig(s *snapshot.Snapshot) {
	s.Objects.ConfigMaps = []corev1.ConfigMap{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
		Data:       map[string]string{"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\nclusterCIDR: 10.244.0.0/16\n"},
	}}
}

// TestIPVSCapturesDiagnosed walks every Service of the rig through each state of
// its node: nothing is said of the healthy one, and of each fault its root.
func TestIPVSCapturesDiagnosed(t *testing.T) {
	type want struct {
		// roots of default/ipvs-orders, whose virtual server each fault is made on.
		roots []string
		// node is what layer 3 says with no diagnosis.
		node diagnosis.Status
		says []string
	}
	// What the measured traffic did is in each folder's traffic.txt: pod and node
	// to the VIP.
	table := map[string]want{
		"healthy":             {node: diagnosis.OK},
		"fault-backend-down":  {node: diagnosis.OK}, // the pod's own link: none of the node's rules tells; half of the connections time out
		"fault-ip-forward0":   {node: diagnosis.OK}, // all answered: IPVS sends from the node itself
		"fault-del-dest":      {roots: []string{"VIP314 warning"}, says: []string{"never sends 10.96.120.50:8080/TCP to 10.244.3.5:8080, 1 of 2 usable endpoints", "no real server for 10.244.3.5:8080"}},
		"fault-weight0-one":   {roots: []string{"VIP314 warning"}, says: []string{"at weight 0, which gets no new connection: 10.244.3.5:8080"}},
		"fault-weight0-all":   {roots: []string{"VIP314 error"}, says: []string{"refuses 10.96.120.50:8080/TCP"}},
		"fault-no-dests":      {roots: []string{"VIP314 error"}, says: []string{"refuses 10.96.120.50:8080/TCP", "no real server for 10.244.3.5:8080, 10.244.3.6:8080"}},
		"fault-del-service":   {roots: []string{"VIP314 error"}, says: []string{"has no virtual server for 10.96.120.50:8080/TCP"}},
		"fault-stale-dest":    {roots: []string{"VIP314 error"}, says: []string{"still sends 10.96.120.50:8080/TCP to 10.244.3.77:8080"}},
		"fault-wrong-mode-dr": {roots: []string{"VIP314 error"}, says: []string{"by method Route"}},
		"fault-sched-sh":      {roots: []string{"VIP314 warning"}, says: []string{"by scheduler sh, not rr", "always draws the same backend"}},
		"fault-vip-unbound":   {roots: []string{"VIP315 error"}, says: []string{"has no interface with 10.96.120.50"}},
		"fault-dummy-gone":    {roots: []string{"VIP315 error"}, says: []string{"has no device kube-ipvs0"}},
		"fault-ipset-missing": {roots: []string{"VIP315 error"}, says: []string{"in KUBE-IPVS-FILTER: set KUBE-CLUSTER-IP lacks 10.96.120.50,tcp:8080"}},
		"fault-nat-flushed":   {roots: []string{"VIP309 error"}, says: []string{":KUBE-SERVICES (0 rules, none of which marks)"}},
		"fault-vs-conntrack0": {roots: []string{"VIP309 error"}, says: []string{"net.ipv4.vs.conntrack = 0"}},
	}
	for _, configured := range []bool{false, true} {
		for dir, w := range table {
			t.Run(fmt.Sprintf("%s configured=%v", dir, configured), func(t *testing.T) {
				s := ipvsRigSnapshot(t, dir)
				if configured {
					withProxyConfig(s)
				}
				r := Walk(s, Options{All: true, Namespaces: []string{"default"}})
				for i := range r.Services {
					svc := &r.Services[i]
					checkDiagnoses(t, svc)
					switch {
					case svc.Name == "ipvs-empty" && dir != "fault-dummy-gone": // layers 1 and 2 are at fault
						if roots := rootsOf(svc, 3); len(roots) > 0 {
							t.Errorf("%s: %v", svc.Name, roots)
						}
					case svc.Name == "ipvs-orders":
						if got := rootsOf(svc, 3); !slices.Equal(got, w.roots) {
							t.Errorf("%s: roots %v, want %v\n%s", svc.Name, got, w.roots, dump(svc))
						}
						if w.node != "" && svc.Layers[2].Status != w.node {
							t.Errorf("%s: layer 3 %s: %s %v", svc.Name, svc.Layers[2].Status, svc.Layers[2].Summary, svc.Layers[2].Missing)
						}
						for _, say := range w.says {
							if !strings.Contains(dump(svc), say) {
								t.Errorf("%s: %q is not said:\n%s", svc.Name, say, dump(svc))
							}
						}
					case dir == "healthy" || dir == "fault-backend-down" || dir == "fault-ip-forward0" || dir == "fault-del-service":
						if len(svc.Diagnoses) > 0 || svc.Layers[2].Status != diagnosis.OK {
							t.Errorf("%s: layer 3 %s: %s %v\n%s", svc.Name, svc.Layers[2].Status, svc.Layers[2].Summary, svc.Layers[2].Missing, dump(svc))
						}
					}
				}
			})
		}
	}
}

// rootsOf are the diagnoses of a layer that no other explains, with severities.
func rootsOf(svc *diagnosis.Service, layer diagnosis.Layer) []string {
	var out []string
	for _, d := range svc.Diagnoses {
		if d.Layer == layer && len(d.CausedBy) == 0 {
			out = append(out, fmt.Sprintf("%s %s", d.Code, d.Severity))
		}
	}
	return out
}

// checkDiagnoses: every diagnosis has evidence with a command, and quotes that
// stand in the texts have their line.
func checkDiagnoses(t *testing.T, svc *diagnosis.Service) {
	t.Helper()
	for _, d := range svc.Diagnoses {
		if len(d.Evidence) == 0 || len(d.Fixes) == 0 && d.Layer == 3 {
			t.Errorf("%s %s: %d evidence, %d fixes", svc.Name, d.Code, len(d.Evidence), len(d.Fixes))
		}
		for _, e := range d.Evidence {
			if e.Quote == "" || e.Command == "" {
				t.Errorf("%s %s: evidence without a quote or a command: %+v", svc.Name, d.Code, e)
			}
		}
	}
}

func dump(svc *diagnosis.Service) string {
	var b strings.Builder
	for _, l := range svc.Layers {
		fmt.Fprintf(&b, "  layer %d %s %s %v\n", l.Layer, l.Status, l.Summary, l.Missing)
	}
	for _, d := range svc.Diagnoses {
		fmt.Fprintf(&b, "  %s %s %s\n    expected %s\n    found %s\n", d.Code, d.Severity, d.Title, d.Expected, d.Found)
		for _, e := range d.Evidence {
			fmt.Fprintf(&b, "    %s:%d %s | %s\n", e.Source, e.Line, e.Quote, e.Command)
		}
	}
	return b.String()
}
