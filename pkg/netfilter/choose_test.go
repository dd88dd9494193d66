package netfilter_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// byPort is a verdict map on the destination port; balance is numgen random.
type (
	byPort  map[uint16]netfilter.Action
	balance []string
)

func (m byPort) Choices(s *netfilter.State) []netfilter.Choice {
	if a, ok := m[s.DstPort]; ok {
		return []netfilter.Choice{{P: 1, Do: a}}
	}
	return []netfilter.Choice{{P: 1, Skip: true}}
}

func (b balance) Choices(*netfilter.State) []netfilter.Choice {
	out := []netfilter.Choice{}
	for _, chain := range b {
		out = append(out, netfilter.Choice{P: 1 / float64(len(b)), Do: netfilter.JumpTo{Chain: chain, Goto: true}})
	}
	return out
}

func do(actions ...netfilter.Action) []netfilter.Expr {
	var out []netfilter.Expr
	for _, a := range actions {
		out = append(out, netfilter.Expr{Do: a})
	}
	return out
}

func to(s string) netfilter.Action {
	ap := netip.MustParseAddrPort(s)
	return netfilter.DestinationNAT{To: netfilter.NATRange{First: ap.Addr(), Last: ap.Addr(), MinPort: ap.Port(), MaxPort: ap.Port()}}
}

// TestChoose walks what nftables has and iptables doesn't: verdict maps,
// choices among several chains, and matches after actions.
func TestChoose(t *testing.T) {
	chain := func(name string, base *netfilter.Base, rules ...netfilter.Rule) netfilter.ChainDef {
		for i := range rules {
			rules[i].Line = i + 1
		}
		return netfilter.ChainDef{Name: name, Declared: true, Base: base, Policy: "ACCEPT", Body: netfilter.Rules(rules)}
	}
	nat := netfilter.NewTable(netfilter.TableInfo{Name: "kube-proxy", Family: netfilter.IPv4, Backend: netfilter.NFT}, []netfilter.ChainDef{
		chain("nat-prerouting", &netfilter.Base{Hook: netfilter.Prerouting, Priority: -100, Kind: netfilter.NAT},
			netfilter.Rule{Exprs: do(netfilter.Choose{By: byPort{80: netfilter.JumpTo{Chain: "svc"}, 81: netfilter.Dropped{}}})}),
		chain("svc", nil,
			netfilter.Rule{Exprs: append(do(netfilter.SetMark{Xor: 0x4000}),
				netfilter.Expr{Match: netfilter.Undecidably{Because: "whether so"}}, netfilter.Expr{Do: netfilter.Returned{}})},
			netfilter.Rule{Exprs: do(netfilter.Choose{By: balance{"a", "b"}})}),
		chain("a", nil, netfilter.Rule{Exprs: do(to("10.244.1.1:8080"))}),
		chain("b", nil, netfilter.Rule{Exprs: do(to("10.244.1.2:8080"))}),
		chain("filter-forward", &netfilter.Base{Hook: netfilter.Forward, Kind: netfilter.Filtering},
			netfilter.Rule{Exprs: append([]netfilter.Expr{{Match: netfilter.MarkIs{Value: 0, Mask: 0x4000}}}, do(netfilter.Rejected{With: "tcp-reset"})...)}),
	}, nil)
	rs := netfilter.New([]netfilter.Contents{{Family: netfilter.IPv4, Whole: true}}, nat)
	for port, want := range map[uint16][]string{
		80: {"unknown; whether so"},
		81: {"drop 10.96.0.10:81 at PREROUTING"},
		82: {"reject 10.96.0.10:82 tcp-reset at FORWARD"},
	} {
		p := forwarded()
		p.DstPort = port
		got := netfilter.Walk(rs, testHost(), p)
		if diff := cmp.Diff(want, short(got)); diff != "" {
			t.Errorf("port %d (-want +got)\n%s%s", port, diff, describe(got))
		}
	}
	certain := chain("svc", nil, netfilter.Rule{Exprs: do(netfilter.SetMark{Xor: 0x4000}, netfilter.Choose{By: balance{"a", "b"}})})
	nat = netfilter.NewTable(nat.TableInfo, []netfilter.ChainDef{
		chain("nat-prerouting", &netfilter.Base{Hook: netfilter.Prerouting, Priority: -100, Kind: netfilter.NAT}, netfilter.Rule{Exprs: do(netfilter.JumpTo{Chain: "svc"})}),
		certain,
		chain("a", nil, netfilter.Rule{Exprs: do(to("10.244.1.1:8080"))}),
		chain("b", nil, netfilter.Rule{Exprs: do(to("10.244.1.2:8080"))}),
	}, nil)
	want := []string{"dnat 10.244.1.1:8080 p=0.500", "dnat 10.244.1.2:8080 p=0.500"}
	got := netfilter.Walk(netfilter.New([]netfilter.Contents{{Family: netfilter.IPv4, Whole: true}}, nat), testHost(), forwarded())
	if diff := cmp.Diff(want, short(got)); diff != "" {
		t.Errorf("(-want +got)\n%s%s", diff, describe(got))
	}
}

// mixed is a Chooser with one certain choice of half the packets; the other
// half goes one of two ways, and it isn't known which.
type mixed struct{}

func (mixed) Choices(*netfilter.State) []netfilter.Choice {
	return []netfilter.Choice{
		{P: 0.5, Do: to("10.244.1.1:8080")},
		{Maybe: "the key is not known", Do: to("10.244.1.2:8080")},
		{Maybe: "the key is not known", Do: to("10.244.1.2:8080")},
	}
}

// TestChooseMixed: what is certain keeps its share beside what is not.
func TestChooseMixed(t *testing.T) {
	table := netfilter.NewTable(netfilter.TableInfo{Name: "nat", Family: netfilter.IPv4}, []netfilter.ChainDef{{
		Name: "PREROUTING", Declared: true, Policy: "ACCEPT",
		Base: &netfilter.Base{Hook: netfilter.Prerouting, Priority: -100, Kind: netfilter.NAT},
		Body: netfilter.Rules{{Line: 1, Exprs: do(netfilter.Choose{By: mixed{}})}},
	}}, nil)
	got := netfilter.Walk(netfilter.New([]netfilter.Contents{{Family: netfilter.IPv4, Whole: true}}, table), testHost(), forwarded())
	sum := 0.0
	to := map[string]float64{}
	for _, o := range got {
		sum += o.Probability
		to[o.To.String()] += o.Probability
	}
	if sum < 0.999 || sum > 1.001 || to["10.244.1.1:8080"] != 0.5 || to["10.244.1.2:8080"] != 0.5 {
		t.Errorf("shares %v, sum %v; want a half each\n%s", to, sum, describe(got))
	}
}
