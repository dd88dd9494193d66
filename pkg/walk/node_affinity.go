package walk

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/nftables"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// affinity is how one chain of kube-proxy's that balances remembers which
// client drew which backend.
type affinity struct {
	// drawn are the backends, with the rule that drew each.
	drawn []draw
	// kept are those of drawn to which a remembered client is sent back: a rule
	// of the chain asks, and one of the endpoint's own remembers.
	kept []keeping
	// asks are all rules that ask for remembered clients.
	asks []netfilter.Step
}

// keeping is how one backend's clients are kept.
type keeping struct {
	draw
	ask netfilter.Step
	// timeout is how long; 0 for ever.
	timeout time.Duration
}

// affinity looks at the chain that balances; ok is false where there is none,
// or where its rules or an endpoint's were not read whole.
func (pr *probe) affinity() (a affinity, ok bool) {
	if pr.hairpin || len(pr.undecided) > 0 {
		return a, false
	}
	for _, o := range pr.outcomes {
		step, balanced := balancing(o)
		if !o.Rewritten || !balanced {
			continue
		}
		if !slices.ContainsFunc(a.drawn, func(d draw) bool { return d.to == o.To }) {
			chain, known := pr.view.chainOf(step, pr.frontend.V6)
			if !known || !chain.Known || !a.add(pr.view, chain, o, step) {
				return a, false
			}
		}
	}
	return a, len(a.drawn) > 0
}

// add looks at how one backend is kept. In iptables mode its chain is the one
// that the balancing rule jumps to, in nftables mode the one that rewrites.
func (a *affinity) add(v *nodeView, chain netfilter.Chain, o netfilter.Outcome, step netfilter.Step) bool {
	d := draw{to: o.To, share: o.Probability, step: step}
	a.drawn = append(a.drawn, d)
	asks := asking(chain)
	for _, s := range asks {
		if !slices.Contains(a.asks, s.step) {
			a.asks = append(a.asks, s.step)
		}
	}
	own := lastRewrite(o)
	endpoint, known := v.chainOf(own, chain.Family == netfilter.IPv6)
	if !known || !endpoint.Known {
		return false
	}
	for _, s := range asks {
		if s.jump == endpoint.Name && remembers(endpoint, s.list) {
			a.kept = append(a.kept, keeping{draw: d, ask: s.step, timeout: v.keepsFor(s)})
			break
		}
	}
	return true
}

// lastRewrite is the rule that gave the packet its last destination.
func lastRewrite(o netfilter.Outcome) netfilter.Step {
	for _, s := range slices.Backward(o.Steps) {
		if strings.Contains(s.Text, "DNAT") || s.Table == kubeProxyTable && strings.Contains(s.Text, "dnat ") {
			return s
		}
	}
	return netfilter.Step{}
}

// ask is a rule for clients on a list.
type ask struct {
	step netfilter.Step
	list string
	jump string
}

// asking are the rules of a chain that send remembered clients back: -m recent
// --rcheck, or "ip saddr @affinity-...".
func asking(c netfilter.Chain) []ask {
	var out []ask
	for r := range c.Rules() {
		list := setAsked(r.Text)
		for _, e := range r.Exprs {
			if recalled, ok := e.Match.(netfilter.Recalled); ok {
				list = recalled.List
			}
		}
		if list != "" && r.Jump != "" {
			out = append(out, ask{netfilter.Step{Source: c.Source, Table: c.Table, Chain: c.Name, Line: r.Line, Text: r.Text}, list, r.Jump})
		}
	}
	return out
}

// setAsked is the set that a rule of nft's looks the source up in.
func setAsked(text string) string {
	_, rest, ok := strings.Cut(text, "saddr @affinity-")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	return "affinity-" + name
}

// remembers says whether a rule of an endpoint's chain puts the source on the
// list.
func remembers(c netfilter.Chain, list string) bool {
	for r := range c.Rules() {
		if strings.Contains(r.Text, "update @"+list+" ") || strings.Contains(r.Text, "add @"+list+" ") {
			return true
		}
		for _, e := range r.Exprs {
			if put, ok := e.Do.(netfilter.Remember); ok && put.List == list {
				return true
			}
		}
	}
	return false
}

// keepsFor is how long a client stays on the list.
func (v *nodeView) keepsFor(a ask) time.Duration {
	if a.step.Table == kubeProxyTable {
		return v.setTimeouts()[a.list]
	}
	words := strings.Fields(a.step.Text)
	for i, w := range words {
		// As -S and -save print it, or as -L does.
		if (w == "--seconds" || w == "seconds:") && i+1 < len(words) {
			n, err := strconv.ParseUint(words[i+1], 10, 32)
			if err == nil {
				return time.Duration(n) * time.Second
			}
		}
	}
	return 0
}

// setTimeouts are the timeouts of kube-proxy's sets in nftables mode, looked for
// once.
func (v *nodeView) setTimeouts() map[string]time.Duration {
	if v.timeouts == nil {
		v.timeouts = map[string]time.Duration{}
		for _, t := range v.state.All(snapshot.NftRuleset) {
			if t.Status != snapshot.Done {
				continue
			}
			for name, length := range nftables.Timeouts(t.Content, kubeProxyTable) {
				v.timeouts[name] = length
			}
		}
	}
	return v.timeouts
}

// wantedAffinity is how long the Service asks to keep a client; 0 where it does
// not ask.
func wantedAffinity(svc *corev1.Service) time.Duration {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}
