package walk

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// bigCluster is a healthy cluster of services x endpoints over 100 nodes, with
// the rules of one node where withRules is set.
func bigCluster(services, endpoints int, withRules bool) *snapshot.Snapshot {
	s := &snapshot.Snapshot{TakenAt: takenAt}
	for _, r := range snapshot.Resources {
		s.Reads.Add(snapshot.Read{Resource: r, Status: snapshot.Done})
	}
	for n := range 100 {
		s.Objects.Nodes = append(s.Objects.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n)},
			Spec:       corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+n)},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.0.%d", n+1)}}},
		})
	}
	var services1, chains strings.Builder
	for i := range services {
		ns, name := fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("svc-%d", i)
		vip := fmt.Sprintf("10.96.%d.%d", i/250, i%250+1)
		s.Objects.Services = append(s.Objects.Services, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: vip, ClusterIPs: []string{vip}, Selector: map[string]string{"app": name},
				Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
			},
		})
		slice := discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080)), Protocol: ptr(corev1.ProtocolTCP)}},
		}
		fmt.Fprintf(&services1, "-A KUBE-SERVICES -d %s/32 -p tcp -m comment --comment \"%s/%s:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-%d\n", vip, ns, name, i)
		fmt.Fprintf(&chains, "-A KUBE-SVC-%d ! -s 10.0.0.0/8 -d %s/32 -p tcp -m comment --comment \"%s/%s:http cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ\n", i, vip, ns, name)
		for e := range endpoints {
			k := i*endpoints + e
			node := fmt.Sprintf("node-%d", k%100)
			ip := fmt.Sprintf("10.%d.%d.%d", 100+k%100, k/100/250, k/100%250+1)
			pod := readyPod(ns, fmt.Sprintf("%s-%d", name, e), ip, node)
			pod.Labels = map[string]string{"app": name, "pod-template-hash": "abc"}
			s.Objects.Pods = append(s.Objects.Pods, pod)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{ip}, NodeName: ptr(node), Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: pod.Name},
			})
			odds := ""
			if e < endpoints-1 {
				odds = fmt.Sprintf("-m statistic --mode random --probability %.11f ", 1/float64(endpoints-e))
			}
			fmt.Fprintf(&chains, "-A KUBE-SVC-%d -m comment --comment \"%s/%s:http -> %s:8080\" %s-j KUBE-SEP-%d\n", i, ns, name, ip, odds, k)
			fmt.Fprintf(&chains, "-A KUBE-SEP-%d -s %s/32 -m comment --comment \"%s/%s:http\" -j KUBE-MARK-MASQ\n", k, ip, ns, name)
			fmt.Fprintf(&chains, "-A KUBE-SEP-%d -p tcp -m comment --comment \"%s/%s:http\" -m tcp -j DNAT --to-destination %s:8080\n", k, ns, name, ip)
		}
		s.Objects.EndpointSlices = append(s.Objects.EndpointSlices, slice)
	}
	if !withRules {
		return s
	}
	head, _, _ := strings.Cut(nodeRules, ":KUBE-EXT-WEB")
	var declared strings.Builder
	for i := range services {
		fmt.Fprintf(&declared, ":KUBE-SVC-%d - [0:0]\n", i)
	}
	for k := range services * endpoints {
		fmt.Fprintf(&declared, ":KUBE-SEP-%d - [0:0]\n", k)
	}
	rules := head + ":KUBE-MARK-MASQ - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SERVICES - [0:0]\n" + declared.String() +
		"-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n" +
		"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n-A KUBE-POSTROUTING -j MASQUERADE --random-fully\n" +
		services1.String() + "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n" + chains.String() + "COMMIT\n"
	s.Nodes = []*snapshot.NodeState{{Name: "node-0", At: takenAt, Texts: []snapshot.Text{
		text(snapshot.IptablesSave, rules),
		text(snapshot.IPAddr, "1: lo: <UP>\n    inet 127.0.0.1/8 scope host lo\n2: eth0: <UP>\n    inet 172.16.0.1/24 scope global eth0\n"),
		text(snapshot.Sysctl, nodeSysctl), text(snapshot.ProxyProcess, nodeProcs),
	}}}
	return s
}

func TestBigClusterIsHealthy(t *testing.T) {
	r := Walk(bigCluster(200, 3, true), Options{All: true})
	if r.Summary.OK != 200 {
		for _, s := range r.Services {
			if s.Verdict != diagnosis.OK {
				t.Fatalf("%s/%s is %s\n%s", s.Namespace, s.Name, s.Verdict, describe(s))
			}
		}
	}
}

// BenchmarkAudit walks every one of 10,000 Services with 10 endpoints each, by
// the objects alone and with the 320,000 rules of one node.
func BenchmarkAudit(b *testing.B) {
	for _, withRules := range []bool{false, true} {
		s := bigCluster(10000, 10, withRules)
		b.Run(fmt.Sprintf("rules=%t", withRules), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r := Walk(s, Options{All: true}); r.Summary.Services != 10000 {
					b.Fatal(r.Summary)
				}
			}
		})
	}
}

// BenchmarkOneService walks one of the 10,000.
func BenchmarkOneService(b *testing.B) {
	s := bigCluster(10000, 10, true)
	b.ReportAllocs()
	for b.Loop() {
		if r := Walk(s, Options{Targets: []Target{{Namespace: "ns-50", Name: "svc-5050"}}}); r.Summary.OK != 1 {
			b.Fatal(r.Summary)
		}
	}
}
