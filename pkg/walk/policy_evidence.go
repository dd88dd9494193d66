package walk

import (
	"fmt"
	"strings"

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
func (p *Pass) denialEvidence(f policyFault, d netpol.Direction) []diagnosis.Evidence {
	var out []diagnosis.Evidence
	for _, r := range isolatingPolicies(f.flows, d) {
		pol := p.policies().Policy(r)
		if pol == nil {
			continue
		}
		out = append(out, policyEvidence(r, "spec", policyQuote(pol, d)))
	}
	fl := f.flows[0]
	if fl.client.pod != nil {
		out = append(out, podEvidence(fl.client.pod, ".metadata.labels", "client labels "+labelsQuote(fl.client.pod)))
	}
	if fl.backend.pod != nil {
		out = append(out, podEvidence(fl.backend.pod, ".metadata.labels", "backend labels "+labelsQuote(fl.backend.pod)))
	}
	return out
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
	return fmt.Sprintf("podSelector %s; %s: %s", compactJSON(pol.Spec.PodSelector), directionText(d), rules)
}

// peerEvidence quotes what the near miss was compared with: the labels of the
// client or backend, or of its namespace.
func (p *Pass) peerEvidence(fl policyFlow, d netpol.Direction, m netpol.Miss) diagnosis.Evidence {
	pod := fl.client.pod
	if d == netpol.Egress {
		pod = fl.backend.pod
	}
	if pod == nil {
		return diagnosis.Evidence{Source: fl.client.label, Quote: m.Got}
	}
	switch m.Kind {
	case netpol.MissNamespaceLabelValue, netpol.MissNamespaceLabelKey, netpol.MissNamespaceLabelAbsent, netpol.MissNamespaceLabelExcluded, netpol.MissNamespaceSelector:
		return diagnosis.Evidence{
			Source: "namespace/" + pod.Namespace + " .metadata.labels", Ref: "namespace/" + pod.Namespace, Quote: m.Got,
			Command: kubectl("get", "namespace", pod.Namespace, "--show-labels"),
		}
	}
	return podEvidence(pod, ".metadata.labels", labelsQuote(pod))
}
