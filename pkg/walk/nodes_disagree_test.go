package walk

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nodes gives the fixture n nodes in all, each with the state of worker-1 but
// for its own addresses.
func nodes(n int) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		for i := 2; i <= n; i++ {
			name := fmt.Sprintf("worker-%d", i)
			if i > 2 {
				pod := readyPod("kube-system", "kube-proxy-"+name, fmt.Sprintf("172.31.250.%d", 10+i), name)
				pod.Labels, pod.Spec.HostNetwork = map[string]string{"k8s-app": "kube-proxy"}, true
				s.Objects.Pods = append(s.Objects.Pods, pod)
				s.Objects.Nodes = append(s.Objects.Nodes, corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.244.%d.0/24", i)},
					Status: corev1.NodeStatus{
						Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.31.250.%d", 10+i)}},
						Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
					},
				})
			}
			st := *s.Nodes[0]
			st.Name, st.Texts = name, nil
			own := strings.NewReplacer("172.31.250.11", fmt.Sprintf("172.31.250.%d", 10+i), "10.244.1.1/24", fmt.Sprintf("10.244.%d.1/24", i),
				"10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1", fmt.Sprintf("10.244.%d.0/24 dev cni0 proto kernel scope link src 10.244.%[1]d.1", i),
				"10.244.2.0/24 via 172.31.250.12", otherRoutes(i))
			for _, t := range s.Nodes[0].Texts {
				if t.Kind == snapshot.IPAddr || t.Kind == snapshot.IPRoute {
					t.Content = own.Replace(t.Content)
				}
				st.Texts = append(st.Texts, t)
			}
			s.Nodes = append(s.Nodes, &st)
		}
	}
}

// otherRoutes are those to the pods of worker-1 and worker-2, but for the
// node's own.
func otherRoutes(i int) string {
	one := "10.244.1.0/24 via 172.31.250.11 dev eth0"
	if i == 2 {
		return strings.TrimSuffix(one, " dev eth0")
	}
	return one + "\n10.244.2.0/24 via 172.31.250.12"
}

// on changes the rules of one node, by its place.
func on(i int, old, with string) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		for j := range s.Nodes[i].Texts {
			if t := &s.Nodes[i].Texts[j]; t.Kind == snapshot.IptablesSave {
				if !strings.Contains(t.Content, old) {
					panic("the rules have no " + old)
				}
				t.Content = strings.ReplaceAll(t.Content, old, with)
			}
		}
	}
}

func TestNodesDisagree(t *testing.T) {
	const stale, gone = "10.244.2.6", "10.244.3.9"
	runNodeCases(t, []nodeCase{
		{name: "three of three agree", change: []func(*snapshot.Snapshot){nodes(3)}, status: diagnosis.OK},
		{name: "one of three is stale", change: []func(*snapshot.Snapshot){nodes(3), on(2, stale, gone)}, roots: []string{"VIP337 error"}, folded: []string{"VIP302 error", "VIP303 warning"}, status: fail,
			says: []string{"1 of 3 nodes does otherwise than the rest: worker-3 still sends to 10.244.3.9:8080 and never sends to 10.244.2.6:8080", "2 nodes do as the objects ask: worker-1 and worker-2 (iptables)", "kubectl delete pod -n kube-system kube-proxy-worker-3", "DNAT --to-destination 10.244.3.9:8080"}},
		{name: "two of five are stale in the same way", change: []func(*snapshot.Snapshot){nodes(5), on(1, stale, gone), on(4, stale, gone)},
			roots: []string{"VIP337 error"}, folded: []string{"VIP302 error", "VIP302 error", "VIP303 warning", "VIP303 warning"}, status: fail,
			says: []string{"2 of 5 nodes do otherwise than the rest: worker-2 and worker-5 still send to 10.244.3.9:8080", "3 nodes do as the objects ask", "; then the same on worker-5"}},
		{name: "two of five are odd in two ways", change: []func(*snapshot.Snapshot){nodes(5), on(1, stale, gone), on(4, "10.244.1.5:8080", "10.244.1.5:8081")},
			roots: []string{"VIP337 error"}, folded: []string{"VIP302 error", "VIP305 error", "VIP303 warning"}, status: fail,
			says: []string{"worker-2 still sends to 10.244.3.9:8080", "worker-5 sends to a wrong port, 10.244.1.5:8081"}},
		{name: "one of three drops, which is its own headline", change: []func(*snapshot.Snapshot){nodes(3),
			on(2, ":FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL-SERVICES", ":FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL-SERVICES")},
			roots: []string{"VIP310 error"}, folded: []string{"VIP337 error"}, status: fail},
		{name: "two of five drop", change: []func(*snapshot.Snapshot){nodes(5),
			on(2, ":FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL-SERVICES", ":FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL-SERVICES"),
			on(3, ":FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL-SERVICES", ":FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL-SERVICES")},
			roots: []string{"VIP337 error"}, folded: []string{"VIP310 error", "VIP310 error"}, status: fail, says: []string{"worker-3 and worker-4 turn away in filter FORWARD"}},
		{name: "one of three has no route to a backend", change: []func(*snapshot.Snapshot){nodes(3), func(s *snapshot.Snapshot) {
			for i := range s.Nodes[2].Texts {
				if t := &s.Nodes[2].Texts[i]; t.Kind == snapshot.IPRoute {
					t.Content = strings.Replace(t.Content, "10.244.2.0/24 via 172.31.250.12 dev eth0\n", "", 1)
				}
			}
		}}, roots: []string{"VIP326 error"}, folded: []string{"VIP337 error"}, status: fail},
		{name: "not VIP337: of two nodes one is stale", change: []func(*snapshot.Snapshot){nodes(2), on(1, stale, gone)}, roots: []string{"VIP302 error"}, folded: []string{"VIP303 warning"}, status: fail},
		{name: "not VIP337: all three are stale", change: []func(*snapshot.Snapshot){nodes(3), on(0, stale, gone), on(1, stale, gone), on(2, stale, gone)},
			roots: []string{"VIP302 error", "VIP302 error", "VIP302 error"}, folded: []string{"VIP303 warning", "VIP303 warning", "VIP303 warning"}, status: fail},
		{name: "not VIP337: the client meets the stale node alone", change: []func(*snapshot.Snapshot){nodes(3), on(0, stale, gone)}, opts: calledBy(OnePod, "client"), roots: []string{"VIP302 error"}, folded: []string{"VIP303 warning"}, status: fail},
		{name: "not VIP337: the client does not meet the stale node", change: []func(*snapshot.Snapshot){nodes(3), on(2, stale, gone)}, opts: calledBy(OnePod, "client"), status: diagnosis.OK},
	})
}
