package objects

import (
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// reader decodes one kind. The groups are those that the kind has lived in;
// the versions of one differ in nothing that is read, but where decode takes
// care of it.
type reader struct {
	resource snapshot.Resource
	groups   []string
	decode   func(apiVersion string, raw json.RawMessage) (runtime.Object, error)
}

var readers = map[string]reader{
	"Service":       {snapshot.Services, []string{""}, decode[corev1.Service]},
	"EndpointSlice": {snapshot.EndpointSlices, []string{"discovery.k8s.io"}, decodeEndpointSlice},
	"Endpoints":     {snapshot.Endpoints, []string{""}, decode[corev1.Endpoints]}, //nolint:staticcheck // see snapshot.Objects
	"Pod":           {snapshot.Pods, []string{""}, decode[corev1.Pod]},
	"Deployment":    {snapshot.Deployments, []string{"apps", "extensions"}, decode[appsv1.Deployment]},
	"ReplicaSet":    {snapshot.ReplicaSets, []string{"apps", "extensions"}, decode[appsv1.ReplicaSet]},
	"StatefulSet":   {snapshot.StatefulSets, []string{"apps"}, decode[appsv1.StatefulSet]},
	"DaemonSet":     {snapshot.DaemonSets, []string{"apps", "extensions"}, decode[appsv1.DaemonSet]},
	"Node":          {snapshot.Nodes, []string{""}, decode[corev1.Node]},
	"Namespace":     {snapshot.Namespaces, []string{""}, decode[corev1.Namespace]},
	"NetworkPolicy": {snapshot.NetworkPolicies, []string{"networking.k8s.io", "extensions"}, decode[networkingv1.NetworkPolicy]},
	"Event":         {snapshot.Events, []string{"", "events.k8s.io"}, decodeEvent},
	"ServiceCIDR":   {snapshot.ServiceCIDRs, []string{"networking.k8s.io"}, decode[networkingv1.ServiceCIDR]},
	"IPAddress":     {snapshot.IPAddresses, []string{"networking.k8s.io"}, decode[networkingv1.IPAddress]},
	"ConfigMap":     {snapshot.ConfigMaps, []string{""}, decode[corev1.ConfigMap]},
}

// readerOf finds the reader of a kind.
func readerOf(apiVersion, kind string) (reader, bool) {
	r, ok := readers[kind]
	if !ok {
		return reader{}, false
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	return r, err == nil && slices.Contains(r.groups, gv.Group)
}

// decode decodes as an API server does: names of fields match in case.
func decode[T any, P interface {
	*T
	runtime.Object
}](_ string, raw json.RawMessage) (runtime.Object, error) {
	p := P(new(T))
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, p); err != nil {
		return nil, err
	}
	p.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return p, nil
}

// decodeEndpointSlice moves v1beta1's topology to where v1 has it.
func decodeEndpointSlice(apiVersion string, raw json.RawMessage) (runtime.Object, error) {
	obj, err := decode[discoveryv1.EndpointSlice](apiVersion, raw)
	if err != nil || apiVersion != "discovery.k8s.io/v1beta1" {
		return obj, err
	}
	var old struct {
		Endpoints []struct {
			Topology map[string]string `json:"topology"`
		} `json:"endpoints"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &old); err != nil {
		return nil, err
	}
	slice := obj.(*discoveryv1.EndpointSlice)
	for i := range slice.Endpoints {
		ep := &slice.Endpoints[i]
		if v, ok := old.Endpoints[i].Topology[corev1.LabelHostname]; ok && ep.NodeName == nil {
			ep.NodeName = &v
		}
		if v, ok := old.Endpoints[i].Topology[corev1.LabelTopologyZone]; ok && ep.Zone == nil {
			ep.Zone = &v
		}
	}
	return slice, nil
}

// decodeEvent makes an event of the core group of one of events.k8s.io: the
// API server keeps one object and shows it in both.
func decodeEvent(apiVersion string, raw json.RawMessage) (runtime.Object, error) {
	if gv, err := schema.ParseGroupVersion(apiVersion); err == nil && gv.Group == "" {
		return decode[corev1.Event](apiVersion, raw)
	}
	obj, err := decode[eventsv1.Event](apiVersion, raw)
	if err != nil {
		return nil, err
	}
	in := obj.(*eventsv1.Event)
	out := &corev1.Event{
		ObjectMeta: in.ObjectMeta, InvolvedObject: in.Regarding, Related: in.Related,
		Reason: in.Reason, Message: in.Note, Type: in.Type, Action: in.Action, EventTime: in.EventTime,
		Count: in.DeprecatedCount, FirstTimestamp: in.DeprecatedFirstTimestamp, LastTimestamp: in.DeprecatedLastTimestamp,
		Source: in.DeprecatedSource, ReportingController: in.ReportingController, ReportingInstance: in.ReportingInstance,
	}
	if in.Series != nil {
		out.Series = &corev1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
		if out.LastTimestamp.IsZero() {
			out.Count, out.LastTimestamp = in.Series.Count, metav1.Time{Time: in.Series.LastObservedTime.Time}
		}
	}
	return out, nil
}
