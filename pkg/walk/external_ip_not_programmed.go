package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// externalIPNotProgrammed: the node serves the Service's cluster IP, and knows
// nothing of a load balancer's address or an external IP of it.
var externalIPNotProgrammed = &Check{
	Code: diagnosis.ExternalIPNotProgrammed, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		outside := func(pr *probe) bool {
			return (pr.frontend.Kind == proxy.ExternalIP || pr.frontend.Kind == proxy.LoadBalancer) && pr.outsideOnly()
		}
		for _, f := range p.faults(outside) {
			pr := f.first()
			what, field := "the load balancer's address", p.serviceField(".status.loadBalancer.ingress", pr.dst.Addr().String())
			if pr.frontend.Kind == proxy.ExternalIP {
				what, field = "external IP", p.serviceField(".spec.externalIPs", pr.dst.Addr().String())
			}
			title := fmt.Sprintf("%s serves the cluster IP, and knows nothing of %s %s", f.view.label(), what, frontendText(pr.frontend, pr.dst))
			if deadEnd(pr.untouched[0]).Line > 0 {
				title = fmt.Sprintf("%s serves the cluster IP, and nothing behind its rule for %s rewrites the packet", f.view.label(), frontendText(pr.frontend, pr.dst))
			}
			finding := Finding{
				Subject:  p.onNode(f.view),
				Title:    title,
				Expected: pr.wantText(),
				Found:    "no rule rewrites " + f.affected() + "; " + pr.insideText(),
				Evidence: append(append(append(f.view.silence(pr), pr.insideEvidence()...), field), p.knownBugs(f.view, diagnosis.ExternalIPNotProgrammed)...),
				Fixes:    []Proposal{p.restartProxy(f.view)},
			}
			if pr.frontend.Kind == proxy.ExternalIP && f.view.seen.externalIPsOff() {
				finding.Title = fmt.Sprintf("kube-proxy on %s serves no external IPs: its feature gate %s is off", f.view.label(), externalIPGate)
				finding.Evidence = append([]diagnosis.Evidence{f.view.gateEvidence()}, finding.Evidence...)
				finding.Fixes = []Proposal{p.externalIPGateFix()}
			}
			p.Report(finding)
		}
	},
}

// externalIPGate turns external IPs off in kube-proxy (1.37; on by default).
// The admission plugin DenyServiceExternalIPs is another thing: it keeps them
// out of new Services, and kube-proxy serves those that are there.
const externalIPGate = "AllowServiceExternalIPs"

func (s proxySeen) externalIPsOff() bool {
	on, set := s.gates[externalIPGate]
	return set && !on
}

func (v *nodeView) gateEvidence() diagnosis.Evidence {
	return diagnosis.Evidence{
		Source: v.seen.configRef, Ref: v.seen.configRef, Quote: "featureGates: " + externalIPGate + ": false",
		Command: kubectl("get", "configmap", "-n", snapshot.ProxyNamespace, "kube-proxy", "-o", "yaml"),
	}
}

func (p *Pass) externalIPGateFix() Proposal {
	restart := kubectl("rollout", "restart", "daemonset", "-n", snapshot.ProxyNamespace, "kube-proxy")
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "use a load balancer's address in place of external IPs; or let kube-proxy serve them again",
			Commands: []string{
				kubectl("get", "configmap", "-n", snapshot.ProxyNamespace, "kube-proxy", "-o", "yaml") + " > kube-proxy-before.yaml",
				kubectl("edit", "configmap", "-n", snapshot.ProxyNamespace, "kube-proxy") + "   (remove " + externalIPGate + ": false from featureGates)", restart,
			},
			BlastRadius: "every Service with external IPs, on every node: whoever may edit a Service can then take any address (CVE-2020-8554), which is why somebody turned it off",
			Undo:        []string{"kubectl replace -f kube-proxy-before.yaml", restart},
			Verify:      []string{p.again()},
		},
		NotSimulated: "it changes kube-proxy's configuration, which takes effect when it starts anew",
	}
}
