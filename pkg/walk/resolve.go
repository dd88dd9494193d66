package walk

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// resolve turns the options into the Services to walk. Each Service is walked
// once for each way in which it was asked about.
func (w *world) resolve() []question {
	if w.opts.All {
		return w.everyService()
	}
	var out []question
	for _, t := range w.opts.Targets {
		found := w.owners(t)
		if len(found) == 0 {
			found = []question{{nil, t}}
		}
		for _, q := range found {
			if !slices.Contains(out, q) {
				out = append(out, q)
			}
		}
	}
	return out
}

func (w *world) everyService() []question {
	var out []question
	for i := range w.snap.Objects.Services {
		svc := &w.snap.Objects.Services[i]
		if len(w.opts.Namespaces) > 0 && !slices.Contains(w.opts.Namespaces, svc.Namespace) {
			continue
		}
		if w.opts.Selector != nil && !w.opts.Selector.Matches(labels.Set(svc.Labels)) {
			continue
		}
		out = append(out, question{svc, Target{Namespace: svc.Namespace, Name: svc.Name}})
	}
	slices.SortFunc(out, func(a, b question) int {
		return strings.Compare(a.service.Namespace+"/"+a.service.Name, b.service.Namespace+"/"+b.service.Name)
	})
	return out
}

// owners finds the Services that a target names or that own its address.
func (w *world) owners(t Target) []question {
	if !t.IsAddress() {
		if svc := w.servicesByName[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}]; svc != nil {
			return []question{{svc, t}}
		}
		// "worker-1:30021" reads like a Service with a port, and so does
		// "worker-1.internal:30021".
		for _, node := range []string{t.Name, t.Name + "." + t.Namespace} {
			if t.Port != 0 && w.nodeByName[node] != nil {
				return w.owners(Target{Text: t.Text, NodePort: true, Node: node, Port: t.Port, Protocol: t.Protocol})
			}
		}
		return nil
	}
	if t.Addr.IsValid() && t.Port != 0 {
		t.Node = w.nodeOf(t.Addr) // a node's address with a node port
	}
	var out []question
	for i := range w.snap.Objects.Services {
		svc := &w.snap.Objects.Services[i]
		if w.owns(svc, t) {
			out = append(out, question{svc, t})
		}
	}
	return out
}

// nodeOf names the node that has the address: by the Node objects, or by what a
// node itself says. "" where none has it.
func (w *world) nodeOf(a netip.Addr) string {
	if a.IsLoopback() {
		return w.thisNode()
	}
	if n := w.nodeByAddress[a]; n != nil {
		return n.Name
	}
	for _, v := range w.nodeViews() {
		if v.name != "" && v.host.Interface(a) != "" {
			return v.name
		}
	}
	return ""
}

// thisNode is the node that a loopback address is asked of: the one that calls,
// or the only one whose state is at hand; "" where none is meant.
func (w *world) thisNode() string {
	if w.opts.Client.Kind == OnNode {
		return w.opts.Client.Name
	}
	if views := w.nodeViews(); len(views) == 1 && w.opts.Client.Kind == AnyPod {
		return views[0].name
	}
	return ""
}

// owns says whether the address is one of the Service's. A port that the
// Service lacks does not change whose address it is (that is VIP122); a node
// port has no other owner than the one that allocated it.
func (w *world) owns(svc *corev1.Service, t Target) bool {
	for _, f := range proxy.Frontends(svc) {
		if t.Protocol != "" && f.Protocol != t.Protocol && f.Kind == proxy.NodePort {
			continue
		}
		if f.Kind == proxy.NodePort {
			if (t.NodePort || t.Node != "") && f.Port == t.Port {
				return true
			}
			continue
		}
		if t.Addr.IsValid() && f.IP == t.Addr {
			return true
		}
	}
	return false
}
