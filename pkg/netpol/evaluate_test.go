package netpol

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// db is the start of a spec that selects db and db2.
const db = "podSelector: {matchLabels: {app: db}}"

// TestEvaluate takes the traps one by one. The flow is web -> db 5432/TCP
// unless it says otherwise.
func TestEvaluate(t *testing.T) {
	tests := []struct {
		name     string
		policies []string
		from, to string
		port     int32
		protocol corev1.Protocol
		vipPort  int32
		want     Verdict
		by       string // the rule that admits it at the backend (or, "" there, at the client)
		kinds    []CaveatKind
	}{
		{name: "no policy", want: Allowed},
		{name: "absent list denies", policies: []string{"{" + db + "}"}, want: Denied},
		{name: "empty list denies", policies: []string{"{" + db + ", ingress: []}"}, want: Denied},
		{name: "empty rule allows", policies: []string{"{" + db + ", ingress: [{}]}"}, want: Allowed, by: "store/p0#ingress[0]"},
		{name: "empty lists in a rule allow", policies: []string{"{" + db + ", ingress: [{from: [], ports: []}]}"}, want: Allowed, by: "store/p0#ingress[0]"},
		{name: "egress: [] does not isolate egress", policies: []string{"{podSelector: {}, egress: [], ingress: [{}]}"}, from: "near", to: "web", want: Allowed},
		{name: "egress rules isolate egress, and ingress too", policies: []string{"{podSelector: {}, egress: [{to: [{podSelector: {}}]}]}"}, from: "near", to: "web", want: Denied},
		{name: "an egress-only policy leaves ingress alone", policies: []string{"{podSelector: {}, policyTypes: [Egress]}"}, want: Allowed},
		{name: "policies add up", policies: []string{"{podSelector: {}}", "{" + db + ", ingress: [{ports: [{port: 1}]}, {ports: [{port: 5432}]}]}"}, want: Allowed, by: "store/p1#ingress[1].ports[0]"},
		{name: "podSelector alone is the own namespace", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}"}, want: Denied},
		{name: "podSelector {} is the own namespace", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {}}]}]}"}, want: Denied},
		{name: "podSelector {} admits a neighbour", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {}}]}]}"}, from: "near", want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "namespaceSelector alone is all its pods", policies: []string{"{" + db + ", ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}"}, want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "both selectors are an and", policies: []string{"{" + db + ", ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: x}}}]}]}"}, want: Denied},
		{name: "two items are an or", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {matchLabels: {app: x}}}, {namespaceSelector: {matchLabels: {team: a}}}]}]}"}, want: Allowed, by: "store/p0#ingress[0].from[1]", kinds: []CaveatKind{CaveatSplitPeers}},
		{name: "NotIn matches an absent key", policies: []string{"{" + db + ", ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: x, operator: NotIn, values: [v]}]}}]}]}"}, want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "an empty value does not match an absent key", policies: []string{"{" + db + `, ingress: [{from: [{namespaceSelector: {matchLabels: {x: ""}}}]}]}`}, want: Denied},
		{name: "metadata.name is always there", policies: []string{"{" + db + ", ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]}]}"}, want: Allowed, by: "store/p0#ingress[0].from[0]"},

		{name: "named port", policies: []string{"{" + db + ", ingress: [{ports: [{port: sql}]}]}"}, want: Allowed, by: "store/p0#ingress[0].ports[0]"},
		{name: "named port is another number in another pod", policies: []string{"{" + db + ", ingress: [{ports: [{port: sql}]}]}"}, to: "db2", want: Denied},
		{name: "named port with its number there", policies: []string{"{" + db + ", ingress: [{ports: [{port: sql}]}]}"}, to: "db2", port: 5433, want: Allowed, by: "store/p0#ingress[0].ports[0]"},
		{name: "named port of another protocol", policies: []string{"{" + db + ", ingress: [{ports: [{port: dns}]}]}"}, port: 53, want: Denied},
		{name: "named port of a native sidecar", policies: []string{"{" + db + ", ingress: [{ports: [{port: mesh}]}]}"}, port: 15000, want: Allowed, by: "store/p0#ingress[0].ports[0]", kinds: []CaveatKind{CaveatSidecarPort}},
		{name: "named port of an init container", policies: []string{"{" + db + ", ingress: [{ports: [{port: once}]}]}"}, port: 16000, want: Denied},
		{name: "named port on an address", policies: []string{"{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: sql}]}]}"}, from: "near", to: "203.0.113.7", want: Denied},
		{name: "named port in egress is the destination's", policies: []string{"{podSelector: {matchLabels: {app: near}}, policyTypes: [Egress], egress: [{ports: [{port: sql}]}]}"}, from: "near", want: Allowed, by: "store/p0#egress[0].ports[0]"},
		{name: "endPort is inclusive", policies: []string{"{" + db + ", ingress: [{ports: [{port: 5000, endPort: 5432}]}]}"}, want: Allowed, by: "store/p0#ingress[0].ports[0]"},
		{name: "beyond endPort", policies: []string{"{" + db + ", ingress: [{ports: [{port: 5000, endPort: 5431}]}]}"}, want: Denied},
		{name: "protocol defaults to TCP", policies: []string{"{" + db + ", ingress: [{ports: [{port: 53}]}]}"}, port: 53, protocol: corev1.ProtocolUDP, want: Denied},
		{name: "no port is all of the protocol", policies: []string{"{" + db + ", ingress: [{ports: [{protocol: UDP}]}]}"}, port: 99, protocol: corev1.ProtocolUDP, want: Allowed, by: "store/p0#ingress[0].ports[0]"},
		{name: "and of no other", policies: []string{"{" + db + ", ingress: [{ports: [{protocol: UDP}]}]}"}, want: Denied},
		{name: "SCTP is not TCP", policies: []string{"{" + db + ", ingress: [{ports: [{port: 5432}]}]}"}, protocol: corev1.ProtocolSCTP, want: Denied},
		{name: "ICMP is undefined", policies: []string{"{" + db + ", ingress: [{}]}"}, protocol: "ICMP", want: Unknown, kinds: []CaveatKind{CaveatProtocol}},
		{name: "ICMP from the own node", policies: []string{"{" + db + "}"}, from: "172.18.0.2", protocol: "ICMP", want: Allowed, kinds: []CaveatKind{CaveatLocalNode}},
		{name: "ICMP without isolation", protocol: "ICMP", want: Allowed},
		{name: "the Service's port does not help", policies: []string{"{" + db + ", ingress: [{ports: [{port: 80}]}]}"}, vipPort: 80, want: Denied},
		{name: "port not known", policies: []string{"{" + db + ", ingress: [{ports: [{port: 80}]}]}"}, port: -1, want: Unknown, kinds: []CaveatKind{CaveatPortUnknown}},
		{name: "port not known, all of them admitted", policies: []string{"{" + db + ", ingress: [{ports: [{}]}]}"}, port: -1, want: Allowed, by: "store/p0#ingress[0].ports[0]"},

		{name: "ipBlock, external", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}"}, from: "203.0.113.7", want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "ipBlock, except", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/28]}}]}]}"}, from: "203.0.113.7", want: Denied},
		{name: "except is no deny", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/28]}}, {ipBlock: {cidr: 203.0.113.7/32}}]}]}"}, from: "203.0.113.7", want: Allowed, by: "store/p0#ingress[0].from[1]"},
		{name: "ipBlock with host bits and leading zeros", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 203.000.113.9/24}}]}]}"}, from: "203.0.113.7", want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "ipBlock, mapped", policies: []string{"{" + db + `, ingress: [{from: [{ipBlock: {cidr: "::ffff:203.0.113.0/120"}}]}]}`}, from: "203.0.113.7", want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "ipBlock of the other family", policies: []string{"{" + db + `, ingress: [{from: [{ipBlock: {cidr: "::/0"}}]}]}`}, from: "203.0.113.7", want: Denied},
		{name: "ipBlock on a pod", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 10.2.0.0/16}}]}]}"}, from: "near", want: Allowed, by: "store/p0#ingress[0].from[0]", kinds: []CaveatKind{CaveatIPBlockInCluster}},
		{name: "a selector is named rather than an ipBlock", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 10.2.0.0/16}}]}, {from: [{podSelector: {}}]}]}"}, from: "near", want: Allowed, by: "store/p0#ingress[1].from[0]"},
		{name: "an ipBlock for one family of two", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 10.1.0.0/16}}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatIPBlockInCluster, CaveatFamily}},
		{name: "ipBlock, no address yet", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 10.1.0.0/16}}]}]}"}, from: "pending", want: Unknown, kinds: []CaveatKind{CaveatAddressUnknown}},
		{name: "no family in common", from: "203.0.113.7", to: "2001:db8::1", want: Unknown, kinds: []CaveatKind{CaveatFamily}},

		{name: "a pod's address is the pod", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {}}]}]}"}, from: "10.2.0.2", want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "an address that a finished pod had", policies: []string{"{podSelector: {}}"}, from: "near", to: "10.1.0.1", want: Allowed},
		{name: "a finished pod is no subject", policies: []string{"{podSelector: {}}"}, to: "done", want: Allowed, kinds: []CaveatKind{CaveatPodFinished}},
		{name: "a finished pod is not selected", policies: []string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"}, from: "done", to: "near", want: Denied, kinds: []CaveatKind{CaveatPodFinished, CaveatPodFinished}},
		{name: "hostNetwork is no subject", policies: []string{"{podSelector: {}}"}, to: "agent", want: Allowed, kinds: []CaveatKind{CaveatHostNetworkSubject}},
		{name: "hostNetwork that no policy would select", policies: []string{"{" + db + "}"}, to: "agent", want: Allowed},
		{name: "hostNetwork is not selected", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {}}]}]}"}, from: "agent2", want: Denied, kinds: []CaveatKind{CaveatHostNetworkPeer}},
		{name: "hostNetwork by ipBlock of its node", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 172.18.0.3/32}}]}]}"}, from: "agent2", want: Allowed, by: "store/p0#ingress[0].from[0]", kinds: []CaveatKind{CaveatIPBlockInCluster, CaveatHostNetworkPeer}},
		{name: "hostNetwork on the backend's node", policies: []string{"{" + db + "}"}, from: "agent", want: Allowed, kinds: []CaveatKind{CaveatLocalNode, CaveatHostNetworkPeer}},
		{name: "the own node", policies: []string{"{" + db + "}"}, from: "172.18.0.2", want: Allowed, kinds: []CaveatKind{CaveatLocalNode}},
		{name: "the own node by name", policies: []string{"{" + db + "}"}, from: "node/n1", want: Allowed, kinds: []CaveatKind{CaveatLocalNode}},
		{name: "another node", policies: []string{"{" + db + "}"}, from: "172.18.0.3", want: Denied},
		{name: "egress to the own node", policies: []string{"{podSelector: {}, policyTypes: [Egress]}"}, from: "near", to: "172.18.0.3", want: Denied, kinds: []CaveatKind{CaveatToLocalNode}},
		{name: "egress to another node", policies: []string{"{podSelector: {}, policyTypes: [Egress]}"}, from: "near", to: "172.18.0.2", want: Denied},
		{name: "loopback", policies: []string{"{podSelector: {}, policyTypes: [Ingress, Egress]}"}, from: "db", want: Allowed, kinds: []CaveatKind{CaveatLoopback}},
		{name: "hairpin", policies: []string{"{podSelector: {}}"}, from: "db", vipPort: 80, want: Unknown, kinds: []CaveatKind{CaveatHairpin}},
		{name: "hairpin that is admitted", policies: []string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"}, from: "db", vipPort: 80, want: Allowed, by: "store/p0#ingress[0].from[0]", kinds: []CaveatKind{CaveatHairpin}},
		{name: "client unknown", policies: []string{"{" + db + ", ingress: [{}]}"}, from: "-", want: Unknown, by: "store/p0#ingress[0]", kinds: []CaveatKind{CaveatPeerUnknown}},

		{name: "a namespace that was not read", policies: []string{"{" + db + ", ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}"}, from: "stray", want: Unknown, kinds: []CaveatKind{CaveatNamespaceUnread}},
		{name: "but whose name is known", policies: []string{"{" + db + ", ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: unread}}}]}]}"}, from: "stray", want: Allowed, by: "store/p0#ingress[0].from[0]"},
		{name: "and is another", policies: []string{"{" + db + ", ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop, team: a}}}]}]}"}, from: "stray", want: Denied},

		{name: "invalid podSelector", policies: []string{"{podSelector: {matchExpressions: [{key: a, operator: Is}]}}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid podSelector, admits anyway", policies: []string{"{podSelector: {matchExpressions: [{key: a, operator: Is}]}, ingress: [{}]}"}, want: Allowed, by: "store/p0#ingress[0]"},
		{name: "invalid podSelector beside a denial", policies: []string{"{podSelector: {matchExpressions: [{key: a, operator: Is}]}}", "{" + db + "}"}, want: Denied},
		{name: "invalid podSelector that might admit", policies: []string{"{podSelector: {matchExpressions: [{key: a, operator: Is}]}, ingress: [{}]}", "{" + db + "}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid policyTypes", policies: []string{"{" + db + ", policyTypes: [ingress]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid CIDR", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 10.0.0/8}}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid except, outside of the block", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [x]}}]}]}"}, from: "203.0.113.7", want: Denied},
		{name: "invalid except, within the block", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 203.0.0.0/8, except: [x]}}]}]}"}, from: "203.0.113.7", want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid peer selector", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {matchLabels: {a/b/c: d}}, namespaceSelector: {}}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid peer selector, other namespace", policies: []string{"{" + db + ", ingress: [{from: [{podSelector: {matchLabels: {a/b/c: d}}}]}]}"}, want: Denied},
		{name: "peer without a peer", policies: []string{"{" + db + ", ingress: [{from: [{}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "ipBlock with a selector", policies: []string{"{" + db + ", ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}, podSelector: {}}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid protocol", policies: []string{"{" + db + ", ingress: [{ports: [{protocol: tcp, port: 5432}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "port out of range", policies: []string{"{" + db + ", ingress: [{ports: [{port: 70000}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "a number as a name", policies: []string{"{" + db + `, ingress: [{ports: [{port: "5432"}]}]}`}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "endPort below port", policies: []string{"{" + db + ", ingress: [{ports: [{port: 5433, endPort: 5432}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "endPort too high", policies: []string{"{" + db + ", ingress: [{ports: [{port: 5, endPort: 70000}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "endPort with a name", policies: []string{"{" + db + ", ingress: [{ports: [{port: sql, endPort: 5432}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "endPort without port", policies: []string{"{" + db + ", ingress: [{ports: [{endPort: 5432}]}]}"}, want: Unknown, kinds: []CaveatKind{CaveatInvalidPolicy}},
		{name: "invalid item of another protocol", policies: []string{"{" + db + ", ingress: [{ports: [{protocol: UDP, endPort: 5432}]}]}"}, want: Denied},
		{name: "an invalid item beside one that admits", policies: []string{"{" + db + ", ingress: [{from: [{}]}, {}]}"}, want: Allowed, by: "store/p0#ingress[1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t, world+policies(tt.policies...))
			if tt.from == "" {
				tt.from = "web"
			}
			if tt.from == "-" {
				tt.from = ""
			}
			if tt.to == "" {
				tt.to = "db"
			}
			switch tt.port {
			case 0:
				tt.port = 5432
			case -1:
				tt.port = 0
			}
			d := s.Evaluate(Flow{From: s.peer(t, tt.from), To: s.peer(t, tt.to), Port: tt.port, Protocol: tt.protocol, VIPPort: tt.vipPort})
			if d.Verdict != tt.want {
				t.Errorf("%s, want %s; caveats %v", d.Verdict, tt.want, d.Caveats())
			}
			by := ""
			for _, r := range []Result{d.Ingress, d.Egress} {
				if r.AllowedBy != nil && by == "" {
					by = r.AllowedBy.String()
				}
			}
			if by != tt.by {
				t.Errorf("admitted by %q, want %q", by, tt.by)
			}
			var kinds []CaveatKind
			for _, c := range d.Caveats() {
				kinds = append(kinds, c.Kind)
				if c.Text == "" {
					t.Errorf("caveat %s says nothing", c.Kind)
				}
			}
			if diff := cmp.Diff(tt.kinds, kinds); diff != "" {
				t.Errorf("caveats (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDirectionsAndIsolation(t *testing.T) {
	s := newScene(t, world+policies("{podSelector: {}}", "{"+db+", policyTypes: [Ingress, Egress]}", "{podSelector: {matchExpressions: [{key: a, operator: Is}]}}"))
	d := s.Evaluate(Flow{From: PodPeer(s.pod(t, "db2")), To: PodPeer(s.pod(t, "db")), Port: 5432})
	p := func(name string) PolicyRef { return PolicyRef{"store", name} }
	want := Decision{
		Verdict: Denied,
		Egress:  Result{Direction: Egress, Verdict: Denied, Tier: TierNetworkPolicy, Isolated: true, Isolating: []PolicyRef{p("p1")}},
		Ingress: Result{Direction: Ingress, Verdict: Denied, Tier: TierNetworkPolicy, Isolated: true, Isolating: []PolicyRef{p("p0"), p("p1")}, MayIsolate: []PolicyRef{p("p2")}},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]PolicyRef{p("p0"), p("p1")}, s.Isolating(s.pod(t, "db"), Ingress)); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"agent", "done", "web"} {
		if got := s.Isolating(s.pod(t, name), Ingress); len(got) > 0 {
			t.Errorf("%s is isolated by %v", name, got)
		}
	}
	if got := s.Policy(p("p1")); got != &s.objs.Policies[1] {
		t.Errorf("Policy gives %v", got)
	}
	if got := s.Policy(p("none")); got != nil {
		t.Errorf("Policy gives %v for a name that is not there", got)
	}
	issues := s.Issues()
	if len(issues) != 1 || issues[0].Policy != p("p2") || issues[0].Field != "spec.podSelector" {
		t.Errorf("issues %v", issues)
	}
	if node, ok := s.NodeOf(netip.MustParseAddr("::ffff:172.18.0.2")); node != "n1" || !ok {
		t.Errorf("172.18.0.2 is of %q", node)
	}
}

func TestFlowFamily(t *testing.T) {
	s := newScene(t, world+policies("{"+db+`, ingress: [{from: [{ipBlock: {cidr: "fd00::/64"}}]}]}`))
	for ip, want := range map[string]Verdict{"10.2.0.1": Denied, "fd00::2": Allowed} {
		to := PodPeer(s.pod(t, "db"))
		to.IP = netip.MustParseAddr(ip)
		if got := s.Evaluate(Flow{From: PodPeer(s.pod(t, "web")), To: to, Port: 5432}).Verdict; got != want {
			t.Errorf("to %s: %s, want %s", ip, got, want)
		}
	}
}

// A pod that the evaluator was not made from, or a changed copy of one, is
// taken as it is: that is how a simulation asks.
func TestUnknownPod(t *testing.T) {
	s := newScene(t, world+policies("{"+db+", ingress: [{from: [{podSelector: {matchLabels: {app: near}}}]}]}"))
	web := s.pod(t, "web").DeepCopy()
	web.Namespace, web.Labels = "store", map[string]string{"app": "near"}
	backend := s.pod(t, "db").DeepCopy()
	backend.Labels = nil
	for _, tt := range []struct {
		from, to *corev1.Pod
		want     Verdict
	}{
		{s.pod(t, "web"), s.pod(t, "db"), Denied},
		{web, s.pod(t, "db"), Allowed},
		{s.pod(t, "web"), backend, Allowed},
	} {
		if got := s.Evaluate(Flow{From: PodPeer(tt.from), To: PodPeer(tt.to), Port: 1}).Verdict; got != tt.want {
			t.Errorf("%v -> %v: %s, want %s", tt.from.Labels, tt.to.Labels, got, tt.want)
		}
	}
}

func TestAllowedClients(t *testing.T) {
	s := newScene(t, world+policies("{"+db+", ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}"))
	var candidates []*corev1.Pod
	for _, name := range []string{"web", "near", "stray", "db2"} {
		candidates = append(candidates, s.pod(t, name))
	}
	got := s.AllowedClients(s.pod(t, "db"), 5432, corev1.ProtocolTCP, candidates)
	names := func(pods []*corev1.Pod) (out []string) {
		for _, p := range pods {
			out = append(out, p.Name)
		}
		return out
	}
	want := [][]string{{"near", "db2"}, {"web"}, {"stray"}}
	if diff := cmp.Diff(want, [][]string{names(got.Allowed), names(got.Refused), names(got.Unknown)}); diff != "" {
		t.Errorf("allowed, refused, unknown (-want +got):\n%s", diff)
	}
}

// Manifests may leave the namespace out.
func TestDefaultNamespace(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	objs := Objects{Pods: []corev1.Pod{pod}, Policies: []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}}}
	want := []PolicyRef{{"default", "deny"}}
	if diff := cmp.Diff(want, New(objs).Isolating(&objs.Pods[0], Ingress)); diff != "" {
		t.Error(diff)
	}
}

func TestFinishedPods(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]int{
		corev1.PodRunning: 1, corev1.PodPending: 1, "": 1, corev1.PodUnknown: 1, corev1.PodSucceeded: 0, corev1.PodFailed: 0,
	} {
		s := newScene(t, world+policies("{podSelector: {}}"))
		pod := s.pod(t, "db").DeepCopy()
		pod.Status.Phase = phase
		if got := s.Isolating(pod, Ingress); len(got) != want {
			t.Errorf("phase %q: isolated by %v", phase, got)
		}
	}
}

// Where two pods claim one address, the first in the list has it.
func TestAddressOfTwoPods(t *testing.T) {
	s := newScene(t, world+`
---
kind: Pod
metadata: {name: late, namespace: store, labels: {app: late}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Running, podIP: 10.2.0.2}
`+policies("{podSelector: {matchLabels: {app: late}}}"))
	d := s.Evaluate(Flow{From: s.peer(t, "web"), To: s.peer(t, "10.2.0.2"), Port: 1})
	if d.Verdict != Allowed || d.Ingress.Isolated {
		t.Errorf("10.2.0.2 is not taken for pod near: %+v", d.Ingress)
	}
}
