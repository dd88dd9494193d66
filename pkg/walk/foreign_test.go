package walk

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nodeIncident is a state of worker-1, and what layer 3 is to say of it.
type nodeIncident struct {
	name   string
	s      *snapshot.Snapshot // nodeFixture() if nil
	change []change
	opts   func(*Options)
	// roots are the codes that nothing explains, with their severity; folded
	// those that something does.
	roots, folded []string
	status        diagnosis.Status // ok if empty
	// says must stand in the first diagnosis of the layer; missing in what it lacks.
	says    []string
	missing string
}

func (in nodeIncident) run(t *testing.T) {
	t.Helper()
	s := in.s
	if s == nil {
		s = nodeFixture()
	}
	for _, c := range in.change {
		c(s)
	}
	o := Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}
	if in.opts != nil {
		in.opts(&o)
	}
	svc := Walk(s, o).Services[0]
	var roots, folded []string
	first := ""
	for _, d := range svc.Diagnoses {
		if d.Layer != diagnosis.LayerNode {
			continue
		}
		if first == "" {
			first = everything(d)
		}
		if line := string(d.Code) + " " + string(d.Severity); len(d.CausedBy) == 0 {
			roots = append(roots, line)
		} else {
			folded = append(folded, line)
		}
		if d.Title == "" || d.Expected == "" || d.Found == "" || len(d.Evidence) == 0 || len(d.Fixes) == 0 {
			t.Errorf("%s lacks something: %+v", d.Code, d)
		}
		for _, e := range d.Evidence {
			if e.Source == "" || e.Quote == "" || e.Command == "" {
				t.Errorf("%s: evidence %+v lacks something", d.Code, e)
			}
		}
		for _, f := range d.Fixes {
			if f.Title == "" || len(f.Commands) == 0 || f.BlastRadius == "" || len(f.Undo) == 0 || len(f.Verify) == 0 {
				t.Errorf("%s: fix %+v lacks something", d.Code, f)
			}
		}
	}
	if !slices.Equal(roots, in.roots) || !slices.Equal(folded, in.folded) {
		t.Errorf("roots %q, folded %q; want %q, %q\n%s", roots, folded, in.roots, in.folded, describe(svc))
	}
	l := svc.Layers[2]
	if want := diagnosis.Status(cmpOr(string(in.status), "ok")); l.Status != want {
		t.Errorf("layer 3 is %s (%s), want %s\n%s", l.Status, l.Summary, want, describe(svc))
	}
	for _, text := range in.says {
		if !strings.Contains(first, text) {
			t.Errorf("the first diagnosis does not say %q:\n%s", text, first)
		}
	}
	if in.missing != "" && !slices.ContainsFunc(l.Missing, func(m diagnosis.Missing) bool {
		return strings.Contains(m.What+m.Why+m.Supply, in.missing)
	}) {
		t.Errorf("nothing that it lacks says %q: %+v", in.missing, l.Missing)
	}
}

const (
	webJump = "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"
	webOut  = "-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"
)

// before puts rules ahead of kube-proxy's jump in nat PREROUTING.
func before(lines string) change { return inNAT(webJump, lines+webJump) }

// after puts them behind it.
func after(lines string) change { return inNAT(webJump, webJump+lines) }

// inNAT replaces a rule of table nat, and declares the chains of the new ones.
func inNAT(old, lines string) change {
	return func(s *snapshot.Snapshot) {
		rules(old, lines)(s)
		rules(":KUBE-EXT-WEB - [0:0]\n", declarations(lines)+":KUBE-EXT-WEB - [0:0]\n")(s)
	}
}

// declarations are iptables-save's lines for chains that nodeRules lacks.
func declarations(lines string) string {
	out := ""
	for line := range strings.Lines(lines) {
		chain := strings.Fields(line)[1]
		if decl := ":" + chain + " - [0:0]\n"; !strings.Contains(nodeRules, ":"+chain+" ") && !strings.Contains(out, decl) {
			out += decl
		}
	}
	return out
}

func aimedAt(text string) func(*Options) {
	return func(o *Options) {
		target, err := ParseTarget(text, "shop")
		if err != nil {
			panic(err)
		}
		o.Targets = []Target{target}
	}
}

func calledFrom(text string) func(*Options) {
	return func(o *Options) {
		c, err := ParseClient(text, "shop")
		if err != nil {
			panic(err)
		}
		o.Client = c
	}
}

// withPod adds a running pod.
func withPod(ns, name, ip string, labels map[string]string) change {
	return func(s *snapshot.Snapshot) {
		pod := readyPod(ns, name, ip, "worker-1")
		pod.Labels = labels
		s.Objects.Pods = append(s.Objects.Pods, pod)
	}
}

// nodeAsLoadBalancer is what k3s's servicelb makes of the Service: the node's
// own address, programmed by kube-proxy like any load balancer's.
func nodeAsLoadBalancer(s *snapshot.Snapshot) {
	svc := &s.Objects.Services[0]
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "172.31.250.11"}}
	rules(webVIP, webVIP+"-A KUBE-SERVICES -d 172.31.250.11/32 -p tcp -m comment --comment \"shop/web loadbalancer IP\" -m tcp --dport 80 -j KUBE-EXT-WEB\n")(s)
}

// portmap is what the CNI's plugin writes for a pod with a hostPort, to stand
// before or after kube-proxy's jump.
func portmap(port, to string) string {
	return "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
		"-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"cbr0\\\" id: \\\"efa1c24c\\\"\" -m multiport --dports " + port + " -j CNI-DN-1\n" +
		"-A CNI-DN-1 -p tcp -m tcp --dport " + port + " -j DNAT --to-destination " + to + "\n"
}

func TestCapturedByForeignRule(t *testing.T) {
	docker := func(port string) string {
		return "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-A DOCKER ! -i docker0 -p tcp -m tcp --dport " + port + " -j DNAT --to-destination 172.17.0.2:80\n"
	}
	svclb := map[string]string{"app": "svclb-web-1a2b3c4d", serviceLBName: "web", serviceLBNamespace: "shop"}
	noPods := func(s *snapshot.Snapshot) {
		s.Reads = slices.DeleteFunc(s.Reads, func(r snapshot.Read) bool { return r.Resource == snapshot.Pods })
		s.Reads.Add(snapshot.Read{Resource: snapshot.Pods, Namespace: "shop", Status: snapshot.Done})
	}
	const tproxy = "-A PREROUTING -p tcp -m tcp --dport 80 -j TPROXY --on-port 15001 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1\n"
	inMangle := func(lines string) change {
		return rules(":KUBE-PROXY-CANARY - [0:0]\nCOMMIT\n*filter", ":KUBE-PROXY-CANARY - [0:0]\n"+lines+"COMMIT\n*filter")
	}
	for _, in := range []nodeIncident{
		{name: "docker publishes the node port", change: []change{before(docker("30080"))}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"a rule of docker takes every connection to 172.31.250.11:30080/TCP on worker-1", "172.17.0.2:80", "-A KUBE-NODEPORTS -p tcp", "docker ps", "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER"}},
		{name: "not VIP308: docker publishes another port", change: []change{before(docker("8080"))}},
		{name: "not VIP308: docker comes after kube-proxy", change: []change{after(docker("30080"))}},
		{name: "a pod's hostPort", change: []change{before(portmap("30080", "10.244.1.30:8443")), withPod("edge", "gate-1", "10.244.1.30", nil)}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"the CNI plugin portmap", "pod edge/gate-1, no endpoint of the Service", "kubectl get pod gate-1 -n edge"}},
		{name: "a hostPort of a pod that is gone", change: []change{before(portmap("30080", "10.244.1.30:8443"))}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"an address that no pod has", "-D CNI-DN-1 -p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.244.1.30:8443", "-I CNI-DN-1 1 -p tcp"}},
		{name: "not VIP308: a hostPort on another port", change: []change{before(portmap("443", "10.244.1.30:8443"))}},
		{name: "not VIP308: the hostPort leads to a backend", change: []change{before(portmap("30080", "10.244.1.5:8080"))}},
		{name: "the hostPort leads to a backend's other port", change: []change{before(portmap("30080", "10.244.1.5:9090"))}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"pod shop/web-1 on a port that is no endpoint's"}},
		{name: "not VIP308: k3s's servicelb hands on to the Service", change: []change{nodeAsLoadBalancer, before(portmap("80", "10.244.1.30:80")), withPod("kube-system", "svclb-web-1a2b3c4d-x", "10.244.1.30", svclb)}},
		{name: "servicelb's pod is another Service's", change: []change{nodeAsLoadBalancer, before(portmap("80", "10.244.1.30:80")), withPod("kube-system", "svclb-traefik-x", "10.244.1.30", map[string]string{serviceLBName: "traefik", serviceLBNamespace: "kube-system"})},
			roots: []string{"VIP308 error"}, status: fail, says: []string{"pod kube-system/svclb-traefik-x"}},
		{name: "whether it is servicelb's pod was not read", change: []change{nodeAsLoadBalancer, before(portmap("80", "10.244.1.30:80")), noPods}, status: unknown, missing: "servicelb"},
		{name: "a DNAT by hand, of the cluster IP", change: []change{before("-A PREROUTING -d 10.96.0.50/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.10:80\n")}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"a rule that is not kube-proxy's takes every connection to 10.96.0.50:80/TCP", "192.0.2.10:80, no endpoint of the Service", "-D PREROUTING -d 10.96.0.50/32", "for any pod"}},
		{name: "not VIP308: a DNAT by hand to a backend", change: []change{before("-A PREROUTING -d 10.96.0.50/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.2.6:8080\n")}},
		{name: "a mesh redirects the node's own packets", change: []change{inNAT(webOut, "-A OUTPUT -p tcp -j ISTIO_OUTPUT\n-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -j ISTIO_REDIRECT\n-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001\n"+webOut)}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"a rule of Istio takes", "a process of the node on port 15001", "for node worker-1"}},
		{name: "not VIP308: a mesh leaves this port alone", change: []change{inNAT(webOut, "-A OUTPUT -p tcp -j ISTIO_OUTPUT\n-A ISTIO_OUTPUT -p tcp -m tcp --dport 80 -j RETURN\n-A ISTIO_OUTPUT -j ISTIO_REDIRECT\n-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001\n"+webOut)}},
		{name: "TPROXY hands it to a local process", change: []change{inMangle(tproxy)}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"hands it to a process of the node", "TPROXY --on-port 15001"}},
		{name: "not VIP308: TPROXY may or may not match", change: []change{inMangle(strings.Replace(tproxy, "-j", "-m quarantine --list x -j", 1))}, status: unknown},
		{name: "firewalld forwards the port", change: []change{before("-A PREROUTING -j nat_PRE_public_allow\n-A nat_PRE_public_allow -p tcp -m tcp --dport 30080 -j DNAT --to-destination 192.0.2.7:80\n")}, roots: []string{"VIP308 error"}, status: fail,
			says: []string{"a rule of firewalld takes", "firewall-cmd --list-all-zones"}},
		{name: "not VIP308: one that programs Services takes it", change: []change{before("-A PREROUTING -j ANTREA-PREROUTING\n-A ANTREA-PREROUTING -p tcp -m tcp --dport 30080 -j DNAT --to-destination 169.254.0.252\n")}, status: unknown, missing: "Antrea programs Services too"},
		{name: "some connections only", change: []change{before("-A PREROUTING -d 10.96.0.50/32 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.25 -j DNAT --to-destination 192.0.2.10:80\n")}, opts: calledFrom("client"), roots: []string{"VIP308 error"}, status: fail,
			says: []string{"takes 25% of connections"}},
		{name: "an nft table ahead of kube-proxy's", s: nftNode("table ip kube-proxy {", "table ip edge {\n\tchain pre {\n\t\ttype nat hook prerouting priority -110; policy accept;\n\t\ttcp dport 30080 dnat to 192.0.2.7:80\n\t}\n}\ntable ip kube-proxy {"), roots: []string{"VIP308 error"}, status: fail,
			says: []string{"a rule that is not kube-proxy's takes every connection to 172.31.250.11:30080/TCP", "sudo nft list chain ip edge pre", "192.0.2.7:80"}},
		{name: "not VIP308: an nft table behind kube-proxy's", s: nftNode("table ip kube-proxy {", "table ip edge {\n\tchain pre {\n\t\ttype nat hook prerouting priority -90; policy accept;\n\t\ttcp dport 30080 dnat to 192.0.2.7:80\n\t}\n}\ntable ip kube-proxy {")},
		{name: "not VIP308: rules that ask for what was rewritten", change: []change{rules(routerJump, "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT\n"+routerJump)}},
	} {
		t.Run(in.name, in.run)
	}
}

// TestCapturedAlone: rules and no objects. What others send on is theirs; where
// kube-proxy's rules would have sent it elsewhere, somebody took it.
func TestCapturedAlone(t *testing.T) {
	for _, tt := range []struct {
		name, target, lines, want, says string
		status                          diagnosis.Status
	}{
		{"a hostPort over a node port", "172.31.250.11:30080", portmap("30080", "10.244.1.30:80"), "VIP308", "", fail},
		{"docker's own port", "172.31.250.11:8080", "-A PREROUTING -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80\n", "", "", diagnosis.OK},
		{"a hand-made DNAT of a cluster IP", "10.96.0.50:80", "-A PREROUTING -d 10.96.0.50/32 -p tcp -j DNAT --to-destination 192.0.2.3:80\n", "VIP308", "which kube-proxy's rules have no say in", fail},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &snapshot.Snapshot{TakenAt: takenAt, Nodes: []*snapshot.NodeState{{Via: "node-state", Texts: []snapshot.Text{
				text(snapshot.IptablesSave, nodeRules), text(snapshot.IPAddr, nodeAddrs),
			}}}}
			before(tt.lines)(s)
			o := Options{}
			aimedAt(tt.target)(&o)
			svc := Walk(s, o).Services[0]
			if got := nodeRoots(svc); got != tt.want || svc.Layers[2].Status != tt.status {
				t.Errorf("got %q, layer %s; want %q, %s\n%s", got, svc.Layers[2].Status, tt.want, tt.status, describe(svc))
			}
			if tt.says != "" && !strings.Contains(everything(svc.Diagnoses[0]), tt.says) {
				t.Errorf("it does not say %q: %s", tt.says, everything(svc.Diagnoses[0]))
			}
		})
	}
}

// TestRuleWords: rules become words that a shell is given one by one.
func TestRuleWords(t *testing.T) {
	for text, want := range map[string]string{
		`-A X -j DNAT`: "-A|X|-j|DNAT",
		`-A X --comment "dnat name: \"k8s\" id: \\" -j Y`: `-A|X|--comment|dnat name: "k8s" id: \|-j|Y`,
		`-A X --comment ""`: `-A|X|--comment|`,
		`-A X "`:            "!",
	} {
		words, ok := ruleWords(text)
		got := strings.Join(words, "|")
		if !ok {
			got = "!"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestRewrites(t *testing.T) {
	for text, want := range map[string]bool{
		"-A X -p tcp -j DNAT --to-destination 10.0.0.1:80":                                true,
		"-A X -p tcp -j REDIRECT --to-ports 15001":                                        true,
		"DNAT       tcp  --  0.0.0.0/0  0.0.0.0/0  to:10.0.0.1:80":                        true,
		"  12  720 DNAT  tcp  --  *  *  0.0.0.0/0  0.0.0.0/0  to:10.0.0.1:80":             true,
		"meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 8080 }":   true,
		"tcp dport 80 redirect to :15001":                                                 true,
		"-A X -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT":                  false,
		"-A X -m conntrack --ctstate DNAT -j ACCEPT":                                      false,
		"ct status dnat accept":                                                           false,
		"ct status dnat ip saddr . ip daddr @hairpin-connections masquerade":              false,
		"-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT":                 false,
		"ACCEPT     all  --  0.0.0.0/0  0.0.0.0/0  ctstate RELATED,ESTABLISHED,DNAT":      false,
		"-A KUBE-FIREWALL ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,DNAT -j DROP": false,
	} {
		if got := rewrites(text); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// TestForeignHostile: whatever a rule says in its comment, the commands that are
// printed to be pasted run nothing of it.
func TestForeignHostile(t *testing.T) {
	const evil = "x';$(reboot)`reboot`&;"
	dnat := "-A PREROUTING -d 10.96.0.50/32 -p tcp -m comment --comment \"" + evil + "\" -m tcp --dport 80 -j DNAT --to-destination 192.0.2.10:80\n"
	chain := "-A PREROUTING -p tcp -j $(reboot)\n-A $(reboot) -p tcp -m tcp --dport 30080 -j DNAT --to-destination 192.0.2.10:80\n"
	for name, lines := range map[string]string{"comment": dnat, "chain": chain} {
		t.Run(name, func(t *testing.T) {
			s := nodeFixture()
			before(lines)(s)
			svc := Walk(s, Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}).Services[0]
			if got := nodeRoots(svc); got != "VIP308" {
				t.Fatalf("got %q\n%s", got, describe(svc))
			}
			for _, d := range svc.Diagnoses {
				var commands []string
				for _, e := range d.Evidence {
					commands = append(commands, e.Command)
				}
				for _, f := range d.Fixes {
					commands = append(append(append(commands, f.Commands...), f.Undo...), f.Verify...)
				}
				for _, c := range commands {
					if bare := outsideQuotes(c); strings.ContainsAny(bare, "$`;&") {
						t.Errorf("the shell would run a part of %s", c)
					}
				}
			}
		})
	}
}
