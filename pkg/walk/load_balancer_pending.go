package walk

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// loadBalancerGrace is how long an implementation may take; clouds need minutes.
const loadBalancerGrace = 3 * time.Minute

// loadBalancerPending finds a LoadBalancer Service that nobody has given an
// address.
var loadBalancerPending = &Check{
	Code: diagnosis.LoadBalancerPending,
	Applies: func(p *Pass) bool {
		svc := p.Service
		return svc != nil && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.DeletionTimestamp == nil &&
			len(svc.Status.LoadBalancer.Ingress) == 0 && svc.UID != ""
	},
	Run: func(p *Pass) { p.reportPending() },
}

func (p *Pass) reportPending() {
	svc := p.Service
	f := Finding{
		Title:    "type LoadBalancer, and no load balancer has given it an address",
		Expected: "an IP or a host name in status.loadBalancer.ingress",
		Found:    "status.loadBalancer.ingress is empty",
		Evidence: []diagnosis.Evidence{p.serviceField(".status.loadBalancer", "{}")},
	}
	if !svc.CreationTimestamp.IsZero() && !p.snap.TakenAt.IsZero() {
		age := p.snap.TakenAt.Sub(svc.CreationTimestamp.Time)
		f.Found += fmt.Sprintf(", %s after the Service was created", age.Round(time.Second))
		if age < loadBalancerGrace {
			f.Severity = diagnosis.Warning
		}
	}
	if p.Target.Addr.IsValid() || p.Client.Kind == OnePod || p.Client.Kind == OnNode {
		f.Severity = diagnosis.Warning // what was asked about does not go through the load balancer
	}
	if c := svc.Spec.LoadBalancerClass; c != nil {
		f.Found += "; only an implementation of class " + *c + " will serve it"
		f.Evidence = append(f.Evidence, p.serviceField(".spec.loadBalancerClass", *c))
	}
	for i, e := range p.eventsOf("Service", svc.Namespace, svc.Name) {
		if i < 3 {
			f.Evidence = append(f.Evidence, eventEvidence(e))
		}
		if e.Type == corev1.EventTypeWarning && !strings.Contains(f.Found, e.Reason) {
			f.Found += "; event " + e.Reason + ": " + strings.TrimSpace(e.Message)
		}
	}
	p.findImplementation(&f)
	p.Report(f)
}

// implementations are programs that give load balancer addresses, by a part of
// their pods' names.
var implementations = []struct{ name, part string }{
	{"a cloud controller manager", "cloud-controller-manager"},
	{"MetalLB", "metallb"},
	{"kube-vip", "kube-vip"},
	{"Cilium", "cilium-operator"},
	{"k3s servicelb", "svclb-"},
	{"the AWS load balancer controller", "aws-load-balancer-controller"},
	{"OpenELB", "openelb"},
	{"PureLB", "purelb"},
	{"cloud-provider-kind", "cloud-provider-kind"},
}

func (p *Pass) findImplementation(f *Finding) {
	if !p.hasAll(snapshot.Pods) {
		f.Found += "; whether a load balancer implementation runs was not looked at (pods of all namespaces were not read)"
		return
	}
	for i := range p.snap.Objects.Pods {
		pod := &p.snap.Objects.Pods[i]
		for _, im := range implementations {
			if !finished(pod) && (strings.Contains(pod.Name, im.part) || (im.part == "metallb" && strings.HasPrefix(pod.Namespace, "metallb"))) {
				state := "ready"
				if !podReady(pod) {
					state = "not ready"
				}
				f.Found += fmt.Sprintf("; %s is there: pod %s/%s, %s", im.name, pod.Namespace, pod.Name, state)
				f.Evidence = append(f.Evidence, podEvidence(pod, ".status.conditions", state))
				return
			}
		}
	}
	f.Found += "; no pod of a known load balancer implementation runs in the cluster (a cloud may run one outside)"
	f.Evidence = append(f.Evidence, diagnosis.Evidence{
		Source: "pods of all namespaces", Ref: "pods", Quote: "none of a cloud controller manager, MetalLB, kube-vip, Cilium, servicelb or the like",
		Command: kubectl("get", "pods", "-A"),
	})
	f.Fixes = append(f.Fixes, p.specFix("make do with the node ports", "type", corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
		"this Service alone; its cluster IP and node ports stay; nothing outside will be given an address for it",
		func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeNodePort }))
}
