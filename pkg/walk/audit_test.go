package walk

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// rulesOnly is worker-1's state of nodeFixture without any object; bare is
// iptables-save and nothing else.
func rulesOnly(bare bool, edits ...func(string) string) *snapshot.Snapshot {
	s := nodeFixture()
	s.Reads, s.Objects = nil, snapshot.Objects{}
	st := s.Nodes[0]
	st.Texts = slices.DeleteFunc(st.Texts, func(t snapshot.Text) bool {
		return bare && t.Kind != snapshot.IptablesSave && t.Kind != snapshot.Ip6tablesSave
	})
	for _, edit := range edits {
		setText(s, snapshot.IptablesSave, edit)
	}
	return s
}

// with replaces text that must be there.
func with(t *testing.T, pairs ...string) func(string) string {
	return func(c string) string {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(c, pairs[i]) {
				t.Fatalf("the rules have no %q", pairs[i])
			}
			c = strings.ReplaceAll(c, pairs[i], pairs[i+1])
		}
		return c
	}
}

// auditLines are the paths of an audit and its diagnoses, in order.
func auditLines(r *diagnosis.Report) []string {
	var out []string
	for _, svc := range r.Services {
		for _, p := range svc.Paths {
			out = append(out, fmt.Sprintf("%s/%s %s from %s: %s, %s", svc.Namespace, svc.Name, p.Frontend, p.Client, p.Status, p.Summary))
		}
		for _, d := range svc.Diagnoses {
			out = append(out, fmt.Sprintf("%s %s", d.Code, d.Severity))
		}
		if len(svc.Paths) == 0 {
			out = append(out, fmt.Sprintf("%s: %s", svc.Name, svc.Layers[2].Summary))
		}
	}
	return out
}

// fwdPolicy is where filter FORWARD has its policy.
const fwdPolicy = ":FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-EXTERNAL-SERVICES"

const (
	auditPod  = "shop/web 10.96.0.50:80/TCP from any pod: "
	auditNode = "shop/web 10.96.0.50:80/TCP from node worker-1: "
	auditPort = "shop/web 172.31.250.11:30080/TCP from external: "
	auditEven = "ok, 2 backends, 50% each"
)

// TestAuditFaults breaks a healthy dump, each time one thing, and beside it
// something that looks like that and is none.
func TestAuditFaults(t *testing.T) {
	healthy := []string{auditPod + auditEven, auditNode + auditEven, auditPort + auditEven}
	all := func(does string, codes ...string) []string {
		return append([]string{auditPod + does, auditNode + does, auditPort + does}, codes...)
	}
	const (
		pre   = "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"
		out   = "-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"
		first = "-A KUBE-SVC-WEB -m comment --comment \"shop/web -> 10.244.1.5:8080\" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-ONE\n"
		last  = "-A KUBE-SVC-WEB -m comment --comment \"shop/web -> 10.244.2.6:8080\" -j KUBE-SEP-TWO\n"
		vip   = "-A KUBE-SERVICES -d 10.96.0.50/32 -p tcp -m comment --comment \"shop/web cluster IP\" -m tcp --dport 80 -j KUBE-SVC-WEB\n"
		npVIP = "-A KUBE-NODEPORTS -p tcp -m comment --comment \"shop/web\" -m tcp --dport 30080 -j KUBE-EXT-WEB\n"
		fwd   = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"
		none  = "-A KUBE-SERVICES -d 10.96.0.50/32 -p tcp -m comment --comment \"shop/web has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable\n"
	)
	for _, c := range []struct {
		name string
		edit []string
		want []string
	}{
		{"healthy", nil, healthy},
		{"the Service's chain was emptied", []string{first, "", last, ""}, all("fail, falls through", "VIP301 error")},
		{"another Service's chain is empty, and nothing leads there", []string{":KUBE-SVC-WEB - [0:0]\n", ":KUBE-SVC-WEB - [0:0]\n:KUBE-SVC-OLD - [0:0]\n"}, healthy},
		{"a jump to a chain that is not there", []string{last, strings.Replace(last, "KUBE-SEP-TWO", "KUBE-SEP-GONE", 1)},
			all("unknown, unknown: chain KUBE-SEP-GONE is not in the input 50%, 1 backend 50%")},
		{"a backend's chain was emptied", []string{
			"-A KUBE-SEP-TWO -s 10.244.2.6/32 -m comment --comment \"shop/web\" -j KUBE-MARK-MASQ\n", "",
			"-A KUBE-SEP-TWO -p tcp -m comment --comment \"shop/web\" -m tcp -j DNAT --to-destination 10.244.2.6:8080\n", ""},
			all("fail, falls through 50%, 1 backend 50%", "VIP306 error")},
		{"the last backend is drawn at random, too", []string{last, strings.Replace(last, "-j KUBE", "-m statistic --mode random --probability 0.80000000000 -j KUBE", 1)},
			all("fail, falls through 10%, 2 backends, 40% to 50% each", "VIP306 error")},
		{"the odds are wrong", []string{"0.50000000000", "0.25000000000"}, all("warn, 2 backends, 25% to 75% each", "VIP306 warning")},
		{"the odds as the kernel rounds them", []string{"0.50000000000", "0.50000000047"}, healthy},
		{"PREROUTING's jump is gone", []string{pre, ""},
			[]string{auditPod + "fail, no rule for it", auditNode + auditEven, auditPort + "fail, no rule for it", "VIP307 error"}},
		{"OUTPUT's jump is gone", []string{out, ""},
			[]string{auditPod + auditEven, auditNode + "fail, no rule for it", auditPort + auditEven, "VIP307 error"}},
		{"PREROUTING jumps after a rule for others", []string{pre, "-A PREROUTING -d 10.0.0.1/32 -p tcp -m tcp --dport 9 -j ACCEPT\n" + pre}, healthy},
		{"FORWARD drops by its policy", []string{fwdPolicy, strings.Replace(fwdPolicy, "FORWARD ACCEPT", "FORWARD DROP", 1)},
			[]string{auditPod + "fail, DROP filter FORWARD", auditNode + auditEven, auditPort + auditEven, "VIP310 error"}},
		{"FORWARD drops by its policy what the CNI accepts before", []string{fwdPolicy, strings.Replace(fwdPolicy, "FORWARD ACCEPT", "FORWARD DROP", 1), fwd, fwd + "-A FORWARD -s 10.244.0.0/16 -j ACCEPT\n-A FORWARD -d 10.244.0.0/16 -j ACCEPT\n"}, healthy},
		{"no endpoints", []string{vip, "", npVIP, "", fwd, fwd + none},
			[]string{auditPod + "ok, REJECT no endpoints", auditNode + "ok, REJECT no endpoints", "VIP304 info"}},
		{"without comments", []string{"-m comment --comment \"shop/web cluster IP\" ", "", "-m comment --comment \"shop/web\" ", ""},
			[]string{strings.Replace(auditPod, "shop/web", "/", 1) + auditEven, strings.Replace(auditNode, "shop/web", "/", 1) + auditEven, strings.Replace(auditPort, "shop/web", "/", 1) + auditEven}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := rulesOnly(false)
			if len(c.edit) > 0 {
				s = rulesOnly(false, with(t, c.edit...))
			}
			r := Walk(s, Options{All: true})
			if d := gocmp.Diff(c.want, auditLines(r)); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, describe(r.Services[0]))
			}
			for _, svc := range r.Services {
				if svc.Verdict != diagnosis.Fail && svc.Verdict != diagnosis.Unknown {
					t.Errorf("%s is %s though three layers are unknown", svc.Name, svc.Verdict)
				}
			}
		})
	}
}

// TestAuditBare: iptables-save alone tells neither the node's addresses nor
// whether it forwards.
func TestAuditBare(t *testing.T) {
	pod, node := strings.Replace(auditPod, "172.31.250.11", "", 1), auditNode
	port := "shop/web :30080/TCP from external: "
	for _, c := range []struct {
		name string
		edit []string
		want []string
	}{
		{"healthy", nil, []string{pod + auditEven, node + auditEven, port + auditEven}},
		{"node ports at one address", []string{"-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS", "-d 172.31.250.11/32 -j KUBE-NODEPORTS"},
			[]string{pod + auditEven, node + auditEven, auditPort + auditEven}},
		{"FORWARD drops by its policy", []string{fwdPolicy, strings.Replace(fwdPolicy, "FORWARD ACCEPT", "FORWARD DROP", 1)},
			[]string{pod + "fail, DROP filter FORWARD", node + auditEven, port + auditEven, "VIP310 error"}},
		{"no filter table", []string{nodeRules[strings.Index(nodeRules, "*filter"):strings.Index(nodeRules, "*nat")], ""},
			[]string{pod + "unknown, 2 backends, 50% each, table filter not read", node + "unknown, 2 backends, 50% each, table filter not read", port + "unknown, 2 backends, 50% each, table filter not read"}},
		{"no rule of kube-proxy's", []string{nodeRules[strings.Index(nodeRules, "*nat"):], "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n", ":KUBE-", ":OTHER-", "-A KUBE-", "-A OTHER-", "-j KUBE-", "-j OTHER-"},
			[]string{"the VIPs of worker-1: worker-1: no rule of kube-proxy's is in the input"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := rulesOnly(true)
			if len(c.edit) > 0 {
				s = rulesOnly(true, with(t, c.edit...))
			}
			dropText(s, snapshot.Ip6tablesSave)
			r := Walk(s, Options{All: true})
			if d := gocmp.Diff(c.want, auditLines(r)); d != "" {
				t.Errorf("(-want +got):\n%s\n%s", d, describe(r.Services[0]))
			}
		})
	}
}

// TestAuditCut: a dump that breaks off is said to be partial, whatever of it
// can be walked.
func TestAuditCut(t *testing.T) {
	for _, cut := range []string{"-A KUBE-SVC-WEB -m comment --comment \"shop/web -> 10.244.2.6:8080\"", "-A KUBE-SERVICES -m comment"} {
		s := rulesOnly(true, func(c string) string { return c[:strings.Index(c, cut)] })
		r := Walk(s, Options{All: true})
		for _, svc := range r.Services {
			l := svc.Layers[2]
			if l.Status != diagnosis.Unknown || !slices.ContainsFunc(l.Missing, func(m diagnosis.Missing) bool { return strings.Contains(m.Why, "not whole") }) {
				t.Errorf("cut before %q: %s\n%s", cut, l.Status, describe(svc))
			}
			for _, d := range svc.Diagnoses {
				t.Errorf("cut before %q: %s %s", cut, d.Code, d.Title)
			}
		}
	}
}

// TestAuditFilters: -n goes by what is noted beside the rules, --port by the
// port's name or number.
func TestAuditFilters(t *testing.T) {
	two := with(t, "-A KUBE-SERVICES -m comment", "-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment \"kube-system/kube-dns:dns cluster IP\" -m udp --dport 53 -j KUBE-SVC-WEB\n"+
		"-A KUBE-SERVICES -d 10.96.0.99/32 -p tcp -m tcp --dport 99 -j KUBE-SVC-WEB\n-A KUBE-SERVICES -m comment")
	for _, c := range []struct {
		opts Options
		want string
		note bool
	}{
		{Options{All: true}, "kube-system/kube-dns:10.96.0.10:53 shop/web:10.96.0.50:80 shop/web::30080 /:10.96.0.99:99", false},
		{Options{All: true, Namespaces: []string{"shop"}}, "shop/web:10.96.0.50:80 shop/web::30080", true},
		{Options{All: true, Port: "dns"}, "kube-system/kube-dns:10.96.0.10:53", false},
		{Options{All: true, Port: "80"}, "shop/web:10.96.0.50:80 shop/web::30080", false},
		{Options{All: true, Namespaces: []string{"nowhere"}}, "", false},
	} {
		r := Walk(rulesOnly(false, two), c.opts)
		var got []string
		noted := false
		for _, svc := range r.Services {
			for _, f := range svc.Frontends {
				got = append(got, fmt.Sprintf("%s/%s:%s:%d", svc.Namespace, svc.Name, f.IP, f.Port))
			}
			noted = noted || len(svc.Paths) > 0 && slices.ContainsFunc(svc.Layers[2].Missing, func(m diagnosis.Missing) bool { return strings.Contains(m.What, "without a name") })
		}
		if s := strings.Join(got, " "); s != c.want || noted != c.note {
			t.Errorf("%+v: got %q (unnamed noted: %t), want %q (%t)", c.opts, s, noted, c.want, c.note)
		}
		if len(r.Services) == 0 {
			t.Errorf("%+v: nothing is said", c.opts)
		}
	}
}

// TestAuditNodes: each node's rules are walked, and a node that does something
// else is told apart.
func TestAuditNodes(t *testing.T) {
	s := rulesOnly(false)
	other := rulesOnly(false, with(t, "-A KUBE-SERVICES -d 10.96.0.50/32", "-A KUBE-SERVICES -d 10.96.0.51/32")).Nodes[0]
	other.Name = "worker-2"
	s.Nodes = append(s.Nodes, other)
	want := []string{
		auditPod + auditEven, auditNode + auditEven, "shop/web 10.96.0.51:80/TCP from any pod: fail, no rule for it", "shop/web 10.96.0.51:80/TCP from node worker-1: fail, no rule for it", auditPort + auditEven,
		auditPod + "fail, no rule for it", "shop/web 10.96.0.50:80/TCP from node worker-2: fail, no rule for it",
		"shop/web 10.96.0.51:80/TCP from any pod: " + auditEven, "shop/web 10.96.0.51:80/TCP from node worker-2: " + auditEven, auditPort + auditEven,
		"VIP301 error", "VIP301 error",
	}
	if d := gocmp.Diff(want, auditLines(Walk(s, Options{All: true}))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestAuditHasObjects: with objects, or an API that was asked, nothing is an
// audit of rules alone.
func TestAuditHasObjects(t *testing.T) {
	if r := Walk(nodeFixture(), Options{All: true}); r.Audit {
		t.Error("the fixture's objects were not heeded")
	}
	s := rulesOnly(false)
	s.Reads.Add(snapshot.Read{Resource: snapshot.Services, Status: snapshot.Failed, Why: "forbidden"})
	if r := Walk(s, Options{All: true}); r.Audit {
		t.Error("an API that was asked and refused is no reason for an audit")
	}
}

func TestNotes(t *testing.T) {
	for text, want := range map[string]string{
		`-A KUBE-SERVICES -d 10.0.0.1/32 -m comment --comment "ns/svc:http cluster IP" -m tcp --dport 80 -j X`: "ns/svc:http",
		`-A KUBE-SERVICES -m comment --comment ns/svc -j X`:                                                    "ns/svc:",
		`-A KUBE-SERVICES -m comment --comment "ns/svc: cluster IP" -j X`:                                      "ns/svc:",
		`-A KUBE-SERVICES -m comment --comment \"ns/svc:a cluster IP\" -j X`:                                   "ns/svc:a",
		`KUBE-SVC-X  tcp  --  0.0.0.0/0  10.0.0.1  /* ns/svc:http cluster IP */ tcp dpt:80`:                    "ns/svc:http",
		`-A X -m comment --comment "kubernetes service nodeports; NOTE" -j Y`:                                  "/:",
		"-A X -m comment --comment \"ns/s\x1b[31mvc cluster IP\" -j Y":                                         "/:",
		`-A X -j Y`:        "/:",
		`-A X --comment "`: "/:",
	} {
		ns, name, port := serviceOf(comment(text))
		if got := ns + "/" + name + ":" + port; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for chain, want := range map[string]string{
		"service-ULMVA6XW-ns1/svc1/tcp/p80": "ns1/svc1:p80", "external-ULMVA6XW-ns1/my-svc/tcp/": "ns1/my-svc:",
		"service-ULMVA6XW-ns1/svc1/tc...": "/:", "endpoint-ULMVA6XW-ns1/svc1/tcp/p80__10.1.1.1/80": "/:", "reject-chain": "/:",
	} {
		_, ns, name, port := nftServiceOf(chain)
		if got := ns + "/" + name + ":" + port; got != want {
			t.Errorf("%q: got %q, want %q", chain, got, want)
		}
	}
}

// TestAuditExcerpt: what grep found of the rules leaves all unknown, and says
// beside that what they would do behind the usual jumps.
func TestAuditExcerpt(t *testing.T) {
	var b strings.Builder
	for line := range strings.Lines(nodeRules) {
		if strings.Contains(line, "shop/web") {
			b.WriteString(line)
		}
	}
	s := &snapshot.Snapshot{Nodes: []*snapshot.NodeState{{Texts: []snapshot.Text{text(snapshot.IptablesSave, b.String())}}}}
	want := []string{
		"shop/web 10.96.0.50:80/TCP from any pod: unknown, were it hooked as usual: 2 backends, 50% each",
		// These are marked in a chain that grep did not find.
		"shop/web 10.96.0.50:80/TCP from node: unknown, unknown: chain OUTPUT of table nat is not in the input, table filter not read",
		"shop/web :30080/TCP from external: unknown, unknown: chain PREROUTING of table nat is not in the input, table filter not read",
	}
	if d := gocmp.Diff(want, auditLines(Walk(s, Options{All: true}))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
