package walk

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// ciliumList is what Cilium's agent of worker-1 prints for the healthy fixture.
const ciliumList = `ID   Frontend                 Service Type   Backend
1    10.96.0.1:443/TCP        ClusterIP      1 => 172.31.250.10:6443/TCP (active)
2    10.96.0.50:80/TCP        ClusterIP      1 => 10.244.1.5:8080/TCP (active)
                                             2 => 10.244.2.6:8080/TCP (active)
3    172.31.250.11:30080/TCP  NodePort       1 => 10.244.1.5:8080/TCP (active)
                                             2 => 10.244.2.6:8080/TCP (active)
4    0.0.0.0:30080/TCP        NodePort       1 => 10.244.1.5:8080/TCP (active)
                                             2 => 10.244.2.6:8080/TCP (active)
`

// ciliumCluster has Cilium in kube-proxy's place: its pods, its configuration,
// and nothing of kube-proxy's on the node.
func ciliumCluster(s *snapshot.Snapshot) {
	withoutProxy(s)
	for i := range s.Objects.Nodes {
		pod := readyPod("kube-system", "cilium-"+s.Objects.Nodes[i].Name, "172.31.250.11", s.Objects.Nodes[i].Name)
		pod.Labels, pod.Spec.HostNetwork = map[string]string{"k8s-app": "cilium"}, true
		s.Objects.Pods = append(s.Objects.Pods, pod)
	}
	s.Objects.ConfigMaps = []corev1.ConfigMap{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: map[string]string{"kube-proxy-replacement": "true"},
	}}
	setText(s, snapshot.ProxyProcess, func(string) string { return "901 S cilium-agent\n" })
	setText(s, snapshot.IPAddr, func(c string) string {
		return c + "4: cilium_host@cilium_net: <UP> mtu 1500\n    inet 10.244.1.200/32 scope global cilium_host\n"
	})
}

// withoutProxy takes kube-proxy out of the fixture, with all that it wrote.
func withoutProxy(s *snapshot.Snapshot) {
	s.Objects.Pods = slices.DeleteFunc(s.Objects.Pods, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "kube-proxy-") })
	s.Objects.ConfigMaps = nil
	dropText(s, snapshot.ProxyMode)
	setText(s, snapshot.ProxyProcess, func(string) string { return "" })
	setText(s, snapshot.IptablesSave, func(string) string { return "" })
}

func withCilium(old, with string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		if !strings.Contains(ciliumList, old) {
			panic("Cilium's list has no " + old)
		}
		s.Nodes[0].Texts = append(s.Nodes[0].Texts, text(snapshot.CiliumServices, strings.ReplaceAll(ciliumList, old, with)))
	}
}

// agentPod adds a plugin's agents: the one of that name on worker-1, and one on
// worker-2.
func agentPod(namespace, name, key, value string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		for _, node := range []string{"worker-1", "worker-2"} {
			pod := readyPod(namespace, name, "172.31.250.11", node)
			if node != "worker-1" {
				pod.Name += "-b"
			}
			pod.Labels, pod.Spec.HostNetwork = map[string]string{key: value}, true
			s.Objects.Pods = append(s.Objects.Pods, pod)
		}
	}
}

func hasLink(name string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		setText(s, snapshot.IPAddr, func(c string) string { return c + "9: " + name + ": <UP> mtu 1500\n" })
	}
}

func hasChain(name string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		setText(s, snapshot.IptablesSave, func(string) string { return "*nat\n:PREROUTING ACCEPT [0:0]\n:" + name + " - [0:0]\nCOMMIT\n" })
	}
}

func hasProcess(line string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		setText(s, snapshot.ProxyProcess, func(string) string { return line + "\n" })
	}
}

func TestProxyReplaced(t *testing.T) {
	noNodes := func(s *snapshot.Snapshot) { s.Nodes = nil }
	runNodeCases(t, []nodeCase{
		{name: "Cilium, and its list was not read", change: []func(*snapshot.Snapshot){ciliumCluster}, roots: []string{"VIP336 info"}, status: unknown,
			says:  []string{"Cilium stands in for kube-proxy on worker-1", "kube-proxy-replacement: true", "kubectl exec -n kube-system cilium-worker-1 -c cilium-agent -- cilium-dbg service list -o json"},
			lacks: []string{"cilium-dbg service list -o json > FILE   (then: --node-state worker-1=FILE)"}},
		{name: "Cilium, by its pods alone", change: []func(*snapshot.Snapshot){ciliumCluster, func(s *snapshot.Snapshot) {
			s.Objects.ConfigMaps = nil
			hasProcess("")(s)
		}}, roots: []string{"VIP336 info"}, status: unknown},
		{name: "Cilium, by its process and device", change: []func(*snapshot.Snapshot){withoutProxy, hasLink("cilium_host"), hasProcess("901 S cilium-agent")}, roots: []string{"VIP336 info"}, status: unknown, says: []string{"901 S cilium-agent", "interface cilium_host"}},
		{name: "Cilium, by the API alone", change: []func(*snapshot.Snapshot){ciliumCluster, noNodes}, roots: []string{"VIP336 info"}, status: unknown,
			says: []string{"Cilium stands in for kube-proxy in this cluster"}, lacks: []string{"cilium-dbg service list"}},
		{name: "Cilium, with chains of kube-proxy's left over", change: []func(*snapshot.Snapshot){ciliumCluster, func(s *snapshot.Snapshot) {
			setText(s, snapshot.IptablesSave, func(string) string { return strings.ReplaceAll(nodeRules, "10.244.2.6", "10.244.2.99") })
		}}, roots: []string{"VIP336 info"}, status: unknown, says: []string{"left over: they follow no change", ":KUBE-SERVICES"}},
		{name: "Cilium's list is as the objects ask", change: []func(*snapshot.Snapshot){ciliumCluster, withCilium("", "")}, roots: []string{"VIP336 info"}, status: diagnosis.OK,
			says: []string{"compared with the endpoints"}},
		{name: "Cilium's list, from outside", change: []func(*snapshot.Snapshot){ciliumCluster, withCilium("", "")}, opts: calledBy(FromExternal, ""), roots: []string{"VIP336 info"}, status: diagnosis.OK},
		{name: "Cilium sends to a pod that is gone", change: []func(*snapshot.Snapshot){ciliumCluster, withCilium("10.244.2.6", "10.244.2.99")},
			roots: []string{"VIP302 error", "VIP336 info"}, folded: []string{"VIP303 warning"}, status: fail,
			says: []string{"worker-1 still sends 50% of connections to 10.244.2.99:8080", "2 => 10.244.2.99:8080/TCP (active)", "kubectl delete pod -n kube-system cilium-worker-1", "cilium-dbg service list"}},
		{name: "Cilium sends to the wrong port", change: []func(*snapshot.Snapshot){ciliumCluster, withCilium("10.244.1.5:8080", "10.244.1.5:8081")},
			roots: []string{"VIP305 error", "VIP336 info"}, status: fail},
		{name: "Cilium leaves a backend out", change: []func(*snapshot.Snapshot){ciliumCluster, withCilium("10.244.2.6:8080/TCP (active)", "10.244.2.6:8080/TCP (quarantined)")},
			roots: []string{"VIP303 warning", "VIP336 info"}, status: warn},
		{name: "Cilium knows no such frontend", change: []func(*snapshot.Snapshot){ciliumCluster, withCilium("10.96.0.50:80", "10.96.0.51:80")},
			roots: []string{"VIP301 error", "VIP336 info"}, status: fail, says: []string{"4 frontends, none for 10.96.0.50:80/TCP", "grep -F 10.96.0.50"}},
		{name: "Cilium's list cannot be read", change: []func(*snapshot.Snapshot){ciliumCluster, withCilium("10.244.2.6:8080", "nonsense")}, roots: []string{"VIP336 info"}, status: unknown, lacks: []string{"is no ADDRESS:PORT"}},
		{name: "Antrea, by its configuration", change: []func(*snapshot.Snapshot){withoutProxy, agentPod("kube-system", "antrea-agent-1", "app", "antrea"), func(s *snapshot.Snapshot) {
			s.Objects.ConfigMaps = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "antrea-config"}, Data: map[string]string{"antrea-agent.conf": "antreaProxy:\n  proxyAll: true\n"}}}
		}}, roots: []string{"VIP336 info"}, status: unknown, says: []string{"proxyAll: true", "antctl get ovsflows -S web -n shop"}},
		{name: "Antrea, by its chains", change: []func(*snapshot.Snapshot){withoutProxy, hasChain("ANTREA-PREROUTING")}, roots: []string{"VIP336 info"}, status: unknown, says: []string{":ANTREA-PREROUTING"}},
		{name: "kube-router", change: []func(*snapshot.Snapshot){withoutProxy, hasLink("kube-dummy-if"), agentPod("kube-system", "kube-router-1", "k8s-app", "kube-router")}, roots: []string{"VIP336 info"}, status: unknown, says: []string{"kubectl exec -n kube-system kube-router-1 -- ipvsadm -Ln"}},
		{name: "Calico's eBPF", change: []func(*snapshot.Snapshot){withoutProxy, hasLink("bpfin.cali"), agentPod("calico-system", "calico-node-1", "k8s-app", "calico-node")}, roots: []string{"VIP336 info"}, status: unknown, says: []string{"kubectl exec -n calico-system calico-node-1 -c calico-node -- calico-node -bpf nat dump"}},
		{name: "OVN-Kubernetes", change: []func(*snapshot.Snapshot){withoutProxy, hasChain("OVN-KUBE-NODEPORT"), agentPod("openshift-ovn-kubernetes", "ovnkube-node-1", "app", "ovnkube-node")}, roots: []string{"VIP336 info"}, status: unknown, says: []string{"kubectl exec -n openshift-ovn-kubernetes ovnkube-node-1 -c nb-ovsdb -- ovn-nbctl lb-list"}},
		{name: "Kube-OVN", change: []func(*snapshot.Snapshot){withoutProxy, hasProcess("7 S kube-ovn-daemon")}, roots: []string{"VIP336 info"}, status: unknown},
		{name: "kpng", change: []func(*snapshot.Snapshot){withoutProxy, agentPod("kube-system", "kpng-1", "app", "kpng")}, roots: []string{"VIP336 info"}, status: unknown},
		{name: "not VIP336: Cilium beside kube-proxy", change: []func(*snapshot.Snapshot){agentPod("kube-system", "cilium-1", "k8s-app", "cilium"), hasLink("cilium_host")}, status: diagnosis.OK},
		{name: "not VIP336: Cilium leaves Services to kube-proxy, whose pods were not read", change: []func(*snapshot.Snapshot){ciliumCluster, func(s *snapshot.Snapshot) {
			s.Objects.ConfigMaps[0].Data["kube-proxy-replacement"] = "false"
			setText(s, snapshot.IptablesSave, func(string) string { return nodeRules })
			dropText(s, snapshot.ProxyProcess)
		}}, status: diagnosis.OK},
		{name: "not VIP336: Calico without eBPF", change: []func(*snapshot.Snapshot){agentPod("kube-system", "calico-node-1", "k8s-app", "calico-node")}, status: diagnosis.OK},
	})
}
