package walk

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// checkHealthPort looks for what keeps a load balancer's health check from a
// node: a rule that drops it, or kube-proxy's rule for the port that is not
// there. Whether anything answers, no rule tells. Without an answer the load
// balancer takes the node for one that does not serve.
func (p *Pass) checkHealthPort() {
	svc := p.Service
	n := svc.Spec.HealthCheckNodePort
	asked := p.Target.Addr.IsValid() || p.Target.NodePort || p.Client.Kind != AnyPod && p.Client.Kind != FromExternal
	if n <= 0 || svc.Spec.Type != corev1.ServiceTypeLoadBalancer || !proxy.ExternalLocal(svc) || asked {
		return
	}
	p.probes()
	for _, v := range p.node.views {
		if p.opts.resynced[v.name] || v.lackForMode() != nil || len(v.rulesLack[netfilter.IPv4]) > 0 || p.justChanged(v) {
			continue
		}
		a, ok := v.address(false)
		if !ok {
			continue
		}
		f := proxy.Frontend{Kind: proxy.NodePort, Port: n, ServicePort: n, Protocol: corev1.ProtocolTCP}
		dst := netip.AddrPortFrom(a, uint16(n))
		pkt := packetTo(f, dst, outside4)
		pkt.In = v.host.Route(outside4)
		p.judgeHealthPort(v, n, netfilter.Walk(v.rules, v.host, pkt))
	}
}

func (p *Pass) judgeHealthPort(v *nodeView, n int32, outcomes []netfilter.Outcome) {
	field := p.serviceField(".spec.healthCheckNodePort", fmt.Sprint(n))
	expected := fmt.Sprintf("kube-proxy answers at port %d/TCP whether this node has an endpoint", n)
	for _, o := range outcomes {
		if o.Verdict != netfilter.Drop && o.Verdict != netfilter.Reject {
			continue
		}
		if !forAnySource(lastStep(o).Text, n) {
			// A firewall may well let in the addresses that the load balancer asks
			// from, and these are not known.
			p.Note(diagnosis.LayerNode, diagnosis.Missing{
				What:   fmt.Sprintf("whether the load balancer's health check reaches port %d of %s", n, v.label()),
				Why:    "a firewall of the node turns away what comes to it from " + outside4.String() + ", and where the load balancer asks from is not known",
				Supply: showChain(v, lastStep(o)),
			})
			return
		}
		p.Report(Finding{
			Subject:  p.onNode(v),
			Title:    fmt.Sprintf("%s turns away the load balancer's health check at port %d", v.label(), n),
			Expected: expected,
			Found:    fmt.Sprintf("%s of %s, before kube-proxy can answer: the load balancer takes the node for one that does not serve", string(o.Verdict), share(outcomesOf(outcomes, o.Verdict))),
			Evidence: []diagnosis.Evidence{ruleEvidence(v, lastStep(o)), field},
			Fixes:    p.unblock(v, &probe{view: v, frontend: proxy.Frontend{Kind: proxy.NodePort, Port: n}, judgement: judgement{blocked: []netfilter.Outcome{o}}}, lastStep(o)),
		})
		return
	}
	chain, ok := v.rules.OnlyFamily(netfilter.IPv4).Chain("filter", "KUBE-NODEPORTS")
	if !ok || !chain.Known || v.seen.mode() != "iptables" {
		return // other modes, and kube-proxy before 1.21, have no rule for it
	}
	for r := range chain.Rules() {
		if namesPort(r.Text, n) {
			return
		}
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("%s has no rule for the load balancer's health check at port %d, which kube-proxy writes when it serves it", v.label(), n),
		Expected: expected,
		Found:    "no rule for it: the port may not be served, and the load balancer then takes the node for one that does not serve",
		Evidence: []diagnosis.Evidence{{
			Source: chain.Source + " of " + v.label(), Ref: chain.Table + " " + chain.Name, Line: chain.Line,
			Quote: fmt.Sprintf(":%s (%d rules, none for %d/TCP)", chain.Name, chain.NumRules, n), Command: showBase(v, chain),
		}, field},
		Fixes: []Proposal{p.restartProxy(v)},
	})
}

// namesPort says whether a rule is for the port, as any of the tools prints it.
func namesPort(text string, n int32) bool {
	return strings.Contains(text+" ", fmt.Sprintf("dport %d ", n)) || strings.Contains(text+" ", fmt.Sprintf("dpt:%d ", n))
}

// forAnySource says whether a rule is for the port, whoever asks.
func forAnySource(text string, n int32) bool {
	return namesPort(text, n) && !strings.Contains(text, " -s ") && !strings.Contains(text, "saddr ") && !strings.Contains(text, "src-range")
}

func outcomesOf(all []netfilter.Outcome, verdict netfilter.Verdict) []netfilter.Outcome {
	var out []netfilter.Outcome
	for _, o := range all {
		if o.Verdict == verdict {
			out = append(out, o)
		}
	}
	return out
}
