package walk

import (
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// controllerLag is how long after a pod became ready its endpoint may be
// missing without anything being wrong. The EndpointSlice controller batches
// and backs off; a second or so is usual.
const controllerLag = 5 * time.Second

func podCondition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func podReady(pod *corev1.Pod) bool {
	c := podCondition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// readyFor says whether the pod has been ready, and not been leaving, for at
// least d before the snapshot was taken. A condition without a time counts as
// old: files made by hand have none.
func (w *world) readyFor(pod *corev1.Pod, d time.Duration) bool {
	if !podReady(pod) || pod.DeletionTimestamp != nil {
		return false
	}
	c := podCondition(pod, corev1.PodReady)
	return c.LastTransitionTime.IsZero() || w.snap.TakenAt.Sub(c.LastTransitionTime.Time) >= d
}

func countReady(pods []*corev1.Pod) int {
	n := 0
	for _, pod := range pods {
		if podReady(pod) && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// serviceFamilies says which IP families the Service has; a Service from a file
// without any is taken to have its ClusterIP's, and IPv4 if that is missing too.
func serviceFamilies(svc *corev1.Service) (v4, v6 bool) {
	for _, f := range svc.Spec.IPFamilies {
		v4, v6 = v4 || f == corev1.IPv4Protocol, v6 || f == corev1.IPv6Protocol
	}
	if v4 || v6 {
		return v4, v6
	}
	if a, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil && a.Is6() {
		return false, true
	}
	return true, false
}

// podAddr is the pod's address of a family; a pod has at most one of each.
func podAddr(pod *corev1.Pod, v6 bool) (netip.Addr, bool) {
	for _, a := range podAddrs(pod) {
		if a.Is6() == v6 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// declaredPort is one port of a pod's containers.
type declaredPort struct {
	container string
	name      string
	number    int32
	protocol  corev1.Protocol
}

// declaredPorts lists what the pod's containers declare, sidecars included:
// an init container counts where it is restarted always.
func declaredPorts(spec *corev1.PodSpec) []declaredPort {
	var out []declaredPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			proto := p.Protocol
			if proto == "" {
				proto = corev1.ProtocolTCP
			}
			out = append(out, declaredPort{c.Name, p.Name, p.ContainerPort, proto})
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}

// targetPort resolves a Service port for one pod, as the EndpointSlice
// controller does: a name by name and protocol, a number as it is, and none
// means the Service's own.
func targetPort(spec *corev1.PodSpec, sp *corev1.ServicePort) (int32, bool) {
	if sp.TargetPort.Type == intstr.Int {
		if sp.TargetPort.IntVal == 0 {
			return sp.Port, true
		}
		return sp.TargetPort.IntVal, true
	}
	for _, d := range declaredPorts(spec) {
		if d.name == sp.TargetPort.StrVal && d.protocol == protocolOf(sp) {
			return d.number, true
		}
	}
	return 0, false
}

func protocolOf(sp *corev1.ServicePort) corev1.Protocol {
	if sp.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return sp.Protocol
}

// askedPorts are the Service's ports, those that were asked about; each with
// its index in spec.ports.
func (p *Pass) askedPorts() (index []int, ports []*corev1.ServicePort) {
	for i := range p.Service.Spec.Ports {
		sp := &p.Service.Spec.Ports[i]
		if !portMatches(p.opts.Port, sp.Name, sp.Port) || !p.Target.wantsPort(sp) {
			continue
		}
		index, ports = append(index, i), append(ports, sp)
	}
	return index, ports
}

// wantsPort says whether a Service port is among those that the target asks
// about.
func (t Target) wantsPort(sp *corev1.ServicePort) bool {
	if t.Protocol != "" && protocolOf(sp) != t.Protocol {
		return false
	}
	if t.Port == 0 {
		return true
	}
	if t.NodePort {
		return sp.NodePort == t.Port
	}
	return sp.Port == t.Port || (t.Node != "" && sp.NodePort == t.Port)
}

// portLabel names a Service port for a person: "port http", "port 80", with
// the protocol where it is not TCP.
func portLabel(sp *corev1.ServicePort) string {
	name := sp.Name
	if name == "" {
		name = strconv.Itoa(int(sp.Port))
	}
	if pr := protocolOf(sp); pr != corev1.ProtocolTCP {
		name += "/" + string(pr)
	}
	return "port " + name
}
