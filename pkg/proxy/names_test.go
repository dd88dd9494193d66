package proxy

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestServiceChains: names that kube-proxy of several versions gave.
func TestServiceChains(t *testing.T) {
	for _, c := range []struct{ ns, name, port, protocol, want string }{
		{"default", "kubernetes", "https", "TCP", "NPX46M4PTMTKRN6Y"},
		{"kube-system", "kube-dns", "dns", "UDP", "TCOU7JCQXEZGVUNU"},
		{"kube-system", "kube-dns", "dns-tcp", "TCP", "ERIFXISQEP7F7OF4"},
		{"kube-system", "kube-dns", "metrics", "TCP", "JD5MR3NA4I4DYORP"},
		{"default", "kubernetes", "dns", "udp", "3VQ6B3MLH7E2SZT4"}, // OpenShift 3
		{"default", "kubernetes", "dns-tcp", "tcp", "BA6I5HTZKAAAJT56"},
	} {
		got := ServiceChains(PortName(c.ns, c.name, c.port), c.protocol)
		want := ChainNames{"KUBE-SVC-" + c.want, "KUBE-SVL-" + c.want, "KUBE-EXT-" + c.want, "KUBE-XLB-" + c.want, "KUBE-FW-" + c.want}
		if got != want {
			t.Errorf("%+v: %+v, want %+v", c, got, want)
		}
		if !got.Has(want.Local) || got.Has("KUBE-SVC-NOTTHISONE") {
			t.Errorf("%+v has the wrong names", got)
		}
	}
}

func TestIsServiceChain(t *testing.T) {
	for chain, want := range map[string]bool{
		"KUBE-SVC-NPX46M4PTMTKRN6Y": true, "KUBE-SEP-NPX46M4PTMTKRN6Y": true, "KUBE-XLB-NPX46M4PTMTKRN6Y": true, "KUBE-FW-NPX46M4PTMTKRN6Y": true,
		"KUBE-SERVICES": false, "KUBE-FIREWALL": false, "KUBE-SVC-short": false, "KUBE-SVC-npx46m4ptmtkrn6y": false, "KUBE-FW-": false, "": false,
	} {
		if got := IsServiceChain(chain); got != want {
			t.Errorf("%q: %t, want %t", chain, got, want)
		}
	}
}

// named names a port from a comment: of the old form, if that has a colon that
// no name follows.
func named(comment string) string {
	ns, rest, _ := strings.Cut(comment, "/")
	name, port, colon := strings.Cut(rest, ":")
	if colon && port == "" {
		return OldPortName(ns, name, port)
	}
	return PortName(ns, name, port)
}

// TestNamesOfPublicRules predicts the names of every Service and endpoint
// chain of public reports, from what the comments say.
func TestNamesOfPublicRules(t *testing.T) {
	jump := regexp.MustCompile(`-A KUBE-SERVICES .*-p (tcp|udp) -m comment --comment "([^ "]+) cluster IP" .*-j (KUBE-SVC-\w+)`)
	dnat := regexp.MustCompile(`-A (KUBE-SEP-\w+) .*-p (tcp|udp) -m comment --comment "?([^ "]+)"? .*--to-destination ([0-9.:]+)$`)
	services, endpoints := 0, 0
	for _, file := range []string{
		"068-healthy-libvirt-flannel/iptables-save-nat.txt", "112-aws-vpc-cni-kops-save-and-list/iptables-nat-S.txt",
		"104-k8s-1.1-mark-inline/iptables-save-grep.txt", "011-no-local-endpoints-hostname-mismatch-weave/iptables-save-grep.txt",
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", file))
		if err != nil {
			t.Skipf("the shared cases are not beside the repository: %v", err)
		}
		for _, line := range regexp.MustCompile(`\r?\n`).Split(string(text), -1) {
			if m := jump.FindStringSubmatch(line); m != nil {
				services++
				if got := ServiceChains(named(m[2]), m[1]).Service; got != m[3] {
					t.Errorf("%s: %s, want %s", m[2], got, m[3])
				}
			}
			if m := dnat.FindStringSubmatch(line); m != nil {
				endpoints++
				if got := EndpointChain(named(m[3]), m[2], netip.MustParseAddrPort(m[4])); got != m[1] {
					t.Errorf("%s: %s, want %s", line, got, m[1])
				}
			}
		}
	}
	if services < 8 || endpoints < 12 {
		t.Errorf("found %d services and %d endpoints, want at least 8 and 12", services, endpoints)
	}
	t.Logf("predicted %d services and %d endpoints", services, endpoints)
}
