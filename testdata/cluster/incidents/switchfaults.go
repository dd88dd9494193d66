package incidents

import (
	"context"
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// switched is the healthy twin of the leftovers: what kube-proxy takes away
// itself when it changes its mode.
func switched() []Incident {
	return []Incident{switchFault(Incident{
		Name: "nft-switched", Fault: "none: worker-1 was in iptables mode before, and kube-proxy, killed and started in nftables mode, tidied up; then every pod is replaced",
		Traffic: append(answeredOn1, probe(Pod2, VIP, "answered")),
	}, func(ctx context.Context, s *Scene) error {
		if err := s.inIptablesMode(ctx); err != nil {
			return err
		}
		if err := s.Worker1.SwitchProxy(ctx, nftablesMode, nil); err != nil {
			return err
		}
		return s.replacePods(ctx)
	})}
}

// leftovers are what worker-1's kube-proxy did not take away when it changed
// its mode. Of base chains of one priority the kernel asks the newest first:
// what was left there before kube-proxy's own table does not decide; what is
// loaded after it does.
func leftovers() []Incident {
	return []Incident{
		switchFault(Incident{
			Name: "nft-leftover", Fault: "worker-1 was in iptables mode before, and kube-proxy, whose image has no iptables now, left its chains", Code: "VIP313", Warns: true,
			Traffic: append(answeredOn1, probe(Pod2, VIP, "answered")),
		}, func(ctx context.Context, s *Scene) error {
			if err := s.inIptablesMode(ctx); err != nil {
				return err
			}
			return s.Worker1.SwitchProxy(ctx, nftablesMode, onlyNFT)
		}),
		switchFault(Incident{
			Name: "nft-leftover-stale", Fault: "worker-1 was in iptables mode before, and kube-proxy, whose image has no iptables now, left its chains; then every pod is replaced", Code: "VIP313", Warns: true,
			Traffic: append(answeredOn1, probe(Pod2, VIP, "answered")),
		}, func(ctx context.Context, s *Scene) error {
			if err := s.inIptablesMode(ctx); err != nil {
				return err
			}
			if err := s.Worker1.SwitchProxy(ctx, nftablesMode, onlyNFT); err != nil {
				return err
			}
			return s.replacePods(ctx)
		}),
		switchFault(Incident{
			Name: "nft-leftover-restored", Fault: "worker-1 is in nftables mode, and its rules as saved in iptables mode, for pods that are gone, are restored", Code: "VIP313",
			Traffic: []Probe{probe(Pod1, VIP, "no answer"), probe(Node1, VIP, "no answer"), probe(Pod2, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error {
			rules, err := s.staleRules(ctx)
			if err != nil {
				return err
			}
			if err := s.reboot(ctx, nftablesMode, nil); err != nil {
				return err
			}
			_, err = s.Worker1.ExecInput(ctx, rules, "iptables-restore")
			return err
		}),
	}
}

// onlyNFT are the programs of an image without iptables, by which kube-proxy
// can run in nftables mode and can't tidy up after another.
var onlyNFT = map[string]string{"nft": "nft"}

// switchFault completes an incident that ends with worker-1 as it was set.
func switchFault(i Incident, change func(context.Context, *Scene) error) Incident {
	i.Target, i.Break = orders, change
	i.Heal = func(ctx context.Context, s *Scene) error { return s.reboot(ctx, nftablesMode, nil) }
	return i
}

// reboot ends worker-1's kube-proxy, empties the node of rules and starts
// kube-proxy in a mode, with programs as for Node.SwitchProxy.
func (s *Scene) reboot(ctx context.Context, mode string, programs map[string]string) error {
	if err := s.Worker1.StopProxy(ctx); err != nil {
		return err
	}
	if err := nft(ctx, s.Worker1, "flush", "ruleset"); err != nil {
		return err
	}
	return s.Worker1.SwitchProxy(ctx, mode, programs)
}

// inIptablesMode starts worker-1 anew in iptables mode, and keeps what its
// rules are then for staleRules.
func (s *Scene) inIptablesMode(ctx context.Context) error {
	if err := s.reboot(ctx, iptablesMode, nil); err != nil {
		return err
	}
	if err := s.Cluster.Settle(ctx); err != nil || s.before != "" {
		return err
	}
	return s.keepRules(ctx)
}

func (s *Scene) keepRules(ctx context.Context) (err error) {
	s.before, err = s.Worker1.Exec(ctx, "iptables-save")
	return err
}

// staleRules are worker-1's rules in iptables mode for pods of orders that have
// been replaced: if another incident did it, long ago; else just now, and then
// vipwalk may well ask for a moment's patience.
func (s *Scene) staleRules(ctx context.Context) (string, error) {
	if s.before == "" {
		if err := s.inIptablesMode(ctx); err != nil {
			return "", err
		}
	}
	pods, err := s.Cluster.WaitPods(ctx, production, ordersLabels, replicas, true)
	if err != nil {
		return "", err
	}
	for _, ip := range cluster.PodIPs(pods) {
		if strings.Contains(s.before, fmt.Sprintf(" %s:8080\n", ip)) {
			return s.before, s.replacePods(ctx)
		}
	}
	return s.before, nil
}
