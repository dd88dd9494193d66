package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// ipvsUnsupported: what IPVS mode does not do, or does not do as it is set up
// for this Service: addresses that excludeCIDRs keeps kube-proxy from clearing
// away, a layer-2 load balancer without strictARP, SCTP beyond one address.
var ipvsUnsupported = &Check{
	Code: diagnosis.IPVSUnsupported, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			if !v.inIPVS() || p.opts.resynced[v.name] {
				continue
			}
			p.reportExcluded(v)
			p.reportARP(v)
			p.reportSCTP(v)
		}
	},
}

// reportExcluded is about addresses of the Service in ipvs.excludeCIDRs: what is
// there of them, kube-proxy never takes away.
func (p *Pass) reportExcluded(v *nodeView) {
	for _, text := range v.seen.ofIPVS.ExcludeCIDRs {
		r, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			continue
		}
		for _, f := range p.Frontends() {
			if !f.IP.IsValid() || !r.Contains(f.IP) {
				continue
			}
			p.Report(Finding{
				Subject:  p.onNode(v),
				Title:    fmt.Sprintf("%s lies in ipvs.excludeCIDRs (%s): kube-proxy never clears its old virtual servers away", f.IP, r),
				Expected: "no address of a Service in ipvs.excludeCIDRs, which is for other users of IPVS",
				Found:    fmt.Sprintf("%s in %s", f.IP, r),
				Evidence: []diagnosis.Evidence{{
					Source: v.seen.configRef, Ref: "ConfigMap/" + snapshot.ProxyNamespace, Quote: "ipvs.excludeCIDRs: " + strings.Join(v.seen.ofIPVS.ExcludeCIDRs, ", "),
					Command: kubectl("get", "-n", snapshot.ProxyNamespace, v.seen.configRef, "-o", "yaml"),
				}},
				Fixes: []Proposal{p.editProxyConfig(v, "take the Service's range out of ipvs.excludeCIDRs")},
			})
			return
		}
	}
}

// l2Announcers are the labels of the pods that answer ARP for load balancers'
// addresses (MetalLB's speaker, kube-vip).
var l2Announcers = map[string]string{"metallb": "MetalLB", "kube-vip-ds": "kube-vip", "kube-vip": "kube-vip"}

// reportARP: with the address on kube-ipvs0 of every node, each of them answers
// ARP for it, unless strictARP keeps them from it.
func (p *Pass) reportARP(v *nodeView) {
	ignore, read := v.host.Sysctl("net.ipv4.conf.all.arp_ignore")
	if !read || ignore != "0" {
		return
	}
	announcer, pod := p.l2Announcer()
	if pod == nil {
		return
	}
	for _, f := range p.Frontends() {
		if f.Kind != proxy.LoadBalancer || f.V6 || !v.onDummy(f.IP) {
			continue
		}
		p.Report(Finding{
			Subject:  p.onNode(v),
			Title:    fmt.Sprintf("%s answers ARP for %s beside %s: strictARP is off", v.label(), f.IP, announcer),
			Expected: "net.ipv4.conf.all.arp_ignore = 1, as kube-proxy sets it with ipvs.strictARP",
			Found:    fmt.Sprintf("%s is on %s, arp_ignore is 0, and %s announces it from one node", f.IP, ipvsDevice, announcer),
			Evidence: []diagnosis.Evidence{
				v.sysctlEvidence("net.ipv4.conf.all.arp_ignore"), v.deviceEvidence(v.boundByIPVS()),
				{Source: "pod/" + pod.Name, Ref: "Pod/" + pod.Namespace + "/" + pod.Name, Quote: announcer + " on " + pod.Spec.NodeName, Command: kubectl("get", "pod", pod.Name, "-n", pod.Namespace, "-o", "wide")},
			},
			Fixes: []Proposal{p.editProxyConfig(v, "set ipvs.strictARP to true")},
		})
		return
	}
}

func (p *Pass) l2Announcer() (string, *corev1.Pod) {
	for i := range p.snap.Objects.Pods {
		pod := &p.snap.Objects.Pods[i]
		for _, key := range []string{"app", "app.kubernetes.io/name"} {
			if name := l2Announcers[pod.Labels[key]]; name != "" && !finished(pod) && (name != "MetalLB" || pod.Labels["component"] == "speaker" || pod.Labels["app.kubernetes.io/component"] == "speaker") {
				return name, pod
			}
		}
	}
	return "", nil
}

// reportSCTP: IPVS serves SCTP, and knows one address at each end.
func (p *Pass) reportSCTP(v *nodeView) {
	i := slices.IndexFunc(p.Frontends(), func(f proxy.Frontend) bool { return f.Protocol == corev1.ProtocolSCTP })
	if i < 0 {
		return
	}
	f := p.Frontends()[i]
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Info,
		Title:    fmt.Sprintf("%s serves SCTP through IPVS: associations of more than one address at an end do not work", v.label()),
		Expected: "clients and backends that use one address each",
		Found:    fmt.Sprintf("port %d of the Service is SCTP; IPVS rewrites the address of the packet, not those inside of it", f.ServicePort),
		Evidence: []diagnosis.Evidence{p.serviceField(".spec.ports[*].protocol", "SCTP")},
		Fixes: []Proposal{{
			Fix: diagnosis.Fix{
				Title: "see that both ends use one address", Commands: []string{kubectl("get", "pods", "-n", p.Service.Namespace, "-o", "wide")},
				BlastRadius: "this command only looks", Undo: []string{"nothing to undo: it only looks"}, Verify: []string{p.again()},
			},
			NotSimulated: changesNode,
		}},
	})
}

// editProxyConfig proposes to change kube-proxy's configuration.
func (p *Pass) editProxyConfig(v *nodeView, title string) Proposal {
	ref := v.seen.configRef
	if ref == "" {
		ref = "configmap/kube-proxy"
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title: title,
			Commands: []string{
				kubectl("get", "-n", snapshot.ProxyNamespace, ref, "-o", "yaml") + " > kube-proxy.yaml   (keep this copy)",
				kubectl("edit", "-n", snapshot.ProxyNamespace, ref),
				kubectl("rollout", "restart", "-n", snapshot.ProxyNamespace, "daemonset/kube-proxy"),
			},
			BlastRadius: "kube-proxy of every node, one after the other; rules in the kernel stay while it restarts",
			Undo:        []string{"kubectl apply -f kube-proxy.yaml", kubectl("rollout", "restart", "-n", snapshot.ProxyNamespace, "daemonset/kube-proxy")},
			Verify:      []string{p.again()},
		},
		NotSimulated: changesNode,
	}
}
