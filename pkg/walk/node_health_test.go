package walk

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// udp makes the Service and its rules those of UDP.
func udp(s *snapshot.Snapshot) {
	s.Objects.Services[0].Spec.Ports[0].Protocol = corev1.ProtocolUDP
	s.Objects.EndpointSlices[0].Ports[0].Protocol = ptr(corev1.ProtocolUDP)
	setText(s, snapshot.IptablesSave, func(c string) string {
		return strings.NewReplacer("-p tcp", "-p udp", "-m tcp", "-m udp").Replace(c)
	})
}

// flowTo is a line of /proc/net/nf_conntrack: a pod's connection to port 80 of
// an address, and who it goes to.
func flowTo(proto, state, dst, to, flags string) string {
	port := "8080"
	if to == dst {
		port = "80"
	}
	return "ipv4     2 " + proto + "      " + state + " src=10.244.1.9 dst=" + dst + " sport=43145 dport=80 " + flags + " src=" + to + " dst=10.244.1.9 sport=" + port + " dport=43145 mark=0 zone=0 use=2\n"
}

// sockets are what listens in a pod.
func sockets(pod string, lines ...string) change {
	return func(s *snapshot.Snapshot) {
		for i := range s.Objects.Pods {
			s.Objects.Pods[i].UID = types.UID("uid-" + s.Objects.Pods[i].Name)
		}
		content := ""
		for _, l := range lines {
			content += "uid-" + pod + " " + l + "\n"
		}
		give(snapshot.PodSockets, content)(s)
	}
}

// onBridge makes cni0 a bridge, with a port.
func onBridge(s *snapshot.Snapshot) {
	edited(snapshot.IPAddr, "3: cni0", "4: veth1@if2: <UP> mtu 1500 master cni0\n3: cni0")(s)
}

// secondInterface gives the node its address on eth1, while eth0 leads out.
func secondInterface(s *snapshot.Snapshot) {
	edited(snapshot.IPAddr, "    inet 172.31.250.11/24 scope global eth0\n", "    inet 192.0.2.9/24 scope global eth0\n4: eth1: <UP> mtu 1500\n    inet 172.31.250.11/24 scope global eth1\n")(s)
	edited(snapshot.IPRoute, toGateway, "default via 192.0.2.1 dev eth0\n")(s)
	edited(snapshot.IPRoute, "172.31.250.0/24 dev eth0", "172.31.250.0/24 dev eth1")(s)
	edited(snapshot.IPRoute, toWorker2, "10.244.2.0/24 via 172.31.250.12 dev eth1\n")(s)
}

func configured(mode string) change {
	return func(s *snapshot.Snapshot) {
		s.Objects.ConfigMaps[0].Data["config.conf"] = "kind: KubeProxyConfiguration\nmode: " + mode + "\n"
	}
}

func counters(drop string) string {
	return "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error\n" +
		"00000049  00000000 00000000 00000000 00000003 00000000 00000000 00000000 00000000 00000001 " + drop + " 00000000 00000000\n"
}

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

	{name: "VIP324: UDP flows to a pod that is gone", change: []change{udp, give(snapshot.Conntrack, flowTo("udp", "17 29", "10.96.0.50", "10.244.2.99", "")+flowTo("udp", "17 29", "10.96.0.50", "10.244.2.6", ""))}, roots: []string{"VIP324 error"}, status: fail,
		says: []string{"worker-1 keeps sending 1 connection of 10.96.0.50:80/UDP to 10.244.2.99:8080, no endpoint any more", "sudo conntrack -D -p udp --orig-dst 10.96.0.50 --dport 80 --reply-src 10.244.2.99", "sudo grep dst=10.96.0.50 /proc/net/nf_conntrack"}},
	{name: "VIP324: from before there were rules", change: []change{udp, give(snapshot.Conntrack, flowTo("udp", "17 29", "10.96.0.50", "10.96.0.50", "[UNREPLIED]"))}, roots: []string{"VIP324 error"}, status: fail,
		says: []string{"the address itself, as before there were rules for it"}},
	{name: "VIP324: a node port's", change: []change{udp, give(snapshot.Conntrack, strings.ReplaceAll(flowTo("udp", "17 29", "172.31.250.11", "10.244.2.99", ""), "dport=80 ", "dport=30080 "))}, roots: []string{"VIP324 error"}, status: fail},
	{name: "VIP324: TCP that nobody answers", change: []change{give(snapshot.Conntrack, flowTo("tcp", "6 119 SYN_SENT", "10.96.0.50", "10.244.2.99", "[UNREPLIED]"))}, roots: []string{"VIP324 warning"}, status: warn,
		says: []string{"the client that tries again from the same port"}},
	{name: "VIP324: the rules still send there", change: []change{udp, rules("10.244.2.6", "10.244.2.99"), give(snapshot.Conntrack, flowTo("udp", "17 29", "10.96.0.50", "10.244.2.99", ""))}, roots: []string{"VIP302 error"}, folded: []string{"VIP324 error", "VIP303 warning"}, status: fail},
	{name: "not VIP324: TCP to a pod that is gone, still open", change: []change{give(snapshot.Conntrack, flowTo("tcp", "6 431999 ESTABLISHED", "10.96.0.50", "10.244.2.99", ""))}},
	{name: "not VIP324: flows to endpoints", change: []change{udp, give(snapshot.Conntrack, flowTo("udp", "17 29", "10.96.0.50", "10.244.2.6", "")+flowTo("udp", "17 29", "10.96.0.50", "10.244.1.5", "[UNREPLIED]"))}},
	{name: "not VIP324: flows to a pod that is terminating", change: []change{udp, func(s *snapshot.Snapshot) {
		sl := &s.Objects.EndpointSlices[0]
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.2.99"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(false), Terminating: ptr(true)}})
	}, give(snapshot.Conntrack, flowTo("udp", "17 29", "10.96.0.50", "10.244.2.99", ""))}},
	{name: "not VIP324: flows of another port and address", change: []change{udp, give(snapshot.Conntrack, strings.ReplaceAll(flowTo("udp", "17 29", "10.96.0.50", "10.244.2.99", ""), "dport=80 ", "dport=81 ")+flowTo("udp", "17 29", "10.96.0.51", "10.244.2.99", ""))}},
	{name: "not VIP324: the endpoints changed a moment ago", change: []change{udp, func(s *snapshot.Snapshot) {
		s.Objects.EndpointSlices[0].Annotations = map[string]string{lastChange: takenAt.Add(-2 * time.Second).Format(time.RFC3339)}
	}, give(snapshot.Conntrack, flowTo("udp", "17 29", "10.96.0.50", "10.244.2.99", ""))}},

	{name: "VIP328: another port", change: []change{sockets("web-1", "tcp 0.0.0.0:8081")}, roots: []string{"VIP328 error"}, status: fail,
		says: []string{"nothing in pod web-1 listens on port 8080/TCP", "its processes listen on 8081/TCP", `[{"op":"replace","path":"/spec/ports/0/targetPort","value":8081}]`, `"value":8080`}},
	{name: "VIP328: nothing at all", change: []change{sockets("web-1", "none")}, roots: []string{"VIP328 error"}, status: fail, says: []string{"no process in it listens on any port"}},
	{name: "VIP328: the other protocol", change: []change{sockets("web-1", "udp 0.0.0.0:8080")}, roots: []string{"VIP328 error"}, status: fail},
	{name: "not VIP328: it listens", change: []change{sockets("web-1", "tcp 0.0.0.0:8080", "tcp 127.0.0.1:9090")}},
	{name: "not VIP328: it listens at its own address", change: []change{sockets("web-1", "tcp 10.244.1.5:8080")}},
	{name: "not VIP328: it listens on every IPv6 address", change: []change{sockets("web-1", "tcp6 [::]:8080")}},
	{name: "not VIP328: another pod's sockets alone were read", change: []change{sockets("client", "tcp 0.0.0.0:1")}},
	{name: "not VIP328: a mesh takes the packets inside the pod", change: []change{sockets("web-1", "tcp 0.0.0.0:15006", "tcp 127.0.0.1:9090")}},
	{name: "not VIP328: the pod is on another node", change: []change{sockets("web-2", "none")}},
	{name: "VIP329: loopback alone", change: []change{sockets("web-1", "tcp 127.0.0.1:8080", "tcp6 [::1]:8080")}, roots: []string{"VIP329 error"}, status: fail,
		says: []string{"pod web-1 listens on port 8080/TCP at the loopback address alone", "packets come to 10.244.1.5", "tcp 127.0.0.1:8080"}},
	{name: "VIP329: another address", change: []change{sockets("web-1", "tcp 10.9.9.9:8080")}, roots: []string{"VIP329 error"}, status: fail, says: []string{"not at the address that packets go to"}},
	{name: "not VIP329: loopback, and everywhere", change: []change{sockets("web-1", "tcp 127.0.0.1:8080", "tcp6 [::]:8080")}},

	{name: "VIP322: switched off", change: []change{onBridge, edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.bridge.bridge-nf-call-iptables = 0\n")}, roots: []string{"VIP322 error"}, status: fail,
		says: []string{"net.bridge.bridge-nf-call-iptables = 0", "10.244.1.5:8080 answers across cni0", "sudo sysctl -w net.bridge.bridge-nf-call-iptables=1"}},
	{name: "VIP322: the module is not loaded", change: []change{onBridge, give(snapshot.ProcModules, "bridge 1 0 - Live 0x0\nnf_conntrack 1 0 - Live 0x0\n")}, roots: []string{"VIP322 error"}, status: fail,
		says: []string{"br_netfilter is not loaded", "sudo modprobe br_netfilter"}},
	{name: "not VIP322: switched on", change: []change{onBridge, edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.bridge.bridge-nf-call-iptables = 1\n")}},
	{name: "not VIP322: pods on no bridge", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.bridge.bridge-nf-call-iptables = 0\n")}},
	{name: "not VIP322: bridge itself is built in, or not there", change: []change{onBridge, give(snapshot.ProcModules, "nf_conntrack 1 0 - Live 0x0\n")}},
	{name: "not VIP322: the backends are elsewhere", change: []change{onBridge, edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.bridge.bridge-nf-call-iptables = 0\n")}, opts: func(o *Options) { o.Client = Client{Kind: FromExternal} }},

	{name: "VIP323: full", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.netfilter.nf_conntrack_count = 1000\nnet.netfilter.nf_conntrack_max = 1000\n")}, roots: []string{"VIP323 error"}, status: fail, says: []string{"is full: 1000 of 1000", "nf_conntrack_max=2000"}},
	{name: "VIP323: nearly", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.netfilter.nf_conntrack_count = 910\nnet.netfilter.nf_conntrack_max = 1000\n")}, roots: []string{"VIP323 warning"}, status: warn},
	{name: "VIP323: it has dropped before", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.netfilter.nf_conntrack_count = 810\nnet.netfilter.nf_conntrack_max = 1000\n"), give(snapshot.ConntrackStat, counters("00000011"))}, roots: []string{"VIP323 warning"}, status: warn, says: []string{"drop 17"}},
	{name: "not VIP323: as full, and never dropped", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.netfilter.nf_conntrack_count = 810\nnet.netfilter.nf_conntrack_max = 1000\n"), give(snapshot.ConntrackStat, counters("00000000"))}},
	{name: "not VIP323: dropped long ago", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.netfilter.nf_conntrack_count = 73\nnet.netfilter.nf_conntrack_max = 262144\n"), give(snapshot.ConntrackStat, counters("00000011"))}},

	{name: "VIP325: rp_filter strict on the second interface", change: []change{secondInterface, edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.eth1.rp_filter = 1\n")}, roots: []string{"VIP325 warning"}, status: warn,
		says: []string{"would answer by eth0", "net.ipv4.conf.eth1.rp_filter = 1", "sysctl -w net.ipv4.conf.eth1.rp_filter=2"}},
	{name: "VIP325: by the setting of all interfaces", change: []change{secondInterface, edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.eth1.rp_filter = 0\n")}, roots: []string{"VIP325 warning"}, status: warn},
	{name: "not VIP325: loose", change: []change{secondInterface, edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.eth1.rp_filter = 2\n")}},
	{name: "not VIP325: strict with one interface", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.eth0.rp_filter = 1\n")}},
	{name: "not VIP325: not read", change: []change{secondInterface}},

	{name: "VIP316: IPVS without its module", change: []change{configured("ipvs"), give(snapshot.ProcModules, "nf_conntrack 1 0 - Live 0x0\n"), give(snapshot.ModulesBuiltin, "kernel/net/ipv6/ipv6.ko\n")}, roots: []string{"VIP316 error"}, folded: []string{"VIP335 warning"}, status: fail,
		says: []string{"lacks ip_vs and ip_vs_rr, which kube-proxy's ipvs mode needs", "sudo modprobe ip_vs", "sudo modprobe -r ip_vs_rr"}},
	{name: "VIP316: nftables without its module", change: []change{configured("nftables"), give(snapshot.ProcModules, "nf_conntrack 1 0 - Live 0x0\n"), give(snapshot.ModulesBuiltin, "kernel/net/ipv6/ipv6.ko\n")}, roots: []string{"VIP316 error"}, folded: []string{"VIP335 warning"}, status: fail},
	{name: "not VIP316: it may be built in", change: []change{configured("ipvs"), give(snapshot.ProcModules, "nf_conntrack 1 0 - Live 0x0\n")}, roots: []string{"VIP335 warning"}, status: warn},
	{name: "not VIP316: it is built in", change: []change{configured("ipvs"), give(snapshot.ProcModules, "nf_conntrack 1 0 - Live 0x0\n"), give(snapshot.ModulesBuiltin, "kernel/net/netfilter/ipvs/ip_vs.ko\nkernel/net/netfilter/ipvs/ip_vs_rr.ko\n")}, roots: []string{"VIP335 warning"}, status: warn},
	{name: "not VIP316: iptables mode", change: []change{give(snapshot.ProcModules, "nf_conntrack 1 0 - Live 0x0\n"), give(snapshot.ModulesBuiltin, "kernel/net/ipv6/ipv6.ko\n")}},

	{name: "VIP321: the pods' interface alone", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.cni0.forwarding = 0\nnet.ipv4.conf.eth0.forwarding = 1\n")}, roots: []string{"VIP321 error"}, status: fail,
		says: []string{"net.ipv4.conf.cni0.forwarding = 0", "sudo sysctl -w net.ipv4.conf.cni0.forwarding=1"}},
	{name: "VIP321: the interface of the answers", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.eth0.forwarding = 0\n")}, roots: []string{"VIP321 error"}, status: fail, opts: func(o *Options) { o.Client = Client{Kind: OnePod, Namespace: "shop", Name: "client"} },
		says: []string{"the answers of backends come in there"}},
	{name: "not VIP321: an interface that has no part in it", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.docker0.forwarding = 0\nnet.ipv4.conf.default.forwarding = 0\nnet.ipv6.conf.all.forwarding = 0\n")}},
	{name: "not VIP321: the node's own packets are not forwarded", change: []change{edited(snapshot.Sysctl, nodeSysctl, nodeSysctl+"net.ipv4.conf.eth0.forwarding = 0\n")}, opts: func(o *Options) { o.Client = Client{Kind: OnNode, Name: "worker-1"} }},
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

var nodeHealthCodes = []diagnosis.Code{
	diagnosis.KernelModuleMissing, diagnosis.ForwardingOff, diagnosis.BridgeNfCallOff, diagnosis.ConntrackNearlyFull, diagnosis.ConntrackStale, diagnosis.SysctlSuspicious, diagnosis.NothingListens, diagnosis.ListensOnLoopbackOnly,
	diagnosis.NoRouteToBackend, diagnosis.NoRouteToVIP, diagnosis.ServiceRangeOverlaps, diagnosis.VIPIsLocalAddress,
}
