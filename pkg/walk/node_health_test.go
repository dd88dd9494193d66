package walk

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// give puts a text into the node's state, in place of those of its kind.
func give(k snapshot.TextKind, content string) change {
	return func(s *snapshot.Snapshot) {
		dropText(s, k)
		s.Nodes[0].Texts = append(s.Nodes[0].Texts, text(k, content))
	}
}

// edited replaces old in the node's text of that kind, which must have it.
func edited(k snapshot.TextKind, old, with string) change {
	return func(s *snapshot.Snapshot) {
		setText(s, k, func(c string) string {
			if !strings.Contains(c, old) {
				panic("no " + old + " in " + string(k))
			}
			return strings.ReplaceAll(c, old, with)
		})
	}
}

// allRoutes is the fixture's routes as `ip route show table all` prints them,
// with the rules of policy routing.
func allRoutes(s *snapshot.Snapshot) {
	give(snapshot.IPRoute, nodeRoutes+"local 10.244.1.1 dev cni0 table local proto kernel scope host src 10.244.1.1\nlocal 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1\nlocal 172.31.250.11 dev eth0 table local proto kernel scope host src 172.31.250.11\n")(s)
	give(snapshot.IPRule, "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n")(s)
}

// thirdNode adds a node that has no part in the Service.
func thirdNode(s *snapshot.Snapshot) {
	s.Objects.Nodes = append(s.Objects.Nodes, corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-3"}, Spec: corev1.NodeSpec{PodCIDR: "10.244.3.0/24"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.250.13"}}},
	})
	edited(snapshot.IPRoute, "default via", "10.244.3.0/24 via 172.31.250.13 dev eth0\ndefault via")(s)
}

// secondState adds what worker-2 knows of routes.
func secondState(routes string) change {
	return func(s *snapshot.Snapshot) {
		s.Nodes = append(s.Nodes, &snapshot.NodeState{Name: "worker-2", At: takenAt, Via: "node-state", Texts: []snapshot.Text{
			text(snapshot.IptablesSave, nodeRules), text(snapshot.IPRoute, routes),
			text(snapshot.IPAddr, "2: eth0: <UP> mtu 1500\n    inet 172.31.250.12/24 scope global eth0\n3: cni0: <UP> mtu 1500\n    inet 10.244.2.1/24 scope global cni0\n"),
			text(snapshot.Sysctl, nodeSysctl), text(snapshot.ProxyMode, "iptables"), text(snapshot.ProxyProcess, nodeProcs),
		}})
	}
}

const (
	toWorker2 = "10.244.2.0/24 via 172.31.250.12 dev eth0\n"
	toGateway = "default via 172.31.250.1 dev eth0\n"
)

var nodeHealthIncidents = []nodeIncident{
	{name: "healthy, with every table", change: []change{allRoutes}},

	{name: "VIP326: no route at all", change: []change{allRoutes, edited(snapshot.IPRoute, toWorker2, ""), edited(snapshot.IPRoute, toGateway, "")},
		roots: []string{"VIP326 error", "VIP343 error"}, status: fail,
		says: []string{"worker-1 sends to 10.244.2.6 on worker-2, and there is no route", `ssh worker-1 "ip route get 10.244.2.6"`, "sudo ip route add 10.244.2.0/24 via 172.31.250.12", "sudo ip route del 10.244.2.0/24 via 172.31.250.12"}},
	{name: "not VIP326: no route, and only table main was read", change: []change{edited(snapshot.IPRoute, toWorker2, ""), edited(snapshot.IPRoute, toGateway, "")}},
	{name: "not VIP326: a mark may lead to a table with the route", change: []change{allRoutes, edited(snapshot.IPRoute, toWorker2, "10.244.2.0/24 dev tun0 table 100\n"),
		edited(snapshot.IPRoute, toGateway, "default via 172.31.250.1 dev eth0 table 100\nblackhole default\n10.96.0.0/12 via 172.31.250.1 dev eth0\n"), edited(snapshot.IPRule, "32766:", "100:\tfrom all fwmark 0x1 lookup 100\n32766:"), edited(snapshot.IPAddr, "3: cni0", "4: tun0: <UP> mtu 1450\n3: cni0")}},
	{name: "VIP326: a blackhole", change: []change{edited(snapshot.IPRoute, toWorker2, "blackhole 10.244.2.0/26 proto bird\n")},
		roots: []string{"VIP326 error"}, status: fail, says: []string{"its route is a blackhole", "blackhole 10.244.2.0/26 proto bird"}},
	{name: "not VIP326: a blackhole, and a longer prefix beside it", change: []change{edited(snapshot.IPRoute, toWorker2, "blackhole 10.244.2.0/26 proto bird\n10.244.2.6 dev cali1 scope link\n"), edited(snapshot.IPAddr, "3: cni0", "4: cali1: <UP> mtu 1450\n3: cni0")}},
	{name: "VIP326: unreachable", change: []change{edited(snapshot.IPRoute, toWorker2, "unreachable 10.244.2.0/24\n")}, roots: []string{"VIP326 error"}, status: fail, says: []string{"an unreachable one", "ip route replace 10.244.2.0/24 via 172.31.250.12"}},
	{name: "VIP326: a rule of policy routing", change: []change{allRoutes, edited(snapshot.IPRule, "32766:", "100:\tfrom all to 10.244.2.0/24 prohibit\n32766:")},
		roots: []string{"VIP326 error"}, status: fail, says: []string{"a rule of policy routing turns it away", "100: from all to 10.244.2.0/24 prohibit"}},
	{name: "not VIP326: a rule for another source", change: []change{allRoutes, edited(snapshot.IPRule, "32766:", "100:\tfrom 10.9.0.0/16 to 10.244.2.0/24 prohibit\n32766:")}},
	{name: "VIP326: its device is down", change: []change{edited(snapshot.IPAddr, "cni0: <UP>", "cni0: <BROADCAST>")}, roots: []string{"VIP326 error"}, status: fail, says: []string{"device cni0, which is down"}},
	{name: "VIP326: its device has no carrier", change: []change{edited(snapshot.IPRoute, "dev cni0 proto kernel scope link src 10.244.1.1", "dev cni0 proto kernel scope link src 10.244.1.1 linkdown")}, roots: []string{"VIP326 error"}, status: fail, says: []string{"no carrier"}},
	{name: "VIP326: its device is not there", change: []change{edited(snapshot.IPRoute, toWorker2, "10.244.2.0/24 dev flannel.1 onlink\n")}, roots: []string{"VIP326 error"}, status: fail, says: []string{"flannel.1, which is not there"}},
	{name: "not VIP326: its device is there", change: []change{edited(snapshot.IPRoute, toWorker2, "10.244.2.0/24 dev flannel.1 onlink\n"), edited(snapshot.IPAddr, "3: cni0", "4: flannel.1: <UP> mtu 1450\n3: cni0")}},
	{name: "VIP326: the default route is left, other nodes' pods have their own", change: []change{edited(snapshot.IPRoute, toWorker2, ""), thirdNode}, roots: []string{"VIP326 error"}, status: fail,
		says: []string{"the pods of worker-3 have a route of their own", "10.244.3.0/24 via 172.31.250.13 dev eth0"}},
	{name: "VIP326: the default route is left, the other node has its own", change: []change{edited(snapshot.IPRoute, toWorker2, ""), secondState(toGateway + "10.244.1.0/24 via 172.31.250.11 dev eth0\n10.244.2.0/24 dev cni0 scope link\n")}, roots: []string{"VIP326 error"}, status: fail,
		says: []string{"worker-2 has a route to the pods of worker-1"}},
	{name: "not VIP326: a cloud routes to pods", change: []change{edited(snapshot.IPRoute, toWorker2, "")}},
	{name: "not VIP326: a cloud routes to pods, on every node", change: []change{edited(snapshot.IPRoute, toWorker2, ""), secondState(toGateway + "10.244.2.0/24 dev cni0 scope link\n")}},
	{name: "VIP326: the route to the node's own pods is gone", change: []change{edited(snapshot.IPRoute, "10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1\n", "")}, roots: []string{"VIP326 error"}, status: fail,
		says: []string{"away from this node, where its pod is"}},
	{name: "not VIP326: routes were not read", change: []change{func(s *snapshot.Snapshot) { dropText(s, snapshot.IPRoute) }}},

	{name: "VIP343: no route to the VIP", change: []change{allRoutes, edited(snapshot.IPRoute, toGateway, "")}, roots: []string{"VIP343 error"}, status: fail,
		says: []string{"worker-1 has no route to 10.96.0.50", "none of 3 routes leads to 10.96.0.50", "sudo ip route add 10.96.0.50/32 dev eth0"}},
	{name: "not VIP343: a route for the range of Services", change: []change{allRoutes, edited(snapshot.IPRoute, toGateway, "10.96.0.0/12 via 172.31.250.1 dev eth0\n")}},
	{name: "not VIP343: pods alone call", change: []change{allRoutes, edited(snapshot.IPRoute, toGateway, "")}, opts: func(o *Options) { o.Client = Client{Kind: OnePod, Namespace: "shop", Name: "client"} }},

	{name: "VIP344: in the nodes' network", change: []change{edited(snapshot.IPRoute, toGateway, toGateway+"10.96.0.0/16 dev eth1 proto kernel scope link src 10.96.1.1\n")}, roots: []string{"VIP344 warning"}, status: warn,
		says: []string{"10.96.0.50 lies in the network 10.96.0.0/16, to which worker-1 is attached by eth1"}},
	{name: "not VIP344: a route through a router", change: []change{edited(snapshot.IPRoute, toGateway, toGateway+"10.0.0.0/8 via 172.31.250.2 dev eth0\n")}},
	{name: "not VIP344: a route made for the very range", change: []change{edited(snapshot.IPRoute, toGateway, toGateway+"10.96.0.0/12 dev eth0 scope link\n"), func(s *snapshot.Snapshot) {
		s.Objects.ServiceCIDRs = []networkingv1.ServiceCIDR{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}}}
	}}},
	{name: "VIP344: in the range of pods", change: []change{func(s *snapshot.Snapshot) { s.Objects.Nodes[1].Spec.PodCIDR = "10.96.0.0/24" }}, roots: []string{"VIP344 warning"}, status: warn,
		says: []string{"lies in the range of the pods of worker-2"}},

	{name: "VIP317: the VIP on eth0", change: []change{edited(snapshot.IPAddr, "inet 172.31.250.11/24 scope global eth0\n", "inet 172.31.250.11/24 scope global eth0\n    inet 10.96.0.50/32 scope global eth0\n")}, roots: []string{"VIP317 warning"}, status: warn,
		says: []string{"the cluster IP 10.96.0.50 is on interface eth0 of worker-1", "inet 10.96.0.50/32 scope global eth0", "sudo ip addr del 10.96.0.50/32 dev eth0", "sudo ip addr add 10.96.0.50/32 dev eth0"}},
	{name: "not VIP317: the VIP of NodeLocal DNSCache", change: []change{edited(snapshot.IPAddr, "3: cni0", "4: nodelocaldns: <UP> mtu 1500\n    inet 10.96.0.50/32 scope global nodelocaldns\n3: cni0")}},
	{name: "VIP317: another node's address on kube-ipvs0", change: []change{edited(snapshot.IPAddr, "3: cni0", "4: kube-ipvs0: <BROADCAST,NOARP> mtu 1500\n    inet 172.31.250.12/32 scope global kube-ipvs0\n3: cni0")}, roots: []string{"VIP317 error", "VIP313 warning"}, status: fail,
		says: []string{"worker-1 has the address 172.31.250.12 of worker-2 on kube-ipvs0"}},
	{name: "not VIP317: a Service's address on kube-ipvs0", change: []change{edited(snapshot.IPAddr, "3: cni0", "4: kube-ipvs0: <BROADCAST,NOARP> mtu 1500\n    inet 10.96.0.50/32 scope global kube-ipvs0\n3: cni0")}, roots: []string{"VIP313 warning"}, status: warn},
}

func TestNodeHealth(t *testing.T) {
	for _, in := range nodeHealthIncidents {
		t.Run(in.name, func(t *testing.T) {
			if in.roots == nil {
				in.roots = []string{}
			}
			in.run(t)
		})
	}
}

// TestNodeHealthTwins holds each code of this file to an incident that raises it
// and one that nearly does.
func TestNodeHealthTwins(t *testing.T) {
	for _, code := range nodeHealthCodes {
		raised := slices.ContainsFunc(nodeHealthIncidents, func(in nodeIncident) bool {
			return slices.ContainsFunc(append(slices.Clone(in.roots), in.folded...), func(r string) bool { return strings.HasPrefix(r, string(code)) })
		})
		twin := slices.ContainsFunc(nodeHealthIncidents, func(in nodeIncident) bool { return strings.HasPrefix(in.name, "not "+string(code)) })
		if !raised || !twin {
			t.Errorf("%s: an incident raises it: %v, a near twin does not: %v", code, raised, twin)
		}
	}
}

var nodeHealthCodes = []diagnosis.Code{diagnosis.NoRouteToBackend, diagnosis.NoRouteToVIP, diagnosis.ServiceRangeOverlaps, diagnosis.VIPIsLocalAddress}

