package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nodePortNotProgrammed: the node serves the Service's cluster IP, and not its
// node port: the rule or the map's element is missing, nodePortAddresses leaves
// the address out, or it is a loopback address. Likewise the health check port,
// where the rules tell.
var nodePortNotProgrammed = &Check{
	Code: diagnosis.NodePortNotProgrammed, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		for _, f := range p.faults(func(pr *probe) bool { return pr.frontend.Kind == proxy.NodePort && pr.outsideOnly() }) {
			pr := f.first()
			if pr.view.servesNodePorts(pr.dst.Addr()) {
				p.reportNodePort(f)
			} else {
				p.reportNodePortLeftOut(f)
			}
		}
		for _, f := range p.faults(func(pr *probe) bool { return len(pr.stuck) > 0 }) {
			p.reportRouteLocalnet(f)
		}
		p.checkHealthPort()
	},
}

// reportNodePort: a node port that ought to be served here.
func (p *Pass) reportNodePort(f nodeFault) {
	pr := f.first()
	title := "%s serves the cluster IP, and knows nothing of node port %s"
	if deadEnd(pr.untouched[0]).Line > 0 {
		title = "%s serves the cluster IP, and nothing behind its rule for node port %s rewrites the packet"
	}
	p.Report(Finding{
		Subject:  p.onNode(f.view),
		Title:    fmt.Sprintf(title, f.view.label(), portText(pr.frontend)),
		Expected: pr.wantText(),
		Found:    "no rule rewrites " + f.affected() + "; " + pr.insideText(),
		Evidence: append(append(f.view.entrance(pr), pr.insideEvidence()...), p.serviceField(nodePortPath(p.Service, pr.frontend), fmt.Sprint(pr.frontend.Port))),
		Fixes:    []Proposal{p.restartProxy(f.view)},
	})
}

func nodePortPath(svc *corev1.Service, f proxy.Frontend) string {
	i := slices.IndexFunc(svc.Spec.Ports, func(sp corev1.ServicePort) bool { return sp.Port == f.ServicePort && protocolOf(&sp) == f.Protocol })
	return fmt.Sprintf(".spec.ports[%d].nodePort", max(i, 0))
}

// reportNodePortLeftOut: an address that was asked about, and that kube-proxy
// serves no node ports at.
func (p *Pass) reportNodePortLeftOut(f nodeFault) {
	pr := f.first()
	v, a := f.view, pr.dst.Addr()
	why, evidence := v.leftOut(a)
	served := v.nodePortAddrs(pr.frontend.V6)
	finding := Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s serves no node port at %s: %s", v.label(), a, why),
		Expected: pr.wantText(),
		Found:    fmt.Sprintf("no rule rewrites %s; served at %s", f.affected(), servedText(served)),
		Evidence: append(append(evidence, v.entrance(pr)...), pr.insideEvidence()...),
	}
	if len(served) > 0 {
		at := netip.AddrPortFrom(served[0], pr.dst.Port()).String()
		finding.Fixes = append(finding.Fixes, Proposal{
			Fix: diagnosis.Fix{
				Title:       "use an address at which node ports are served: " + servedText(served),
				Commands:    []string{"vipwalk " + shellQuote(at) + "   (walks it there)"},
				BlastRadius: "this only looks; the client is to be given the other address",
				Undo:        []string{"nothing to undo: this only looks"},
				Verify:      []string{"vipwalk " + shellQuote(at)},
			},
			NotSimulated: "it changes the client, not an API object",
		})
	}
	if !a.IsLoopback() {
		finding.Fixes = append(finding.Fixes, p.nodePortAddressesFix(v))
	} else if len(finding.Fixes) == 0 {
		finding.Fixes = []Proposal{p.restartProxy(v)}
	}
	p.Report(finding)
}

func servedText(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return "none of its addresses that were read"
	}
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return listed(out)
}

// nodePortAddrs are the node's addresses at which node ports are served.
func (v *nodeView) nodePortAddrs(v6 bool) []netip.Addr {
	var out []netip.Addr
	for _, a := range v.proxyNode().Addresses {
		if a.Is6() == v6 && a.IsGlobalUnicast() && v.servesNodePorts(a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// leftOut says why node ports are not served at an address, and what shows it.
func (v *nodeView) leftOut(a netip.Addr) (why string, evidence []diagnosis.Evidence) {
	conf := func(quote string) []diagnosis.Evidence {
		if v.seen.configRef == "" {
			return nil
		}
		return []diagnosis.Evidence{{
			Source: v.seen.configRef, Ref: v.seen.configRef, Quote: quote,
			Command: kubectl("get", "configmap", "-n", snapshot.ProxyNamespace, strings.TrimPrefix(v.seen.configRef, "configmap/"), "-o", "yaml"),
		}}
	}
	quote := "nodePortAddresses: [" + strings.Join(v.seen.nodePortAddresses, ", ") + "]"
	switch {
	case a.IsLoopback() && a.Is6():
		return "no mode of kube-proxy serves IPv6 loopback", conf("mode: " + v.seen.configured)
	case a.IsLoopback() && v.seen.mode() == "nftables":
		return "nftables mode serves no loopback address", conf("mode: " + v.seen.configured)
	case a.IsLoopback() && v.seen.localhostNodePorts == proxy.SettingOff:
		return "localhostNodePorts is off", conf("iptables: localhostNodePorts: false")
	case v.seen.configured == "":
		return "its rules are for other addresses alone (nodePortAddresses)", nil
	case len(v.seen.nodePortAddresses) == 0:
		return "nftables mode serves node ports at the node's primary address alone, where nodePortAddresses does not say otherwise", conf("mode: " + v.seen.configured + ", " + quote)
	}
	return "nodePortAddresses leaves it out", conf(quote)
}

// nodePortAddressesFix widens what kube-proxy serves, on every node.
func (p *Pass) nodePortAddressesFix(v *nodeView) Proposal {
	edit := kubectl("edit", "configmap", "-n", snapshot.ProxyNamespace, "kube-proxy")
	restart := kubectl("rollout", "restart", "daemonset", "-n", snapshot.ProxyNamespace, "kube-proxy")
	return Proposal{
		Fix: diagnosis.Fix{
			Title: "let kube-proxy serve node ports at this address too: nodePortAddresses of its configuration",
			Commands: []string{
				kubectl("get", "configmap", "-n", snapshot.ProxyNamespace, "kube-proxy", "-o", "yaml") + " > kube-proxy-before.yaml",
				edit + "   (add the range of the address to nodePortAddresses)", restart,
			},
			BlastRadius: "every node port of every Service, on every node that has addresses in the range: make sure that nothing untrusted reaches them there",
			Undo:        []string{"kubectl replace -f kube-proxy-before.yaml", restart},
			Verify:      []string{p.again(), v.onNodeCommand("curl -s http://127.0.0.1:10249/configz")},
		},
		NotSimulated: "it changes kube-proxy's configuration, which takes effect when it starts anew",
	}
}

// routeLocalnet is the switch that lets packets with a loopback source leave an
// interface; kube-proxy in iptables mode turns it on for node ports.
const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// stuckAtHome are the outcomes that rewrite a packet from a loopback address to
// a backend elsewhere, where the kernel does not let such a source out. Either
// the switch of all interfaces or that of the one is enough.
func (pr *probe) stuckAtHome() []netfilter.Outcome {
	if !pr.caller.addr.IsLoopback() || pr.frontend.V6 {
		return nil
	}
	if all, read := pr.view.host.Sysctl(routeLocalnet); !read || all != "0" {
		return nil
	}
	var out []netfilter.Outcome
	for _, o := range pr.outcomes {
		if !o.Rewritten || pr.view.host.Local(o.To.Addr()) != netfilter.False {
			continue
		}
		dev := pr.view.host.Route(o.To.Addr())
		if one, read := pr.view.host.Sysctl("net.ipv4.conf." + strings.ReplaceAll(dev, ".", "/") + ".route_localnet"); dev != "" && read && one == "0" {
			out = append(out, o)
		}
	}
	return out
}

func (p *Pass) reportRouteLocalnet(f nodeFault) {
	pr := f.first()
	v, dev := f.view, f.view.host.Route(pr.stuck[0].To.Addr())
	src := "sysctl"
	if t := v.state.Text(snapshot.Sysctl); t.Ref != "" {
		src = t.Ref
	}
	set := func(value string) string { return v.onNodeCommand("sudo sysctl -w " + routeLocalnet + "=" + value) }
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s rewrites %s, and does not let the packet out: %s = 0", v.label(), frontendText(pr.frontend, pr.dst), routeLocalnet),
		Expected: routeLocalnet + " = 1, or the same of " + dev + ": the packet has a loopback address as its source",
		Found:    fmt.Sprintf("%s = 0, and the same of %s; concerns %s", routeLocalnet, dev, f.affected()),
		Evidence: append([]diagnosis.Evidence{{
			Source: src + " of " + v.label(), Ref: routeLocalnet, Quote: routeLocalnet + " = 0", Command: v.onNodeCommand("sysctl " + routeLocalnet),
		}}, wayEvidence(v, pr.stuck[0])...),
		Fixes: []Proposal{{
			Fix: diagnosis.Fix{
				Title:       "use the node's own address in place of the loopback address",
				Commands:    []string{"vipwalk " + shellQuote(fmt.Sprintf(":%d", pr.frontend.Port))},
				BlastRadius: "this only looks; the client is to be given the other address",
				Undo:        []string{"nothing to undo: this only looks"},
				Verify:      []string{"vipwalk " + shellQuote(fmt.Sprintf(":%d", pr.frontend.Port))},
			},
			NotSimulated: "it changes the client, not an API object",
		}, {
			Fix: diagnosis.Fix{
				Title:       "turn " + routeLocalnet + " on, as kube-proxy does when it starts",
				Commands:    []string{set("1")},
				BlastRadius: "neighbours on the same network may reach what " + v.label() + " serves on 127.0.0.1, unless a rule keeps them out: kube-proxy's KUBE-FIREWALL does (CVE-2020-8558)",
				Undo:        []string{set("0")},
				Verify:      []string{p.again()},
			},
			NotSimulated: changesNode,
		}},
	})
}
