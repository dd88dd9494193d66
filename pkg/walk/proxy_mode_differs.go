package walk

import (
	"fmt"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// proxyModeDiffers: the ConfigMap asks for one mode and the node shows another:
// a ConfigMap that was changed without a restart, a fallback, or the leftovers
// of an earlier mode.
var proxyModeDiffers = &Check{
	Code: diagnosis.ProxyModeDiffers, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			s := v.seen
			seen, evidence := s.answered, v.modeAnswer()
			if seen == "" {
				seen, evidence = s.byRules, v.modeChains()
			}
			if s.configured == "" || seen == "" || seen == s.configured {
				continue
			}
			p.Report(Finding{
				Subject:  p.onNode(v),
				Title:    fmt.Sprintf("kube-proxy is configured for %s, and %s shows %s", s.configured, v.label(), seen),
				Expected: s.configured + " mode",
				Found:    seen + " mode",
				Evidence: append(evidence, diagnosis.Evidence{
					Source: s.configRef, Ref: "ConfigMap/" + snapshot.ProxyNamespace, Quote: "mode: " + s.configured,
					Command: kubectl("get", "-n", snapshot.ProxyNamespace, s.configRef, "-o", "yaml"),
				}),
				Fixes: []Proposal{p.restartProxy(v)},
			})
		}
	},
}

func (v *nodeView) modeAnswer() []diagnosis.Evidence {
	return []diagnosis.Evidence{{
		Source: "kube-proxy's /proxyMode on " + v.label(), Quote: v.seen.answered,
		Command: v.onNodeCommand("curl -s http://127.0.0.1:10249/proxyMode"),
	}}
}

func (v *nodeView) modeChains() []diagnosis.Evidence {
	if c, ok := v.rules.Chain(kubeProxyTable, "services"); ok && v.seen.byRules == "nftables" {
		return []diagnosis.Evidence{{
			Source: c.Source + " of " + v.label(), Ref: c.Table + " " + c.Name, Line: c.Line,
			Quote: fmt.Sprintf("table %s, chain %s (%d rules)", c.Table, c.Name, c.NumRules), Command: showBase(v, c),
		}}
	}
	for _, name := range []string{"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-SERVICES"} {
		if c, ok := v.rules.Chain("nat", name); ok {
			return []diagnosis.Evidence{{
				Source: c.Source + " of " + v.label(), Ref: "nat " + name, Line: c.Line,
				Quote: fmt.Sprintf(":%s (%d rules)", name, c.NumRules), Command: showBase(v, c),
			}}
		}
	}
	return nil
}
