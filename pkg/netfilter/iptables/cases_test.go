package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
	"github.com/vipwalk/vipwalk/pkg/netfilter/ipset"
)

// caseWalk is a packet through the rules of a public report. An excerpt shows
// no base chain, so hooks says from which to assume jumps, and to which chains.
type caseWalk struct {
	file     string
	from, to string // from: an address and the interface
	udp      bool
	// only: the rest of the report is left out: its other tables may do anything.
	only string
	// whole: what the report doesn't show is assumed not to exist.
	whole bool
	hooks map[string]string // "nat PREROUTING": chains
	sets  string
	want  string // of the first outcome: verdict and destination, or "unknown: why"
	by    string // in the rule that decides, or that could not be decided
}

const (
	casePod    = "10.244.1.2 cni0"
	caseClient = "192.0.2.1 eth0"
)

// cases are the public reports that show iptables' rules, and the true cause
// that each came to, as far as the rules show it.
var cases = []struct {
	id, cause string
	tables    string // that are found, or what is refused
	walks     []caseWalk
}{
	{"010-stale-endpoints-kubernetes-svc", "a stale endpoint; the report has no rules", "refused: no table", []caseWalk{{file: "kube-proxy-log.txt"}}},
	{"011-no-local-endpoints-hostname-mismatch-weave", "no local endpoint: KUBE-XLB drops", "nat", []caseWalk{
		{file: "iptables-save-grep.txt", from: caseClient, to: "10.0.0.1:32204", hooks: map[string]string{"nat PREROUTING": "KUBE-NODEPORTS"}, want: "unknown: chain KUBE-MARK-DROP is not in the input", by: "has no local endpoints"},
		{file: "iptables-save-grep.txt", from: "10.32.0.9 weave", to: "10.108.2.154:80", hooks: map[string]string{"nat PREROUTING": "KUBE-SERVICES"}, want: "dnat 10.44.0.56:80"},
		{file: "iptables-save-grep.txt", from: caseClient, to: "10.0.0.1:32204", want: "unknown: chain PREROUTING of table nat is not in the input"},
	}},
	{"013-kube-external-services-drop", "no local endpoint: dropped in filter", "filter", []caseWalk{
		{file: "iptables-save-grep.txt", from: caseClient, to: "10.0.0.1:30100", whole: true, hooks: map[string]string{"filter INPUT": "KUBE-EXTERNAL-SERVICES"}, want: "drop 10.0.0.1:30100", by: "http-80 has no local endpoints"},
		{file: "iptables-save-grep.txt", from: caseClient, to: "10.0.0.1:30100", want: "unknown: table nat is not in the input"},
	}},
	{"015-iptables-L-nv-xlb-drop", "no local endpoint: KUBE-XLB drops", "nat", []caseWalk{
		{file: "iptables-L-nv.txt", from: caseClient, to: "10.0.0.1:31449", hooks: map[string]string{"nat PREROUTING": "KUBE-NODEPORTS"}, want: "unknown: chain KUBE-MARK-DROP is not in the input", by: "has no local endpoints"},
	}},
	{"017-iptables-S-v-counters-inside", "no fault: a ClusterIP balances over all", "nat", []caseWalk{
		{file: "iptables-S-v.txt", from: "10.20.1.1 cali1", to: "10.21.54.108:80", hooks: map[string]string{"nat PREROUTING": "KUBE-SERVICES"}, want: "unknown: chain KUBE-SVC-EX5NGL4HWP5OZFVK is not in the input", by: "KUBE-SVC-EX5NGL4HWP5OZFVK"},
	}},
	{"018-docker-forward-drop-debian-xtables", "FORWARD's policy is DROP, nothing accepts", "filter", []caseWalk{
		{file: "iptables-save.txt", from: casePod, to: "10.244.9.9:53", whole: true, want: "drop 10.244.9.9:53", by: "policy DROP"},
	}},
	{"020-calico-canal-forward-drop-dns", "FORWARD's policy is DROP; bodies are cut off", "filter", []caseWalk{
		{file: "iptables-save.txt", from: casePod, to: "10.244.9.9:53", want: "unknown: table nat is not in the input"},
	}},
	{"021-k3s-host-firewall-reject", "FORWARD rejects pods", "filter", []caseWalk{
		{file: "iptables-save-broken.txt", from: "10.42.0.5 cni0", to: "10.43.0.10:53", whole: true, want: "reject 10.43.0.10:53", by: "-A FORWARD -j REJECT --reject-with icmp-host-prohibited"},
		{file: "iptables-save-working.txt", from: "10.42.0.5 cni0", to: "10.43.0.10:53", whole: true, want: "accept 10.43.0.10:53", by: "-A FORWARD -s 10.42.0.0/16 -j ACCEPT"},
	}},
	{"023-microk8s-drop-before-accept", "FORWARD drops before it accepts", "filter", []caseWalk{
		{file: "iptables-save-fragment.txt", from: "10.1.0.5 cali1", to: "10.1.9.9:53", whole: true, want: "drop 10.1.9.9:53", by: "-A FORWARD -j DROP"},
	}},
	{"024-microk8s-nft-and-legacy", "two backends; the rules are the legacy one's", "filter+mangle, nat", []caseWalk{
		{file: "iptables-save.txt", from: "10.1.0.5 cali1", to: "10.152.183.1:443", want: "unknown: table nat is not in the input"},
		{file: "iptables-legacy-save.txt", from: "10.1.0.5 cali1", to: "10.152.183.1:443", want: "unknown: the quote is not closed"},
	}},
	{"026-kube-firewall-lost-mark", "KUBE-FIREWALL drops everything", "filter", []caseWalk{
		{file: "iptables-save-bad.txt", from: caseClient, to: "10.0.0.1:22", whole: true, want: "drop 10.0.0.1:22", by: `"kubernetes firewall for dropping marked packets" -j DROP`},
		{file: "iptables-save-good.txt", from: caseClient, to: "10.0.0.1:22", whole: true, want: "none 10.0.0.1:22"},
	}},
	{"029-skeleton-tab-indented", "only the skeleton was restored", "mangle, nat", []caseWalk{
		{file: "iptables-save.txt", from: casePod, to: "10.96.0.1:443", want: "unknown: the input breaks off on line 31, before COMMIT: rules of this chain may be missing"},
	}},
	{"031-calico-accept-before-reject-hang", "cali-FORWARD accepts before the REJECT", "filter", []caseWalk{
		{file: "iptables-L-v.txt", from: casePod, to: "10.96.232.205:80", whole: true, want: "unknown: chain cali-FORWARD is not in the input", by: "cali-FORWARD"},
	}},
	{"033-no-comments-gke-style", "rules without comments; solver Services have no endpoints", "filter, nat", []caseWalk{
		{file: "iptables-save-excerpt.txt", from: casePod, to: "10.19.255.37:8089", whole: true, hooks: map[string]string{"filter FORWARD": "KUBE-SERVICES"}, want: "unknown: chain PREROUTING of table nat is not in the input"},
		{file: "iptables-save-excerpt.txt", from: casePod, to: "10.19.255.37:8089", only: "filter", whole: true, hooks: map[string]string{"filter FORWARD": "KUBE-SERVICES"}, want: "reject 10.19.255.37:8089", by: "has no endpoints"},
		{file: "iptables-save-excerpt.txt", from: casePod, to: "10.19.240.10:53", hooks: map[string]string{"nat PREROUTING": "KUBE-SVC-ERIFXISQEP7F7OF4"}, want: "unknown: chain KUBE-SEP-OMED6URIZLUVIGAM is not in the input"},
	}},
	{"034-microk8s-iptables-S-format", "not settled; no fault in filter", "filter", []caseWalk{
		{file: "iptables-S.txt", from: "10.1.0.5 cali1", to: "10.1.9.9:443", whole: true, want: "unknown: the input breaks off on line 34: rules of this chain may be missing"},
	}},
	{"035-dnat-to-zero-persistent", "a DNAT that the tool could not decode", "nat", []caseWalk{
		{file: "iptables-save-grep.txt", from: casePod, to: "10.96.0.77:9100", hooks: map[string]string{"nat PREROUTING": "KUBE-SEP-DASZGVVO7T2FMT4N"}, want: "unknown: port 0 can't be rewritten to", by: "--to-destination :0 --persistent"},
	}},
	{"036-eks-no-kube-svc", "not settled; no Service rule is there", "nat", []caseWalk{
		{file: "iptables-L-nat.txt", from: casePod, to: "172.20.0.1:443", want: "unknown: chain KUBE-SERVICES is not in the input", by: "KUBE-SERVICES"},
	}},
	{"039-openshift-L-wrapped-wide", "a mangled listing", "refused: line 2", []caseWalk{{file: "iptables-L.txt"}}},
	{"040-openshift-old-no-markmasq", "not settled", "mangle, nat", []caseWalk{
		{file: "iptables-save.txt", from: casePod, to: "172.30.0.1:443", want: "unknown: the input breaks off on line 31, before COMMIT: rules of this chain may be missing"},
	}},
	{"052-hostport-stale-escaped-quotes", "a host port's rule of a pod that is gone", "nat", []caseWalk{
		{file: "iptables-save-grep.txt", from: caseClient, to: "10.0.0.1:80", hooks: map[string]string{"nat PREROUTING": "CNI-HOSTPORT-DNAT"}, want: "unknown: chain CNI-DN-93fd5f42fffe1daf6b01f is not in the input", by: "k8s-pod-network"},
		{file: "iptables-save-grep.txt", from: caseClient, to: "10.0.0.1:41529", udp: true, hooks: map[string]string{"nat PREROUTING": "CNI-HOSTPORT-DNAT"}, want: "dnat 10.56.4.152:7788", by: "-j DNAT --to-destination 10.56.4.152:7788"},
	}},
	{"053-iptables-S-quoted-email", "no Service fault; an IPVS node's skeleton", "nat", []caseWalk{
		{file: "iptables-S-quoted.txt", from: casePod, to: "10.96.0.1:443", want: "unknown: the input breaks off on line 26: rules of this chain may be missing"},
	}},
	{"054-json-escaped-save", "healthy, escaped; a rule without its port", "nat+filter", []caseWalk{
		{file: "iptables-escaped.txt", from: casePod, to: "10.96.156.40:27017", hooks: map[string]string{"nat PREROUTING": "KUBE-SERVICES"}, want: "unknown: chain KUBE-SVC-UNMNSATZFYJDMRLS is not in the input"},
		{file: "iptables-escaped.txt", from: casePod, to: "10.96.10.82:443", hooks: map[string]string{"nat PREROUTING": "KUBE-SERVICES"}, want: "unknown: chain KUBE-SVC-7U7O5RDNYVDOUGBF is not in the input", by: "acme/acme-envoy-env1:tls cluster IP"},
		{file: "felix-log.txt", from: casePod, to: "10.96.10.82:443", want: "unknown: table nat is not in the input"},
	}},
	{"063-stale-node-after-mode-switch", "a REJECT is left over from iptables mode", "filter", []caseWalk{
		{file: "iptables-save.txt", from: casePod, to: "10.123.22.76:80", whole: true, want: "reject 10.123.22.76:80", by: "kubia-local has no endpoints"},
	}},
	{"064-etp-and-itp-local-different-verdicts", "one is rejected, the other dropped", "filter, nat", []caseWalk{
		{file: "iptables-save-grep.txt", from: casePod, to: "10.123.22.76:80", only: "filter", whole: true, hooks: map[string]string{"filter FORWARD": "KUBE-SERVICES"}, want: "reject 10.123.22.76:80", by: "kubia-local has no endpoints"},
		{file: "iptables-save-grep.txt", from: caseClient, to: "10.0.0.1:31080", hooks: map[string]string{"nat PREROUTING": "KUBE-XLB-4A2QNZEGYSIQGTWQ"}, want: "unknown: chain KUBE-MARK-DROP is not in the input", by: "kubia-nodeport-local has no local endpoints"},
	}},
	{"068-healthy-libvirt-flannel", "healthy", "nat", []caseWalk{
		{file: "iptables-save-nat.txt", from: casePod, to: "10.98.69.149:3000", want: "dnat 10.244.3.38:80"},
		{file: "iptables-save-nat.txt", from: casePod, to: "10.96.0.1:443", want: "dnat 192.168.100.1:6443"},
	}},
	{"074-k3s-proto-numeric-0", "not found; FORWARD sees no packet", "filter", []caseWalk{
		{file: "iptables-nvL.txt", from: "10.42.0.5 cni0", to: "10.43.0.1:443", whole: true, want: "unknown: chain KUBE-PROXY-FIREWALL is not in the input", by: "KUBE-PROXY-FIREWALL"},
	}},
	{"093-netpol-kube-router-egress-service-ip", "pod firewall before the RETURN for cluster IPs", "filter", []caseWalk{
		{file: "iptables-bad-order.txt", from: "10.233.128.138 kube-bridge", to: "10.233.0.3:53", whole: true, hooks: map[string]string{"filter FORWARD": "KUBE-ROUTER-INPUT"}, want: "unknown: chain KUBE-POD-FW-7SOGOE2OVHLB33NI is not in the input", by: "KUBE-POD-FW"},
		{file: "iptables-good-order.txt", from: "10.1.1.4 kube-bridge", to: "10.96.0.10:53", whole: true, hooks: map[string]string{"filter FORWARD": "KUBE-ROUTER-INPUT"}, want: "none 10.96.0.10:53"},
	}},
	{"102-forward-drop-in-nft-accept-in-legacy", "nft's FORWARD policy is DROP", "filter, filter", []caseWalk{
		{file: "session.txt", from: "10.42.0.5 cni0", to: "10.42.1.5:53", whole: true, want: "drop 10.42.1.5:53", by: "policy DROP"},
	}},
	{"104-k8s-1.1-mark-inline", "healthy", "nat", []caseWalk{
		{file: "iptables-save-grep.txt", from: casePod, to: "10.0.1.175:80", hooks: map[string]string{"nat PREROUTING": "KUBE-SERVICES"}, want: "dnat 10.244.2.3:9376"},
	}},
	{"106-kube-router-lb-blocks-apiserver", "an address in kube-router's set", "filter", []caseWalk{
		{file: "ip6tables-L.txt", from: "fd00::9 eth0", to: "[fd00::1]:6443", whole: true, want: "unknown: chain KUBE-ROUTER-INPUT is not in the input"},
	}},
	{"112-aws-vpc-cni-kops-save-and-list", "healthy", "nat", []caseWalk{
		{file: "iptables-nat-S.txt", from: "172.30.35.99 eni1", to: "100.64.0.1:443", want: "dnat 172.30.47.189:443"},
		{file: "iptables-nat-Lnv.txt", from: "172.30.35.99 eni1", to: "100.64.0.1:443", want: "dnat 172.30.47.189:443"},
		{file: "iptables-nat-S.txt", from: "172.30.35.99 eni1", to: "100.64.0.10:53", want: "dnat 172.30.35.22:53"},
		{file: "iptables-nat-Lnv.txt", from: "172.30.35.99 eni1", to: "100.64.0.10:53", want: "dnat 172.30.35.22:53"},
	}},
	{"115-ipvs-lb-masquerade-asymmetric-vm", "the load balancer's clients are masqueraded", "nat", []caseWalk{
		{file: "iptables-nat-fragments.txt", from: "172.31.12.23 eth0", to: "172.30.4.130:10001", hooks: map[string]string{"nat PREROUTING": "KUBE-SERVICES"},
			sets: "create KUBE-LOAD-BALANCER hash:ip,port family inet\nadd KUBE-LOAD-BALANCER 172.30.4.130,tcp:10001\ncreate KUBE-CLUSTER-IP hash:ip,port family inet\n", want: "unknown: the chain is not declared in the input, so rules of it may be missing mark 0x4000"},
	}},
	{"118-ipvsadm-S-format-calico", "healthy; listings of several chains", "nat, filter", []caseWalk{
		{file: "iptables-blocks.txt", from: casePod, to: "10.106.147.222:80", want: "unknown: chain cali-PREROUTING is not in the input"},
	}},
	{"120-nodeport-local-vs-cluster-resolved-names", "policy Local jumps to KUBE-XLB, Cluster masquerades", "nat", []caseWalk{
		{file: "iptables-L-local.txt", from: caseClient, to: "10.0.0.1:30356", hooks: map[string]string{"nat PREROUTING": ""}, want: "unknown: chain KUBE-XLB-RWJEENDM7NQKL23U is not in the input", by: "KUBE-XLB"},
		{file: "iptables-L-cluster.txt", from: caseClient, to: "10.0.0.1:30356", hooks: map[string]string{"nat PREROUTING": ""}, want: "unknown: chain KUBE-MARK-MASQ is not in the input", by: "KUBE-MARK-MASQ"},
	}},
}

// TestCasesWalk reads every public report that shows iptables' rules, and walks
// packets through most: the outcome shows the true cause, or what is missing
// from the report to tell it.
func TestCasesWalk(t *testing.T) {
	for _, c := range cases {
		var found []string
		for _, w := range c.walks {
			got, by, tables := walkCase(t, c.id, w)
			if strings.Contains(strings.Join(found, "+"), tables) == false {
				found = append(found, tables)
			}
			ok := got == w.want && strings.Contains(by, w.by)
			mark := "ok  "
			if !ok {
				mark = "FAIL"
				t.Errorf("%s %s to %s: got %q by %q, want %q by %q", c.id, w.file, w.to, got, by, w.want, w.by)
			}
			t.Logf("%s %s | %s | %s | %s", mark, c.id[:3], c.cause, w.to, got)
		}
		if s := strings.Join(found, "+"); s != c.tables {
			t.Errorf("%s: found %s, want %s", c.id, s, c.tables)
		}
	}
}

func walkCase(t *testing.T, id string, w caseWalk) (got, by, tables string) {
	t.Helper()
	rs, problems, err := Parse(oracletest.ReadFile(t, oracletest.Shared(t, "cases", id, w.file)), Options{Source: w.file, Strict: true})
	if errors.Is(err, ErrNoTable) {
		return "", "", "refused: no table"
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Kind == Mangled {
			return "", "", fmt.Sprintf("refused: line %d", p.Line)
		}
	}
	var names []string
	for _, i := range rs.Tables() {
		names = append(names, i.Name)
	}
	tables = strings.Join(names, ", ")
	if w.only != "" {
		rs = rs.Only(func(t netfilter.TableInfo) bool { return t.Name == w.only })
	}
	for hook, chains := range w.hooks {
		table, base, _ := strings.Cut(hook, " ")
		rs = rs.Hooked(table, netfilter.Hook(base), strings.Split(chains, " ")...)
	}
	if w.whole {
		rs = netfilter.Merge(rs, netfilter.New([]netfilter.Contents{{Whole: true, Family: netfilter.IPv4}, {Whole: true, Family: netfilter.IPv6}}))
	}
	if w.sets != "" {
		s, _, err := ipset.Parse(w.sets, "sets")
		if err != nil {
			t.Fatal(err)
		}
		rs = rs.WithSets(s)
	}
	var src, in string
	fmt.Sscan(w.from, &src, &in)
	dst := netip.MustParseAddrPort(w.to)
	p := netfilter.Packet{Src: netip.MustParseAddr(src), In: in, Dst: dst.Addr(), DstPort: dst.Port(), Protocol: netfilter.TCP}
	if w.udp {
		p.Protocol = netfilter.UDP
	}
	host := &netfilter.StaticHost{
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, Complete: true, Forward4: netfilter.True, Forward6: netfilter.True,
		Routes: []netfilter.StaticRoute{{To: netip.MustParsePrefix("0.0.0.0/0"), Iface: "eth0"}},
	}
	o := netfilter.Walk(rs, host, p)[0]
	got = fmt.Sprintf("%s %s", o.Verdict, o.To)
	if n := len(o.Steps); n > 0 {
		by = o.Steps[n-1].Text
	}
	if o.Verdict == netfilter.Undecided && len(o.Unknowns) > 0 {
		got, by = "unknown: "+o.Unknowns[0].Why, o.Unknowns[0].Text
	}
	if o.Mark != 0 {
		got += fmt.Sprintf(" mark %#x", o.Mark)
	}
	return got, by, tables
}
