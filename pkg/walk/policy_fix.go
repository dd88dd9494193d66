package walk

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// removeOp takes an element of a list away (RFC 6902).
type removeOp struct {
	Op   string `json:"op"`
	Path string `json:"path"`
}

// ruleAddition adds ports or peers to the end of a list of one rule. What is
// there stays, so that nobody who gets through now is shut out.
type ruleAddition struct {
	direction netpol.Direction
	rule      int
	// item is the index of what nearly matched; that it is still there is
	// tested before anything is added.
	item  int
	ports []networkingv1.NetworkPolicyPort
	peers []networkingv1.NetworkPolicyPeer
}

// rule is a rule's two lists.
type ruleLists struct {
	ports *[]networkingv1.NetworkPolicyPort
	peers *[]networkingv1.NetworkPolicyPeer
	// peersName is from or to.
	peersName string
}

func listsOf(pol *networkingv1.NetworkPolicy, d netpol.Direction, rule int) (ruleLists, bool) {
	switch {
	case d == netpol.Ingress && rule < len(pol.Spec.Ingress):
		r := &pol.Spec.Ingress[rule]
		return ruleLists{&r.Ports, &r.From, "from"}, true
	case d == netpol.Egress && rule < len(pol.Spec.Egress):
		r := &pol.Spec.Egress[rule]
		return ruleLists{&r.Ports, &r.To, "to"}, true
	}
	return ruleLists{}, false
}

// merge joins additions to one list, so that the indices of the undo hold.
func mergeAdditions(in []ruleAddition) []ruleAddition {
	var out []ruleAddition
	for _, a := range in {
		i := slices.IndexFunc(out, func(o ruleAddition) bool {
			return o.direction == a.direction && o.rule == a.rule && (len(o.ports) > 0) == (len(a.ports) > 0)
		})
		if i < 0 {
			out = append(out, a)
			continue
		}
		out[i].ports, out[i].peers = addNew(out[i].ports, a.ports), addNew(out[i].peers, a.peers)
	}
	return out
}

func addNew[T any](list, more []T) []T {
	for _, v := range more {
		if !slices.ContainsFunc(list, func(have T) bool { return reflect.DeepEqual(have, v) }) {
			list = append(list, v)
		}
	}
	return list
}

// addToPolicy is the fix that makes the additions to one policy.
func (p *Pass) addToPolicy(ref netpol.PolicyRef, adds []ruleAddition, title, radius string) Proposal {
	adds = mergeAdditions(adds)
	pol := p.policies().Policy(ref)
	var do, undo []any
	for _, a := range adds {
		d, u := a.operations(pol)
		do, undo = append(do, d...), append(u, undo...)
	}
	patch := func(ops []any) string {
		return kubectl("patch", "networkpolicy", ref.Name, "-n", ref.Namespace, "--type=json", "-p", compactJSON(ops))
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title: title, Commands: tried(patch(do)), BlastRadius: radius, Undo: []string{patch(undo)}, Verify: []string{p.again() + p.fromFlag()},
		},
		Change: func(s *snapshot.Snapshot) error {
			pol := findPolicy(s, ref)
			if pol == nil {
				return fmt.Errorf("networkpolicy %s is not in the snapshot", ref)
			}
			for _, a := range adds {
				lists, ok := listsOf(pol, a.direction, a.rule)
				if !ok {
					return fmt.Errorf("networkpolicy %s has no %s rule %d", ref, directionText(a.direction), a.rule)
				}
				*lists.ports = append(*lists.ports, a.ports...)
				*lists.peers = append(*lists.peers, a.peers...)
			}
			return nil
		},
	}
}

// operations are the JSON patch of an addition and the one that takes it back.
// Each tests first that the policy is what it was when this was worked out: a
// rule's index is no name.
func (a ruleAddition) operations(pol *networkingv1.NetworkPolicy) (do, undo []any) {
	lists, ok := listsOf(pol, a.direction, a.rule)
	if !ok {
		return nil, nil
	}
	name, n, old, values := "ports", len(*lists.ports), []any{}, []any{}
	for _, port := range *lists.ports {
		if port.Protocol == nil {
			port.Protocol = ptrTo(corev1.ProtocolTCP) // the API server's default
		}
		old = append(old, port)
	}
	for _, port := range a.ports {
		values = append(values, port)
	}
	if len(a.ports) == 0 {
		name, n, old = lists.peersName, len(*lists.peers), nil
		for _, peer := range *lists.peers {
			old = append(old, peer)
		}
		for _, peer := range a.peers {
			values = append(values, peer)
		}
	}
	path := fmt.Sprintf("/spec/%s/%d/%s", directionText(a.direction), a.rule, name)
	if a.item < len(old) {
		do = append(do, jsonOp{"test", fmt.Sprintf("%s/%d", path, a.item), old[a.item]})
	}
	for i, v := range values {
		do = append(do, jsonOp{"add", path + "/-", v})
		at := fmt.Sprintf("%s/%d", path, n+i)
		undo = append([]any{jsonOp{"test", at, v}, removeOp{"remove", at}}, undo...)
	}
	return do, undo
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
		return " --from " + shellQuote(p.Client.Namespace+"/"+p.Client.Name)
	case OnNode:
		return " --from " + shellQuote("node/"+p.Client.Name)
	case FromAddress:
		return " --from " + p.Client.Addr.String()
	case FromExternal:
		return " --from external"
	}
	return ""
}

func portOf(b *policyBackend) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: ptrTo(b.port.protocol), Port: ptrTo(intstr.FromInt32(int32(b.addr.Port())))}
}

// addPolicyPorts adds the pods' ports beside the Service's.
func (p *Pass) addPolicyPorts(group []policyMiss) Proposal {
	var adds []ruleAddition
	var names []string
	for _, m := range group {
		for _, b := range alikeOnce(m.fault.flows) {
			// The pods may resolve a named targetPort to different numbers.
			adds = append(adds, ruleAddition{
				direction: m.near.Direction, rule: m.near.Rule, item: m.misses[0].Item,
				ports: []networkingv1.NetworkPolicyPort{portOf(b)},
			})
			names = addWord(names, b.portText())
		}
	}
	ref := group[0].near.Policy
	return p.addToPolicy(ref, adds, fmt.Sprintf("add port %s to the rule", join(names, 3)),
		fmt.Sprintf("opens %s for the peers of this rule, on the pods that NetworkPolicy %s selects; the port that it names now stays open", join(names, 3), ref.Name))
}

// mendPeers adds, for each item that nearly matches, the same item with the
// mistake mended.
func (p *Pass) mendPeers(group []policyMiss) []Proposal {
	ref := group[0].near.Policy
	pol := p.policies().Policy(ref)
	var adds []ruleAddition
	var names []string
	for _, m := range group {
		peers := p.mended(pol, m)
		if len(peers) == 0 {
			return []Proposal{p.decideClients()}
		}
		adds = append(adds, ruleAddition{direction: m.near.Direction, rule: m.near.Rule, item: m.misses[0].Item, peers: peers})
		for _, peer := range peers {
			names = addWord(names, peerText(peer, ref.Namespace))
		}
	}
	return []Proposal{p.addToPolicy(ref, adds, fmt.Sprintf("add %s to the rule's peers", join(names, 3)),
		fmt.Sprintf("opens this rule's ports to %s, for the pods that NetworkPolicy %s selects; nobody is shut out", join(names, 3), ref.Name))}
}

// mended is the item of a rule's peers that a miss is about, as it was probably
// meant.
func (p *Pass) mended(pol *networkingv1.NetworkPolicy, m policyMiss) []networkingv1.NetworkPolicyPeer {
	lists, ok := listsOf(pol, m.near.Direction, m.near.Rule)
	item := m.misses[0].Item
	pod := m.flow.client.pod
	if m.near.Direction == netpol.Egress {
		pod = m.flow.backend.pod
	}
	if !ok || item >= len(*lists.peers) || pod == nil {
		return nil
	}
	peer := (*lists.peers)[item].DeepCopy()
	for _, miss := range m.misses {
		switch miss.Kind {
		case netpol.MissHostNetwork:
			return p.nodeBlocks(pod)
		case netpol.MissIPBlockVIP:
			return p.backendPeers(m.fault.flows, m.near.Policy.Namespace)
		case netpol.MissSplitPeers:
			peer.NamespaceSelector = nil
		case netpol.MissPodLabelValue, netpol.MissPodLabelKey:
			mendLabel(peer.PodSelector, miss, pod.Labels)
		default: // the namespace, by its name, which every namespace has as a label
			peer.NamespaceSelector = namespaceByName(pod.Namespace)
		}
	}
	return []networkingv1.NetworkPolicyPeer{*peer}
}

func namespaceByName(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
}

// mendLabel makes a selector ask for the label that the pod has.
func mendLabel(sel *metav1.LabelSelector, m netpol.Miss, labels map[string]string) {
	delete(sel.MatchLabels, m.Key)
	sel.MatchExpressions = slices.DeleteFunc(sel.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == m.Key })
	key := m.Key
	if m.GotKey != "" {
		key = m.GotKey
	}
	if sel.MatchLabels == nil {
		sel.MatchLabels = map[string]string{}
	}
	sel.MatchLabels[key] = labels[key]
}

// peerText names a peer for a person.
func peerText(peer networkingv1.NetworkPolicyPeer, policyNamespace string) string {
	if peer.IPBlock != nil {
		return peer.IPBlock.CIDR
	}
	s := "every pod"
	if peer.PodSelector != nil {
		if sel := metav1.FormatLabelSelector(peer.PodSelector); len(peer.PodSelector.MatchLabels)+len(peer.PodSelector.MatchExpressions) > 0 {
			s = "pods " + sel
		}
	}
	switch {
	case peer.NamespaceSelector == nil:
		return s + " of " + policyNamespace
	case len(peer.NamespaceSelector.MatchExpressions) == 0 && len(peer.NamespaceSelector.MatchLabels) == 1 && peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "":
		return s + " of " + peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName]
	}
	return s + " of namespaces " + metav1.FormatLabelSelector(peer.NamespaceSelector)
}

func ptrTo[T any](v T) *T { return &v }
