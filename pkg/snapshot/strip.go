package snapshot

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Strip returns a copy of the objects that holds only what a walk reads. Each
// kind is copied field by field from a whitelist, so that a field that
// Kubernetes adds later stays out until somebody lets it in. What never gets
// in: env, args, commands, volumes, probe headers, annotations off the list
// (last-applied-configuration above all), managedFields, image pull secrets,
// service accounts, and what an application wrote into its termination
// message. Strip of stripped objects changes nothing. The result is sorted.
//
// ConfigMaps other than kube-proxy's, and events about kinds that no walk
// looks at, are left out whole.
func Strip(o *Objects) Objects {
	out := Objects{
		Services:        each(o.Services, StripService),
		EndpointSlices:  each(o.EndpointSlices, StripEndpointSlice),
		Endpoints:       each(o.Endpoints, StripEndpoints),
		Pods:            each(o.Pods, StripPod),
		Deployments:     each(o.Deployments, StripDeployment),
		ReplicaSets:     each(o.ReplicaSets, StripReplicaSet),
		StatefulSets:    each(o.StatefulSets, StripStatefulSet),
		DaemonSets:      each(o.DaemonSets, StripDaemonSet),
		Nodes:           each(o.Nodes, StripNode),
		Namespaces:      each(o.Namespaces, StripNamespace),
		NetworkPolicies: each(o.NetworkPolicies, StripNetworkPolicy),
		ServiceCIDRs:    each(o.ServiceCIDRs, StripServiceCIDR),
		IPAddresses:     each(o.IPAddresses, StripIPAddress),
	}
	for i := range o.Events {
		if eventKinds[o.Events[i].InvolvedObject.Kind] {
			out.Events = append(out.Events, StripEvent(&o.Events[i]))
		}
	}
	for i := range o.ConfigMaps {
		if cm, ok := StripConfigMap(&o.ConfigMaps[i]); ok {
			out.ConfigMaps = append(out.ConfigMaps, cm)
		}
	}
	out.Sort()
	return out
}

// each copies a list with f; an empty list becomes nil, as it does when it is
// written and read again.
func each[A, B any](in []A, f func(*A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(&in[i])
	}
	return out
}

// annotations are the keys that get in: they are written by Kubernetes' own
// controllers or steer a load balancer or proxy, and hold a number, an
// address, a time or a mode.
var annotations = []string{
	"deployment.kubernetes.io/revision",
	"endpoints.kubernetes.io/last-change-trigger-time",
	"endpoints.kubernetes.io/over-capacity",
	"flannel.alpha.coreos.com/backend-type",
	"flannel.alpha.coreos.com/public-ip",
	"k3s.io/hostname",
	"k3s.io/internal-ip",
	"kube-vip.io/loadbalancerIPs",
	"kubernetes.io/config.source",
	"lbipam.cilium.io/ips",
	"metallb.io/address-pool",
	"metallb.io/loadBalancerIPs",
	"metallb.universe.tf/address-pool",
	"metallb.universe.tf/loadBalancerIPs",
	"projectcalico.org/IPv4Address",
	"projectcalico.org/IPv4IPIPTunnelAddr",
	"projectcalico.org/IPv4VXLANTunnelAddr",
	"projectcalico.org/IPv6Address",
	"service.alpha.kubernetes.io/tolerate-unready-endpoints",
	"service.beta.kubernetes.io/aws-load-balancer-internal",
	"service.beta.kubernetes.io/aws-load-balancer-scheme",
	"service.beta.kubernetes.io/aws-load-balancer-type",
	"service.beta.kubernetes.io/azure-load-balancer-internal",
	"networking.gke.io/load-balancer-type",
	"service.kubernetes.io/topology-aware-hints",
	"service.kubernetes.io/topology-mode",
}

// meta copies what is needed to name an object, to select it, and to tell its
// age, owner and whether it is being deleted.
func meta(in *metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name:              in.Name,
		Namespace:         in.Namespace,
		UID:               in.UID,
		Generation:        in.Generation,
		CreationTimestamp: utc(in.CreationTimestamp),
		DeletionTimestamp: utcPtr(in.DeletionTimestamp),
		Labels:            copyMap(in.Labels),
		Finalizers:        copySlice(in.Finalizers),
		OwnerReferences:   each(in.OwnerReferences, ownerReference),
	}
	for _, k := range annotations {
		if v, ok := in.Annotations[k]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[k] = RedactText(v)
		}
	}
	return out
}

func ownerReference(in *metav1.OwnerReference) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: in.APIVersion, Kind: in.Kind, Name: in.Name, UID: in.UID,
		Controller: copyPtr(in.Controller),
	}
}

func objectReference(in *corev1.ObjectReference) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: in.APIVersion, Kind: in.Kind, Namespace: in.Namespace, Name: in.Name,
		UID: in.UID, FieldPath: in.FieldPath,
	}
}

func labelSelector(in *metav1.LabelSelector) metav1.LabelSelector {
	return metav1.LabelSelector{
		MatchLabels: copyMap(in.MatchLabels),
		MatchExpressions: each(in.MatchExpressions, func(e *metav1.LabelSelectorRequirement) metav1.LabelSelectorRequirement {
			return metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator, Values: copySlice(e.Values)}
		}),
	}
}

func condition(in *metav1.Condition) metav1.Condition {
	return metav1.Condition{
		Type: in.Type, Status: in.Status, ObservedGeneration: in.ObservedGeneration,
		LastTransitionTime: utc(in.LastTransitionTime), Reason: in.Reason, Message: RedactText(in.Message),
	}
}

// utc makes a time print the same wherever the bundle is read, and gives it
// the precision that it has when it is written: whole seconds.
func utc(t metav1.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

func utcPtr(t *metav1.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	u := utc(*t)
	return &u
}

func copyPtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// with copies what p points to with f; nil stays nil.
func with[A, B any](p *A, f func(*A) B) *B {
	if p == nil {
		return nil
	}
	v := f(p)
	return &v
}

func copySlice[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return slices.Clone(s)
}

func copyMap[V any](m map[string]V) map[string]V {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
