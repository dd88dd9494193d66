package walk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// compactJSON is JSON on one line. Maps come out sorted; what cannot be
// encoded does not occur, since callers pass strings, numbers and maps of them.
func compactJSON(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "{}"
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// patchCommand is one kubectl patch of the Service; style is merge or json.
func (p *Pass) patchCommand(style string, patch any) string {
	return kubectl("patch", "service", p.Service.Name, "-n", p.Service.Namespace, "--type="+style, "-p", compactJSON(patch))
}

// tried returns a changing command as it is to be run: once as a dry run, then
// in earnest.
func tried(command string) []string { return []string{command + " --dry-run=server", command} }

// servicePatch is a fix that patches the Service, and what it would do.
func (p *Pass) servicePatch(title, style string, patch, undo any, radius string, edit func(*corev1.Service)) Proposal {
	ns, name := p.Service.Namespace, p.Service.Name
	return Proposal{
		Fix: diagnosis.Fix{
			Title: title, Commands: tried(p.patchCommand(style, patch)), BlastRadius: radius,
			Undo: []string{p.patchCommand(style, undo)}, Verify: p.verify(),
		},
		Change: func(s *snapshot.Snapshot) error {
			svc := findService(s, ns, name)
			if svc == nil {
				return fmt.Errorf("service %s/%s is not in the snapshot", ns, name)
			}
			edit(svc)
			reconcileSlices(s, svc)
			return nil
		},
	}
}

func findService(s *snapshot.Snapshot, namespace, name string) *corev1.Service {
	for i := range s.Objects.Services {
		if svc := &s.Objects.Services[i]; svc.Namespace == namespace && svc.Name == name {
			return svc
		}
	}
	return nil
}

// selectorPatch is a merge patch from one selector to another: pairs that are
// to go must be named with null, because a merge keeps what it does not name.
func selectorPatch(from, to map[string]string) any {
	sel := map[string]any{}
	for k, v := range to {
		if from[k] != v {
			sel[k] = v
		}
	}
	for k := range from {
		if _, stays := to[k]; !stays {
			sel[k] = nil
		}
	}
	return map[string]any{"spec": map[string]any{"selector": sel}}
}

// selectorFix points the Service at other pods.
func (p *Pass) selectorFix(title string, to map[string]string, radius string) Proposal {
	from := p.Service.Spec.Selector
	return p.servicePatch(title, "merge", selectorPatch(from, to), selectorPatch(to, from), radius, func(svc *corev1.Service) {
		svc.Spec.Selector = maps.Clone(to)
	})
}

// specFix sets one field of the Service's spec by merge patch.
func (p *Pass) specFix(title, field string, to, from any, radius string, edit func(*corev1.Service)) Proposal {
	set := func(v any) any { return map[string]any{"spec": map[string]any{field: v}} }
	return p.servicePatch(title, "merge", set(to), set(from), radius, edit)
}

// jsonOp is one operation of a JSON patch (RFC 6902).
type jsonOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// targetPortFix sets one port's targetPort. A merge patch would replace the
// whole list of ports; a JSON patch with a test of the old value changes the
// one, or nothing if somebody was faster.
func (p *Pass) targetPortFix(index int, to intstr.IntOrString) Proposal {
	path := fmt.Sprintf("/spec/ports/%d/targetPort", index)
	from := p.Service.Spec.Ports[index].TargetPort
	ops := func(from, to intstr.IntOrString) any {
		return []jsonOp{{"test", path, from}, {"replace", path, to}}
	}
	title := fmt.Sprintf("set targetPort of %s to %s", portLabel(&p.Service.Spec.Ports[index]), to.String())
	return p.servicePatch(title, "json", ops(from, to), ops(to, from),
		"this Service's port alone; no pod restarts; clients get through within seconds",
		func(svc *corev1.Service) {
			if index < len(svc.Spec.Ports) {
				svc.Spec.Ports[index].TargetPort = to
			}
		})
}

// sortedKeys are a map's keys, in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
