package walk

import (
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// ruleOwner is a program that writes rules, by how its chains or tables begin.
type ruleOwner struct {
	name string
	// hostPort: the rules are those of pods' host ports.
	hostPort bool
	// proxies: it programs Services itself, so that it may take a packet on
	// purpose.
	proxies bool
	// look shows what it published.
	look     string
	prefixes []string
}

// ruleOwners are the programs whose names of chains (or of nft's tables) are
// known from their sources and from rules of theirs.
var ruleOwners = []ruleOwner{
	{name: "the CNI plugin portmap (a pod's hostPort)", hostPort: true, prefixes: []string{"CNI-HOSTPORT-", "CNI-DN-", "cni_hostport", "hostip_hostports", "hostports"}},
	{name: "the container runtime (a pod's hostPort)", hostPort: true, prefixes: []string{"KUBE-HOSTPORTS", "KUBE-HP-"}},
	{name: "docker", look: "docker ps --format '{{.Names}} {{.Ports}}'", prefixes: []string{"DOCKER", "docker-bridges"}},
	{name: "podman", look: "podman ps --format '{{.Names}} {{.Ports}}'", prefixes: []string{"NETAVARK", "netavark"}},
	{name: "Istio", prefixes: []string{"ISTIO_", "istio"}},
	{name: "Linkerd", prefixes: []string{"PROXY_INIT_"}},
	{name: "Consul", prefixes: []string{"CONSUL_PROXY_"}},
	{name: "firewalld", look: "sudo firewall-cmd --list-all-zones", prefixes: []string{"firewalld", "PRE_", "nat_PRE_", "PREROUTING_ZONES", "PREROUTING_direct", "OUTPUT_direct", "nat_PREROUTING", "nat_OUTPUT"}},
	{name: "ufw", look: "sudo ufw status verbose", prefixes: []string{"ufw-", "ufw6-"}},
	{name: "libvirt", look: "sudo virsh net-list --all", prefixes: []string{"LIBVIRT_", "libvirt_network"}},
	{name: "Cilium", proxies: true, prefixes: []string{"CILIUM_", "OLD_CILIUM_"}},
	{name: "Calico", proxies: true, prefixes: []string{"cali-", "cali:", "calico"}},
	{name: "Antrea", proxies: true, prefixes: []string{"ANTREA-", "antrea"}},
	{name: "OVN-Kubernetes", proxies: true, prefixes: []string{"OVN-KUBE-", "ovn-kubernetes"}},
	{name: "kube-router", proxies: true, prefixes: []string{"KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-"}},
	{name: "Weave Net", prefixes: []string{"WEAVE"}},
	{name: "flannel", prefixes: []string{"FLANNEL-", "flannel-"}},
	{name: "the AWS VPC CNI", prefixes: []string{"AWS-"}},
}

// ownerOf names who wrote the chain in which a packet met a rule: by that
// chain, by those that led there, or by the table. ok is false where none of
// them is known.
func ownerOf(steps []netfilter.Step, at netfilter.Step) (ruleOwner, bool) {
	names := []string{at.Chain}
	for _, s := range slices.Backward(steps) {
		if s.Table == at.Table && s.Source == at.Source && s != at {
			names = append(names, s.Chain)
		}
	}
	for _, name := range append(names, at.Table) {
		for _, o := range ruleOwners {
			if slices.ContainsFunc(o.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				return o, true
			}
		}
	}
	return ruleOwner{}, false
}

// ofKubeProxy says whether a rule stands in one of kube-proxy's own chains.
// Others begin with KUBE- too: the container runtime's for host ports,
// kube-router's for policies.
func ofKubeProxy(s netfilter.Step) bool {
	if s.Table == kubeProxyTable {
		return true
	}
	if !strings.HasPrefix(s.Chain, "KUBE-") {
		return false
	}
	return !slices.ContainsFunc([]string{"KUBE-H", "KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-"}, func(p string) bool { return strings.HasPrefix(s.Chain, p) })
}

// rewritingStep is the rule that gave the packet its destination; the zero Step
// where none did.
func rewritingStep(o netfilter.Outcome) netfilter.Step {
	for _, s := range slices.Backward(o.Steps) {
		if rewrites(s.Text) {
			return s
		}
	}
	return netfilter.Step{}
}

// rewrites says whether a rule, as any of the tools prints it, rewrites the
// destination. That it asks for packets which were rewritten (ctstate DNAT, ct
// status dnat) is another matter.
func rewrites(text string) bool {
	if !strings.Contains(text, "DNAT") && !strings.Contains(text, "REDIRECT") && !strings.Contains(text, "NETMAP") && !strings.Contains(text, "dnat") && !strings.Contains(text, "redirect") {
		return false // told at a glance of most rules
	}
	words := strings.Fields(text)
	for i, w := range words {
		switch w {
		case "DNAT", "REDIRECT", "NETMAP":
			if i == 0 || words[i-1] == "-j" || words[i-1] == "--jump" || allCounters(words[:i]) {
				return true
			}
		case "dnat":
			if i+1 < len(words) && (words[i+1] == "to" || words[i+1] == "ip" || words[i+1] == "ip6") && (i < 2 || words[i-2]+" "+words[i-1] != "ct status") {
				return true
			}
		case "redirect":
			if i == 0 || words[i-1] != "comment" {
				return true
			}
		}
	}
	return false
}

// allCounters says whether the words are the numbers that iptables -L prints
// before the target: 0, 12K, 3.
func allCounters(words []string) bool {
	for _, w := range words {
		if strings.Trim(w, "0123456789KMGT") != "" {
			return false
		}
	}
	return true
}

// capture is the rule by which somebody else than kube-proxy took the packet:
// one that rewrote it, or that handed it to a process of the node's (TPROXY).
func capture(o netfilter.Outcome) (netfilter.Step, bool) {
	if o.Verdict == netfilter.Undecided {
		for _, u := range o.Unknowns {
			if strings.Contains(u.Why, "(TPROXY)") || strings.Contains(u.Why, "what tproxy does") {
				return u.Step, len(o.Unknowns) == 1
			}
		}
		return netfilter.Step{}, false
	}
	if !o.Rewritten {
		return netfilter.Step{}, false
	}
	s := rewritingStep(o)
	return s, s.Chain != "" && !ofKubeProxy(s)
}

func captures(o netfilter.Outcome) bool {
	_, ok := capture(o)
	return ok
}

// rewrittenByProxy says whether kube-proxy's rules rewrote the packet: then they
// are to draw every backend. What others send to one is theirs to choose.
func rewrittenByProxy(os []netfilter.Outcome) bool {
	return slices.ContainsFunc(os, func(o netfilter.Outcome) bool { return o.Rewritten && !captures(o) })
}
