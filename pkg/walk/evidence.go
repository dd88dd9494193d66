package walk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// serviceField quotes a field of the Service; path is a JSONPath without
// braces, ".spec.selector".
func (p *Pass) serviceField(path, quote string) diagnosis.Evidence {
	svc := p.Service
	return diagnosis.Evidence{
		Source:  "service/" + svc.Name + " " + path,
		Ref:     "service/" + svc.Namespace + "/" + svc.Name,
		Quote:   quote,
		Command: kubectl("get", "service", svc.Name, "-n", svc.Namespace, "-o", "jsonpath={"+path+"}"),
	}
}

// podsEvidence quotes pods by the command that lists them.
func podsEvidence(namespace, selector, quote string) diagnosis.Evidence {
	source, words := "pods in "+namespace, []string{"get", "pods", "-n", namespace}
	if selector != "" {
		source += " with " + selector
		words = append(words, "-l", selector)
	}
	return diagnosis.Evidence{Source: source, Ref: "pods/" + namespace, Quote: quote, Command: kubectl(append(words, "--show-labels")...)}
}

func podEvidence(pod *corev1.Pod, path, quote string) diagnosis.Evidence {
	return diagnosis.Evidence{
		Source:  "pod/" + pod.Name + " " + path,
		Ref:     "pod/" + pod.Namespace + "/" + pod.Name,
		Quote:   quote,
		Command: kubectl("get", "pod", pod.Name, "-n", pod.Namespace, "-o", "jsonpath={"+path+"}"),
	}
}

func sliceEvidence(sl *discoveryv1.EndpointSlice, path, quote string) diagnosis.Evidence {
	return diagnosis.Evidence{
		Source:  "endpointslice/" + sl.Name + " " + path,
		Ref:     "endpointslice/" + sl.Namespace + "/" + sl.Name,
		Quote:   quote,
		Command: kubectl("get", "endpointslice", sl.Name, "-n", sl.Namespace, "-o", "jsonpath={"+path+"}"),
	}
}

// slicesEvidence quotes what there is, or is not, of the Service's slices.
func (p *Pass) slicesEvidence(quote string) diagnosis.Evidence {
	return diagnosis.Evidence{
		Source: "endpointslices of service/" + p.Service.Name,
		Ref:    "endpointslices/" + p.Service.Namespace,
		Quote:  quote,
		Command: kubectl("get", "endpointslices", "-n", p.Service.Namespace,
			"-l", discoveryv1.LabelServiceName+"="+p.Service.Name, "-o", "wide"),
	}
}

func eventEvidence(e *corev1.Event) diagnosis.Evidence {
	o := e.InvolvedObject
	quote := e.Reason + ": " + strings.TrimSpace(e.Message)
	if n := eventCount(e); n > 1 {
		quote += fmt.Sprintf(" (%d times)", n)
	}
	return diagnosis.Evidence{
		Source: "event of " + strings.ToLower(o.Kind) + "/" + o.Name,
		Ref:    strings.ToLower(o.Kind) + "/" + o.Namespace + "/" + o.Name,
		Quote:  quote,
		Command: kubectl("get", "events", "-n", e.Namespace,
			"--field-selector", "involvedObject.kind="+o.Kind+",involvedObject.name="+o.Name),
	}
}

func eventCount(e *corev1.Event) int32 {
	if e.Series != nil {
		return max(e.Series.Count, e.Count)
	}
	return e.Count
}

func eventTime(e *corev1.Event) time.Time {
	t := e.LastTimestamp.Time
	if e.EventTime.After(t) {
		t = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(t) {
		t = e.Series.LastObservedTime.Time
	}
	return t
}

// eventsOf are the events about one object, the latest first. Events enrich a
// diagnosis; none of it hangs on their having been read.
func (w *world) eventsOf(kind, namespace, name string) []*corev1.Event {
	var out []*corev1.Event
	for i := range w.snap.Objects.Events {
		e := &w.snap.Objects.Events[i]
		if o := e.InvolvedObject; o.Kind == kind && o.Name == name && o.Namespace == namespace {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b *corev1.Event) int { return eventTime(b).Compare(eventTime(a)) })
	return out
}

// verify is how a person sees that a fix of this Service took.
func (p *Pass) verify() []string {
	return []string{kubectl("vipwalk", p.Service.Name, "-n", p.Service.Namespace, "--wait", "30s")}
}

// hasAll says whether a resource was read in every namespace.
func (w *world) hasAll(r snapshot.Resource) bool { return w.snap.Reads.Has(r, "") }

// count words a number of things: "1 pod", "3 pods".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		return fmt.Sprintf("%d %ses", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// are is the verb after a number.
func are(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// list joins names, and cuts a long list.
func list(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// selectorText writes a selector as kubectl takes it, sorted by key.
func selectorText(sel map[string]string) string {
	var out []string
	for k, v := range sel {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
