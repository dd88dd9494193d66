package walk

import (
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netpol"
)

func policySubject(r netpol.PolicyRef) diagnosis.Subject {
	return diagnosis.Subject{Kind: "NetworkPolicy", Namespace: r.Namespace, Name: r.Name}
}

// policyEvidence quotes a field of a policy; field is as netpol gives it,
// "spec.ingress[0].from[1].podSelector".
func policyEvidence(r netpol.PolicyRef, field, quote string) diagnosis.Evidence {
	path := "." + field
	// A label's key in brackets is no index that kubectl's JSONPath takes.
	shown := path
	if i := strings.Index(shown, ".matchLabels["); i >= 0 {
		shown = shown[:i] + ".matchLabels"
	}
	return diagnosis.Evidence{
		Source: "networkpolicy/" + r.Name + " " + path, Ref: "networkpolicy/" + r.Namespace + "/" + r.Name, Quote: quote,
		Command: kubectl("get", "networkpolicy", r.Name, "-n", r.Namespace, "-o", "jsonpath={"+shown+"}"),
	}
}

// denialEvidence quotes, for a direction that refuses, every policy that
// isolates there with what its rules admit, and the labels of both ends.
func (p *Pass) denialEvidence(flows []*policyFlow, d netpol.Direction) []diagnosis.Evidence {
	out := p.policiesEvidence(flows, d)
	fl := flows[0]
	out = append(out, p.callerEvidence(fl.client)...)
	if pod := fl.backend.pod; pod != nil {
		out = append(out, podEvidence(pod, ".metadata.labels", "backend labels "+labelsQuote(pod)))
	}
	return out
}

// maxPoliciesQuoted bounds how many policies one diagnosis quotes.
const maxPoliciesQuoted = 8

func (p *Pass) policiesEvidence(flows []*policyFlow, d netpol.Direction) []diagnosis.Evidence {
	var out []diagnosis.Evidence
	for _, r := range isolatingPolicies(flows, d) {
		if pol := p.policies().Policy(r); pol != nil && len(out) < maxPoliciesQuoted {
			out = append(out, policyEvidence(r, "spec", policyQuote(pol, d)))
		}
	}
	return out
}

// callerEvidence is what policies see of a client.
func (p *Pass) callerEvidence(c *policyClient) []diagnosis.Evidence {
	switch {
	case c.pod != nil && c.pod.Name != "":
		e := podEvidence(c.pod, ".metadata.labels", "client labels "+labelsQuote(c.pod))
		if c.pod.Spec.HostNetwork {
			e = podEvidence(c.pod, ".spec.hostNetwork", "true: policies see its node's address")
		}
		return []diagnosis.Evidence{e}
	case c.masked != "":
		return []diagnosis.Evidence{p.serviceField(".spec.externalTrafficPolicy", c.masked+" (here "+c.node+")")}
	case c.node != "":
		return []diagnosis.Evidence{{
			Source: "node/" + c.node + " .status.addresses", Ref: "node/" + c.node, Quote: addrsText(nodeAddresses(p.nodeByName[c.node])),
			Command: kubectl("get", "node", c.node, "-o", "jsonpath={.status.addresses}"),
		}}
	}
	return nil
}

// openEvidence points at the rule that admits a flow, where one does.
func (p *Pass) openEvidence(f *policyFlow) []diagnosis.Evidence {
	if f == nil || f.decision.Ingress.AllowedBy == nil {
		return nil
	}
	by := *f.decision.Ingress.AllowedBy
	pol := p.policies().Policy(by.Policy)
	if pol == nil || by.Rule >= len(pol.Spec.Ingress) {
		return nil
	}
	return []diagnosis.Evidence{policyEvidence(by.Policy, fmt.Sprintf("spec.ingress[%d]", by.Rule),
		fmt.Sprintf("admits %s to %s: %s", f.client.label, f.backend.label(), cut(compactJSON(pol.Spec.Ingress[by.Rule]))))}
}

func labelsQuote(pod *corev1.Pod) string {
	s := strings.TrimSuffix(labelText(pod.Labels), ",")
	if s == "" {
		return "(none)"
	}
	return s
}

// policyQuote says what a policy selects and admits, in a line.
func policyQuote(pol *networkingv1.NetworkPolicy, d netpol.Direction) string {
	rules := compactJSON(pol.Spec.Ingress)
	n := len(pol.Spec.Ingress)
	if d == netpol.Egress {
		rules, n = compactJSON(pol.Spec.Egress), len(pol.Spec.Egress)
	}
	if n == 0 {
		rules = "no rule, which refuses all"
	}
	return fmt.Sprintf("podSelector %s; %s: %s", compactJSON(pol.Spec.PodSelector), directionText(d), cut(rules))
}

// cut keeps a quote to a size that a person reads.
func cut(s string) string {
	const most = 600
	if len(s) <= most {
		return s
	}
	i := most
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return fmt.Sprintf("%s... (%d characters more)", s[:i], utf8.RuneCountInString(s[i:]))
}

// itemEvidence quotes the item of a rule's peers that nearly matches.
func (p *Pass) itemEvidence(n netpol.NearMiss, m netpol.Miss) diagnosis.Evidence {
	quote := m.Want
	if pol := p.policies().Policy(n.Policy); pol != nil {
		if lists, ok := listsOf(pol, n.Direction, n.Rule); ok && m.Item < len(*lists.peers) {
			quote = cut(compactJSON((*lists.peers)[m.Item]))
			m.Field = fmt.Sprintf("spec.%s[%d].%s[%d]", directionText(n.Direction), n.Rule, lists.peersName, m.Item)
		}
	}
	return policyEvidence(n.Policy, m.Field, quote)
}

// namespaceLabels are a namespace's labels as far as they are known.
func (p *Pass) namespaceLabels(name string) string {
	for i := range p.snap.Objects.Namespaces {
		if ns := &p.snap.Objects.Namespaces[i]; ns.Name == name && len(ns.Labels) > 0 {
			return strings.TrimSuffix(labelText(ns.Labels), ",")
		}
	}
	return corev1.LabelMetadataName + "=" + name
}

// peerEvidence quotes what the near miss was compared with: the labels of the
// client or backend, or of its namespace.
func (p *Pass) peerEvidence(fl *policyFlow, d netpol.Direction, m netpol.Miss) diagnosis.Evidence {
	pod := fl.client.pod
	if d == netpol.Egress {
		pod = fl.backend.pod
	}
	switch m.Kind {
	case netpol.MissNamespaceLabelValue, netpol.MissNamespaceLabelKey, netpol.MissNamespaceLabelAbsent, netpol.MissNamespaceSelector:
		if pod != nil {
			return diagnosis.Evidence{
				Source: "namespace/" + pod.Namespace + " .metadata.labels", Ref: "namespace/" + pod.Namespace, Quote: p.namespaceLabels(pod.Namespace),
				Command: kubectl("get", "namespace", pod.Namespace, "--show-labels"),
			}
		}
	case netpol.MissIPBlockVIP:
		return p.serviceField(".spec.clusterIP", fmt.Sprintf("%s, which DNAT has turned into %s when policies are asked", fl.backend.vip, fl.backend.addr))
	case netpol.MissHostNetwork:
		if pod != nil {
			return podEvidence(pod, ".spec.hostNetwork", "true")
		}
	}
	if pod == nil || pod.Name == "" {
		return diagnosis.Evidence{Source: fl.client.label, Quote: m.Got, Command: p.again() + p.fromFlag()}
	}
	return podEvidence(pod, ".metadata.labels", labelsQuote(pod))
}
