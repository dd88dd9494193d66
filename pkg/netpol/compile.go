package netpol

import (
	"fmt"
	"net/netip"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Issue is a part of a policy that the API server would refuse, so that what
// the policy does is not known there.
type Issue struct {
	Policy  PolicyRef
	Field   string // "spec.ingress[0].ports[1].port"
	Problem string
}

func (i Issue) String() string {
	return fmt.Sprintf("%s %s: %s", i.Policy, i.Field, i.Problem)
}

// policy is a NetworkPolicy with its defaults filled in and its selectors and
// CIDRs parsed.
type policy struct {
	ref     PolicyRef
	object  *networkingv1.NetworkPolicy
	subject selector
	ingress half
	egress  half
	issues  []*Issue
}

// half is a policy's say in one direction.
type half struct {
	isolates grade // no, maybe (invalid policyTypes) or yes
	typesBad *Issue
	rules    []rule
}

func (p *policy) half(d Direction) *half {
	if d == Egress {
		return &p.egress
	}
	return &p.ingress
}

// rule admits what matches one of its peers and one of its ports; an empty
// list, like an absent one, matches everything.
type rule struct {
	peers []peerItem
	ports []portItem
}

type portItem struct {
	field    string
	protocol corev1.Protocol
	every    bool   // no port given: all of that protocol
	name     string // a named port, or
	from, to int32  // numbers, both inclusive
	issue    *Issue
}

type peerItem struct {
	field      string
	namespaces *selector // nil: the policy's own namespace
	pods       *selector // nil: all pods
	block      *ipBlock  // instead of the selectors
	issue      *Issue
}

type ipBlock struct {
	cidr    netip.Prefix
	except  []netip.Prefix
	text    string
	cidrBad *Issue
	// exceptBad: one of the exceptions can't be read, so nothing within cidr
	// is certain.
	exceptBad *Issue
}

// selector is a label selector, with each requirement's place in the object.
type selector struct {
	field        string
	parsed       labels.Selector // nil where issue is set
	requirements []requirement
	issue        *Issue
}

type requirement struct {
	labels.Requirement
	field string
}

// compile reads a policy. It never fails: what is invalid becomes an Issue and
// matches as maybe.
func compile(np *networkingv1.NetworkPolicy) *policy {
	p := &policy{
		ref:    PolicyRef{namespaceOrDefault(np.Namespace), np.Name},
		object: np,
	}
	p.subject = *p.selector(&np.Spec.PodSelector, "spec.podSelector")
	p.compileTypes()
	for i, r := range np.Spec.Ingress {
		p.ingress.rules = append(p.ingress.rules, p.rule(r.Ports, r.From, Ingress, i))
	}
	for i, r := range np.Spec.Egress {
		p.egress.rules = append(p.egress.rules, p.rule(r.Ports, r.To, Egress, i))
	}
	return p
}

func (p *policy) issue(field, format string, args ...any) *Issue {
	i := &Issue{Policy: p.ref, Field: field, Problem: fmt.Sprintf(format, args...)}
	p.issues = append(p.issues, i)
	return i
}

// compileTypes defaults policyTypes as the API server does
// (SetDefaults_NetworkPolicy): Ingress always, Egress only where there are
// egress rules; an empty list is an absent one.
func (p *policy) compileTypes() {
	spec := &p.object.Spec
	if len(spec.PolicyTypes) == 0 {
		p.ingress.isolates = yes
		if len(spec.Egress) > 0 {
			p.egress.isolates = yes
		}
		return
	}
	var bad *Issue
	for i, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			p.ingress.isolates = yes
		case networkingv1.PolicyTypeEgress:
			p.egress.isolates = yes
		default:
			bad = p.issue(fmt.Sprintf("spec.policyTypes[%d]", i), "%q is neither Ingress nor Egress", t)
		}
	}
	if bad == nil {
		return
	}
	for _, h := range []*half{&p.ingress, &p.egress} {
		if h.isolates == no {
			h.isolates, h.typesBad = maybe, bad
		}
	}
}

func (p *policy) rule(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, d Direction, index int) rule {
	var r rule
	field := fmt.Sprintf("spec.%s[%d]", d.rules(), index)
	for i := range ports {
		r.ports = append(r.ports, p.port(&ports[i], fmt.Sprintf("%s.ports[%d]", field, i)))
	}
	for i := range peers {
		r.peers = append(r.peers, p.peer(&peers[i], fmt.Sprintf("%s.%s[%d]", field, d.peers(), i)))
	}
	return r
}

// port follows ValidateNetworkPolicyPort of the API server.
func (p *policy) port(np *networkingv1.NetworkPolicyPort, field string) portItem {
	item := portItem{field: field, protocol: corev1.ProtocolTCP}
	if np.Protocol != nil {
		item.protocol = *np.Protocol
	}
	if !definedProtocol(item.protocol) {
		item.issue = p.issue(field+".protocol", "%q is none of TCP, UDP, SCTP", item.protocol)
		return item
	}
	switch {
	case np.Port == nil:
		item.every = true
		if np.EndPort != nil {
			item.issue = p.issue(field+".endPort", "endPort without port")
		}
	case np.Port.Type == intstr.String:
		item.name = np.Port.StrVal
		if problems := validation.IsValidPortName(item.name); len(problems) > 0 {
			item.issue = p.issue(field+".port", "%q is no port name: %s", item.name, strings.Join(problems, "; "))
		} else if np.EndPort != nil {
			item.issue = p.issue(field+".endPort", "endPort with a named port")
		}
	default:
		p.portNumbers(&item, np.Port.IntVal, np.EndPort)
	}
	return item
}

func (p *policy) portNumbers(item *portItem, port int32, end *int32) {
	item.from, item.to = port, port
	if end != nil {
		item.to = *end
	}
	switch {
	case item.from < 1 || item.from > 65535:
		item.issue = p.issue(item.field+".port", "%d is not within 1-65535", item.from)
	case item.to > 65535:
		item.issue = p.issue(item.field+".endPort", "%d is not within 1-65535", item.to)
	case item.to < item.from:
		item.issue = p.issue(item.field+".endPort", "endPort %d is below port %d", item.to, item.from)
	}
}

func definedProtocol(p corev1.Protocol) bool {
	return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP || p == corev1.ProtocolSCTP
}

// peer follows ValidateNetworkPolicyPeer of the API server.
func (p *policy) peer(np *networkingv1.NetworkPolicyPeer, field string) peerItem {
	item := peerItem{field: field}
	selectors := np.PodSelector != nil || np.NamespaceSelector != nil
	switch {
	case np.IPBlock != nil && selectors:
		item.issue = p.issue(field, "ipBlock together with a selector")
	case np.IPBlock != nil:
		item.block = p.ipBlock(np.IPBlock, field+".ipBlock")
	case !selectors:
		item.issue = p.issue(field, "names no peer: neither podSelector, namespaceSelector nor ipBlock")
	}
	if np.PodSelector != nil {
		item.pods = p.selector(np.PodSelector, field+".podSelector")
	}
	if np.NamespaceSelector != nil {
		item.namespaces = p.selector(np.NamespaceSelector, field+".namespaceSelector")
	}
	return item
}

func (p *policy) ipBlock(b *networkingv1.IPBlock, field string) *ipBlock {
	out := &ipBlock{text: b.CIDR}
	var err error
	if out.cidr, err = parseCIDR(b.CIDR); err != nil {
		out.cidrBad = p.issue(field+".cidr", "%v", err)
		return out
	}
	if len(b.Except) > 0 {
		out.text += " except " + strings.Join(b.Except, ", ")
	}
	for i, text := range b.Except {
		except, err := parseCIDR(text)
		if err != nil {
			out.exceptBad = p.issue(fmt.Sprintf("%s.except[%d]", field, i), "%v", err)
			continue
		}
		out.except = append(out.except, except)
	}
	return out
}

// parseCIDR takes what the API server takes in a NetworkPolicy (its
// ParseCIDRSloppy): host bits may be set, and octets may have leading zeros,
// which are decimal.
func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(stripLeadingZeros(text))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no CIDR", text)
	}
	if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

func stripLeadingZeros(cidr string) string {
	addr, bits, found := strings.Cut(cidr, "/")
	if !found || strings.Contains(addr, ":") {
		return cidr
	}
	octets := strings.Split(addr, ".")
	for i, o := range octets {
		for len(o) > 1 && o[0] == '0' {
			o = o[1:]
		}
		octets[i] = o
	}
	return strings.Join(octets, ".") + "/" + bits
}

func (p *policy) selector(s *metav1.LabelSelector, field string) *selector {
	out := &selector{field: field}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		out.issue = p.issue(field, "%v", err)
		return out
	}
	out.parsed = parsed
	out.requirements = requirementsOf(s, field)
	return out
}

// requirementsOf lists a valid selector's requirements with their fields, in
// an order that does not depend on that of the map.
func requirementsOf(s *metav1.LabelSelector, field string) []requirement {
	var out []requirement
	add := func(key string, op selection.Operator, values []string, field string) {
		if r, err := labels.NewRequirement(key, op, values); err == nil {
			out = append(out, requirement{*r, field})
		}
	}
	keys := make([]string, 0, len(s.MatchLabels))
	for k := range s.MatchLabels {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		add(k, selection.Equals, []string{s.MatchLabels[k]}, fmt.Sprintf("%s.matchLabels[%s]", field, k))
	}
	for i, e := range s.MatchExpressions {
		add(e.Key, operators[e.Operator], e.Values, fmt.Sprintf("%s.matchExpressions[%d]", field, i))
	}
	return out
}

var operators = map[metav1.LabelSelectorOperator]selection.Operator{
	metav1.LabelSelectorOpIn:           selection.In,
	metav1.LabelSelectorOpNotIn:        selection.NotIn,
	metav1.LabelSelectorOpExists:       selection.Exists,
	metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
}
