package incidents

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	publicName     = "orders-public"
	publicVIP      = "10.96.120.46"
	publicNodePort = 30022
	loadBalancerIP = "203.0.113.10"
)

// publicFaults are those of a Service of type LoadBalancer that has the pods of
// orders as its backends.
func publicFaults(mode string) []Incident {
	from := deletesNAT
	prefix := ""
	if mode == nftablesMode {
		from, prefix = deletesNFT, "nft-"
	}
	return []Incident{
		publicFault(Incident{
			Name: prefix + "public-healthy", Fault: "none: a Service of type LoadBalancer with session affinity and source ranges",
			Traffic: append(reached, sticky(1)),
		}, withAffinity, nil),
		publicFault(Incident{
			Name: prefix + "node-port-missing", Fault: "the node port is deleted from worker-1's rules, kube-proxy hangs", Code: "VIP340",
			Traffic: []Probe{probe(External, PublicNodePort1, "refused"), probe(External, PublicNodePort2, "answered"), probe(External, LoadBalancer1, "answered"), probe(Pod1, PublicVIP, "answered")},
		}, nil, from.nodePort),
		publicFault(Incident{
			Name: prefix + "external-ip-missing", Fault: "the load balancer's address is deleted from worker-1's rules, kube-proxy hangs", Code: "VIP341",
			Traffic: []Probe{probe(External, LoadBalancer1, "no answer"), probe(External, PublicNodePort1, "answered"), probe(Pod1, PublicVIP, "answered")},
		}, nil, from.loadBalancer),
		publicFault(Incident{
			Name: prefix + "affinity-missing", Fault: "session affinity is deleted from worker-1's rules, kube-proxy hangs", Code: "VIP342", Warns: true,
			Traffic: []Probe{sticky(2), probe(External, LoadBalancer1, "answered")},
		}, withAffinity, from.affinity),
		publicFault(Incident{
			Name: prefix + "source-ranges", Fault: "loadBalancerSourceRanges do not admit the outside host, which asks", Code: "VIP311",
			Target:  append(public, "--from", "172.31.250.200"),
			Traffic: []Probe{probe(External, LoadBalancer1, "no answer"), probe(External, PublicNodePort1, "answered"), probe(Pod1, PublicVIP, "answered")},
		}, &publicSpec{SourceRanges: []string{"192.0.2.0/24"}}, nil),
	}
}

var reached = []Probe{probe(External, LoadBalancer1, "answered"), probe(External, PublicNodePort1, "answered"), probe(External, PublicNodePort2, "answered"), probe(Pod1, PublicVIP, "answered")}

// sticky is by how many pods one client is answered.
func sticky(pods int) Probe {
	want := "answered by 1 pod"
	if pods != 1 {
		want = fmt.Sprintf("answered by %d pods", pods)
	}
	return Probe{From: Pod1, To: PublicVIP, Kind: Backends, Want: want}
}

// withAffinity has source ranges that admit the outside host.
var withAffinity = &publicSpec{SessionAffinity: corev1.ServiceAffinityClientIP, SourceRanges: []string{"172.31.250.0/24"}}

// deletes takes parts of the public Service out of worker-1's rules.
type deletes struct {
	nodePort, loadBalancer, affinity func(context.Context, *Scene) error
}

var deletesNAT = deletes{
	nodePort:     deleteNAT(`-A KUBE-NODEPORTS .*"production/orders-public:.* --dport 30022 .*`),
	loadBalancer: deleteNAT(`-A KUBE-SERVICES -d 203\.0\.113\.10/32 .*"production/orders-public:.*`),
	affinity:     deleteNAT(`-A KUBE-SVC-\S+ .*"production/orders-public:.* -m recent --rcheck .*`),
}

var deletesNFT = deletes{
	nodePort: func(ctx context.Context, s *Scene) error {
		return deleteElement(ctx, s.Worker1, "service-nodeports", "tcp . 30022")
	},
	loadBalancer: func(ctx context.Context, s *Scene) error {
		return deleteElement(ctx, s.Worker1, "service-ips", loadBalancerIP+" . tcp . 80")
	},
	affinity: func(ctx context.Context, s *Scene) error {
		return editNFT(ctx, s.Worker1, regexp.MustCompile(`(chain service-\S+-production/orders-public/\S+ \{\n)(?:\s+ip saddr @affinity-\S+ goto \S+\n)+`), "${1}")
	},
}

// deleteNAT deletes the rules that a pattern matches from worker-1's table nat.
func deleteNAT(rule string) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		return editNAT(ctx, s.Worker1, regexp.MustCompile(`(?m)(?:^`+rule+`\n)+`), "")
	}
}

// publicFault completes an incident of the public Service, whose spec edit may
// ask for affinity and source ranges, and in whose rules change, where there is
// one, makes the fault while worker-1's kube-proxy hangs.
func publicFault(i Incident, edit *publicSpec, change func(context.Context, *Scene) error) Incident {
	if i.Target == nil {
		i.Target = public
	}
	var saved string
	i.Break = func(ctx context.Context, s *Scene) (err error) {
		if edit != nil {
			if err := s.patchPublic(ctx, *edit); err != nil {
				return err
			}
		}
		if change == nil {
			return nil
		}
		if err := s.Worker1.StopProxy(ctx); err != nil {
			return err
		}
		if saved, err = s.saveRules(ctx); err != nil {
			return err
		}
		return change(ctx, s)
	}
	i.Heal = func(ctx context.Context, s *Scene) error {
		if change != nil {
			if err := s.restoreRules(ctx, saved); err != nil {
				return err
			}
		}
		if err := s.Worker1.ContinueProxy(); err != nil {
			return err
		}
		if edit != nil {
			return s.patchPublic(ctx, publicSpec{})
		}
		return nil
	}
	return i
}

// publicSpec is what differs between incidents in the public Service's spec.
type publicSpec struct {
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`
	SourceRanges    []string               `json:"loadBalancerSourceRanges"`
}

func (s *Scene) patchPublic(ctx context.Context, spec publicSpec) error {
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	patch, err := json.Marshal(map[string]publicSpec{"spec": spec})
	if err != nil {
		return err
	}
	_, err = s.Cluster.Client.CoreV1().Services(production).Patch(ctx, publicName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patching service %s: %w", publicName, err)
	}
	return s.Cluster.Settle(ctx)
}

// createPublic creates the public Service and gives it a load balancer's
// address, which leads from outside of the cluster to worker-1.
func (s *Scene) createPublic(ctx context.Context) error {
	services := s.Cluster.Client.CoreV1().Services(production)
	service, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: publicName},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: publicVIP, Selector: ordersLabels,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http"), NodePort: publicNodePort}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating service %s: %w", publicName, err)
	}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: loadBalancerIP}}
	if _, err := services.UpdateStatus(ctx, service, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("giving service %s an address: %w", publicName, err)
	}
	return s.Cluster.RouteExternal(loadBalancerIP+"/32", s.Worker1)
}
