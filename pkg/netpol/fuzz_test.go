package netpol

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FuzzPolicy puts any policy into namespace store and asks about flows
// between all kinds of ends. It holds the answers to what must be true of all.
func FuzzPolicy(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"spec":{"ingress":[{}]}}`,
		`{"spec":{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"web"}}}],"ports":[{"port":"sql"},{"port":80,"endPort":90,"protocol":"UDP"}]}]}}`,
		`{"spec":{"policyTypes":["Egress","x"],"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16","x"]}},{"namespaceSelector":{"matchExpressions":[{"key":"team","operator":"NotIn","values":["a"]}]}}]}]}}`,
		`{"spec":{"podSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]},"ingress":[{"from":[{}],"ports":[{"port":70000},{"endPort":1},{"protocol":"tcp"}]}]}}`,
		`{"spec":{"ingress":[{"from":[{"ipBlock":{"cidr":"::ffff:1.2.3.4/33"}},{"ipBlock":{"cidr":"fe80::1%eth0/64"}},{"ipBlock":{"cidr":"00.00.00.00/00"}}]}]}}`,
	} {
		f.Add([]byte(seed), int32(5432))
	}
	objs, _ := parseObjects(f, []byte(world))
	peers := []string{"web", "near", "db", "agent", "done", "pending", "stray", "203.0.113.7", "172.18.0.3", "2001:db8::1", "node/n1", ""}
	f.Fuzz(func(t *testing.T, data []byte, port int32) {
		var np networkingv1.NetworkPolicy
		if json.Unmarshal(data, &np) != nil {
			return
		}
		np.Namespace, np.Name = "store", "fuzzed"
		before := np.DeepCopy()
		objs := objs
		objs.Policies = []networkingv1.NetworkPolicy{np}
		s := scene{New(objs), objs}
		for _, from := range peers {
			for _, to := range peers {
				for _, protocol := range []corev1.Protocol{"TCP", "UDP", "ICMP"} {
					checkFlow(t, s, Flow{From: s.peer(t, from), To: s.peer(t, to), Port: port, Protocol: protocol})
				}
			}
		}
		if !reflect.DeepEqual(before, &objs.Policies[0]) {
			t.Error("the policy was changed")
		}
	})
}

func checkFlow(t *testing.T, s scene, flow Flow) {
	t.Helper()
	d := s.Evaluate(flow)
	if again := s.Evaluate(flow); !reflect.DeepEqual(d, again) {
		t.Fatalf("two answers to one question:\n%+v\n%+v", d, again)
	}
	if d.Verdict != combine(d.Egress.Verdict, d.Ingress.Verdict) {
		t.Errorf("%s of %s and %s", d.Verdict, d.Egress.Verdict, d.Ingress.Verdict)
	}
	for _, r := range []Result{d.Egress, d.Ingress} {
		if r.Verdict == Denied && (!r.Isolated || r.Tier != TierNetworkPolicy) {
			t.Errorf("denied without isolation: %+v", r)
		}
		if r.Verdict == Unknown && len(r.Caveats) == 0 {
			t.Errorf("unknown without a reason: %+v", r)
		}
		if named := r.AllowedBy != nil; named != (r.Verdict == Allowed && r.Tier == TierNetworkPolicy) {
			t.Errorf("%+v, admitted by %v", r, r.AllowedBy)
		}
		misses := s.NearMisses(flow, r.Direction)
		if r.Verdict == Allowed && misses != nil {
			t.Errorf("near misses of what is allowed: %v", misses)
		}
		if r.Verdict != Denied {
			continue
		}
		for _, n := range misses {
			checkMended(t, s, flow, n)
		}
	}
}

// checkMended adds to the rule what the near miss says is lacking, and nothing
// else: the direction must then be allowed. So the parts that are said to
// fail are those that do.
func checkMended(t *testing.T, s scene, flow Flow, n NearMiss) {
	t.Helper()
	objs := s.objs
	objs.Policies = []networkingv1.NetworkPolicy{*s.objs.Policies[0].DeepCopy()}
	protocol, port := flow.protocol(), intstr.FromInt32(flow.Port)
	if flow.Port < 1 || flow.Port > 65535 {
		return
	}
	var ports []networkingv1.NetworkPolicyPort
	if n.PortFailed || n.ProtocolFailed {
		ports = append(ports, networkingv1.NetworkPolicyPort{Port: &port, Protocol: &protocol})
	}
	var peers []networkingv1.NetworkPolicyPeer
	if n.PeerFailed {
		peers = append(peers,
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}},
			networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "::/0"}})
	}
	spec := &objs.Policies[0].Spec
	if n.Direction == Ingress {
		spec.Ingress[n.Rule].Ports = append(spec.Ingress[n.Rule].Ports, ports...)
		spec.Ingress[n.Rule].From = append(spec.Ingress[n.Rule].From, peers...)
	} else {
		spec.Egress[n.Rule].Ports = append(spec.Egress[n.Rule].Ports, ports...)
		spec.Egress[n.Rule].To = append(spec.Egress[n.Rule].To, peers...)
	}
	d := New(objs).Evaluate(flow)
	r := d.Egress
	if n.Direction == Ingress {
		r = d.Ingress
	}
	if addrKnown := s.otherKnown(flow, n.Direction); addrKnown && r.Verdict != Allowed {
		t.Errorf("mended as %+v says, still %+v", n, r)
	}
}

// otherKnown: an ipBlock can stand for the peer only where it has an address.
func (s scene) otherKnown(flow Flow, d Direction) bool {
	p := flow.From
	if d == Egress {
		p = flow.To
	}
	return len(s.endpoint(p).addrs) > 0
}
