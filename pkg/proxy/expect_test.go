package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func service(edit ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.10",
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080, TargetPort: intstr.FromInt32(8080)}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
	}
	for _, f := range edit {
		f(svc)
	}
	return svc
}

func slice(eps ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name, port := "http", int32(8080)
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   eps,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
}

// ep makes an endpoint from words: addr, node=N, zone=Z, fornode=N, unready, draining.
func ep(words string) discoveryv1.Endpoint {
	var e discoveryv1.Endpoint
	yes, no := true, false
	for _, w := range strings.Fields(words) {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "node":
			e.NodeName = &v
		case "zone", "fornode":
			if e.Hints == nil {
				e.Hints = &discoveryv1.EndpointHints{}
			}
			if k == "zone" {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: v})
			} else {
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: v})
			}
		case "unready":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
		case "draining":
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		default:
			e.Addresses = append(e.Addresses, w)
		}
	}
	return e
}

func local(svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(svc *corev1.Service) {
	p := corev1.ServiceInternalTrafficPolicyLocal
	svc.Spec.InternalTrafficPolicy = &p
}

func TestExpect(t *testing.T) {
	worker := Node{Name: "worker-1", Zone: "a", DetectLocal: SettingOn, Addresses: []netip.Addr{netip.MustParseAddr("192.168.0.2")}}
	unknownZone := Node{Name: "worker-1", ZoneUnknown: true}
	two := []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 node=worker-1"), ep("10.1.1.1 node=worker-2"))}
	zoned := []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 zone=a"), ep("10.1.1.1 zone=b"))}
	elsewhere := []*discoveryv1.EndpointSlice{slice(ep("10.1.1.1 node=worker-2"))}
	for _, tt := range []struct {
		name   string
		svc    *corev1.Service
		slices []*discoveryv1.EndpointSlice
		node   Node
		client ClientKind
		kind   Kind
		want   string
	}{
		{"all ready", service(), two, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=no"},
		{"only addresses[0]", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 10.1.0.2"))}, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no"},
		{"unready left out", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1"), ep("10.1.0.2 unready"))}, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no"},
		{"draining not drawn beside ready", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1"), ep("10.1.0.2 draining"))}, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no"},
		{"draining is the last resort", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.2 draining"))}, worker, PodClient, ClusterIP, "forward 10.1.0.2:8080 masq=no (only terminating endpoints that still serve are left)"},
		{"none ready", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 unready"))}, worker, PodClient, ClusterIP, "reject (no ready endpoint)"},
		{"no slice", service(), nil, worker, PodClient, NodePort, "reject (no ready endpoint)"},
		{"leading zeros", service(), []*discoveryv1.EndpointSlice{slice(ep("010.001.000.001"))}, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no"},
		{"node to ClusterIP", service(), two, worker, NodeClient, ClusterIP, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=yes"},
		{"node to ClusterIP, detector not known", service(), two, unknownZone, NodeClient, ClusterIP, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=maybe"},
		{"internal Local", service(internalLocal), two, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no (internalTrafficPolicy Local: endpoints on worker-1 only)"},
		{"internal Local, none here", service(internalLocal), elsewhere, worker, PodClient, ClusterIP, "drop (internalTrafficPolicy Local and no endpoint on worker-1)"},
		{"internal Local does not touch node ports", service(internalLocal), elsewhere, worker, ExternalClient, NodePort, "forward 10.1.1.1:8080 masq=yes"},
		{"external Local, none here", service(local), elsewhere, worker, ExternalClient, NodePort, "drop (externalTrafficPolicy Local and no endpoint on worker-1)"},
		{"external Local, pod is let through", service(local), elsewhere, worker, PodClient, LoadBalancer, "forward 10.1.1.1:8080 masq=no"},
		{"external Local, node is let through", service(local), elsewhere, worker, NodeClient, LoadBalancer, "forward 10.1.1.1:8080 masq=yes"},
		{"external Local means nothing inside", service(local), elsewhere, worker, PodClient, ClusterIP, "forward 10.1.1.1:8080 masq=no"},
		{"zone hints", service(), zoned, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no (topology hints for zone a)"},
		{"zone hints, zone not known", service(), zoned, unknownZone, PodClient, ClusterIP, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=no unsure"},
		{"one endpoint without hint", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 zone=a"), ep("10.1.1.1"))}, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=no"},
		{"no hint for this zone", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 zone=c"), ep("10.1.1.1 zone=b"))}, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=no"},
		{"node hints beat zone hints", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 zone=a fornode=worker-2"), ep("10.1.1.1 zone=b fornode=worker-1"))}, worker, PodClient, ClusterIP, "forward 10.1.1.1:8080 masq=no (topology hints for node worker-1)"},
		{"node hints, and kube-proxy heeds none", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 zone=a fornode=worker-2"), ep("10.1.1.1 zone=b fornode=worker-1"))}, Node{Name: "worker-1", Zone: "a", SameNodeHints: SettingOff}, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no (topology hints for zone a)"},
		{"node hints for others, so the zone is left", service(), []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1 zone=a fornode=worker-2"), ep("10.1.1.1 zone=b fornode=worker-3"))}, worker, PodClient, ClusterIP, "forward 10.1.0.1:8080 masq=no (topology hints for zone a)"},
		{"another proxy's", service(func(s *corev1.Service) { s.Labels = map[string]string{serviceProxyNameLabel: "cilium"} }), two, worker, PodClient, ClusterIP,
			`ignore (the label service.kubernetes.io/service-proxy-name gives the Service to the proxy "cilium")`},
		{"headless", service(func(s *corev1.Service) { s.Spec.ClusterIP = "None" }), two, worker, PodClient, ClusterIP, "ignore (a headless Service has no virtual IP)"},
		{"load balancer proxies itself", service(func(s *corev1.Service) {
			m := corev1.LoadBalancerIPModeProxy
			s.Status.LoadBalancer.Ingress[0].IPMode = &m
		}), two, worker, PodClient, LoadBalancer, "ignore (ipMode Proxy: the load balancer terminates the address itself)"},
		{"source ranges, client not known", service(func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{" 198.51.100.0/24"} }), two, worker, ExternalClient, LoadBalancer, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=yes unsure"},
		{"source ranges without the node", service(func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"} }), two, worker, NodeClient, LoadBalancer, "drop (loadBalancerSourceRanges do not admit the client)"},
		{"source ranges with /0", service(func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "0.0.0.0/0"} }), two, worker, NodeClient, LoadBalancer, "forward 10.1.0.1:8080 10.1.1.1:8080 masq=yes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Expect(tt.svc, tt.slices, tt.node, tt.client, frontend(tt.kind))
			if diff := cmp.Diff(tt.want, describe(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func frontend(k Kind) Frontend {
	for _, f := range Frontends(service()) {
		if f.Kind == k {
			return f
		}
	}
	return Frontend{}
}

func describe(e Expectation) string {
	s := string(e.Action)
	for _, b := range e.Backends {
		s += " " + b.Addr.String()
	}
	if e.Action == Forward {
		s += " masq=" + string(e.Masquerade)
	}
	if e.Unsure != "" {
		s += " unsure"
	}
	if e.Why != "" {
		s += fmt.Sprintf(" (%s)", e.Why)
	}
	return s
}

func TestSlicesThatDoNotCount(t *testing.T) {
	for name, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"another Service's":   func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "other" },
		"no label":            func(s *discoveryv1.EndpointSlice) { s.Labels = nil },
		"another namespace's": func(s *discoveryv1.EndpointSlice) { s.Namespace = "other" },
		"another port name":   func(s *discoveryv1.EndpointSlice) { n := "8080"; s.Ports[0].Name = &n },
		"another protocol":    func(s *discoveryv1.EndpointSlice) { p := corev1.ProtocolUDP; s.Ports[0].Protocol = &p },
		"no port number":      func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil },
		"port 0":              func(s *discoveryv1.EndpointSlice) { z := int32(0); s.Ports[0].Port = &z },
		"FQDN":                func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN },
		"the other family":    func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 },
		"a headless one":      func(s *discoveryv1.EndpointSlice) { s.Labels[headlessLabel] = "" },
		"another proxy's":     func(s *discoveryv1.EndpointSlice) { s.Labels[serviceProxyNameLabel] = "x" },
		"no address":          func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil },
		"no IP":               func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"db.example.com"} },
	} {
		t.Run(name, func(t *testing.T) {
			sl := slice(ep("10.1.0.1"))
			if got := describe(Expect(service(), []*discoveryv1.EndpointSlice{sl}, Node{Name: "n"}, PodClient, frontend(ClusterIP))); !strings.HasPrefix(got, "forward") {
				t.Fatalf("before the change: %s", got)
			}
			edit(sl)
			if got := describe(Expect(service(), []*discoveryv1.EndpointSlice{sl}, Node{Name: "n"}, PodClient, frontend(ClusterIP))); got != "reject (no ready endpoint)" {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestDuplicateAddresses(t *testing.T) {
	a, b := slice(ep("10.1.0.1 draining node=worker-1")), slice(ep("10.1.0.1 node=worker-2"))
	a.Name, b.Name = "web-a", "web-b"
	for _, in := range [][]*discoveryv1.EndpointSlice{{a, b}, {b, a}} {
		e := Expect(service(), in, Node{Name: "worker-1"}, PodClient, frontend(ClusterIP))
		if len(e.Backends) != 1 || e.Backends[0].Slice != "web-b" {
			t.Errorf("got %+v, want the entry that is not terminating, once", e.Backends)
		}
	}
}

func TestDualStack(t *testing.T) {
	svc := service(func(s *corev1.Service) {
		s.Spec.ClusterIPs = []string{"fd00::10", "10.96.0.10"}
		s.Spec.ClusterIP = "fd00::10"
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	})
	six := slice(ep("fd00:1::1"))
	six.AddressType = discoveryv1.AddressTypeIPv6
	var got []string
	for _, e := range ExpectAll(svc, []*discoveryv1.EndpointSlice{slice(ep("10.1.0.1")), six}, Node{Name: "n"}, PodClient) {
		got = append(got, fmt.Sprintf("%s %s: %s", e.Frontend.Kind, e.Frontend.IP, describe(e)))
	}
	want := []string{
		"clusterIP 10.96.0.10: forward 10.1.0.1:8080 masq=no",
		"loadBalancer 203.0.113.9: forward 10.1.0.1:8080 masq=yes",
		"nodePort invalid IP: forward 10.1.0.1:8080 masq=yes",
		"clusterIP fd00::10: forward [fd00:1::1]:8080 masq=no",
		"nodePort invalid IP: forward [fd00:1::1]:8080 masq=yes",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseAddr(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "010.000.00.01": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "FD00::1": "fd00::1",
		"": "", "10.0.0": "", "10.0.0.256": "", "fe80::1%eth0": "", "0x10.0.0.1": "", "a.b.c.d": "", "1.2.3.": "",
	} {
		got := ""
		if a, ok := ParseAddr(in); ok {
			got = a.String()
		}
		if got != want {
			t.Errorf("ParseAddr(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParseAddr(f *testing.F) {
	f.Add("010.0.0.1")
	f.Add("fd00::1")
	f.Fuzz(func(t *testing.T, s string) {
		if a, ok := ParseAddr(s); ok && (!a.IsValid() || a.Is4In6()) {
			t.Errorf("ParseAddr(%q) = %v", s, a)
		}
	})
}
