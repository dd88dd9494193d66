package incidents

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// refused is what traffic to orders does when no endpoint is left.
var refused = []Probe{probe(Pod1, VIP, "refused"), probe(Pod2, VIP, "refused"), probe(Node1, VIP, "refused")}

// objectFaults are those that a look at the API's objects explains.
func objectFaults() []Incident {
	return []Incident{
		{
			Name: "selector-typo", Fault: "the Service's selector has a typo", Code: "VIP102", Target: orders, Traffic: refused,
			Break: func(ctx context.Context, s *Scene) error {
				if err := s.patchOrders(ctx, `{"spec":{"selector":{"app":"oders"}}}`); err != nil {
					return err
				}
				return s.waitOrders(ctx, replicas, 0)
			},
			Heal: func(ctx context.Context, s *Scene) error {
				return s.patchOrders(ctx, `{"spec":{"selector":{"app":"orders"}}}`)
			},
		},
		{
			Name: "scaled-to-zero", Fault: "the Deployment is scaled to zero", Code: "VIP103", Target: orders, Traffic: refused,
			Break: func(ctx context.Context, s *Scene) error {
				if err := s.scaleOrders(ctx, 0); err != nil {
					return err
				}
				return s.waitOrders(ctx, 0, 0)
			},
			Heal: func(ctx context.Context, s *Scene) error { return s.scaleOrders(ctx, replicas) },
		},
		{
			Name: "failing-readiness", Fault: "every pod fails its readiness probe", Code: "VIP202", Target: orders, Traffic: refused,
			Break: func(ctx context.Context, s *Scene) error {
				s.Cluster.FailReadiness(production, ordersLabels)
				if _, err := s.Cluster.WaitPods(ctx, production, ordersLabels, replicas, false); err != nil {
					return err
				}
				return s.waitEndpoints(ctx, "orders", nil)
			},
			Heal: func(_ context.Context, s *Scene) error {
				s.Cluster.HealReadiness(production, ordersLabels)
				return nil
			},
		},
		{
			Name: "targetport-name", Fault: "the targetPort is a name that no pod declares", Code: "VIP107", Target: orders, Traffic: refused,
			Break: func(ctx context.Context, s *Scene) error {
				if err := s.patchOrders(ctx, `{"spec":{"ports":[{"port":80,"targetPort":"htpp"}]}}`); err != nil {
					return err
				}
				return s.waitOrders(ctx, replicas, 0)
			},
			Heal: func(ctx context.Context, s *Scene) error {
				return s.patchOrders(ctx, `{"spec":{"ports":[{"port":80,"targetPort":"http"}]}}`)
			},
		},
		{
			Name: "local-policy", Fault: "externalTrafficPolicy Local, asked on a node that has no pod", Code: "VIP119",
			Target:  []string{fmt.Sprintf("worker-2:%d", nodePort)},
			Traffic: []Probe{probe(External, NodePort2, "no answer"), probe(External, NodePort1, "answered")},
			Break:   createLocal, Heal: deleteLocal,
		},
	}
}

func (s *Scene) patchOrders(ctx context.Context, patch string) error {
	_, err := s.Cluster.Client.CoreV1().Services(production).Patch(ctx, "orders", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patching service orders: %w", err)
	}
	return nil
}

func (s *Scene) scaleOrders(ctx context.Context, n int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	_, err := s.Cluster.Client.AppsV1().Deployments(production).Patch(ctx, "orders", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scaling deployment orders: %w", err)
	}
	return nil
}

// createLocal creates a NodePort Service of policy Local whose only pod is on
// worker-1.
func createLocal(ctx context.Context, s *Scene) error {
	const name = "storefront"
	d := deployment(name, 1)
	d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.Worker1.Name}
	if err := s.deploy(ctx, production, d); err != nil {
		return err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http"), NodePort: nodePort}},
		},
	}
	if _, err := s.Cluster.Client.CoreV1().Services(production).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating service %s: %w", name, err)
	}
	pods, err := s.Cluster.WaitPods(ctx, production, d.Spec.Selector.MatchLabels, 1, true)
	if err != nil {
		return err
	}
	return s.waitEndpoints(ctx, name, pods)
}

func deleteLocal(ctx context.Context, s *Scene) error {
	const name = "storefront"
	if err := s.Cluster.Client.CoreV1().Services(production).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting service %s: %w", name, err)
	}
	if err := s.Cluster.Client.AppsV1().Deployments(production).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting deployment %s: %w", name, err)
	}
	_, err := s.Cluster.WaitPods(ctx, production, map[string]string{"app": name}, 0, true)
	return err
}
