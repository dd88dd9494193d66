package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// admit proposes policies that open a named client's denied flows in some
// directions; policies add up, so that the others stay as they are. Where no
// client is named, only a person knows who was meant.
func (p *Pass) admit(flows []*policyFlow, in ...netpol.Direction) []Proposal {
	if p.Client.Kind == AnyPod || p.Client.Kind == FromExternal {
		return []Proposal{p.decideClients()}
	}
	var pols []networkingv1.NetworkPolicy
	for _, d := range in {
		denied := deniedBy(flows, d)
		if len(denied) == 0 {
			continue
		}
		for _, part := range p.byIsolation(denied, d) {
			pol, ok := p.admitting(part, d)
			if !ok {
				return []Proposal{p.decideClients()}
			}
			pol.Name = p.freePolicyName(pol.Namespace, d, pols)
			pols = append(pols, pol)
		}
	}
	if len(pols) == 0 {
		return []Proposal{p.decideClients()}
	}
	return []Proposal{p.createPolicies(pols, flows[0].client)}
}

// isolated are denied flows whose subject one policy isolates.
type isolated struct {
	by    netpol.PolicyRef
	flows []*policyFlow
}

// byIsolation splits flows by a policy that isolates their subject, as few as
// will do: a new policy must select no pod that none isolates today, or it
// would shut others out.
func (p *Pass) byIsolation(flows []*policyFlow, d netpol.Direction) []isolated {
	var out []isolated
	for _, f := range flows {
		by := f.result(d).Isolating
		if len(by) == 0 {
			continue
		}
		i := slices.IndexFunc(out, func(o isolated) bool { return slices.Contains(by, o.by) })
		if i < 0 {
			out = append(out, isolated{by: by[0]})
			i = len(out) - 1
		}
		out[i].flows = append(out[i].flows, f)
	}
	return out
}

// admitting is a policy for the pods that part.by selects, narrowed to those
// that matter here.
func (p *Pass) admitting(part isolated, d netpol.Direction) (networkingv1.NetworkPolicy, bool) {
	base := p.policies().Policy(part.by)
	subject := part.flows[0].backend.pod
	narrow := p.Service.Spec.Selector
	peers := p.clientPeers(part.flows[0], part.by.Namespace)
	if d == netpol.Egress {
		subject, narrow = part.flows[0].client.pod, nil
		if subject != nil {
			narrow = steadyLabels(subject)
		}
		peers = p.backendPeers(part.flows, part.by.Namespace)
	}
	if base == nil || subject == nil || len(peers) == 0 {
		return networkingv1.NetworkPolicy{}, false
	}
	pol := networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: part.by.Namespace},
	}
	pol.Spec.PodSelector = narrowed(base.Spec.PodSelector, narrow, subject.Labels)
	var ports []networkingv1.NetworkPolicyPort
	for _, f := range part.flows {
		if f.backend.addr.Port() != 0 {
			ports = addNew(ports, []networkingv1.NetworkPolicyPort{portOf(f.backend)})
		}
	}
	if d == netpol.Ingress {
		pol.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		pol.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}}
	} else {
		pol.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		pol.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}}
	}
	return pol, true
}

// narrowed is a selector that selects no more than it did, and of that only
// what has these labels too.
func narrowed(sel metav1.LabelSelector, more, have map[string]string) metav1.LabelSelector {
	out := *sel.DeepCopy()
	for k, v := range more {
		if have[k] != v {
			return out // the Service does not select this pod: an endpoint by hand
		}
	}
	for k, v := range more {
		if out.MatchLabels == nil {
			out.MatchLabels = map[string]string{}
		}
		out.MatchLabels[k] = v
	}
	return out
}

// steadyLabels are those that a pod keeps from one rollout to the next.
func steadyLabels(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for k, v := range pod.Labels {
		if !volatileLabel(k) {
			out[k] = v
		}
	}
	return out
}

// clientPeers select the client: a pod by its labels, anything else by address.
func (p *Pass) clientPeers(f *policyFlow, policyNamespace string) []networkingv1.NetworkPolicyPeer {
	switch c := f.client; {
	case c.pod != nil && c.pod.Spec.HostNetwork:
		return p.nodeBlocks(c.pod)
	case c.pod != nil:
		return []networkingv1.NetworkPolicyPeer{podPeer(c.pod.Namespace, steadyLabels(c.pod), policyNamespace)}
	case c.masked != "":
		return nil // whichever node it is, and whoever else comes by it
	case c.node != "":
		return blocks(nodeAddresses(p.nodeByName[c.node]))
	case c.addr.IsValid():
		return blocks([]netip.Addr{c.addr})
	}
	return nil
}

func podPeer(namespace string, labels map[string]string, policyNamespace string) networkingv1.NetworkPolicyPeer {
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: labels}}
	if namespace != policyNamespace {
		peer.NamespaceSelector = namespaceByName(namespace)
	}
	return peer
}

func blocks(addrs []netip.Addr) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for _, a := range addrs {
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}})
	}
	return out
}

// nodeBlocks are the addresses under which a pod on its node's network appears,
// and those of its kin on other nodes: a rule for one alone would fail with the
// next rollout.
func (p *Pass) nodeBlocks(pod *corev1.Pod) []networkingv1.NetworkPolicyPeer {
	var addrs []netip.Addr
	text := labelText(pod.Labels)
	for _, kin := range p.podsByNS[pod.Namespace] {
		if !kin.Spec.HostNetwork || labelText(kin.Labels) != text {
			continue
		}
		for _, a := range podAddrs(kin) {
			if !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return blocks(addrs)
}

// backendPeers select the backends of flows: by the Service's selector where it
// selects them all, else each by its own labels, and what is no pod by address.
func (p *Pass) backendPeers(flows []*policyFlow, policyNamespace string) []networkingv1.NetworkPolicyPeer {
	sel, ns := p.Service.Spec.Selector, p.Service.Namespace
	bySelector := len(sel) > 0
	var each []networkingv1.NetworkPolicyPeer
	for _, f := range flows {
		pod := f.backend.pod
		switch {
		case pod == nil:
			bySelector = false
			each = addNew(each, blocks([]netip.Addr{f.backend.addr.Addr()}))
		case pod.Spec.HostNetwork:
			bySelector = false
			each = addNew(each, p.nodeBlocks(pod))
		default:
			for k, v := range sel {
				bySelector = bySelector && pod.Labels[k] == v && pod.Namespace == ns
			}
			each = addNew(each, []networkingv1.NetworkPolicyPeer{podPeer(pod.Namespace, steadyLabels(pod), policyNamespace)})
		}
	}
	if bySelector {
		return []networkingv1.NetworkPolicyPeer{podPeer(ns, sel, policyNamespace)}
	}
	return each
}

// freePolicyName is one that no policy has.
func (p *Pass) freePolicyName(namespace string, d netpol.Direction, taken []networkingv1.NetworkPolicy) string {
	base := fmt.Sprintf("allow-%s-%s", directionText(d), p.Service.Name)
	for i := 1; ; i++ {
		name := base
		if i > 1 {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		used := slices.ContainsFunc(taken, func(pol networkingv1.NetworkPolicy) bool { return pol.Name == name && pol.Namespace == namespace })
		if !used && p.policies().Policy(netpol.PolicyRef{Namespace: namespace, Name: name}) == nil {
			return name
		}
	}
}

// createPolicies is the fix that creates them. printf, because echo of some
// shells takes a backslash in it for its own.
func (p *Pass) createPolicies(pols []networkingv1.NetworkPolicy, client *policyClient) Proposal {
	var manifest any = pols[0]
	if len(pols) > 1 {
		manifest = map[string]any{"apiVersion": "v1", "kind": "List", "items": pols}
	}
	var opens, undo []string
	for _, pol := range pols {
		undo = append(undo, kubectl("delete", "networkpolicy", pol.Name, "-n", pol.Namespace))
		opens = append(opens, policyOpens(&pol))
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       fmt.Sprintf("add %s %s", are(len(pols), "a NetworkPolicy that admits", fmt.Sprintf("%d NetworkPolicies that admit", len(pols))), client.label),
			Commands:    tried(fmt.Sprintf(`printf '%%s\n' %s | kubectl create -f -`, shellQuote(compactJSON(manifest)))),
			BlastRadius: strings.Join(opens, "; ") + "; policies add up, so nobody is shut out",
			Undo:        undo,
			Verify:      []string{p.again() + p.fromFlag()},
		},
		Change: func(s *snapshot.Snapshot) error {
			for i := range pols {
				s.Objects.NetworkPolicies = append(s.Objects.NetworkPolicies, *pols[i].DeepCopy())
			}
			return nil
		},
	}
}

// policyOpens says what one of our policies lets through.
func policyOpens(pol *networkingv1.NetworkPolicy) string {
	d, prep := netpol.Ingress, "from"
	if len(pol.Spec.Egress) > 0 {
		d, prep = netpol.Egress, "to"
	}
	lists, _ := listsOf(pol, d, 0)
	var ports, peers []string
	for _, port := range *lists.ports {
		ports = append(ports, fmt.Sprintf("%s/%s", port.Port, *port.Protocol))
	}
	for _, peer := range *lists.peers {
		peers = append(peers, peerText(peer, pol.Namespace))
	}
	what := join(ports, 4)
	if what == "" {
		what = "every port"
	}
	return fmt.Sprintf("opens %s of %s %s %s", what, peerText(networkingv1.NetworkPolicyPeer{PodSelector: &pol.Spec.PodSelector}, pol.Namespace), prep, join(peers, 3))
}

// decideClients is the way on where nobody but a person can say whom the
// policies ought to admit.
func (p *Pass) decideClients() Proposal {
	title, why, flag := "decide which clients are meant, and walk one of them", "whom the policies ought to admit is not written anywhere", " --from NAMESPACE/POD"
	if p.Client.Kind != AnyPod {
		title, why, flag = "decide which addresses are meant, and admit them by an ipBlock", "which addresses clients come from is not written anywhere", " --from IP"
		if p.exposed() {
			title += "; under externalTrafficPolicy Cluster backends see a node's address, under Local the client's own"
		}
	}
	look := p.again() + flag
	return Proposal{
		Fix: diagnosis.Fix{
			Title: title, Commands: []string{look}, BlastRadius: "this only looks",
			Undo: []string{"nothing to undo: this only looks"}, Verify: []string{look},
		},
		NotSimulated: why,
	}
}
