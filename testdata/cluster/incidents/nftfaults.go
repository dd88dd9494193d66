package incidents

import (
	"context"
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// Nftables returns the incidents of a scene whose nodes are in nftables mode,
// the healthy one first.
func Nftables() []Incident {
	var all []Incident
	for _, i := range All() {
		switch i.Name {
		case "healthy", "selector-typo", "scaled-to-zero", "stale-node":
			all = append(all, i)
		}
	}
	return append(all, nftFaults()...)
}

func nftFaults() []Incident {
	return []Incident{
		nftFault(Incident{
			Name: "nft-jump-missing", Fault: "worker-1's chain nat-prerouting is flushed, kube-proxy hangs", Code: "VIP307",
			Traffic: []Probe{{Pod1, VIP, "refused"}, {Node1, VIP, "answered"}, {Pod2, VIP, "answered"}},
		}, func(ctx context.Context, n *cluster.Node) error {
			return nft(ctx, n, "flush", "chain", "ip", "kube-proxy", "nat-prerouting")
		}),
		nftFault(Incident{
			Name: "nft-element-missing", Fault: "the VIP is deleted from worker-1's map service-ips, kube-proxy hangs", Code: "VIP301",
			Traffic: []Probe{{Pod1, VIP, "refused"}, {Node1, VIP, "refused"}, {Pod2, VIP, "answered"}},
		}, deleteElement),
		nftFault(Incident{
			Name: "nft-foreign-drop", Fault: "a table of somebody else's on worker-1 drops forwarded packets, kube-proxy hangs", Code: "VIP310",
			Traffic: []Probe{{Pod1, VIP, "no answer"}, {Node1, VIP, "answered"}},
		}, func(ctx context.Context, n *cluster.Node) error {
			_, err := n.ExecInput(ctx, "table inet corp {\n\tchain forward {\n\t\ttype filter hook forward priority 5; policy accept;\n\t\tct state new drop\n\t}\n}\n", "nft", "-f", "-")
			return err
		}),
	}
}

// nftFault completes an incident that change makes in worker-1's ruleset while
// its kube-proxy is stopped; to heal it, the ruleset of before is restored.
func nftFault(i Incident, change func(context.Context, *cluster.Node) error) Incident {
	i.Target = orders
	var saved string
	i.Break = func(ctx context.Context, s *Scene) (err error) {
		if err := s.Worker1.StopProxy(ctx); err != nil {
			return err
		}
		if saved, err = s.Worker1.Exec(ctx, "nft", "list", "ruleset"); err != nil {
			return err
		}
		return change(ctx, s.Worker1)
	}
	i.Heal = func(ctx context.Context, s *Scene) error {
		if _, err := s.Worker1.ExecInput(ctx, "flush ruleset\n"+saved, "nft", "-f", "-"); err != nil {
			return err
		}
		return s.Worker1.ContinueProxy()
	}
	return i
}

func nft(ctx context.Context, n *cluster.Node, args ...string) error {
	_, err := n.Exec(ctx, append([]string{"nft"}, args...)...)
	return err
}

// deleteElement deletes the VIP of orders from the map service-ips.
func deleteElement(ctx context.Context, n *cluster.Node) error {
	text, err := n.Exec(ctx, "nft", "list", "map", "ip", "kube-proxy", "service-ips")
	if err != nil {
		return err
	}
	i := strings.Index(text, ordersVIP+" . tcp . 80")
	if i < 0 {
		return fmt.Errorf("node %s has no %s in service-ips:\n%s", n.Name, ordersVIP, text)
	}
	element := text[i:]
	if j := strings.IndexAny(element, ",}\n"); j >= 0 {
		element = strings.TrimSpace(element[:j])
	}
	return nft(ctx, n, "delete", "element", "ip", "kube-proxy", "service-ips", "{ "+element+" }")
}
