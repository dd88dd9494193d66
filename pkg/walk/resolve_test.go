package walk

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// resolveFixture adds to shop/web a Service of both families that shares an
// external IP with it, a node with dots in its name, and a headless Service.
func resolveFixture() *snapshot.Snapshot {
	s := nodeFixture()
	s.Objects.Services[0].Spec.ExternalIPs = []string{"198.51.100.7"}
	dual := *s.Objects.Services[0].DeepCopy()
	dual.Name = "dual"
	dual.Spec.ClusterIP, dual.Spec.ClusterIPs = "10.96.0.60", []string{"10.96.0.60", "fd00:96::60"}
	dual.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	dual.Spec.Ports[0].NodePort, dual.Spec.Ports[0].Protocol = 30090, corev1.ProtocolUDP
	headless := *s.Objects.Services[0].DeepCopy()
	headless.Name, headless.Namespace = "db", "other"
	headless.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 5432}}}
	named := *s.Objects.Services[0].DeepCopy()
	named.Name = "worker-2" // a Service of a node's name
	named.Spec.Type, named.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, nil
	named.Spec.ClusterIP, named.Spec.ClusterIPs = "10.96.0.70", []string{"10.96.0.70"}
	named.Spec.Ports[0].NodePort = 0
	s.Objects.Services = append(s.Objects.Services, dual, headless, named)
	s.Objects.Nodes = append(s.Objects.Nodes, corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node.local"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.31.250.30"}}},
	})
	return s
}

func TestResolve(t *testing.T) {
	tests := []struct{ target, want string }{
		{"web", "shop/web"},
		{"web.shop.svc.cluster.local", "shop/web"},
		{"svc/shop/web", "shop/web"},
		{"nothing", "nobody"},
		{"10.96.0.50", "shop/web"},
		{"10.96.0.50:80", "shop/web"},
		{"10.96.0.50:81", "shop/web"}, // whose it is; that the port is none is VIP122's to say
		{"10.96.0.51", "nobody"},
		{"fd00:96::60", "shop/dual"},
		{"[fd00:96::60]:80/udp", "shop/dual"},
		{"198.51.100.7", "shop/web shop/dual"},
		{"198.51.100.7:80", "shop/web shop/dual"},
		{":30080", "shop/web"},
		{":30080/udp", "nobody"},
		{":30090/udp", "shop/dual"},
		{":30090", "shop/dual"},
		{":31000", "nobody"},
		{"worker-1:30080", "shop/web on worker-1"},
		{"worker-2:80", "shop/worker-2"},
		{"node.local:30080", "shop/web on node.local"},
		{"172.31.250.11:30080", "shop/web on worker-1"},
		{"172.31.250.12:30090/udp", "shop/dual on worker-2"},
		{"10.244.1.1:30080", "shop/web on worker-1"}, // by what the node itself says
		{"172.31.250.11", "nobody"},
		{"10.244.1.5:8080", "nobody"}, // a pod's own
		{"db.other:5432", "other/db"},
		{"db-0.db.other.svc.cluster.local:5432", "other/db"},
		{"http://web.shop/health", "shop/web"},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			target, err := ParseTarget(tt.target, "shop")
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(resolveFixture(), Options{Targets: []Target{target, target}})
			var got []string
			for _, q := range w.resolve() {
				name := "nobody"
				if q.service != nil {
					name = q.service.Namespace + "/" + q.service.Name
				}
				if q.target.Node != "" && q.service != nil {
					name += " on " + q.target.Node
				}
				got = append(got, name)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%q is %v, want %s", tt.target, got, tt.want)
			}
		})
	}
}
