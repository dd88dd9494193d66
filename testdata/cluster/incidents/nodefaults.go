package incidents

import (
	"context"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// proxyFaults are those of worker-1's kube-proxy, in any mode.
func proxyFaults() []Incident {
	return []Incident{{
		Name: "stale-node", Fault: "kube-proxy of worker-1 hangs (SIGSTOP), then every pod is replaced", Code: "VIP302", Target: orders,
		Traffic: []Probe{probe(Pod1, VIP, "no answer"), probe(Node1, VIP, "no answer"), probe(Pod2, VIP, "answered")},
		Break:   replaceUnseen,
		Heal:    func(_ context.Context, s *Scene) error { return s.Worker1.ContinueProxy() },
	}}
}

// iptablesFaults are those of worker-1's rules, behind objects that are all
// well.
func iptablesFaults() []Incident {
	return []Incident{
		ruleFault(Incident{
			Name: "hook-missing", Fault: "the jump to KUBE-SERVICES is deleted from worker-1's nat PREROUTING, kube-proxy hangs", Code: "VIP307",
			Traffic: []Probe{probe(Pod1, VIP, "no answer"), probe(Node1, VIP, "answered"), probe(Pod2, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error {
			if err := s.Worker1.StopProxy(ctx); err != nil {
				return err
			}
			return iptables(ctx, s.Worker1, "-t", "nat", "-D", "PREROUTING", "-m", "comment", "--comment", "kubernetes service portals", "-j", "KUBE-SERVICES")
		}),
		ruleFault(Incident{
			Name: "wrong-backend-port", Fault: "one backend's DNAT on worker-1 is changed to another port by hand", Code: "VIP305",
			Traffic: []Probe{probe(Pod1, VIP, "part answered, part refused"), probe(Pod2, VIP, "answered")},
		}, changeOnePort),
		ruleFault(Incident{
			Name: "forward-drop", Fault: "worker-1's FORWARD policy is DROP and the jump to KUBE-FORWARD is gone", Code: "VIP310",
			Traffic: []Probe{probe(Pod1, VIP, "no answer"), probe(Node1, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error {
			if err := iptables(ctx, s.Worker1, "-P", "FORWARD", "DROP"); err != nil {
				return err
			}
			return iptables(ctx, s.Worker1, "-D", "FORWARD", "-m", "comment", "--comment", "kubernetes forwarding rules", "-j", "KUBE-FORWARD")
		}),
		ruleFault(Incident{
			Name: "uneven-odds", Fault: "the probability of one backend on worker-1 is changed to three of four by hand, kube-proxy hangs", Code: "VIP306", Warns: true,
			Traffic: uneven,
		}, func(ctx context.Context, s *Scene) error {
			if err := s.Worker1.StopProxy(ctx); err != nil {
				return err
			}
			return editNAT(ctx, s.Worker1, regexp.MustCompile(`(?m)^(-A KUBE-SVC-\S+ .*"production/orders:.* --probability )\S+`), "${1}0.75000000000")
		}),
		ruleFault(Incident{
			Name: "captured", Fault: "a rule of somebody else's in worker-1's nat PREROUTING sends the VIP to another pod", Code: "VIP308",
			Traffic: captured,
		}, func(ctx context.Context, s *Scene) error { return capture(ctx, s, "80") }),
		ruleFault(Incident{
			Name: "captured-other-port", Fault: "none: that rule is for another port of the VIP",
			Traffic: answeredOn1,
		}, func(ctx context.Context, s *Scene) error { return capture(ctx, s, "8443") }),
	}
}

var (
	// uneven is how the backends share the traffic where one of the two is to
	// have three quarters of it.
	uneven = []Probe{
		{From: Pod1, To: VIP, Kind: Shares, Want: "answered, 3 of 4 times by the same pod"},
		{From: Pod2, To: VIP, Kind: Shares, Want: "answered, 2 of 4 times by the same pod"},
	}
	captured    = []Probe{probe(Pod1, VIP, "answered by a pod of shell"), probe(Node1, VIP, "answered"), probe(Pod2, VIP, "answered")}
	answeredOn1 = []Probe{probe(Pod1, VIP, "answered"), probe(Node1, VIP, "answered")}
)

// capture redirects a port of the VIP to a pod that is none of its backends, ahead of kube-proxy.
func capture(ctx context.Context, s *Scene, port string) error {
	return iptables(ctx, s.Worker1, "-t", "nat", "-I", "PREROUTING", "-d", ordersVIP, "-p", "tcp", "--dport", port, "-j", "DNAT", "--to-destination", s.bystander)
}

// replaceUnseen freezes worker-1's kube-proxy and replaces the pods of orders.
func replaceUnseen(ctx context.Context, s *Scene) error {
	if err := s.Worker1.StopProxy(ctx); err != nil {
		return err
	}
	return s.replacePods(ctx)
}

func (s *Scene) replacePods(ctx context.Context) error {
	err := s.Cluster.Client.CoreV1().Pods(production).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=orders"})
	if err != nil {
		return fmt.Errorf("deleting the pods of orders: %w", err)
	}
	return s.waitOrders(ctx, replicas, replicas)
}

// ruleFault completes an incident that change makes in worker-1's rules; to
// heal it, the rules of before are restored.
func ruleFault(i Incident, change func(context.Context, *Scene) error) Incident {
	i.Target = orders
	var saved string
	i.Break = func(ctx context.Context, s *Scene) (err error) {
		if saved, err = s.saveRules(ctx); err != nil {
			return err
		}
		return change(ctx, s)
	}
	i.Heal = func(ctx context.Context, s *Scene) error {
		if err := s.restoreRules(ctx, saved); err != nil {
			return err
		}
		return s.Worker1.ContinueProxy()
	}
	return i
}

// saveRules returns worker-1's rules, for restoreRules.
func (s *Scene) saveRules(ctx context.Context) (string, error) {
	if s.Mode == nftablesMode {
		return s.Worker1.Exec(ctx, "nft", "list", "ruleset")
	}
	return s.Worker1.Exec(ctx, "iptables-save")
}

func (s *Scene) restoreRules(ctx context.Context, saved string) (err error) {
	if s.Mode == nftablesMode {
		_, err = s.Worker1.ExecInput(ctx, "flush ruleset\n"+saved, "nft", "-f", "-")
		return err
	}
	_, err = s.Worker1.ExecInput(ctx, saved, "iptables-restore")
	return err
}

func iptables(ctx context.Context, n *cluster.Node, args ...string) error {
	_, err := n.Exec(ctx, append([]string{"iptables"}, args...)...)
	return err
}

// changeOnePort changes the port of one DNAT of orders.
func changeOnePort(ctx context.Context, s *Scene) error {
	return editNAT(ctx, s.Worker1, regexp.MustCompile(`(?m)^(-A KUBE-SEP-\S+ .*"production/orders.* --to-destination \S+):8080$`), "${1}:8081")
}

// editNAT replaces the first match in the node's table nat.
func editNAT(ctx context.Context, n *cluster.Node, match *regexp.Regexp, by string) error {
	rules, err := n.Exec(ctx, "iptables-save", "-t", "nat")
	if err != nil {
		return err
	}
	changed, err := replaceFirst(rules, match, by)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	_, err = n.ExecInput(ctx, changed, "iptables-restore", "-T", "nat")
	return err
}

func replaceFirst(rules string, match *regexp.Regexp, by string) (string, error) {
	at := match.FindStringSubmatchIndex(rules)
	if at == nil {
		return "", fmt.Errorf("nothing matches %s in:\n%s", match, rules)
	}
	return rules[:at[0]] + string(match.ExpandString(nil, by, rules, at)) + rules[at[1]:], nil
}
