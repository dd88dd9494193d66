package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

func TestIsNode(t *testing.T) {
	node := func(name, hostname string, ips ...string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: hostname}}}
		for _, ip := range ips {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
		}
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "127.0.0.1"})
		return n
	}
	addr := testdata(t, "ip-addr.txt") // 192.168.10.2, fd00:10::2
	tests := []struct {
		name, host, addr string
		nodes            []corev1.Node
		want             string
		ok               bool
	}{
		{"name and address", "w1", addr, []corev1.Node{node("w1", "w1", "192.168.10.2"), node("w2", "w2", "192.168.10.3")}, "w1", true},
		{"label and address", "w1", addr, []corev1.Node{node("ip-192-168-10-2", "w1", "192.168.10.2")}, "ip-192-168-10-2", true},
		{"IPv6 address", "w1", addr, []corev1.Node{node("w1", "w1", "fd00:0010::2")}, "w1", true},
		{"address alone", "other", addr, []corev1.Node{node("w1", "w1", "192.168.10.2"), node("w2", "w2", "192.168.10.3")}, "w1", true},
		{"name alone", "w1", addr, []corev1.Node{node("w1", "w1", "192.168.10.7")}, "", false},
		{"two by address", "x", addr, []corev1.Node{node("w1", "w1", "192.168.10.2"), node("w2", "w2", "192.168.10.2")}, "", false},
		{"two by address, one by name", "w2", addr, []corev1.Node{node("w1", "w1", "192.168.10.2"), node("w2", "w2", "192.168.10.2")}, "w2", true},
		{"loopback is everybody's", "x", addr, []corev1.Node{node("w1", "w1", "127.0.0.1")}, "", false},
		{"no addresses read", "w1", "", []corev1.Node{node("w1", "w1", "192.168.10.2")}, "", false},
		{"no nodes", "w1", addr, nil, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &snapshot.NodeState{Texts: []snapshot.Text{
				{Kind: snapshot.Hostname, Status: snapshot.Done, Content: tt.host + "\n"},
				{Kind: snapshot.IPAddr, Status: snapshot.Done, Content: tt.addr},
			}}
			if got, ok := IsNode(s, tt.nodes); got != tt.want || ok != tt.ok {
				t.Errorf("got %q, %t", got, ok)
			}
		})
	}
}
