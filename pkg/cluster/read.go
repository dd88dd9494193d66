package cluster

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// pageSize is kubectl's own.
const pageSize = 500

// resourceType is how a resource is asked for.
type resourceType struct {
	gv   schema.GroupVersion
	path string // its plural in the URL
	list func() runtime.Object
}

var resourceTypes = map[snapshot.Resource]resourceType{
	snapshot.Services:        {corev1.SchemeGroupVersion, "services", func() runtime.Object { return &corev1.ServiceList{} }},
	snapshot.EndpointSlices:  {discoveryv1.SchemeGroupVersion, "endpointslices", func() runtime.Object { return &discoveryv1.EndpointSliceList{} }},
	snapshot.Endpoints:       {corev1.SchemeGroupVersion, "endpoints", func() runtime.Object { return &corev1.EndpointsList{} }},
	snapshot.Pods:            {corev1.SchemeGroupVersion, "pods", func() runtime.Object { return &corev1.PodList{} }},
	snapshot.Deployments:     {appsv1.SchemeGroupVersion, "deployments", func() runtime.Object { return &appsv1.DeploymentList{} }},
	snapshot.ReplicaSets:     {appsv1.SchemeGroupVersion, "replicasets", func() runtime.Object { return &appsv1.ReplicaSetList{} }},
	snapshot.StatefulSets:    {appsv1.SchemeGroupVersion, "statefulsets", func() runtime.Object { return &appsv1.StatefulSetList{} }},
	snapshot.DaemonSets:      {appsv1.SchemeGroupVersion, "daemonsets", func() runtime.Object { return &appsv1.DaemonSetList{} }},
	snapshot.Nodes:           {corev1.SchemeGroupVersion, "nodes", func() runtime.Object { return &corev1.NodeList{} }},
	snapshot.Namespaces:      {corev1.SchemeGroupVersion, "namespaces", func() runtime.Object { return &corev1.NamespaceList{} }},
	snapshot.NetworkPolicies: {networkingv1.SchemeGroupVersion, "networkpolicies", func() runtime.Object { return &networkingv1.NetworkPolicyList{} }},
	snapshot.Events:          {corev1.SchemeGroupVersion, "events", func() runtime.Object { return &corev1.EventList{} }},
	snapshot.ServiceCIDRs:    {networkingv1.SchemeGroupVersion, "servicecidrs", func() runtime.Object { return &networkingv1.ServiceCIDRList{} }},
	snapshot.IPAddresses:     {networkingv1.SchemeGroupVersion, "ipaddresses", func() runtime.Object { return &networkingv1.IPAddressList{} }},
	// Only single ConfigMaps are read, by name.
	snapshot.ConfigMaps: {corev1.SchemeGroupVersion, "configmaps", nil},
}

// read fetches what a request names, stripped. A single object that does not
// exist is an answer, not an error.
func (c *Client) read(ctx context.Context, r request) (snapshot.Objects, error) {
	var found snapshot.Objects
	var err error
	if r.name != "" {
		err = c.readOne(ctx, r, &found)
	} else {
		err = c.readList(ctx, r, &found)
	}
	if err != nil {
		return snapshot.Objects{}, err
	}
	return snapshot.Strip(&found), nil
}

func (c *Client) readOne(ctx context.Context, r request, found *snapshot.Objects) error {
	t := resourceTypes[r.resource]
	obj := &corev1.ConfigMap{}
	err := c.rest[t.gv].Get().Namespace(r.namespace).Resource(t.path).Name(r.name).Do(ctx).Into(obj)
	if apierrors.IsNotFound(err) && answered(err) {
		return nil
	}
	if err == nil {
		found.Add(obj)
	}
	return err
}

// readList follows the pages of a list. Where the token of the next page has
// expired, because the list took longer than etcd keeps its state, the list is
// read once more, in one piece.
func (c *Client) readList(ctx context.Context, r request, found *snapshot.Objects) error {
	limit, next := int64(pageSize), ""
	for {
		page, err := c.readPage(ctx, r, metav1.ListOptions{Limit: limit, Continue: next})
		if next != "" && apierrors.IsResourceExpired(err) {
			*found, limit, next = snapshot.Objects{}, 0, ""
			continue
		}
		if err != nil {
			return err
		}
		if err := meta.EachListItem(page, func(obj runtime.Object) error {
			if !found.Add(obj) {
				return fmt.Errorf("the API server answered with a %T among %s", obj, r.resource)
			}
			return nil
		}); err != nil {
			return err
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if next = m.GetContinue(); next == "" {
			return nil
		}
		if limit == 0 {
			return errors.New("the API server answered with a page where the whole was asked for")
		}
	}
}

func (c *Client) readPage(ctx context.Context, r request, opts metav1.ListOptions) (runtime.Object, error) {
	t := resourceTypes[r.resource]
	page := t.list()
	err := c.rest[t.gv].Get().NamespaceIfScoped(r.namespace, r.namespace != "").Resource(t.path).
		VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).Into(page)
	return page, err
}
