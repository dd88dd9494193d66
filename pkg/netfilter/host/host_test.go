package host

import (
	"net/netip"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

const ipAddr = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
    inet6 ::1/128 scope host
       valid_lft forever preferred_lft forever
2: eth0@if7: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default
    link/ether 8e:3f:12:00:00:01 brd ff:ff:ff:ff:ff:ff link-netnsid 0
    inet 172.31.250.11/24 brd 172.31.250.255 scope global eth0
    inet 192.0.2.1 peer 192.0.2.2/32 scope global eth0
    inet6 fe80::8c3f:12ff:fe00:1/64 scope link
`

const ipRoute = `default via 172.31.250.1 dev eth0
10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1
10.244.2.0/24 via 172.31.250.12 dev eth0 metric 20
10.244.2.0/24 via 172.31.250.13 dev eth1 metric 10
blackhole 10.99.0.0/16
local 198.51.100.7 dev kube-ipvs0 table local proto kernel scope host src 198.51.100.7
broadcast 172.31.250.255 dev eth0 table local
10.0.0.0/8 dev tun0 table 100
203.0.113.0/24 proto static
	nexthop via 172.31.250.1 dev eth0 weight 1
	nexthop via 172.31.250.2 dev eth1 weight 1
`

func TestLocal(t *testing.T) {
	tests := []struct {
		name, addr, route string
		ask               string
		want              netfilter.Tri
	}{
		{"own address", ipAddr, "", "172.31.250.11", netfilter.True},
		{"own address of a peer link", ipAddr, "", "192.0.2.1", netfilter.True},
		{"the peer is not own", ipAddr, "", "192.0.2.2", netfilter.False},
		{"link-local without its zone", ipAddr, "", "fe80::8c3f:12ff:fe00:1", netfilter.True},
		{"a neighbour", ipAddr, "", "172.31.250.12", netfilter.False},
		{"anything in 127/8", ipAddr, "", "127.9.9.9", netfilter.True},
		{"by the local table alone", ipAddr, ipRoute, "198.51.100.7", netfilter.True},
		{"broadcast is not own", ipAddr, ipRoute, "172.31.250.255", netfilter.False},
		{"nothing read", "", "", "172.31.250.11", netfilter.Unknown},
		{"only routes read", "", ipRoute, "172.31.250.11", netfilter.Unknown},
		{"one-line form", "2: eth0    inet 10.1.2.3/24 brd 10.1.2.255 scope global eth0\\       valid_lft forever", "", "10.1.2.3", netfilter.True},
		{"brief form", "eth0@if3         UP             10.1.2.3/24 fe80::1/64 \nlo UNKNOWN 127.0.0.1/8", "", "10.1.2.3", netfilter.True},
		{"no addresses in the text", "permission denied\n", "", "10.1.2.3", netfilter.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := &Host{}
			h.ParseAddr(tt.addr)
			h.ParseRoute(tt.route)
			if got := h.Local(netip.MustParseAddr(tt.ask)); got != tt.want {
				t.Errorf("Local(%s) = %v, want %v", tt.ask, got, tt.want)
			}
		})
	}
}

func TestRoute(t *testing.T) {
	h := &Host{}
	h.ParseRoute(ipRoute)
	for ask, want := range map[string]string{
		"10.244.1.9": "cni0", "10.244.2.9": "eth1", "198.51.100.200": "eth0", "203.0.113.5": "eth0",
		"10.99.1.1":   "", // blackhole: a route, and no device
		"2001:db8::1": "", // no IPv6 route in the text
	} {
		if got := h.Route(netip.MustParseAddr(ask)); got != want {
			t.Errorf("Route(%s) = %q, want %q", ask, got, want)
		}
	}
	h6 := &Host{}
	h6.ParseRoute("2001:db8:1::/64 dev cni0 proto kernel metric 256 pref medium\ndefault via fe80::1 dev eth0 metric 1024 pref medium\n")
	if got := h6.Route(netip.MustParseAddr("2001:db8:9::1")); got != "eth0" {
		t.Errorf("IPv6 default route = %q, want eth0", got)
	}
}

func TestForwarding(t *testing.T) {
	h := &Host{}
	if got := h.Forwarding(false); got != netfilter.Unknown {
		t.Errorf("not read: %v", got)
	}
	h.ParseSysctl("net.ipv4.ip_forward = 0\nnet.ipv6.conf.all.forwarding=1\n")
	if h.Forwarding(false) != netfilter.False || h.Forwarding(true) != netfilter.True {
		t.Errorf("got %v, %v; want false, true", h.Forwarding(false), h.Forwarding(true))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ipAddr, ipRoute)
	f.Fuzz(func(t *testing.T, a, r string) {
		h := &Host{}
		h.ParseAddr(a)
		h.ParseRoute(r)
		h.ParseSysctl(a)
		h.Local(netip.MustParseAddr("10.0.0.1"))
		h.Route(netip.MustParseAddr("10.0.0.1"))
	})
}

func TestBridge(t *testing.T) {
	var h Host
	h.ParseAddr("2: eth0: <BROADCAST,UP> mtu 1500 qdisc mq state UP group default qlen 1000\n    inet 10.0.0.1/24 scope global eth0\n" +
		"3: cni0: <BROADCAST,UP> mtu 1450 qdisc noqueue state UP\n4: veth1@if2: <BROADCAST,UP> mtu 1450 qdisc noqueue master cni0 state UP\n")
	for iface, want := range map[string]netfilter.Tri{"eth0": netfilter.False, "veth1": netfilter.False, "cni0": netfilter.Unknown, "eth9": netfilter.Unknown} {
		if got := h.Bridge(iface); got != want {
			t.Errorf("%s: %v, want %v", iface, got, want)
		}
	}
}
