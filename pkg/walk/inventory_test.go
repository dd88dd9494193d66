package walk

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

func lackText(inv *diagnosis.Inventory) string {
	var b strings.Builder
	for _, m := range inv.Missing {
		b.WriteString(m.What + ": " + m.Why + ": " + m.Supply + "\n")
	}
	return b.String()
}

func TestInventory(t *testing.T) {
	s := nodeFixture()
	flannel(nil)(s)
	onProxyPod(image("registry.k8s.io/kube-proxy:v1.37.2"))(s)
	s.Objects.ServiceCIDRs = []networkingv1.ServiceCIDR{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}}}
	server := readyPod("kube-system", "kube-apiserver-cp", "172.31.250.10", "cp")
	server.Labels = map[string]string{"component": "kube-apiserver"}
	server.Spec.Containers[0].Image = "registry.k8s.io/kube-apiserver:v1.37.1"
	s.Objects.Pods = append(s.Objects.Pods, server, readyPod("metallb-system", "metallb-controller-1", "10.244.1.77", "worker-1"))
	for i := range s.Objects.Nodes {
		s.Objects.Nodes[i].Status.NodeInfo.KubeletVersion = "v1.37.0"
	}
	headless := *s.Objects.Services[0].DeepCopy()
	headless.Name, headless.Spec.ClusterIP, headless.Spec.ClusterIPs = "bare", corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	s.Objects.Services = append(s.Objects.Services, headless)
	s.Objects.Sort()
	inv := TakeInventory(s, Options{All: true, Version: "v0"})

	if diff := cmp.Diff(diagnosis.Versions{
		APIServer: []diagnosis.VersionCount{{Version: "v1.37.1", Count: 1}},
		Kubelet:   []diagnosis.VersionCount{{Version: "v1.37.0", Count: 2}},
		Proxy:     []diagnosis.VersionCount{{Version: "v1.37.2", Count: 1}},
	}, inv.Versions); diff != "" {
		t.Error(diff)
	}
	facts := func(fs ...diagnosis.Fact) string {
		var out []string
		for _, f := range fs {
			out = append(out, f.Value+" by "+f.Source)
		}
		return strings.Join(out, "; ")
	}
	for _, tt := range []struct{ what, got, want string }{
		{"mode", facts(inv.ProxyMode), "iptables by configmap/kube-proxy in kube-system"},
		{"service CIDRs", facts(inv.ServiceCIDRs...), "10.96.0.0/12 by servicecidr/kubernetes"},
		{"pod CIDRs", facts(inv.PodCIDRs...), "10.244.1.0/24 by node/worker-1; 10.244.2.0/24 by node/worker-2"},
		{"networks", facts(inv.Networks...), "Flannel by 2 of 2 pods ready in kube-flannel"},
		{"load balancers", facts(inv.LoadBalancer...), "MetalLB by 1 of 1 pod ready in metallb-system"},
		{"policy engine", inv.PolicyEngine.Value, ""},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, tt.got, tt.want)
		}
	}
	one, two := inv.Nodes[0], inv.Nodes[1]
	if one.Name != "worker-1" || one.Proxy != "kube-proxy v1.37.2" || one.ModeSeen != "iptables" || !one.StateRead || one.Ready != "True" {
		t.Errorf("%+v", one)
	}
	if two.Name != "worker-2" || two.Proxy != "kube-proxy" || two.ModeSeen != "" || two.StateRead {
		t.Errorf("%+v", two)
	}
	if len(inv.VIPs) != 1 || inv.VIPs[0].Name != "web" || inv.VIPs[0].Verdict != diagnosis.OK || len(inv.VIPs[0].Layers) != 4 {
		t.Errorf("%+v", inv.VIPs)
	}
	for _, want := range []string{"the proxy mode seen on 1 node", "what enforces NetworkPolicies"} {
		if !strings.Contains(lackText(inv), want) {
			t.Errorf("%q is not said to be unknown:\n%s", want, lackText(inv))
		}
	}
}

func TestInventoryOfFaults(t *testing.T) {
	s := nodeFixture()
	rules("10.244.2.6", "10.244.2.99")(s)
	v := TakeInventory(s, Options{All: true}).VIPs[0]
	if diff := cmp.Diff([]diagnosis.Code{diagnosis.StaleBackend}, v.Diagnoses); diff != "" || v.Verdict != diagnosis.Fail {
		t.Errorf("%s %s", v.Verdict, diff)
	}

	s = nodeFixture()
	ciliumCluster(s)
	inv := TakeInventory(s, Options{All: true})
	if inv.Nodes[0].Proxy != "Cilium" || inv.Nodes[1].Proxy != "Cilium" || inv.PolicyEngine.Value != "Cilium" {
		t.Errorf("%+v, %+v", inv.Nodes, inv.PolicyEngine)
	}
}

// What was not read is unknown, and nothing is made up for it.
func TestInventoryOfNothing(t *testing.T) {
	inv := TakeInventory(&snapshot.Snapshot{TakenAt: takenAt}, Options{All: true})
	for _, want := range []string{"nodes", "Services", "the ranges of cluster IPs", "kube-proxy's configuration", "the network's agents", "the API server's version"} {
		if !strings.Contains(lackText(inv), want) {
			t.Errorf("%q is not said to be unknown:\n%s", want, lackText(inv))
		}
	}
	if inv.PodsRead || inv.ProxyMode.Value != "" || len(inv.Nodes)+len(inv.VIPs)+len(inv.ServiceCIDRs)+len(inv.PodCIDRs)+len(inv.Networks)+len(inv.LoadBalancer) != 0 {
		t.Errorf("%+v", inv)
	}
}
