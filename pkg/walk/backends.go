package walk

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// backend is one pod or address that the Service is to send to: what layer 2
// knows of it from the pod and from the slices.
type backend struct {
	pod *corev1.Pod // nil where there is none, or pods were not read
	ep  *Endpoint   // nil where no slice has it
}

func (b backend) name() string {
	if b.pod != nil {
		return b.pod.Name
	}
	return b.ep.Addr.String()
}

// ready says whether the slices offer it to new connections.
func (b backend) ready() bool { return b.ep != nil && b.ep.Ready }

// backends joins the selected pods and the endpoints, each once. An endpoint
// belongs to the pod that it refers to or whose address it has.
func (p *Pass) backends() []backend {
	var out []backend
	taken := map[int]bool{}
	eps := p.Endpoints()
	for _, pod := range p.SelectedPods() {
		b := backend{pod: pod}
		for _, i := range p.endpointsOf(pod) {
			if e := &eps[i]; !taken[i] {
				taken[i] = true
				if b.ep == nil || e.Ready {
					b.ep = e
				}
			}
		}
		out = append(out, b)
	}
	seen := map[string]int{}
	for i := range eps {
		e := &eps[i]
		if taken[i] || !e.Addr.IsValid() {
			continue
		}
		if j, dup := seen[e.Addr.String()]; dup {
			if e.Ready {
				out[j].ep = e
			}
			continue
		}
		seen[e.Addr.String()] = len(out)
		out = append(out, backend{pod: e.Pod, ep: e})
	}
	return out
}

// endpointsOf lists the indices of a pod's endpoints: those that refer to it,
// and those that have its address and refer to no pod that is known.
func (p *Pass) endpointsOf(pod *corev1.Pod) []int {
	if p.facts.byPod == nil {
		p.facts.byPod, p.facts.byAddr = map[*corev1.Pod][]int{}, map[netip.Addr][]int{}
		for i, e := range p.Endpoints() {
			if e.Pod != nil {
				p.facts.byPod[e.Pod] = append(p.facts.byPod[e.Pod], i)
			} else if e.Addr.IsValid() {
				p.facts.byAddr[e.Addr] = append(p.facts.byAddr[e.Addr], i)
			}
		}
	}
	out := slices.Clone(p.facts.byPod[pod])
	for _, a := range podAddrs(pod) {
		out = append(out, p.facts.byAddr[a]...)
	}
	return out
}

// notReady are the backends that the slices do not offer and whose pods are
// not ready either; a ready pod that a slice misses is VIP205's, an address
// that no pod has any more is VIP204's.
func (p *Pass) notReady() []backend {
	var out []backend
	for _, b := range p.backends() {
		if b.ready() || (b.pod != nil && podReady(b.pod) && b.pod.DeletionTimestamp == nil) || p.isStale(b) {
			continue
		}
		out = append(out, b)
	}
	return out
}

// reasonGroup is the backends that are not ready for the same reason.
type reasonGroup struct {
	reason podReason
	who    []backend
}

// reasons says why backends are not ready, grouped, the largest group first.
func (p *Pass) reasons(bs []backend) []reasonGroup {
	var out []reasonGroup
	for _, b := range bs {
		r := p.backendReason(b)
		i := slices.IndexFunc(out, func(g reasonGroup) bool { return g.reason.class == r.class && g.reason.text == r.text })
		if i < 0 {
			out = append(out, reasonGroup{reason: r})
			i = len(out) - 1
		}
		out[i].who = append(out[i].who, b)
	}
	slices.SortStableFunc(out, func(a, b reasonGroup) int { return cmp.Compare(len(b.who), len(a.who)) })
	return out
}

func (p *Pass) backendReason(b backend) podReason {
	if b.pod != nil {
		r := p.whyNotReady(b.pod)
		if len(r.evidence) == 0 {
			r.evidence = []diagnosis.Evidence{podEvidence(b.pod, ".status", string(b.pod.Status.Phase))}
		}
		return r
	}
	r := podReason{class: reasonByHand, text: "conditions.ready is false in endpointslice/" + b.ep.Slice.Name}
	r.evidence = []diagnosis.Evidence{sliceEvidence(b.ep.Slice, fmt.Sprintf(".endpoints[%d].conditions", b.ep.Index), "ready: false")}
	return r
}

// classText counts the classes for a headline: "2 fail their readiness probe, 1 crashes".
func classText(groups []reasonGroup) string {
	var classes []reasonClass
	n := map[reasonClass]int{}
	for _, g := range groups {
		if n[g.reason.class] == 0 {
			classes = append(classes, g.reason.class)
		}
		n[g.reason.class] += len(g.who)
	}
	var out []string
	for _, c := range classes {
		out = append(out, fmt.Sprintf("%d %s", n[c], are(n[c], c.one, c.many)))
	}
	return strings.Join(out, ", ")
}

// groupText lists the pods with their reasons.
func groupText(groups []reasonGroup) string {
	var out []string
	for _, g := range groups {
		var names []string
		for _, b := range g.who {
			names = append(names, b.name())
		}
		out = append(out, list(names)+": "+g.reason.text)
	}
	return strings.Join(out, "; ")
}

// groupEvidence is each group's, told of its first pod.
func groupEvidence(groups []reasonGroup) []diagnosis.Evidence {
	var out []diagnosis.Evidence
	for _, g := range groups[:min(len(groups), 5)] {
		out = append(out, g.reason.evidence...)
	}
	return out
}
