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
	"github.com/vipwalk/vipwalk/pkg/spelling"
)

// serviceNotFound runs where a target led to no Service. That is a finding only
// where the Services were read; otherwise nobody knows.
var serviceNotFound = &Check{
	Code:    diagnosis.ServiceNotFound,
	Applies: func(p *Pass) bool { return p.Service == nil },
	Run: func(p *Pass) {
		t := p.Target
		if t.IsAddress() {
			if p.Need(diagnosis.LayerSelector, snapshot.Services) {
				p.reportUnownedAddress()
			}
			return
		}
		rd := p.snap.Reads.Object(snapshot.Services, t.Namespace, t.Name)
		if rd.Status != snapshot.Done {
			p.Missing(diagnosis.LayerSelector, missingResource(rd, " -n "+shellQuote(t.Namespace)))
			return
		}
		p.reportUnknownName()
	},
}

func (p *Pass) reportUnknownName() {
	t := p.Target
	f := Finding{
		Subject:  diagnosis.Subject{Kind: "Service", Namespace: t.Namespace, Name: t.Name},
		Title:    fmt.Sprintf("there is no service %s in namespace %s", t.Name, t.Namespace),
		Expected: fmt.Sprintf("service/%s in namespace %s", t.Name, t.Namespace),
	}
	var here, elsewhere []string
	for i := range p.snap.Objects.Services {
		svc := &p.snap.Objects.Services[i]
		switch {
		case svc.Namespace == t.Namespace:
			here = append(here, svc.Name)
		case svc.Name == t.Name:
			elsewhere = append(elsewhere, svc.Namespace)
		}
	}
	f.Found = fmt.Sprintf("%s in namespace %s, none of that name", count(len(here), "Service"), t.Namespace)
	if p.namespaceMissing(t.Namespace) {
		f.Title = fmt.Sprintf("there is no namespace %s", t.Namespace)
		f.Found = "no namespace of that name" + p.nearNamespaces(t.Namespace)
	}
	f.Evidence = append(f.Evidence, diagnosis.Evidence{
		Source: "services in " + t.Namespace, Ref: "services/" + t.Namespace, Quote: emptyAs(list(here), "none"),
		Command: kubectl("get", "services", "-n", t.Namespace),
	})
	for _, ns := range elsewhere {
		f.Found += fmt.Sprintf("; one is in namespace %s", ns)
		f.Fixes = append(f.Fixes, walkInstead(t.Name, ns))
	}
	for _, name := range nearest(t.Name, here) {
		f.Found += fmt.Sprintf("; the name is near to %s", name)
		f.Fixes = append(f.Fixes, walkInstead(name, t.Namespace))
	}
	p.Report(f)
}

// walkInstead proposes another target; there is nothing to change.
func walkInstead(name, namespace string) Proposal {
	cmd := kubectl("vipwalk", name, "-n", namespace)
	return Proposal{
		Fix: diagnosis.Fix{
			Title:    "ask for " + namespace + "/" + name,
			Commands: []string{cmd}, BlastRadius: "none: it only reads",
			Undo: []string{}, Verify: []string{cmd},
		},
		NotSimulated: "it changes nothing; another Service would be walked",
	}
}

func (p *Pass) namespaceMissing(name string) bool {
	if !p.snap.Reads.Has(snapshot.Namespaces, "") {
		return false
	}
	return !slices.ContainsFunc(p.snap.Objects.Namespaces, func(n corev1.Namespace) bool { return n.Name == name })
}

func (p *Pass) nearNamespaces(name string) string {
	var all []string
	for i := range p.snap.Objects.Namespaces {
		all = append(all, p.snap.Objects.Namespaces[i].Name)
	}
	if near := nearest(name, all); len(near) > 0 {
		return "; near to it: " + list(near)
	}
	return ""
}

func emptyAs(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

func (p *Pass) reportUnownedAddress() {
	t := p.Target
	f := Finding{
		Subject:  diagnosis.Subject{Kind: "Address", Name: t.Text},
		Title:    fmt.Sprintf("no service owns %s", t.Text),
		Expected: "a Service with this address or node port",
		Found:    fmt.Sprintf("none of %s has it", count(len(p.snap.Objects.Services), "Service")),
		Evidence: []diagnosis.Evidence{{
			Source: "services of all namespaces", Ref: "services", Quote: "no clusterIP, external IP, load balancer IP or node port " + t.Text,
			Command: kubectl("get", "services", "-A", "-o", "wide"),
		}},
	}
	if t.NodePort || t.Node != "" {
		p.nearNodePorts(&f)
	}
	if t.Addr.IsValid() {
		p.explainAddress(&f, t.Addr)
	}
	p.Report(f)
}

// explainAddress says what else the address is.
func (p *Pass) explainAddress(f *Finding, a netip.Addr) {
	for _, pod := range p.podsByIP[a] {
		if pod.Spec.HostNetwork {
			continue
		}
		f.Found += fmt.Sprintf("; it is the address of pod %s/%s itself", pod.Namespace, pod.Name)
		f.Evidence = append(f.Evidence, podEvidence(pod, ".status.podIPs", a.String()))
	}
	if n := p.nodeByAddress[a]; n != nil {
		f.Found += fmt.Sprintf("; it is an address of node %s, and no node port was found for it", n.Name)
		f.Evidence = append(f.Evidence, diagnosis.Evidence{
			Source: "node/" + n.Name + " .status.addresses", Ref: "node/" + n.Name, Quote: a.String(),
			Command: kubectl("get", "node", n.Name, "-o", "jsonpath={.status.addresses}"),
		})
	}
	p.explainUnserved(f, a)
	for i := range p.snap.Objects.IPAddresses {
		ip := &p.snap.Objects.IPAddresses[i]
		ref := ip.Spec.ParentRef
		if got, ok := proxy.ParseAddr(ip.Name); !ok || got != a || ref == nil {
			continue
		}
		f.Found += fmt.Sprintf("; it is still allocated to service %s/%s, which is not there: deleted, or its deletion is under way", ref.Namespace, ref.Name)
		f.Evidence = append(f.Evidence, diagnosis.Evidence{
			Source: "ipaddress/" + ip.Name + " .spec.parentRef", Ref: "ipaddress/" + ip.Name, Quote: ref.Resource + " " + ref.Namespace + "/" + ref.Name,
			Command: kubectl("get", "ipaddress", ip.Name, "-o", "jsonpath={.spec.parentRef}"),
		})
	}
	p.explainRange(f, a)
}

// explainUnserved finds Services that name the address though kube-proxy
// serves nothing there.
func (p *Pass) explainUnserved(f *Finding, a netip.Addr) {
	for i := range p.snap.Objects.Services {
		svc := &p.snap.Objects.Services[i]
		for _, s := range serviceAddresses(svc) {
			if got, ok := proxy.ParseAddr(s); !ok || got != a {
				continue
			}
			f.Found += fmt.Sprintf("; service %s/%s names it, but kube-proxy does not serve it there", svc.Namespace, svc.Name)
			f.Fixes = append(f.Fixes, walkInstead(svc.Name, svc.Namespace))
		}
	}
}

func serviceAddresses(svc *corev1.Service) []string {
	out := append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...)
	out = append(out, svc.Spec.ExternalIPs...)
	for _, ing := range svc.Status.LoadBalancer.Ingress {
		out = append(out, ing.IP)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *Pass) explainRange(f *Finding, a netip.Addr) {
	for i := range p.snap.Objects.ServiceCIDRs {
		c := &p.snap.Objects.ServiceCIDRs[i]
		for _, s := range c.Spec.CIDRs {
			if pre, err := netip.ParsePrefix(s); err == nil && pre.Contains(a) {
				f.Found += fmt.Sprintf("; it lies in the service range %s", s)
				f.Evidence = append(f.Evidence, diagnosis.Evidence{
					Source: "servicecidr/" + c.Name + " .spec.cidrs", Ref: "servicecidr/" + c.Name, Quote: strings.Join(c.Spec.CIDRs, ", "),
					Command: kubectl("get", "servicecidr", c.Name, "-o", "jsonpath={.spec.cidrs}"),
				})
			}
		}
	}
}

// nearNodePorts lists the node ports that are one digit away.
func (p *Pass) nearNodePorts(f *Finding) {
	asked := fmt.Sprint(p.Target.Port)
	for i := range p.snap.Objects.Services {
		svc := &p.snap.Objects.Services[i]
		for _, sp := range svc.Spec.Ports {
			if sp.NodePort == 0 || spelling.Distance(asked, fmt.Sprint(sp.NodePort)) > 1 {
				continue
			}
			if sp.NodePort == p.Target.Port {
				f.Found += fmt.Sprintf("; service %s/%s has it for %s", svc.Namespace, svc.Name, protocolOf(&sp))
			} else {
				f.Found += fmt.Sprintf("; node port %d is service %s/%s's", sp.NodePort, svc.Namespace, svc.Name)
			}
			f.Fixes = append(f.Fixes, walkInstead(svc.Name, svc.Namespace))
		}
	}
}
