package incidents

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// nftFaults are those of worker-1's rules in nftables mode.
func nftFaults() []Incident {
	return []Incident{
		nftFault(Incident{
			Name: "nft-jump-missing", Fault: "worker-1's chain nat-prerouting is flushed, kube-proxy hangs", Code: "VIP307",
			Traffic: []Probe{probe(Pod1, VIP, "refused"), probe(Node1, VIP, "answered"), probe(Pod2, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error {
			return nft(ctx, s.Worker1, "flush", "chain", "ip", "kube-proxy", "nat-prerouting")
		}),
		nftFault(Incident{
			Name: "nft-element-missing", Fault: "the VIP is deleted from worker-1's map service-ips, kube-proxy hangs", Code: "VIP301",
			Traffic: []Probe{probe(Pod1, VIP, "refused"), probe(Node1, VIP, "refused"), probe(Pod2, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error {
			return deleteElement(ctx, s.Worker1, "service-ips", ordersVIP+" . tcp . 80")
		}),
		nftFault(Incident{
			Name: "nft-wrong-backend-port", Fault: "one backend's dnat on worker-1 is changed to another port by hand, kube-proxy hangs", Code: "VIP305",
			Traffic: []Probe{probe(Pod1, VIP, "part answered, part refused"), probe(Pod2, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error {
			return editNFT(ctx, s.Worker1, regexp.MustCompile(ordersNumgen), "${1}2 map { 0 : ${2} . 8081, 1 : ${3} . 8080 }")
		}),
		nftFault(Incident{
			Name: "nft-forward-drop", Fault: "worker-1's iptables FORWARD policy is DROP, as Docker sets it, beside kube-proxy in nftables mode", Code: "VIP310",
			Traffic: []Probe{probe(Pod1, VIP, "no answer"), probe(Node1, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error { return iptables(ctx, s.Worker1, "-P", "FORWARD", "DROP") }),
		nftFault(Incident{
			Name: "nft-foreign-drop", Fault: "a table of somebody else's on worker-1 drops forwarded packets", Code: "VIP310",
			Traffic: []Probe{probe(Pod1, VIP, "no answer"), probe(Node1, VIP, "answered")},
		}, foreignTable("type filter hook forward priority 5; policy accept;", "ct state new drop")),
		nftFault(Incident{
			Name: "nft-foreign-table", Fault: "none: a table of somebody else's on worker-1 drops forwarded packets to another port",
			Traffic: answeredOn1,
		}, foreignTable("type filter hook forward priority 5; policy accept;", "tcp dport 8443 drop")),
		nftFault(Incident{
			Name: "nft-uneven-odds", Fault: "one backend on worker-1 has three of four slots of the numgen map, by hand, kube-proxy hangs", Code: "VIP306", Warns: true,
			Traffic: uneven,
		}, func(ctx context.Context, s *Scene) error {
			return editNFT(ctx, s.Worker1, regexp.MustCompile(ordersNumgen), "${1}4 map { 0 : ${2} . 8080, 1 : ${2} . 8080, 2 : ${2} . 8080, 3 : ${3} . 8080 }")
		}),
		nftFault(Incident{
			Name: "nft-captured", Fault: "a table of somebody else's on worker-1 sends the VIP to another pod", Code: "VIP308",
			Traffic: captured,
		}, captureNFT("80")),
		nftFault(Incident{
			Name: "nft-captured-other-port", Fault: "none: that table does so for another port of the VIP",
			Traffic: answeredOn1,
		}, captureNFT("8443")),
	}
}

// ordersNumgen is how kube-proxy sends orders to one of its two backends.
const ordersNumgen = `(chain service-\S+-production/orders/tcp/http \{\n.* dnat ip to numgen random mod )2 map \{ 0 : (\S+) \. 8080, 1 : (\S+) \. 8080 \}`

// nftFault is ruleFault while worker-1's kube-proxy hangs.
func nftFault(i Incident, change func(context.Context, *Scene) error) Incident {
	return ruleFault(i, func(ctx context.Context, s *Scene) error {
		if err := s.Worker1.StopProxy(ctx); err != nil {
			return err
		}
		return change(ctx, s)
	})
}

func nft(ctx context.Context, n *cluster.Node, args ...string) error {
	_, err := n.Exec(ctx, append([]string{"nft"}, args...)...)
	return err
}

// foreignTable adds a table with one base chain of one rule.
func foreignTable(base, rule string) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		_, err := s.Worker1.ExecInput(ctx, fmt.Sprintf("table inet corp {\n\tchain edge {\n\t\t%s\n\t\t%s\n\t}\n}\n", base, rule), "nft", "-f", "-")
		return err
	}
}

// captureNFT is capture by a table of its own.
func captureNFT(port string) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		rule := fmt.Sprintf("ip daddr %s tcp dport %s dnat ip to %s", ordersVIP, port, s.bystander)
		return foreignTable("type nat hook prerouting priority dstnat - 5; policy accept;", rule)(ctx, s)
	}
}

// editNFT replaces the first match in the node's table kube-proxy.
func editNFT(ctx context.Context, n *cluster.Node, match *regexp.Regexp, by string) error {
	rules, err := n.Exec(ctx, "nft", "list", "table", "ip", "kube-proxy")
	if err != nil {
		return err
	}
	changed, err := replaceFirst(rules, match, by)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	_, err = n.ExecInput(ctx, "delete table ip kube-proxy\n"+changed, "nft", "-f", "-")
	return err
}

// deleteElement deletes the element of a key from one of kube-proxy's maps.
func deleteElement(ctx context.Context, n *cluster.Node, name, key string) error {
	text, err := n.Exec(ctx, "nft", "list", "map", "ip", "kube-proxy", name)
	if err != nil {
		return err
	}
	i := strings.Index(text, key)
	if i < 0 {
		return fmt.Errorf("node %s has no %s in %s:\n%s", n.Name, key, name, text)
	}
	element := text[i:]
	if j := strings.IndexAny(element, ",}\n"); j >= 0 {
		element = strings.TrimSpace(element[:j])
	}
	return nft(ctx, n, "delete", "element", "ip", "kube-proxy", name, "{ "+element+" }")
}
