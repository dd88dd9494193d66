package walk

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// targetPortNameUnknown finds a targetPort that names a port which the selected
// pods do not declare. The EndpointSlice controller leaves the port out then,
// silently.
var targetPortNameUnknown = &Check{
	Code:  diagnosis.TargetPortNameUnknown,
	Needs: []snapshot.Resource{snapshot.Pods},
	Applies: func(p *Pass) bool {
		if !hasSelector(p) {
			return false
		}
		_, ports := p.askedPorts()
		return slices.ContainsFunc(ports, func(sp *corev1.ServicePort) bool { return sp.TargetPort.Type == intstr.String })
	},
	Explains: []diagnosis.Code{
		diagnosis.SlicePortMismatch, diagnosis.RejectedAsEmpty, diagnosis.VIPNotProgrammed,
	},
	Run: func(p *Pass) {
		index, ports := p.askedPorts()
		for i, sp := range ports {
			if sp.TargetPort.Type == intstr.String {
				p.checkTargetPortName(index[i], sp)
			}
		}
	},
}

func (p *Pass) checkTargetPortName(index int, sp *corev1.ServicePort) {
	var without, with []*corev1.Pod
	for _, pod := range p.SelectedPods() {
		if _, ok := targetPort(&pod.Spec, sp); ok {
			with = append(with, pod)
		} else {
			without = append(without, pod)
		}
	}
	if len(without) == 0 {
		return
	}
	name := sp.TargetPort.StrVal
	path := fmt.Sprintf(".spec.ports[%d].targetPort", index)
	f := Finding{
		Severity: diagnosis.Error,
		Title:    fmt.Sprintf("%s goes to the port named %s, which none of %s declares", portLabel(sp), name, count(len(without), "selected pod")),
		Expected: fmt.Sprintf("a container port with name %s and protocol %s in every selected pod", name, protocolOf(sp)),
		Found:    "declared: " + declaredText(without),
		Evidence: []diagnosis.Evidence{p.serviceField(path, name)},
	}
	if len(with) > 0 {
		f.Severity = diagnosis.Warning
		f.Title = fmt.Sprintf("%s goes to the port named %s, which %d of %s do not declare", portLabel(sp), name, len(without), count(len(with)+len(without), "selected pod"))
		f.Found = fmt.Sprintf("%s declare it; the other %d: %s", list(podNames(with)), len(without), declaredText(without))
	}
	for _, pod := range without[:min(len(without), 3)] {
		f.Evidence = append(f.Evidence, podEvidence(pod, ".spec.containers[*].ports", declaredText([]*corev1.Pod{pod})))
	}
	if slices.ContainsFunc(p.declaredOf(without), func(d declaredPort) bool { return d.name == name }) {
		f.Found += fmt.Sprintf("; the name is there, but not for protocol %s", protocolOf(sp))
	}
	if len(with) == 0 {
		for _, to := range p.portCandidates(sp, without) {
			f.Fixes = append(f.Fixes, p.targetPortFix(index, to))
		}
	}
	p.Report(f)
}

func (p *Pass) declaredOf(pods []*corev1.Pod) []declaredPort {
	var out []declaredPort
	for _, pod := range pods {
		for _, d := range declaredPorts(&pod.Spec) {
			if !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

// declaredText lists the ports that pods declare: "http 8080/TCP, 9090/TCP".
func declaredText(pods []*corev1.Pod) string {
	var out []string
	for _, pod := range pods {
		for _, d := range declaredPorts(&pod.Spec) {
			s := strings.TrimSpace(fmt.Sprintf("%s %d/%s", d.name, d.number, d.protocol))
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return emptyAs(list(out), "no port at all")
}

// portCandidates are what targetPort may have been meant to be: a near name
// that every pod declares, the port that has the Service port's name or number,
// or the only one there is.
func (p *Pass) portCandidates(sp *corev1.ServicePort, pods []*corev1.Pod) []intstr.IntOrString {
	var out []intstr.IntOrString
	add := func(v intstr.IntOrString) {
		try := *sp
		try.TargetPort = v
		for _, pod := range pods {
			if _, ok := targetPort(&pod.Spec, &try); !ok {
				return
			}
		}
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	var names []string
	var mine []declaredPort
	for _, d := range p.declaredOf(pods) {
		if d.protocol != protocolOf(sp) {
			continue
		}
		mine = append(mine, d)
		if d.name != "" {
			names = append(names, d.name)
		}
	}
	for _, n := range nearest(sp.TargetPort.StrVal, names) {
		add(intstr.FromString(n))
	}
	for _, d := range mine {
		if d.name != "" && d.name == sp.Name {
			add(intstr.FromString(d.name))
		}
		if d.number == sp.Port {
			add(declaredAs(d))
		}
	}
	if len(mine) == 1 {
		add(declaredAs(mine[0]))
	}
	return out
}

// declaredAs refers to a declared port by its name, or its number if it has none.
func declaredAs(d declaredPort) intstr.IntOrString {
	if d.name != "" {
		return intstr.FromString(d.name)
	}
	return intstr.FromInt32(d.number)
}
