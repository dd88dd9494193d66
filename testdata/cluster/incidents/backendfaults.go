package incidents

import (
	"context"
	"os"
	"os/exec"
)

// legacyPrograms are those of an image whose iptables is the legacy one.
var legacyPrograms = map[string]string{
	"iptables": "iptables-legacy", "iptables-save": "iptables-legacy-save", "iptables-restore": "iptables-legacy-restore",
	"ip6tables": "ip6tables-legacy", "ip6tables-save": "ip6tables-legacy-save", "ip6tables-restore": "ip6tables-legacy-restore",
}

// noLegacy says why there can be no rules of iptables-legacy here.
func noLegacy() string {
	for _, p := range legacyPrograms {
		if _, err := exec.LookPath(p); err != nil {
			return p + " is not installed"
		}
	}
	if _, err := os.Stat("/proc/net/ip_tables_names"); err != nil {
		return "the kernel has no legacy iptables"
	}
	return ""
}

// backendFaults are those of rules in the other iptables, which kube-proxy does
// not look at. They come last: a legacy table that was made once stays, if only
// empty. In the first of them it is made after all others, and so comes first:
// of base chains of one priority the kernel asks the newest first.
func backendFaults() []Incident {
	answered := append(answeredOn1, probe(Pod2, VIP, "answered"))
	return []Incident{
		backendFault(Incident{
			Name: "two-backends-stale", Fault: "rules of kube-proxy for pods that are gone are restored in worker-1's iptables-legacy, beside those that it keeps in iptables-nft", Code: "VIP312",
			Traffic: []Probe{probe(Pod1, VIP, "no answer"), probe(Node1, VIP, "no answer"), probe(Pod2, VIP, "answered")},
		}, func(ctx context.Context, s *Scene) error {
			rules, err := s.staleRules(ctx)
			if err != nil {
				return err
			}
			_, err = s.Worker1.ExecInput(ctx, rules, "iptables-legacy-restore")
			return err
		}),
		backendFault(Incident{
			Name: "two-backends", Fault: "kube-proxy of worker-1 had iptables-legacy, and after an update has iptables-nft", Code: "VIP312", Warns: true,
			Traffic: answered,
		}, func(ctx context.Context, s *Scene) error {
			if err := s.reboot(ctx, iptablesMode, legacyPrograms); err != nil {
				return err
			}
			return s.Worker1.SwitchProxy(ctx, iptablesMode, nil)
		}),
		backendFault(Incident{
			Name: "legacy-foreign", Fault: "none: iptables-legacy of worker-1 has a rule of somebody else's",
			Traffic: answered,
		}, func(ctx context.Context, s *Scene) error {
			_, err := s.Worker1.Exec(ctx, "iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "8443", "-j", "DROP")
			return err
		}),
	}
}

// backendFault completes an incident that change makes, and that ends when
// worker-1 has no rule of iptables-legacy.
func backendFault(i Incident, change func(context.Context, *Scene) error) Incident {
	i.Target, i.Missing, i.Break = orders, noLegacy, change
	i.Heal = func(ctx context.Context, s *Scene) error {
		for _, table := range []string{"nat", "filter", "mangle"} {
			for _, do := range []string{"-F", "-X"} {
				if _, err := s.Worker1.Exec(ctx, "iptables-legacy", "-t", table, do); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return i
}
