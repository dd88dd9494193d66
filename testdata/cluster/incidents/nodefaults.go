package incidents

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// nodeFaults are those of worker-1's rules, behind objects that are all well.
func nodeFaults() []Incident {
	return []Incident{
		{
			Name: "stale-node", Fault: "kube-proxy of worker-1 hangs (SIGSTOP), then every pod is replaced", Code: "VIP302", Target: orders,
			Traffic: []Probe{{Pod1, VIP, "no answer"}, {Node1, VIP, "no answer"}, {Pod2, VIP, "answered"}},
			Break:   replaceUnseen,
			Heal:    func(_ context.Context, s *Scene) error { return s.Worker1.ContinueProxy() },
		},
		ruleFault(Incident{
			Name: "hook-missing", Fault: "the jump to KUBE-SERVICES is deleted from worker-1's nat PREROUTING, kube-proxy hangs", Code: "VIP307",
			Traffic: []Probe{{Pod1, VIP, "no answer"}, {Node1, VIP, "answered"}, {Pod2, VIP, "answered"}},
		}, func(ctx context.Context, n *cluster.Node) error {
			if err := n.StopProxy(ctx); err != nil {
				return err
			}
			return iptables(ctx, n, "-t", "nat", "-D", "PREROUTING", "-m", "comment", "--comment", "kubernetes service portals", "-j", "KUBE-SERVICES")
		}),
		ruleFault(Incident{
			Name: "wrong-backend-port", Fault: "one backend's DNAT on worker-1 is changed to another port by hand", Code: "VIP305",
			Traffic: []Probe{{Pod1, VIP, "part answered, part refused"}, {Pod2, VIP, "answered"}},
		}, changeOnePort),
		ruleFault(Incident{
			Name: "forward-drop", Fault: "worker-1's FORWARD policy is DROP and the jump to KUBE-FORWARD is gone", Code: "VIP310",
			Traffic: []Probe{{Pod1, VIP, "no answer"}, {Node1, VIP, "answered"}},
		}, func(ctx context.Context, n *cluster.Node) error {
			if err := iptables(ctx, n, "-P", "FORWARD", "DROP"); err != nil {
				return err
			}
			return iptables(ctx, n, "-D", "FORWARD", "-m", "comment", "--comment", "kubernetes forwarding rules", "-j", "KUBE-FORWARD")
		}),
	}
}

// replaceUnseen freezes worker-1's kube-proxy and replaces the pods of orders.
func replaceUnseen(ctx context.Context, s *Scene) error {
	if err := s.Worker1.StopProxy(ctx); err != nil {
		return err
	}
	err := s.Cluster.Client.CoreV1().Pods(production).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=orders"})
	if err != nil {
		return fmt.Errorf("deleting the pods of orders: %w", err)
	}
	return s.waitOrders(ctx, replicas, replicas)
}

// ruleFault completes an incident that change makes in worker-1's rules; to
// heal it, the rules of before are restored.
func ruleFault(i Incident, change func(context.Context, *cluster.Node) error) Incident {
	i.Target = orders
	var saved string
	i.Break = func(ctx context.Context, s *Scene) (err error) {
		if saved, err = s.Worker1.Exec(ctx, "iptables-save"); err != nil {
			return err
		}
		return change(ctx, s.Worker1)
	}
	i.Heal = func(ctx context.Context, s *Scene) error {
		if _, err := s.Worker1.ExecInput(ctx, saved, "iptables-restore"); err != nil {
			return err
		}
		return s.Worker1.ContinueProxy()
	}
	return i
}

func iptables(ctx context.Context, n *cluster.Node, args ...string) error {
	_, err := n.Exec(ctx, append([]string{"iptables"}, args...)...)
	return err
}

// changeOnePort changes the port of one DNAT of orders.
func changeOnePort(ctx context.Context, n *cluster.Node) error {
	rules, err := n.Exec(ctx, "iptables-save", "-t", "nat")
	if err != nil {
		return err
	}
	for line := range strings.Lines(rules) {
		if strings.HasPrefix(line, "-A KUBE-SEP-") && strings.Contains(line, `"production/orders`) && strings.Contains(line, "--to-destination") {
			changed := strings.Replace(line, ":8080\n", ":8081\n", 1)
			_, err := n.ExecInput(ctx, strings.Replace(rules, line, changed, 1), "iptables-restore", "-T", "nat")
			return err
		}
	}
	return fmt.Errorf("node %s has no DNAT for production/orders:\n%s", n.Name, rules)
}
