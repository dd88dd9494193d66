package walk

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// headlessHasNoVIP says what a headless Service is, and warns where it is used
// as if it had a virtual IP that maps ports.
var headlessHasNoVIP = &Check{
	Code:    diagnosis.HeadlessHasNoVIP,
	Applies: isHeadless,
	Run: func(p *Pass) {
		svc := p.Service
		name := svc.Name + "." + svc.Namespace + ".svc"
		f := Finding{
			Severity: diagnosis.Info,
			Title:    "the Service is headless: its name leads to the pods themselves, and there is no VIP to walk",
			Expected: "clients that resolve " + name + " and connect to a pod's own port",
			Found:    "spec.clusterIP is None",
			Evidence: []diagnosis.Evidence{p.serviceField(".spec.clusterIP", corev1.ClusterIPNone)},
		}
		remapped := p.remappedPorts(&f)
		if len(remapped) > 0 {
			f.Severity = diagnosis.Warning
			f.Title = "the Service is headless, so nothing maps " + strings.Join(remapped, ", ") + ": clients must use the pods' port"
			f.Found += "; clients that connect to the Service's port reach a pod where nothing listens there"
		}
		if p.Target.IsAddress() {
			f.Severity = diagnosis.Warning
			f.Found += "; " + p.Target.Text + " was asked for, and a headless Service has no address of its own"
		}
		p.Report(f)
	},
}

func isHeadless(p *Pass) bool {
	return p.Service != nil && p.Service.Spec.ClusterIP == corev1.ClusterIPNone && p.Service.Spec.Type != corev1.ServiceTypeExternalName
}

// remappedPorts are the ports whose targetPort is another number: a number
// itself, or a name in the selected pods.
func (p *Pass) remappedPorts(f *Finding) []string {
	var out []string
	index, ports := p.askedPorts()
	for i, sp := range ports {
		to := sp.TargetPort.IntVal
		for _, pod := range p.SelectedPods() {
			if n, ok := targetPort(&pod.Spec, sp); ok {
				to = n
				break
			}
		}
		if to == 0 || to == sp.Port {
			continue
		}
		out = append(out, fmt.Sprintf("%d to %d", sp.Port, to))
		f.Evidence = append(f.Evidence, p.serviceField(fmt.Sprintf(".spec.ports[%d]", index[i]),
			fmt.Sprintf("port %d, targetPort %s", sp.Port, sp.TargetPort.String())))
	}
	return out
}
