package walk

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// addOp adds to the end of a list, removeOp takes an element away (RFC 6902).
type addOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

type removeOp struct {
	Op   string `json:"op"`
	Path string `json:"path"`
}

// policyAddition is a fix that adds one element to a list of a rule. What is
// there stays, so nobody who gets through today is shut out.
func (p *Pass) policyAddition(n netpol.NearMiss, list, title, radius string, value any, count int, change func(*networkingv1.NetworkPolicy) error) Proposal {
	ref := n.Policy
	path := fmt.Sprintf("/spec/%s/%d/%s", directionText(n.Direction), n.Rule, list)
	patch := func(op any) string {
		return kubectl("patch", "networkpolicy", ref.Name, "-n", ref.Namespace, "--type=json", "-p", compactJSON([]any{op}))
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title: title, Commands: tried(patch(addOp{"add", path + "/-", value})), BlastRadius: radius,
			Undo: []string{patch(removeOp{"remove", fmt.Sprintf("%s/%d", path, count)})}, Verify: []string{p.again() + p.fromFlag()},
		},
		Change: func(s *snapshot.Snapshot) error {
			pol := findPolicy(s, ref)
			if pol == nil {
				return fmt.Errorf("networkpolicy %s is not in the snapshot", ref)
			}
			return change(pol)
		},
	}
}

func findPolicy(s *snapshot.Snapshot, ref netpol.PolicyRef) *networkingv1.NetworkPolicy {
	for i := range s.Objects.NetworkPolicies {
		if pol := &s.Objects.NetworkPolicies[i]; pol.Namespace == ref.Namespace && pol.Name == ref.Name {
			return pol
		}
	}
	return nil
}

// fromFlag repeats --from for a command that verifies.
func (p *Pass) fromFlag() string {
	switch p.Client.Kind {
	case OnePod:
		return " --from " + p.Client.Namespace + "/" + p.Client.Name
	case OnNode:
		return " --from node/" + p.Client.Name
	case FromAddress:
		return " --from " + p.Client.Addr.String()
	case FromExternal:
		return " --from external"
	}
	return ""
}

// addPolicyPort adds the pod's port beside the Service's.
func (p *Pass) addPolicyPort(n netpol.NearMiss, m netpol.Miss, fl policyFlow) Proposal {
	port := networkingv1.NetworkPolicyPort{Protocol: &fl.backend.protocol, Port: ptrTo(intstr.FromInt32(int32(fl.backend.addr.Port())))}
	count := 0
	if pol := p.policies().Policy(n.Policy); pol != nil {
		count = len(*portsOf(pol, n))
	}
	return p.policyAddition(n, "ports", fmt.Sprintf("add port %d/%s to the rule", fl.backend.addr.Port(), fl.backend.protocol),
		fmt.Sprintf("opens %d/%s for the peers of this rule, on the pods that NetworkPolicy %s is about; the port that it names now stays open", fl.backend.addr.Port(), fl.backend.protocol, n.Policy.Name),
		port, count, func(pol *networkingv1.NetworkPolicy) error {
			list := portsOf(pol, n)
			if list == nil {
				return fmt.Errorf("networkpolicy %s has no %s rule %d any more", n.Policy, directionText(n.Direction), n.Rule)
			}
			*list = append(*list, port)
			return nil
		})
}

func portsOf(pol *networkingv1.NetworkPolicy, n netpol.NearMiss) *[]networkingv1.NetworkPolicyPort {
	switch {
	case n.Direction == netpol.Ingress && n.Rule < len(pol.Spec.Ingress):
		return &pol.Spec.Ingress[n.Rule].Ports
	case n.Direction == netpol.Egress && n.Rule < len(pol.Spec.Egress):
		return &pol.Spec.Egress[n.Rule].Ports
	}
	return nil
}

func peersOf(pol *networkingv1.NetworkPolicy, n netpol.NearMiss) *[]networkingv1.NetworkPolicyPeer {
	switch {
	case n.Direction == netpol.Ingress && n.Rule < len(pol.Spec.Ingress):
		return &pol.Spec.Ingress[n.Rule].From
	case n.Direction == netpol.Egress && n.Rule < len(pol.Spec.Egress):
		return &pol.Spec.Egress[n.Rule].To
	}
	return nil
}

// mendPeer adds a peer that is the missed one with the mistake mended: the pod
// by its own labels, and by its namespace where that is another.
func (p *Pass) mendPeer(n netpol.NearMiss, m netpol.Miss, fl policyFlow, d netpol.Direction) []Proposal {
	pod := fl.client.pod
	if d == netpol.Egress {
		pod = fl.backend.pod
	}
	pol := p.policies().Policy(n.Policy)
	if pod == nil || pol == nil {
		return []Proposal{p.decideClients()}
	}
	peer := p.peerFor(pod, n.Policy.Namespace, keysOfMiss(pol, n, m))
	count := 0
	if list := peersOf(pol, n); list != nil {
		count = len(*list)
	}
	field := "from"
	if d == netpol.Egress {
		field = "to"
	}
	return []Proposal{p.policyAddition(n, field, fmt.Sprintf("add %s to the rule's peers", peerText(peer, n.Policy.Namespace)),
		fmt.Sprintf("opens this rule's ports to every pod with these labels, on the pods that NetworkPolicy %s is about; nobody is shut out", n.Policy.Name),
		peer, count, func(pol *networkingv1.NetworkPolicy) error {
			list := peersOf(pol, n)
			if list == nil {
				return fmt.Errorf("networkpolicy %s has no %s rule %d any more", n.Policy, directionText(n.Direction), n.Rule)
			}
			*list = append(*list, peer)
			return nil
		})}
}

// keysOfMiss are the label keys by which the missed item told its pods, so that
// the mended one tells them by the same; nil for all of the pod's own.
func keysOfMiss(pol *networkingv1.NetworkPolicy, n netpol.NearMiss, m netpol.Miss) []string {
	list := peersOf(pol, n)
	if list == nil || m.Item >= len(*list) || m.Item < 0 || (*list)[m.Item].PodSelector == nil {
		return nil
	}
	keys := sortedKeys((*list)[m.Item].PodSelector.MatchLabels)
	if i := slices.Index(keys, m.Key); i >= 0 && m.GotKey != "" {
		keys[i] = m.GotKey
	}
	return keys
}

// peerFor selects a pod by some of its labels, or by all that do not change
// from one rollout to the next.
func (p *Pass) peerFor(pod *corev1.Pod, policyNamespace string, keys []string) networkingv1.NetworkPolicyPeer {
	match := map[string]string{}
	for _, k := range keys {
		if v, ok := pod.Labels[k]; ok {
			match[k] = v
		}
	}
	if len(match) == 0 {
		for k, v := range pod.Labels {
			if !volatileLabel(k) && k != "statefulset.kubernetes.io/pod-name" && k != "apps.kubernetes.io/pod-index" {
				match[k] = v
			}
		}
	}
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: match}}
	if pod.Namespace != policyNamespace {
		peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: pod.Namespace}}
	}
	return peer
}

func peerText(peer networkingv1.NetworkPolicyPeer, policyNamespace string) string {
	s := "pods "
	for i, k := range sortedKeys(peer.PodSelector.MatchLabels) {
		if i > 0 {
			s += ","
		}
		s += k + "=" + peer.PodSelector.MatchLabels[k]
	}
	if peer.NamespaceSelector != nil {
		return s + " of namespace " + peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]
	}
	return s + " of " + policyNamespace
}

// admit proposes a policy of its own that admits the named client on the pod's
// port; policies add up, so the others stay as they are. Where no client is
// named, only a person knows who was meant.
func (p *Pass) admit(f policyFault, d netpol.Direction) []Proposal {
	fl := f.flows[0]
	isolating := isolatingPolicies(f.flows, d)
	subject := fl.backend.pod
	other := fl.client.pod
	if d == netpol.Egress {
		subject, other = other, subject
	}
	if !f.named || subject == nil || other == nil || len(isolating) == 0 {
		return []Proposal{p.decideClients()}
	}
	base := p.policies().Policy(isolating[0])
	if base == nil {
		return []Proposal{p.decideClients()}
	}
	pol := networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: subject.Namespace, Name: fmt.Sprintf("allow-%s-%s", directionText(d), p.Service.Name)},
	}
	pol.Spec.PodSelector = *base.Spec.PodSelector.DeepCopy()
	peers := []networkingv1.NetworkPolicyPeer{p.peerFor(other, subject.Namespace, nil)}
	ports := []networkingv1.NetworkPolicyPort{{Protocol: &fl.backend.protocol, Port: ptrTo(intstr.FromInt32(int32(fl.backend.addr.Port())))}}
	if d == netpol.Ingress {
		pol.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		pol.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}}
	} else {
		pol.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		pol.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}}
	}
	apply := fmt.Sprintf("echo %s | kubectl apply -f -", shellQuote(compactJSON(pol)))
	return []Proposal{{
		Fix: diagnosis.Fix{
			Title:       fmt.Sprintf("add a NetworkPolicy that admits %s on %d/%s", peerText(peers[0], subject.Namespace), fl.backend.addr.Port(), fl.backend.protocol),
			Commands:    tried(apply),
			BlastRadius: fmt.Sprintf("opens %d/%s between these pods and the pods that %s is about; policies add up, so nobody is shut out", fl.backend.addr.Port(), fl.backend.protocol, isolating[0]),
			Undo:        []string{kubectl("delete", "networkpolicy", pol.Name, "-n", pol.Namespace)},
			Verify:      []string{p.again() + p.fromFlag()},
		},
		Change: func(s *snapshot.Snapshot) error {
			if findPolicy(s, netpol.PolicyRef{Namespace: pol.Namespace, Name: pol.Name}) != nil {
				return fmt.Errorf("there is a networkpolicy %s/%s already", pol.Namespace, pol.Name)
			}
			s.Objects.NetworkPolicies = append(s.Objects.NetworkPolicies, *pol.DeepCopy())
			return nil
		},
	}}
}

// decideClients is the way on where nobody but a person can say whom the
// policies ought to admit.
func (p *Pass) decideClients() Proposal {
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "decide which clients are meant, and walk one of them",
			Commands:    []string{p.again() + " --from NAMESPACE/POD"},
			BlastRadius: "this only looks",
			Undo:        []string{"nothing to undo: this only looks"},
			Verify:      []string{p.again() + " --from NAMESPACE/POD"},
		},
		NotSimulated: "whom the policies ought to admit is not written anywhere",
	}
}

func ptrTo[T any](v T) *T { return &v }
