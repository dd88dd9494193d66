package walk

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

type change = func(*snapshot.Snapshot)

const (
	webVIP  = "-A KUBE-SERVICES -d 10.96.0.50/32 -p tcp -m comment --comment \"shop/web cluster IP\" -m tcp --dport 80 -j KUBE-SVC-WEB\n"
	webOne  = "-A KUBE-SVC-WEB -m comment --comment \"shop/web -> 10.244.1.5:8080\" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-ONE\n"
	webTwo  = "-A KUBE-SVC-WEB -m comment --comment \"shop/web -> 10.244.2.6:8080\" -j KUBE-SEP-TWO\n"
	webMasq = "-A KUBE-SVC-WEB ! -s 10.244.0.0/16 -d 10.96.0.50/32 -p tcp -m comment --comment \"shop/web cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ\n"
	toPorts = "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n"
)

func service(f func(*corev1.Service)) change {
	return func(s *snapshot.Snapshot) { f(&s.Objects.Services[0]) }
}

// noNodePort makes it a Service of type ClusterIP.
var noNodePort = service(func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0 })

func proxyConf(lines string) change {
	return func(s *snapshot.Snapshot) {
		s.Objects.ConfigMaps[0].Data["config.conf"] = "kind: KubeProxyConfiguration\nmode: iptables\n" + lines
	}
}

func unnamed(s *snapshot.Snapshot) {
	s.Nodes[0].Name = ""
	dropText(s, snapshot.IPAddr)
	dropText(s, snapshot.IPRoute)
}

func unread(rs ...snapshot.Resource) change {
	return func(s *snapshot.Snapshot) { cluster{s}.unread(rs...) }
}

func noNodes(s *snapshot.Snapshot) {
	s.Objects.Nodes = nil
	unread(snapshot.Nodes)(s)
}

func hints(zones ...string) change {
	return func(s *snapshot.Snapshot) {
		for i := range s.Objects.EndpointSlices[0].Endpoints {
			s.Objects.EndpointSlices[0].Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zones[i]}}}
		}
	}
}

func zone(name string) change {
	return func(s *snapshot.Snapshot) {
		s.Objects.Nodes[0].Labels = map[string]string{corev1.LabelTopologyZone: name}
	}
}

// sliceChanged stamps the slice as changed so long before the node was read.
func sliceChanged(ago time.Duration) change {
	return func(s *snapshot.Snapshot) {
		s.Objects.EndpointSlices[0].Annotations = map[string]string{lastChange: takenAt.Add(-ago).Format(time.RFC3339Nano)}
	}
}

// replaced gives web-2 another address, in the slice too; the rules have the old.
func replaced(s *snapshot.Snapshot) {
	pod := &s.Objects.Pods[slices.IndexFunc(s.Objects.Pods, func(p corev1.Pod) bool { return p.Name == "web-2" })]
	pod.Status.PodIP, pod.Status.PodIPs = "10.244.2.7", []corev1.PodIP{{IP: "10.244.2.7"}}
	s.Objects.EndpointSlices[0].Endpoints[1].Addresses = []string{"10.244.2.7"}
	pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(takenAt.Add(-2 * time.Second))
}

// terminating adds the pod that the rules still name, told to go a while ago
// with thirty seconds of grace.
func terminating(ago time.Duration) change {
	return func(s *snapshot.Snapshot) {
		pod := readyPod("shop", "web-old", "10.244.2.6", "worker-2")
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr(metav1.NewTime(takenAt.Add(30*time.Second-ago))), ptr(int64(30))
		s.Objects.Pods = append(s.Objects.Pods, pod)
	}
}

func proxyStarted(ago time.Duration) change {
	return func(s *snapshot.Snapshot) {
		for i := range s.Objects.Pods {
			if p := &s.Objects.Pods[i]; p.Name == "kube-proxy-worker-1" {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(takenAt.Add(-ago))}}}}
			}
		}
	}
}

// routerDrops is what kube-router writes for a pod that a policy isolates.
const (
	routerJump  = "-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n"
	routerDrops = "-A FORWARD -d 10.244.1.5/32 -j KUBE-POD-FW-WEB1\n-A KUBE-POD-FW-WEB1 -j REJECT --reject-with icmp-port-unreachable\n" + routerJump
)

// hostPort is what the CNI's portmap plugin writes, before kube-proxy's jump.
const hostPort = "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
	"-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 80 -j CNI-DN-1\n" +
	"-A CNI-DN-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.30:80\n" +
	"-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"

func TestNodeDoubts(t *testing.T) {
	from := func(text string) func(*Options) {
		return func(o *Options) { o.Client, _ = ParseClient(text, "shop") }
	}
	to := func(text string) func(*Options) {
		return func(o *Options) {
			target, _ := ParseTarget(text, "shop")
			o.Targets = []Target{target}
		}
	}
	tests := []struct {
		name   string
		change []change
		opts   func(*Options)
		roots  string
		status diagnosis.Status
		// missing is in what the layer says that it lacks.
		missing string
	}{
		{name: "unnamed state", change: []change{unnamed, noNodePort}, status: diagnosis.OK},
		{name: "unnamed state, and the node port's address is not known", change: []change{unnamed}, status: diagnosis.Unknown, missing: "neither the Node"},
		{name: "unnamed state, a fault", change: []change{unnamed, rules(webVIP, "")}, roots: "VIP301", status: diagnosis.Fail},
		{
			name:   "unnamed state, and the Service sends by node",
			change: []change{unnamed, noNodePort, service(func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal) }), rules(webTwo, ""), rules(" -m statistic --mode random --probability 0.50000000000", "")},
			status: diagnosis.Unknown, missing: "which node this is was not read",
		},
		{
			name:   "internalTrafficPolicy Local",
			change: []change{service(func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal) }), rules("10.244.2.6", "10.244.1.5"), noNodePort},
			opts:   from("client"), status: diagnosis.OK,
		},
		{
			name:   "internalTrafficPolicy Local, and a remote backend is drawn",
			change: []change{service(func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal) })},
			opts:   from("client"), roots: "VIP302", status: diagnosis.Fail,
		},
		{name: "hints narrow it to the zone", change: []change{hints("a", "b"), zone("a"), rules("10.244.2.6", "10.244.1.5")}, status: diagnosis.OK},
		{name: "hints, and the zone was not read", change: []change{hints("a", "b"), noNodes, rules("10.244.2.6", "10.244.1.5")}, status: diagnosis.Unknown, missing: "the zone of worker-1 is not known"},
		{name: "hints, and the node is in another zone", change: []change{hints("a", "b"), zone("a"), rules("10.244.1.5", "10.244.2.6")}, roots: "VIP302", status: diagnosis.Fail},
		{name: "nodes were not read", change: []change{noNodes}, status: diagnosis.OK},
		{
			name:   "the cluster's CIDR has the nodes in it",
			change: []change{proxyConf("clusterCIDR: 10.244.0.0/16,172.31.0.0/16\n"), rules(webMasq, "")},
			opts:   from("node/worker-1"), status: diagnosis.OK,
		},
		{name: "nothing marks the node's own packets", change: []change{proxyConf("clusterCIDR: 10.244.0.0/16\n"), rules(webMasq, "")}, roots: "VIP309", status: diagnosis.Fail},
		{name: "no cluster CIDR, so nothing marks them", change: []change{proxyConf(""), rules(webMasq, "")}, status: diagnosis.OK},
		{name: "no ConfigMap: nobody knows whether they are to be marked", change: []change{func(s *snapshot.Snapshot) { s.Objects.ConfigMaps = nil }, rules(webMasq, "")}, status: diagnosis.OK},
		{name: "a pod's address that no pod has", change: []change{proxyConf("clusterCIDR: 10.244.0.0/16\n")}, opts: from("10.244.1.77"), status: diagnosis.OK},
		{name: "an address that may be a pod's", change: []change{noNodes, unread(snapshot.Pods), proxyConf("detectLocalMode: BridgeInterface\n"), rules("! -s 10.244.0.0/16", "! -i cni0")}, opts: from("10.244.1.77"), status: diagnosis.Unknown, missing: "is a pod's address was not read"},
		{name: "a client on the host's network", change: []change{func(s *snapshot.Snapshot) {
			pod := readyPod("shop", "agent", "172.31.250.11", "worker-1")
			pod.Spec.HostNetwork = true
			s.Objects.Pods = append(s.Objects.Pods, pod)
		}}, opts: from("agent"), status: diagnosis.OK},
		{name: "a client that was not read", opts: from("nobody"), status: diagnosis.Unknown, missing: "no such object was read"},
		{name: "a backend on the host's network", change: []change{func(s *snapshot.Snapshot) {
			s.Objects.EndpointSlices[0].Endpoints[0].Addresses = []string{"172.31.250.11"}
			s.Objects.Pods[0].Spec.HostNetwork = true
			s.Objects.Pods[0].Status.PodIP, s.Objects.Pods[0].Status.PodIPs = "172.31.250.11", []corev1.PodIP{{IP: "172.31.250.11"}}
		}, rules("10.244.1.5", "172.31.250.11")}, status: diagnosis.OK},
		{name: "outside, and it has cluster IPs alone", change: []change{noNodePort}, opts: from("external"), status: diagnosis.Skipped},
		{name: "another proxy's Service", change: []change{service(func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "x"} }), rules(webVIP, "")}, status: diagnosis.Skipped},
		{name: "node ports at another address alone", change: []change{proxyConf("nodePortAddresses: [10.9.0.0/16]\n"), rules(toPorts, "-d 10.9.0.1/32 -j KUBE-NODEPORTS\n")}, status: diagnosis.OK, missing: "nodePortAddresses"},
		{name: "the same, as the rules alone tell", change: []change{func(s *snapshot.Snapshot) { s.Objects.ConfigMaps = nil }, rules(toPorts, "-d 10.9.0.1/32 -j KUBE-NODEPORTS\n")}, status: diagnosis.OK, missing: "nodePortAddresses"},
		{name: "a node port at an address that is left out", change: []change{proxyConf("nodePortAddresses: [10.9.0.0/16]\n"), rules(toPorts, "-d 10.9.0.1/32 -j KUBE-NODEPORTS\n")}, opts: to("172.31.250.11:30080"), roots: "VIP340", status: diagnosis.Fail},
		{name: "a node port at the address that is served", change: []change{proxyConf("nodePortAddresses: [172.31.0.0/16]\n"), rules(toPorts, "-d 172.31.250.11/32 -j KUBE-NODEPORTS\n")}, opts: to("172.31.250.11:30080"), status: diagnosis.OK},
		{name: "node ports are to be served, and nothing leads to them", change: []change{proxyConf("nodePortAddresses: [172.31.0.0/16]\n"), rules(toPorts, "-d 172.31.250.99/32 -j KUBE-NODEPORTS\n")}, opts: to("worker-1:30080"), roots: "VIP340", status: diagnosis.Fail},

		{name: "a pod was replaced just now", change: []change{replaced, sliceChanged(2 * time.Second)}, status: diagnosis.Unknown, missing: "changed just before the node was read"},
		{name: "a pod was replaced a while ago", change: []change{replaced, sliceChanged(time.Minute)}, roots: "VIP302", status: diagnosis.Fail},
		{name: "the pod that is drawn was told to go just now", change: []change{replaced, terminating(2 * time.Second)}, status: diagnosis.Unknown, missing: "changed just before"},
		{name: "the pod that is drawn was told to go a while ago", change: []change{replaced, terminating(20 * time.Second)}, roots: "VIP302", status: diagnosis.Fail},
		{name: "replaced just now, and kube-proxy is stopped", change: []change{replaced, sliceChanged(2 * time.Second), func(s *snapshot.Snapshot) {
			setText(s, snapshot.ProxyProcess, func(string) string { return "1201 T kube-proxy\n" })
		}}, roots: "VIP302", status: diagnosis.Fail},
		{name: "the Service was made just now", change: []change{rules(webVIP, ""), service(func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(takenAt.Add(-time.Second)) })}, status: diagnosis.Unknown, missing: "was made just before"},
		{name: "the Service was made after the node was read", change: []change{rules(webVIP, ""), service(func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(takenAt.Add(time.Hour)) })}, status: diagnosis.Unknown, missing: "was made just before"},
		{name: "kube-proxy started just now", change: []change{rules(webVIP, ""), proxyStarted(3 * time.Second)}, status: diagnosis.Unknown, missing: "had just started"},
		{name: "kube-proxy started a while ago", change: []change{rules(webVIP, ""), proxyStarted(3 * time.Minute)}, roots: "VIP301", status: diagnosis.Fail},

		{name: "a policy engine refuses as a policy asks", change: []change{rules(routerJump, routerDrops), isolate}, status: diagnosis.OK},
		{name: "a policy engine refuses what no policy asks for", change: []change{rules(routerJump, routerDrops)}, roots: "VIP310", status: diagnosis.Fail},

		{name: "a pod's hostPort takes the address first", change: []change{
			service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"172.31.250.11"} }),
			rules("-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n", hostPort),
		}, opts: to("172.31.250.11:80"), roots: "VIP308", status: diagnosis.Fail},
		{name: "an interface of the node has the address", change: []change{rules(webVIP, ""), func(s *snapshot.Snapshot) {
			setText(s, snapshot.IPAddr, func(c string) string {
				return c + "9: nodelocaldns: <UP> mtu 1500\n    inet 10.96.0.50/32 scope global nodelocaldns\n"
			})
		}}, status: diagnosis.Unknown, missing: "interface nodelocaldns"},
		{name: "kube-proxy is a zombie", change: []change{noProxy, func(s *snapshot.Snapshot) {
			setText(s, snapshot.ProxyProcess, func(string) string { return "1201 Z kube-proxy\n" })
		}}, roots: "VIP330", status: diagnosis.Warn},
		{name: "something else answers at /proxyMode", change: []change{func(s *snapshot.Snapshot) {
			setText(s, snapshot.ProxyMode, func(string) string { return "404 page not found\n" })
		}}, status: diagnosis.OK},
		{name: "kube-proxy's pod on the only node does not run", change: []change{noProxy, func(s *snapshot.Snapshot) {
			dropText(s, snapshot.ProxyProcess)
			s.Objects.Pods = slices.DeleteFunc(s.Objects.Pods, func(p corev1.Pod) bool { return p.Labels["k8s-app"] == "kube-proxy" })
			pod := readyPod("kube-system", "kube-proxy-x", "172.31.250.11", "worker-1")
			pod.Labels = map[string]string{"k8s-app": "kube-proxy"}
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
			s.Objects.Pods = append(s.Objects.Pods, pod)
		}}, roots: "VIP330", status: diagnosis.Warn},
		{name: "two rules drop, each its own", change: []change{
			rules(routerJump, "-A FORWARD -p tcp -m tcp --dport 8080 -j DROP\n"+routerJump),
			rules("-A OUTPUT -j KUBE-FIREWALL\n", "-A OUTPUT -j KUBE-FIREWALL\n-A OUTPUT -p tcp -m tcp --dport 8080 -j DROP\n"),
		}, roots: "VIP310 VIP310", status: diagnosis.Fail},
		{name: "a rule of the firewall drops, and sends by hostPort nowhere", change: []change{rules(routerJump, "-A FORWARD -p udp -j DROP\n"+routerJump)}, status: diagnosis.OK},

		{name: "two hooks lead nowhere", change: []change{
			rules("-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n", ""),
			rules("-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n", ""),
		}, roots: "VIP307", status: diagnosis.Fail},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := nodeFixture()
			for _, c := range tt.change {
				c(s)
			}
			o := Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}
			if tt.opts != nil {
				tt.opts(&o)
			}
			svc := Walk(s, o).Services[0]
			if got := nodeRoots(svc); got != tt.roots {
				t.Errorf("got %q, want %q\n%s", got, tt.roots, describe(svc))
			}
			l := svc.Layers[2]
			if l.Status != tt.status {
				t.Errorf("layer 3 is %s (%s), want %s\n%s", l.Status, l.Summary, tt.status, describe(svc))
			}
			if tt.missing != "" && !slices.ContainsFunc(l.Missing, func(m diagnosis.Missing) bool { return strings.Contains(m.Why, tt.missing) }) {
				t.Errorf("nothing that it lacks says %q: %+v", tt.missing, l.Missing)
			}
		})
	}
}

// nodeRoots are the codes of layer 3 that nothing else explains.
func nodeRoots(svc diagnosis.Service) string {
	var roots []string
	for _, d := range svc.Diagnoses {
		if d.Layer == diagnosis.LayerNode && len(d.CausedBy) == 0 {
			roots = append(roots, string(d.Code))
		}
	}
	return strings.Join(roots, " ")
}

// isolate lets nobody in to shop's pods.
func isolate(s *snapshot.Snapshot) {
	s.Objects.NetworkPolicies = append(s.Objects.NetworkPolicies, networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	})
}

// TestDeadEnd: the VIP's rule is there, and the chain that it leads to is empty.
func TestDeadEnd(t *testing.T) {
	s := nodeFixture()
	for _, r := range []string{webOne, webTwo} {
		rules(r, "")(s)
	}
	svc := Walk(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}, Client: Client{Kind: OnePod, Namespace: "shop", Name: "client"}}).Services[0]
	d := svc.Diagnoses[0]
	if nodeRoots(svc) != "VIP301" || !strings.Contains(d.Title, "has a rule for 10.96.0.50:80/TCP") || d.Evidence[0].Line == 0 || !strings.Contains(d.Evidence[0].Quote, "-d 10.96.0.50/32") {
		t.Errorf("%s: %+v\n%s", d.Title, d.Evidence, describe(svc))
	}
}

func TestTwoHooksAreTold(t *testing.T) {
	s := nodeFixture()
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		rules("-A "+chain+" -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n", "")(s)
	}
	d := Walk(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}).Services[0].Diagnoses[0]
	if !strings.Contains(d.Found, "nor does OUTPUT lead to KUBE-SERVICES") || len(d.Evidence) != 3 {
		t.Errorf("%s\n%+v", d.Found, d.Evidence)
	}
}

// TestSeveralNodes: one node is wrong, and it alone is named.
func TestSeveralNodes(t *testing.T) {
	s := nodeFixture()
	bad := *s.Nodes[0]
	bad.Name, bad.Texts = "worker-2", slices.Clone(bad.Texts)
	s.Nodes = append(s.Nodes, &bad)
	setTextOf(&bad, snapshot.IptablesSave, strings.Replace(nodeRules, webVIP, "", 1))
	setTextOf(&bad, snapshot.IPAddr, strings.NewReplacer("172.31.250.11", "172.31.250.12", "10.244.1.1", "10.244.2.1").Replace(nodeAddrs))
	tests := []struct {
		name   string
		opts   Options
		nodes  []string
		status diagnosis.Status
	}{
		{"all", Options{}, []string{"worker-2"}, diagnosis.Fail},
		{"the good one", Options{Nodes: []string{"worker-1"}}, nil, diagnosis.OK},
		{"the bad one", Options{Nodes: []string{"worker-2"}}, []string{"worker-2"}, diagnosis.Fail},
		{"neither", Options{Nodes: []string{"worker-3"}}, nil, diagnosis.Unknown},
		{"from a pod of the good one", Options{Client: Client{Kind: OnePod, Namespace: "shop", Name: "client"}}, nil, diagnosis.OK},
		{"from the good one", Options{Client: Client{Kind: OnNode, Name: "worker-1"}}, nil, diagnosis.OK},
		{"from the bad one", Options{Client: Client{Kind: FromAddress, Addr: netip.MustParseAddr("172.31.250.12")}}, []string{"worker-2"}, diagnosis.Fail},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Targets = []Target{{Namespace: "shop", Name: "web"}}
			svc := Walk(s, tt.opts).Services[0]
			var nodes []string
			for _, d := range svc.Diagnoses {
				nodes = append(nodes, d.Subject.Node)
			}
			if !slices.Equal(nodes, tt.nodes) || svc.Layers[2].Status != tt.status {
				t.Errorf("diagnoses about %v, layer %s; want %v, %s\n%s", nodes, svc.Layers[2].Status, tt.nodes, tt.status, describe(svc))
			}
		})
	}
}

func setTextOf(n *snapshot.NodeState, k snapshot.TextKind, content string) {
	for i := range n.Texts {
		if n.Texts[i].Kind == k {
			n.Texts[i].Content = content
		}
	}
}

// TestNodeAlone: an address and a node's rules, and nothing of the API.
func TestNodeAlone(t *testing.T) {
	const pre = "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"
	v6 := func(s *snapshot.Snapshot) {
		six := strings.NewReplacer("10.96.0.50/32", "fd00:96::50/128", "10.244.1.5/32", "fd00:244:1::5/128", "10.244.2.6/32", "fd00:244:2::6/128",
			"10.244.1.5:8080\n", "[fd00:244:1::5]:8080\n", "10.244.2.6:8080\n", "[fd00:244:2::6]:8080\n", "10.244.0.0/16", "fd00:244::/56",
			"-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n", "").Replace(nodeRules)
		s.Nodes[0].Texts = []snapshot.Text{text(snapshot.Ip6tablesSave, six)}
	}
	addresses := func(s *snapshot.Snapshot) {
		s.Nodes[0].Texts = append(s.Nodes[0].Texts, text(snapshot.IPAddr, nodeAddrs))
	}
	tests := []struct {
		name, target string
		change       []change
		roots        string
		status       diagnosis.Status
		text         string
	}{
		{name: "sent on", target: "10.96.0.50:80", status: diagnosis.OK, text: "all 2 backends"},
		{name: "another port", target: "10.96.0.50:81", roots: "VIP301", status: diagnosis.Fail},
		{name: "no port", target: "10.96.0.50", status: diagnosis.Unknown},
		{name: "a hook is missing", target: "10.96.0.50:80", change: []change{rules(pre, "")}, roots: "VIP307", status: diagnosis.Fail},
		{name: "dropped", target: "10.96.0.50:80", change: []change{addresses, rules(":FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL", ":FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL")}, roots: "VIP310", status: diagnosis.Fail},
		{name: "IPv6", target: "[fd00:96::50]:80", change: []change{v6}, status: diagnosis.OK, text: "all 2 backends"},
		{name: "IPv6, the hook is missing", target: "[fd00:96::50]:80", change: []change{v6, func(s *snapshot.Snapshot) {
			setText(s, snapshot.Ip6tablesSave, func(c string) string { return strings.Replace(c, pre, "", 1) })
		}}, roots: "VIP307", status: diagnosis.Fail},
		{name: "IPv6, and only IPv4's rules", target: "[fd00:96::50]:80", status: diagnosis.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &snapshot.Snapshot{TakenAt: takenAt, Nodes: []*snapshot.NodeState{{Via: "node-state", Texts: []snapshot.Text{text(snapshot.IptablesSave, nodeRules)}}}}
			for _, c := range tt.change {
				c(s)
			}
			target, err := ParseTarget(tt.target, "default")
			if err != nil {
				t.Fatal(err)
			}
			svc := Walk(s, Options{Targets: []Target{target}}).Services[0]
			if got := nodeRoots(svc); got != tt.roots || svc.Layers[2].Status != tt.status || !strings.Contains(svc.Layers[2].Summary, tt.text) {
				t.Errorf("got %q, layer %s; want %q, %s\n%s", got, svc.Layers[2].Status, tt.roots, tt.status, describe(svc))
			}
			for _, d := range svc.Diagnoses {
				for _, e := range d.Evidence {
					if v6 := strings.HasPrefix(tt.name, "IPv6"); v6 != strings.Contains(e.Command, "ip6tables-save") && e.Command != "" {
						t.Errorf("the command is of the other family: %s", e.Command)
					}
				}
			}
		})
	}
}

// TestDualStack: each family by its own rules; one that was not read is unknown
// and nothing is said of it.
func TestDualStack(t *testing.T) {
	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		lower := strings.ToLower(string(proto))
		four := strings.NewReplacer("-p tcp", "-p "+lower, "-m tcp", "-m "+lower).Replace(nodeRules)
		six := strings.NewReplacer("10.96.0.50/32", "fd00:96::50/128", "10.244.1.5/32", "fd00:244:1::5/128", "10.244.2.6/32", "fd00:244:2::6/128",
			"10.244.1.5:8080\n", "[fd00:244:1::5]:8080\n", "10.244.2.6:8080\n", "[fd00:244:2::6]:8080\n", "10.244.0.0/16", "fd00:244::/56",
			"127.0.0.0/8", "::1/128").Replace(four)
		tests := []struct {
			name, rules6, roots string
			status              diagnosis.Status
		}{
			{"both", six, "", diagnosis.OK},
			{"IPv4 alone was read", "", "", diagnosis.Unknown},
			{"the IPv6 rule is gone", strings.Replace(six, "-A KUBE-SERVICES -d fd00:96::50/128 -p "+lower, "-A KUBE-SERVICES -d fd00:96::51/128 -p "+lower, 1), "VIP301", diagnosis.Fail},
			{"an IPv6 backend is another", strings.ReplaceAll(six, "fd00:244:2::6", "fd00:244:2::7"), "VIP302", diagnosis.Fail},
		}
		for _, tt := range tests {
			t.Run(tt.name+" "+lower, func(t *testing.T) {
				s := nodeFixture()
				setText(s, snapshot.IptablesSave, func(string) string { return four })
				if tt.rules6 != "" {
					s.Nodes[0].Texts = append(s.Nodes[0].Texts, text(snapshot.Ip6tablesSave, tt.rules6))
				}
				setText(s, snapshot.IPAddr, func(c string) string {
					return strings.Replace(c, "3: cni0", "    inet6 2001:db8:1::11/64 scope global\n3: cni0", 1) + "    inet6 fd00:244:1::1/64 scope global\n"
				})
				setText(s, snapshot.Sysctl, func(c string) string { return c + "net.ipv6.conf.all.forwarding = 1\n" })
				svc := &s.Objects.Services[0].Spec
				svc.IPFamilies, svc.ClusterIPs = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, []string{"10.96.0.50", "fd00:96::50"}
				svc.Ports[0].Protocol = proto
				s.Objects.EndpointSlices[0].Ports[0].Protocol = &proto
				sl6 := s.Objects.EndpointSlices[0].DeepCopy()
				sl6.Name, sl6.AddressType = "web-six", discoveryv1.AddressTypeIPv6
				for i, a := range []string{"fd00:244:1::5", "fd00:244:2::6"} {
					sl6.Endpoints[i].Addresses = []string{a}
					s.Objects.Pods[2*i].Status.PodIPs = append(s.Objects.Pods[2*i].Status.PodIPs, corev1.PodIP{IP: a})
					s.Objects.Pods[2*i].Spec.Containers[0].Ports[0].Protocol = proto
				}
				s.Objects.EndpointSlices = append(s.Objects.EndpointSlices, *sl6)
				s.Objects.Nodes[0].Status.Addresses = append(s.Objects.Nodes[0].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8:1::11"})
				out := Walk(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}).Services[0]
				if got := nodeRoots(out); got != tt.roots || out.Layers[2].Status != tt.status {
					t.Errorf("got %q, layer %s; want %q, %s\n%s", got, out.Layers[2].Status, tt.roots, tt.status, describe(out))
				}
			})
		}
	}
}

// TestHostileNames: whatever a node, a pod or a chain is called, what is
// printed to be pasted into a shell runs nothing of it.
func TestHostileNames(t *testing.T) {
	const evil = "x';$(reboot)`reboot`\"&"
	for _, evil := range []string{evil, "-oProxyCommand=reboot " + evil} {
		s := nodeFixture()
		rename := func(name *string) {
			if *name == "worker-1" {
				*name = evil
			}
		}
		for i := range s.Objects.Pods {
			rename(&s.Objects.Pods[i].Spec.NodeName)
			if s.Objects.Pods[i].Labels["k8s-app"] != "" {
				s.Objects.Pods[i].Name = evil
			}
		}
		rename(&s.Objects.Nodes[0].Name)
		rename(&s.Nodes[0].Name)
		rename(s.Objects.EndpointSlices[0].Endpoints[0].NodeName)
		rules(webVIP, "")(s)
		r := Walk(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}})
		for _, svc := range r.Services {
			var commands []string
			for _, d := range svc.Diagnoses {
				for _, e := range d.Evidence {
					commands = append(commands, e.Command)
				}
				for _, f := range d.Fixes {
					commands = append(append(append(commands, f.Commands...), f.Undo...), f.Verify...)
				}
			}
			for _, l := range svc.Layers {
				for _, m := range l.Missing {
					commands = append(commands, m.Supply)
				}
			}
			if len(svc.Diagnoses) == 0 {
				t.Error("nothing was found")
			}
			for _, c := range commands {
				if bare := outsideQuotes(c); strings.ContainsAny(bare, "$`;&") || strings.Contains(c, "ssh -") {
					t.Errorf("the shell would run a part of %s", c)
				}
			}
		}
	}
}

// outsideQuotes is what a POSIX shell expands of a command: all but what is in
// single quotes or escaped.
func outsideQuotes(c string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(c); i++ {
		switch {
		case c[i] == '\'':
			quoted = !quoted
		case quoted:
		case c[i] == '\\':
			i++
		default:
			b.WriteByte(c[i])
		}
	}
	return b.String()
}

func TestStaticProxyIsRestartedOnItsNode(t *testing.T) {
	s := nodeFixture()
	rules(webVIP, "")(s)
	for i := range s.Objects.Pods {
		if p := &s.Objects.Pods[i]; p.Labels["k8s-app"] == "kube-proxy" {
			p.Labels = map[string]string{"component": "kube-proxy", "tier": "node"}
			p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}
	}
	d := Walk(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}).Services[0].Diagnoses[0]
	if got := strings.Join(d.Fixes[0].Commands, "\n"); !strings.Contains(got, "crictl stop") || strings.Contains(got, "delete pod") {
		t.Errorf("a mirror pod is deleted, which restarts nothing:\n%s", got)
	}
}
