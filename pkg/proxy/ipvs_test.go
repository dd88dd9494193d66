package proxy

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ipvsService(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}}, ExternalIPs: []string{"198.51.100.7"},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

func ipvsSlice(nodes ...string) []*discoveryv1.EndpointSlice {
	name, proto, port := "http", corev1.ProtocolTCP, int32(8080)
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &port}},
	}
	for i, n := range nodes {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 244, 1, byte(i + 1)}).String()}, NodeName: &n})
	}
	return []*discoveryv1.EndpointSlice{sl}
}

// TestExpectIPVS holds what differs from the other modes.
func TestExpectIPVS(t *testing.T) {
	local := func(svc *corev1.Service) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	inside := func(svc *corev1.Service) {
		p := corev1.ServiceInternalTrafficPolicyLocal
		svc.Spec.InternalTrafficPolicy = &p
	}
	alone := func(svc *corev1.Service) {
		inside(svc)
		svc.Spec.Type, svc.Spec.ExternalIPs, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, nil, 0
		svc.Status = corev1.ServiceStatus{}
	}
	ranges := func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }
	vip := netip.MustParseAddr("10.96.0.10")
	tests := []struct {
		name     string
		change   func(*corev1.Service)
		nodes    []string
		node     Node
		kind     Kind
		client   ClientKind
		addr     netip.Addr
		action   Action
		backends int
		masq     Masquerade
	}{
		{name: "all to all", nodes: []string{"n1", "n2"}, kind: ClusterIP, client: PodClient, action: Forward, backends: 2, masq: MasqNo},
		{name: "none: refused", kind: ClusterIP, client: PodClient, action: Reject, masq: MasqNo},
		{name: "externally local: the node's own packets too", change: local, nodes: []string{"n1", "n2"}, kind: NodePort, client: NodeClient, action: Forward, backends: 1, masq: MasqNo},
		{name: "externally local, pods too", change: local, nodes: []string{"n1", "n2"}, node: Node{DetectLocal: SettingOn}, kind: LoadBalancer, client: PodClient, action: Forward, backends: 1, masq: MasqNo},
		{name: "externally local without any: all, and no masquerade", change: local, nodes: []string{"n2", "n3"}, kind: ExternalIP, client: ExternalClient, action: Forward, backends: 2, masq: MasqNo},
		{name: "internally local without any, but reached from outside: all", change: inside, nodes: []string{"n2"}, kind: ClusterIP, client: PodClient, action: Forward, backends: 1, masq: MasqNo},
		{name: "internally local and nothing else: refused", change: alone, nodes: []string{"n2"}, kind: ClusterIP, client: PodClient, action: Reject, masq: MasqNo},
		{name: "outside the source ranges, without endpoints: dropped", change: ranges, kind: LoadBalancer, client: ExternalClient, addr: netip.MustParseAddr("198.51.100.99"), action: Drop, masq: MasqNo},
		{name: "outside clients are masqueraded", nodes: []string{"n1"}, kind: NodePort, client: ExternalClient, action: Forward, backends: 1, masq: MasqYes},
		{name: "without a detector it goes by the source", nodes: []string{"n1"}, node: Node{DetectLocal: SettingOff}, kind: ClusterIP, client: NodeClient, addr: vip, action: Forward, backends: 1, masq: MasqYes},
		{name: "which the node's own address is not", nodes: []string{"n1"}, node: Node{DetectLocal: SettingOff}, kind: ClusterIP, client: NodeClient, addr: netip.MustParseAddr("172.16.0.1"), action: Forward, backends: 1, masq: MasqNo},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc, node := ipvsService(tt.change), tt.node
			node.Name, node.IPVS = "n1", true
			for _, f := range Frontends(svc) {
				if f.Kind != tt.kind {
					continue
				}
				got := ExpectFrom(svc, ipvsSlice(tt.nodes...), node, tt.client, tt.addr, f)
				if got.Action != tt.action || len(got.Backends) != tt.backends || got.Masquerade != tt.masq {
					t.Errorf("%s %d backends, masquerade %s (%s); want %s %d %s", got.Action, len(got.Backends), got.Masquerade, got.Why, tt.action, tt.backends, tt.masq)
				}
				return
			}
			t.Fatal("no such frontend")
		})
	}
}

func TestSetName(t *testing.T) {
	for _, tt := range []struct {
		name string
		v6   bool
		want string
	}{
		{"CLUSTER-IP", false, "KUBE-CLUSTER-IP"}, {"CLUSTER-IP", true, "KUBE-6-CLUSTER-IP"},
		{"LOAD-BALANCER-SOURCE-CIDR", true, "KUBE-6-LOAD-BALANCER-SOURCE-CID"}, {"NODE-PORT-LOCAL-SCTP-HASH", true, "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS"},
	} {
		if got := SetName(tt.name, tt.v6); got != tt.want {
			t.Errorf("SetName(%s, %v) = %s, want %s", tt.name, tt.v6, got, tt.want)
		}
	}
}
