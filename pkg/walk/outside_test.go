package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const (
	webNodePort = "-A KUBE-NODEPORTS -p tcp -m comment --comment \"shop/web\" -m tcp --dport 30080 -j KUBE-EXT-WEB\n"
	webExternal = "-A KUBE-SERVICES -d 203.0.113.9/32 -p tcp -m comment --comment \"shop/web external IP\" -m tcp --dport 80 -j KUBE-EXT-WEB\n"
	webHealth   = "-A KUBE-NODEPORTS -p tcp -m comment --comment \"shop/web health check node port\" -m tcp --dport 32000 -j ACCEPT\n"
	firstFilter = "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"
	nftPorts    = "elements = { tcp . 30080 : goto external-42NFTM6N-shop/web/tcp/ }"
	nftVIPs     = "elements = { 10.96.0.50 . tcp . 80 : goto service-42NFTM6N-shop/web/tcp/ }"
	nftLocal    = "ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports"
)

// externalIP gives the Service an external IP, and the node its rule.
func externalIP(s *snapshot.Snapshot) {
	s.Objects.Services[0].Spec.ExternalIPs = []string{"203.0.113.9"}
	rules(webVIP, webVIP+webExternal)(s)
}

// balancer makes it a load balancer's Service.
func balancer(mode *corev1.LoadBalancerIPMode) change {
	return func(s *snapshot.Snapshot) {
		svc := &s.Objects.Services[0]
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9", IPMode: mode}}
	}
}

// healthPort makes the load balancer ask each node for its endpoints.
func healthPort(s *snapshot.Snapshot) {
	balancer(ptr(corev1.LoadBalancerIPModeProxy))(s)
	svc := &s.Objects.Services[0]
	svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
	svc.Spec.Ports[0].NodePort = 0
}

func nftWith(s *snapshot.Snapshot, changes ...change) *snapshot.Snapshot {
	for _, c := range changes {
		c(s)
	}
	return s
}

func conf(lines string) change {
	return func(s *snapshot.Snapshot) {
		s.Objects.ConfigMaps[0].Data["config.conf"] = "kind: KubeProxyConfiguration\nmode: " + modeOf(s) + "\n" + lines
	}
}

func modeOf(s *snapshot.Snapshot) string { return s.Nodes[0].Text(snapshot.ProxyMode).Content }

func sysctl(lines string) change {
	return func(s *snapshot.Snapshot) {
		setText(s, snapshot.Sysctl, func(c string) string { return c + lines })
	}
}

func TestNodePortNotProgrammed(t *testing.T) {
	onNode := func(o *Options) { o.Client = Client{Kind: OnNode, Name: "worker-1"} }
	const second = "2: eth0: <UP> mtu 1500\n    inet 172.31.250.11/24 scope global eth0\n"
	twoAddresses := func(s *snapshot.Snapshot) {
		setText(s, snapshot.IPAddr, func(c string) string {
			return strings.Replace(c, second, second+"    inet 10.9.0.7/24 scope global eth0\n", 1)
		})
	}
	tests := []struct {
		name          string
		s             *snapshot.Snapshot
		ask           string
		opts          func(*Options)
		roots, folded string
		says          []string
		status        diagnosis.Status
	}{
		{name: "iptables: the rule is gone", s: changed(rules(webNodePort, "")), roots: "VIP340 error", status: fail,
			says: []string{"worker-1 serves the cluster IP, and knows nothing of node port 30080/TCP", ":KUBE-NODEPORTS (0 rules, none for 30080/TCP)", "-j KUBE-SVC-WEB", "the cluster IP of the same port is sent to 10.244.1.5:8080, 10.244.2.6:8080", "service/web .spec.ports[0].nodePort 30080", "restart kube-proxy"}},
		{name: "iptables: nothing leads to node ports", s: changed(rules("-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n", "")), roots: "VIP340 error", status: fail, says: []string{"none leads to node ports"}},
		{name: "iptables: what the rule leads to is empty", s: changed(rules("-A KUBE-EXT-WEB -m comment --comment \"masquerade traffic for shop/web external destinations\" -j KUBE-MARK-MASQ\n-A KUBE-EXT-WEB -j KUBE-SVC-WEB\n", "")), roots: "VIP340 error", status: fail, says: []string{"nothing behind its rule for node port 30080/TCP rewrites the packet", "--dport 30080 -j KUBE-EXT-WEB"}},
		{name: "iptables: asked by node and port", s: changed(rules(webNodePort, "")), ask: "worker-1:30080", roots: "VIP340 error", status: fail},
		{name: "nft: the element is gone", s: nftNode(nftPorts, ""), roots: "VIP340 error", status: fail, says: []string{"knows nothing of node port 30080/TCP", "vmap @service-nodeports", "sudo nft list chain ip kube-proxy services"}},

		{name: "iptables: nodePortAddresses leaves the address out", s: changed(conf("nodePortAddresses: [10.9.0.0/16]\n"), rules(toPorts, "-d 10.9.0.7/32 -j KUBE-NODEPORTS\n"), twoAddresses), ask: "172.31.250.11:30080", roots: "VIP340 error", status: fail,
			says: []string{"worker-1 serves no node port at 172.31.250.11: nodePortAddresses leaves it out", "served at 10.9.0.7", "nodePortAddresses: [10.9.0.0/16]", "use an address at which node ports are served: 10.9.0.7", "kubectl edit configmap -n kube-system kube-proxy"}},
		{name: "iptables: the rules leave it out, and the configuration was not read", s: changed(func(s *snapshot.Snapshot) { s.Objects.ConfigMaps = nil }, rules(toPorts, "-d 10.9.0.7/32 -j KUBE-NODEPORTS\n"), twoAddresses), ask: "172.31.250.11:30080", roots: "VIP340 error", status: fail, says: []string{"its rules are for other addresses alone", "-d 10.9.0.7/32 -j KUBE-NODEPORTS"}},
		{name: "iptables: no address of the node is served, asked by its name", s: changed(conf("nodePortAddresses: [10.9.0.0/16]\n"), rules(toPorts, "-d 10.9.0.7/32 -j KUBE-NODEPORTS\n")), ask: "worker-1:30080", roots: "VIP340 error", status: fail, says: []string{"served at none"}},
		{name: "nft: an address that is not the primary one", s: nftWith(nftNode(), twoAddresses), ask: "10.9.0.7:30080", roots: "VIP340 error", status: fail,
			says: []string{"nftables mode serves node ports at the node's primary address alone", "served at 172.31.250.11", "ip daddr @nodeport-ips"}},
		{name: "nft: the set lacks the primary address", s: nftNode("elements = { 172.31.250.11 }", "elements = { 10.9.0.7 }"), roots: "VIP340 error", status: fail, says: []string{"knows nothing of node port 30080"}},
		{name: "nft: loopback", s: nftNode(), ask: "127.0.0.1:30080", opts: onNode, roots: "VIP340 error", status: fail, says: []string{"nftables mode serves no loopback address", "use an address at which node ports are served: 172.31.250.11"}},
		{name: "iptables: loopback, and localhostNodePorts is off", s: changed(conf("iptables:\n  localhostNodePorts: false\n"), rules("-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS", "! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")), ask: "127.0.0.1:30080", roots: "VIP340 error", status: fail, says: []string{"localhostNodePorts is off"}},
		{name: "iptables: loopback, and the kernel does not let it out", s: changed(sysctl("net.ipv4.conf.all.route_localnet = 0\nnet.ipv4.conf.eth0.route_localnet = 0\nnet.ipv4.conf.cni0.route_localnet = 0\n")), ask: "127.0.0.1:30080", roots: "VIP340 error", status: fail,
			says: []string{"does not let the packet out: net.ipv4.conf.all.route_localnet = 0", "sudo sysctl -w net.ipv4.conf.all.route_localnet=1"}},

		{name: "not: served", ask: "worker-1:30080", status: diagnosis.OK},
		{name: "not: loopback in iptables mode", ask: "127.0.0.1:30080", s: changed(sysctl("net.ipv4.conf.all.route_localnet = 1\n")), status: diagnosis.OK},
		{name: "not: loopback, and route_localnet was not read", ask: "127.0.0.1:30080", status: diagnosis.OK},
		{name: "not: the cluster IP is gone too", s: changed(rules(webNodePort, ""), rules(webVIP, "")), roots: "VIP301 error", status: fail},
		{name: "not: nft, the cluster IP is gone too", s: nftNode(nftPorts, "", nftVIPs, ""), roots: "VIP301 error", status: fail},
		{name: "not: the hook is gone", s: changed(rules(webNodePort, ""), rules("-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n", "")), roots: "VIP307 error", status: fail},
		{name: "not: left out, and nobody asked for that address", s: changed(conf("nodePortAddresses: [10.9.0.0/16]\n"), rules(toPorts, "-d 10.9.0.7/32 -j KUBE-NODEPORTS\n")), status: diagnosis.OK},
		{name: "not: the configuration leaves it out, and the rules serve it yet", s: changed(conf("nodePortAddresses: [10.9.0.0/16]\n")), ask: "172.31.250.11:30080", status: diagnosis.OK},
		{name: "not: no kube-proxy, which explains it", s: changed(rules(webNodePort, ""), noProxy), roots: "VIP330 error", folded: "VIP340 error", status: fail},
		{name: "not: the Service was made just now", s: changed(rules(webNodePort, ""), service(func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(takenAt.Add(-time.Second)) })), status: unknown},
		{name: "not: nft in every address, as of old", s: nftWith(nftNode(nftLocal, "fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports"), twoAddresses), ask: "10.9.0.7:30080", status: diagnosis.OK},

		{name: "health check: no rule", s: changed(healthPort, rules(webNodePort, "")), roots: "VIP340 warning", status: warn, says: []string{"no rule for the load balancer's health check at port 32000", ":KUBE-NODEPORTS (0 rules, none for 32000/TCP)"}},
		{name: "health check: a rule drops it", s: changed(healthPort, rules(webNodePort, ""), rules("-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL\n", "-A INPUT -p tcp -m tcp --dport 32000 -j DROP\n"), rules(firstFilter, firstFilter+webHealth)), roots: "VIP340 error", status: fail, says: []string{"turns away the load balancer's health check at port 32000", "--dport 32000 -j DROP"}},
		{name: "health check: nft, a rule drops it", s: nftWith(nftNode("table ip kube-proxy {", "table inet fw {\n\tchain input {\n\t\ttype filter hook input priority 10; policy accept;\n\t\ttcp dport 32000 drop\n\t}\n}\ntable ip kube-proxy {"), healthPort), roots: "VIP340 error", status: fail, says: []string{"tcp dport 32000 drop"}},
		{name: "not: health check, a firewall that may let the load balancer in", s: changed(healthPort, rules(webNodePort, ""), rules("*filter\n:INPUT ACCEPT", "*filter\n:INPUT DROP"), rules("-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS\n", "-A INPUT -s 130.211.0.0/22 -j ACCEPT\n")), status: diagnosis.OK},
		{name: "not: health check, its rule is there", s: changed(healthPort, rules(webNodePort, ""), rules(firstFilter, firstFilter+webHealth)), status: diagnosis.OK},
		{name: "not: health check, Cluster policy has none", s: changed(healthPort, rules(webNodePort, ""), service(func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster })), status: diagnosis.OK},
		{name: "not: health check, before 1.21", s: changed(healthPort, rules(webNodePort, ""), rules("-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS\n", ""), rules(":KUBE-FORWARD - [0:0]\n:KUBE-NODEPORTS - [0:0]\n", ":KUBE-FORWARD - [0:0]\n")), status: diagnosis.OK},
		{name: "not: health check, nft tells nothing", s: nftWith(nftNode(), healthPort), status: diagnosis.OK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.s == nil {
				tt.s = nodeFixture()
			}
			o := Options{}
			if tt.opts != nil {
				tt.opts(&o)
			}
			if tt.ask != "" {
				o.Targets = []Target{target(t, tt.ask)}
			}
			svc := checkNode(t, tt.s, o, tt.roots, tt.folded, tt.says)
			if l := svc.Layers[2]; l.Status != tt.status {
				t.Errorf("layer 3 is %s (%s), want %s\n%s", l.Status, l.Summary, tt.status, describe(svc))
			}
		})
	}
}

func TestExternalIPNotProgrammed(t *testing.T) {
	withoutRule := func(s *snapshot.Snapshot) { s.Objects.Services[0].Spec.ExternalIPs = []string{"203.0.113.9"} }
	tests := []struct {
		name          string
		s             *snapshot.Snapshot
		ask           string
		roots, folded string
		says          []string
	}{
		{name: "iptables: an external IP", s: changed(withoutRule), roots: "VIP341 error", says: []string{"worker-1 serves the cluster IP, and knows nothing of external IP 203.0.113.9:80/TCP", "KUBE-SERVICES (2 rules, none for 203.0.113.9:80)", "service/web .spec.externalIPs 203.0.113.9", "-j KUBE-SVC-WEB", "restart kube-proxy"}},
		{name: "iptables: a load balancer's address", s: changed(balancer(nil)), roots: "VIP341 error", says: []string{"knows nothing of the load balancer's address 203.0.113.9:80/TCP"}},
		{name: "iptables: one of mode VIP, asked for", s: changed(balancer(ptr(corev1.LoadBalancerIPModeVIP))), ask: "203.0.113.9:80", roots: "VIP341 error"},
		{name: "iptables: what its rule leads to is empty", s: changed(externalIP, rules("-j KUBE-EXT-WEB\n-A KUBE-SERVICES -m", "-j KUBE-EXT-GONE\n-A KUBE-SERVICES -m"), rules(":KUBE-EXT-WEB - [0:0]\n", ":KUBE-EXT-WEB - [0:0]\n:KUBE-EXT-GONE - [0:0]\n")), roots: "VIP341 error", says: []string{"nothing behind its rule for 203.0.113.9:80/TCP"}},
		{name: "iptables: the gate is off", s: changed(withoutRule, conf("featureGates:\n  AllowServiceExternalIPs: false\n")), roots: "VIP341 error", says: []string{"serves no external IPs: its feature gate AllowServiceExternalIPs is off", "CVE-2020-8554"}},
		{name: "nft: an external IP", s: nftWith(nftNode(), withoutRule), roots: "VIP341 error", says: []string{"sudo nft list chain ip kube-proxy services"}},

		{name: "not: its rule is there", s: changed(externalIP)},
		{name: "not: mode Proxy, which the load balancer ends itself", s: changed(balancer(ptr(corev1.LoadBalancerIPModeProxy)))},
		{name: "not: nft, the element is there", s: nftWith(nftNode(nftVIPs, nftVIPs[:len(nftVIPs)-2]+", 203.0.113.9 . tcp . 80 : goto external-42NFTM6N-shop/web/tcp/ }"), withoutRule)},
		{name: "not: nothing of the Service is programmed", s: changed(withoutRule, rules(webNodePort, ""), rules(webVIP, "")), roots: "VIP301 error"},
		{name: "not: no kube-proxy, which explains it", s: changed(withoutRule, noProxy), roots: "VIP330 error", folded: "VIP341 error"},
		{name: "both outside addresses are missing", s: changed(withoutRule, rules(webNodePort, "")), roots: "VIP340 error VIP341 error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{}
			if tt.ask != "" {
				o.Targets = []Target{target(t, tt.ask)}
			}
			checkNode(t, tt.s, o, tt.roots, tt.folded, tt.says)
		})
	}
}

var (
	nodePortRule    = regexp.MustCompile(`(?m)^-A KUBE-NODEPORTS .*-j KUBE-EXT-.*\n`)
	nodePortElement = regexp.MustCompile(`(?s)(map service-nodeports \{.*?elements = \{).*?\}`)
	outsideRule     = regexp.MustCompile(`(?m)^-A KUBE-SERVICES -d .* (external|loadbalancer) IP".*\n`)
	outsideElement  = regexp.MustCompile(`[0-9a-f.:]+ \. [a-z]+ \. [0-9]+ : goto external-[^ ,}]+,?`)
)

// TestOutsideOfOracles takes the outside addresses out of kube-proxy's own
// recorded rules: what was served there is missed, and by its own code.
func TestOutsideOfOracles(t *testing.T) {
	if _, err := os.Stat(oracleDir); err != nil {
		t.Skipf("kube-proxy's recorded rules are not here: %v", err)
	}
	found := map[string]int{}
	for _, mode := range []string{"iptables", "nftables"} {
		files, err := filepath.Glob(filepath.Join(oracleDir, mode+"-*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			var o oracle
			readJSON(t, name, &o)
			var texts map[string]any
			readJSON(t, filepath.Join(oracleDir+"-kernel", strings.TrimSuffix(filepath.Base(name), ".json")+".real.json"), &texts)
			text := textOf(t, texts[oracleTexts[mode][0]])
			mutants := map[string]string{"VIP340": nodePortRule.ReplaceAllString(text, ""), "VIP341": outsideRule.ReplaceAllString(text, "")}
			if mode == "nftables" {
				mutants["VIP340"] = nodePortElement.ReplaceAllString(text, "$1 sctp . 1 : drop }")
				mutants["VIP341"] = outsideElement.ReplaceAllString(text, "192.0.2.255 . sctp . 1 : drop,")
			}
			for code, mutant := range mutants {
				if !o.HasObjects || mutant == text {
					continue
				}
				for _, c := range outsideCodes(t, &o, mutant) {
					if c != code {
						t.Errorf("%s: %s besides %s", filepath.Base(name), c, code)
					}
					found[mode+" "+c]++
				}
			}
		}
	}
	t.Logf("%v", found)
	for _, want := range []string{"iptables VIP340", "iptables VIP341", "nftables VIP340", "nftables VIP341"} {
		if found[want] < 10 {
			t.Errorf("%s was found in %d sets of rules only", want, found[want])
		}
	}
}

func outsideCodes(t *testing.T, o *oracle, rules string) []string {
	t.Helper()
	var codes []string
	for _, c := range []Client{{}, {Kind: FromExternal}} {
		for _, svc := range Walk(o.snapshot(rules), Options{All: true, Client: c}).Services {
			for _, d := range svc.Diagnoses {
				if d.Layer == diagnosis.LayerNode && d.Severity != diagnosis.Info {
					codes = append(codes, string(d.Code))
					soundOnNode(t, d)
				}
			}
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}
