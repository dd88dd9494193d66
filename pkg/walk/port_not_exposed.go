package walk

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// portNotExposed finds that the port asked about is none of the Service's.
var portNotExposed = &Check{
	Code: diagnosis.PortNotExposed,
	Applies: func(p *Pass) bool {
		return p.Service != nil && HasVIP(p.Service) && (p.Target.Port != 0 || p.opts.Port != "")
	},
	Run: func(p *Pass) {
		if _, ports := p.askedPorts(); len(ports) > 0 {
			return
		}
		p.reportNotExposed()
	},
}

func (p *Pass) reportNotExposed() {
	asked := p.opts.Port
	if p.Target.Port != 0 {
		asked = strconv.Itoa(int(p.Target.Port))
		if p.Target.Protocol != "" {
			asked += "/" + string(p.Target.Protocol)
		}
	}
	f := Finding{
		Title:    fmt.Sprintf("port %s is none of the Service's", asked),
		Expected: "a Service port " + asked,
		Found:    "ports: " + portsText(p.Service),
		Evidence: []diagnosis.Evidence{p.serviceField(".spec.ports", portsText(p.Service))},
	}
	for i := range p.Service.Spec.Ports {
		sp := &p.Service.Spec.Ports[i]
		if why := p.mistakenFor(sp); why != "" {
			f.Title += ": " + why
			f.Fixes = append(f.Fixes, p.otherPort(sp))
			break
		}
	}
	p.Report(f)
}

// portsText lists the Service's ports as kubectl does, with their targets:
// "http 80/TCP to 8080, metrics 9090/TCP".
func portsText(svc *corev1.Service) string {
	var out []string
	for i := range svc.Spec.Ports {
		sp := &svc.Spec.Ports[i]
		s := strings.TrimSpace(fmt.Sprintf("%s %d/%s", sp.Name, sp.Port, protocolOf(sp)))
		if t := sp.TargetPort; t.Type == intstr.String || (t.IntVal != 0 && t.IntVal != sp.Port) {
			s += " to " + t.String()
		}
		if sp.NodePort != 0 {
			s += fmt.Sprintf(" (node port %d)", sp.NodePort)
		}
		out = append(out, s)
	}
	return emptyAs(list(out), "none")
}

// mistakenFor says for what of a Service port the asked one was taken.
func (p *Pass) mistakenFor(sp *corev1.ServicePort) string {
	n := p.Target.Port
	if n == 0 {
		if v, err := strconv.ParseInt(p.opts.Port, 10, 32); err == nil {
			n = int32(v)
		}
	}
	switch {
	case n == 0:
		if _, near := textCost(p.opts.Port, sp.Name); near && sp.Name != "" {
			return "near to it is " + sp.Name
		}
		return ""
	case n == sp.Port:
		return fmt.Sprintf("it is there for protocol %s", protocolOf(sp))
	case n == sp.NodePort:
		return fmt.Sprintf("it is the node port of port %d, which nodes answer at, not the VIP", sp.Port)
	}
	if sp.TargetPort.Type == intstr.Int && sp.TargetPort.IntVal == n {
		return fmt.Sprintf("it is the pods' port; clients of the VIP use %d", sp.Port)
	}
	for _, pod := range p.SelectedPods() {
		if got, ok := targetPort(&pod.Spec, sp); ok && got == n {
			return fmt.Sprintf("it is the pods' port %s; clients of the VIP use %d", sp.TargetPort.String(), sp.Port)
		}
	}
	return ""
}

// otherPort proposes to ask for the port that was likely meant.
func (p *Pass) otherPort(sp *corev1.ServicePort) Proposal {
	cmd := kubectl("vipwalk", p.Service.Name, "-n", p.Service.Namespace, "--port", strconv.Itoa(int(sp.Port)))
	return Proposal{
		Fix: diagnosis.Fix{
			Title:    fmt.Sprintf("use port %d", sp.Port),
			Commands: []string{cmd}, BlastRadius: "none: the client changes, not the cluster",
			Undo: []string{}, Verify: []string{cmd},
		},
		NotSimulated: "it changes the client, not the cluster",
	}
}
