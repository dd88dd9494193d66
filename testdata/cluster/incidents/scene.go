package incidents

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

const (
	production = "production"
	clients    = "clients"
	replicas   = 2 // of orders, one on each worker
	nodePort   = 30021
	ordersVIP  = "10.96.120.45"
)

var ordersLabels = map[string]string{"app": "orders"}

// Scene is a cluster of two workers in one proxy mode with a Service orders in
// the namespace production, two backends, and a pod on each worker that may
// call it. A second Service, orders-public, gives the same backends a node port
// and a load balancer's address.
type Scene struct {
	Mode             string
	Cluster          *cluster.Cluster
	Worker1, Worker2 *cluster.Node

	clients   map[From]cluster.Client
	bystander string // IP:port of a server on worker-2 that is no backend of orders
	before    string // worker-1's rules in iptables mode, from early on; see staleRules
}

// NewScene starts a cluster in iptables mode and sets the scene. The caller stops the cluster.
func NewScene(ctx context.Context, o cluster.Options) (*Scene, error) {
	return NewSceneIn(ctx, o, "iptables")
}

// NewSceneIn is NewScene with the workers' kube-proxy in the mode.
func NewSceneIn(ctx context.Context, o cluster.Options, mode string) (*Scene, error) {
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Scene{Mode: mode, Cluster: c, clients: map[From]cluster.Client{}}
	err = s.set(ctx, mode)
	if err == nil && mode == iptablesMode {
		err = s.keepRules(ctx)
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("setting the scene: %w", err)
	}
	return s, nil
}

func (s *Scene) set(ctx context.Context, mode string) (err error) {
	if err := s.Cluster.ConfigureProxyMode(ctx, mode); err != nil {
		return err
	}
	if s.Worker1, err = s.Cluster.AddNode(ctx, "worker-1", mode); err != nil {
		return err
	}
	if s.Worker2, err = s.Cluster.AddNode(ctx, "worker-2", mode); err != nil {
		return err
	}
	for _, ns := range []string{production, clients} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		if _, err := s.Cluster.Client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", ns, err)
		}
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "orders"},
		Spec: corev1.ServiceSpec{ClusterIP: ordersVIP, Selector: ordersLabels, Ports: []corev1.ServicePort{{
			Name: "http", Port: 80, TargetPort: intstr.FromString("http"),
		}}},
	}
	if _, err := s.Cluster.Client.CoreV1().Services(production).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating service orders: %w", err)
	}
	if err := s.createPublic(ctx); err != nil {
		return err
	}
	for _, d := range []struct{ namespace, name string }{{production, "orders"}, {clients, "shell"}} {
		if err := s.deploy(ctx, d.namespace, deployment(d.name, replicas)); err != nil {
			return err
		}
	}
	return s.findClients(ctx)
}

func (s *Scene) deploy(ctx context.Context, namespace string, d *appsv1.Deployment) error {
	if _, err := s.Cluster.Client.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating deployment %s: %w", d.Name, err)
	}
	return nil
}

// deployment makes a Deployment of an HTTP server with a readiness probe.
func deployment(name string, n int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: name, Image: "registry.example/" + name + ":1.4.2",
					Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
						Path: "/healthz", Port: intstr.FromString("http"),
					}}},
				}}},
			},
		},
	}
}

func (s *Scene) findClients(ctx context.Context) error {
	s.clients[Node1], s.clients[Node2], s.clients[External] = s.Worker1.Client(), s.Worker2.Client(), s.Cluster.External()
	pods, err := s.Cluster.WaitPods(ctx, clients, map[string]string{"app": "shell"}, replicas, true)
	if err != nil {
		return err
	}
	for i := range pods {
		client, err := s.Cluster.PodClient(clients, pods[i].Name)
		if err != nil {
			return err
		}
		s.clients[From("pod on "+pods[i].Spec.NodeName)] = client
		if pods[i].Spec.NodeName == s.Worker2.Name {
			s.bystander = net.JoinHostPort(pods[i].Status.PodIP, "8080")
		}
	}
	return s.waitHealthy(ctx)
}

// waitHealthy waits until orders is as it was set, and real connections are
// answered from everywhere.
func (s *Scene) waitHealthy(ctx context.Context) error {
	if err := s.waitOrders(ctx, replicas, replicas); err != nil {
		return err
	}
	for _, n := range []*cluster.Node{s.Worker1, s.Worker2} {
		if err := n.ForgetConnections(); err != nil {
			return err
		}
	}
	for _, from := range []From{Pod1, Pod2, Node1, Node2} {
		err := cluster.Until(ctx, string(from)+" is answered", func(ctx context.Context) (string, error) {
			if got := s.Measure(ctx, probe(from, VIP, "answered")); got != "answered" {
				return "the VIP: " + got, nil
			}
			return "", nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waitOrders waits until orders has so many pods, that many of them usable as
// endpoints (all or none), and every running kube-proxy has heard of it.
func (s *Scene) waitOrders(ctx context.Context, pods, endpoints int) error {
	list, err := s.Cluster.WaitPods(ctx, production, ordersLabels, pods, true)
	if err != nil {
		return err
	}
	return s.waitEndpoints(ctx, "orders", list[:endpoints])
}

func (s *Scene) waitEndpoints(ctx context.Context, service string, pods []corev1.Pod) error {
	if err := s.Cluster.WaitEndpoints(ctx, production, service, cluster.PodIPs(pods)); err != nil {
		return err
	}
	return s.Cluster.Settle(ctx)
}

func (s *Scene) address(to To) string {
	switch to {
	case NodePort1:
		return net.JoinHostPort(s.Worker1.Address, strconv.Itoa(nodePort))
	case NodePort2:
		return net.JoinHostPort(s.Worker2.Address, strconv.Itoa(nodePort))
	case PublicNodePort1:
		return net.JoinHostPort(s.Worker1.Address, strconv.Itoa(publicNodePort))
	case PublicNodePort2:
		return net.JoinHostPort(s.Worker2.Address, strconv.Itoa(publicNodePort))
	case PublicVIP:
		return net.JoinHostPort(publicVIP, "80")
	case LoadBalancer1:
		return net.JoinHostPort(loadBalancerIP, "80")
	}
	return net.JoinHostPort(ordersVIP, "80")
}

// healTimeout bounds what Break and Heal wait for.
const healTimeout = 60 * time.Second

// Break makes an incident's fault.
func (s *Scene) Break(ctx context.Context, i Incident) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := i.Break(ctx, s); err != nil {
		return fmt.Errorf("making the fault %s: %w", i.Name, err)
	}
	return nil
}

// Heal takes an incident's fault back and waits until the scene is healthy.
func (s *Scene) Heal(ctx context.Context, i Incident) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := i.Heal(ctx, s); err != nil {
		return fmt.Errorf("healing %s: %w", i.Name, err)
	}
	if err := s.waitHealthy(ctx); err != nil {
		return fmt.Errorf("healing %s: %w", i.Name, err)
	}
	return nil
}

// NodeStateFlags reads the state of both workers, by `vipwalk node-state` on
// each, and returns the flags that give it to a walk.
func (s *Scene) NodeStateFlags(ctx context.Context) ([]string, error) {
	var flags []string
	for _, n := range []*cluster.Node{s.Worker1, s.Worker2} {
		path, err := n.NodeState(ctx)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "--node-state", n.Name+"="+path)
	}
	return flags, nil
}
