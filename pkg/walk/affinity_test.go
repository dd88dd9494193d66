package walk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// clientIP asks for affinity, for the default time where seconds is 0.
func clientIP(seconds int32) change {
	return service(func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		if seconds > 0 {
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	})
}

const (
	askOne = "-A KUBE-SVC-WEB -m comment --comment \"shop/web -> 10.244.1.5:8080\" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-ONE --mask 255.255.255.255 --rsource -j KUBE-SEP-ONE\n"
	askTwo = "-A KUBE-SVC-WEB -m comment --comment \"shop/web -> 10.244.2.6:8080\" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-TWO --mask 255.255.255.255 --rsource -j KUBE-SEP-TWO\n"
)

// sticky gives the node the rules of affinity, with changes to them.
func sticky(changes ...string) change {
	return func(s *snapshot.Snapshot) {
		text := strings.NewReplacer(webOne, askOne+askTwo+webOne,
			"-m comment --comment \"shop/web\" -m tcp -j DNAT --to-destination 10.244.1.5", "-m comment --comment \"shop/web\" -m recent --set --name KUBE-SEP-ONE --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.1.5",
			"-m comment --comment \"shop/web\" -m tcp -j DNAT --to-destination 10.244.2.6", "-m comment --comment \"shop/web\" -m recent --set --name KUBE-SEP-TWO --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.2.6",
		).Replace(nodeRules)
		setText(s, snapshot.IptablesSave, func(string) string { return strings.NewReplacer(changes...).Replace(text) })
	}
}

// nftSticky is worker-1 in nftables mode with affinity, with changes to its
// rules.
func nftSticky(changes ...string) *snapshot.Snapshot {
	const (
		one = "AAAAAAAA-shop/web/tcp/__10.244.1.5/8080"
		two = "BBBBBBBB-shop/web/tcp/__10.244.2.6/8080"
	)
	set := func(name string) string {
		return "\tset affinity-" + name + " {\n\t\ttype ipv4_addr\n\t\tsize 65535\n\t\tflags dynamic,timeout\n\t\ttimeout 3h\n\t}\n\n"
	}
	chain := func(name, to string) string {
		return "\tchain endpoint-" + name + " {\n\t\tupdate @affinity-" + name + " { ip saddr }\n\t\tmeta l4proto tcp dnat to " + to + "\n\t}\n\n"
	}
	text := strings.NewReplacer(
		"\tmap service-ips", set(one)+set(two)+"\tmap service-ips",
		nftDraw, "ip saddr @affinity-"+one+" goto endpoint-"+one+"\n\t\tip saddr @affinity-"+two+" goto endpoint-"+two+
			"\n\t\tnumgen random mod 2 vmap { 0 : goto endpoint-"+one+", 1 : goto endpoint-"+two+" }",
		"\tchain external-42", chain(one, "10.244.1.5:8080")+chain(two, "10.244.2.6:8080")+"\tchain external-42",
	).Replace(nftRules)
	s := nftNode()
	setText(s, snapshot.NftRuleset, func(string) string { return strings.NewReplacer(changes...).Replace(text) })
	return s
}

var madeJustNow = service(func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(takenAt.Add(-time.Second)) })

func TestAffinityNotProgrammed(t *testing.T) {
	const ask1 = "\t\tip saddr @affinity-AAAAAAAA-shop/web/tcp/__10.244.1.5/8080 goto endpoint-AAAAAAAA-shop/web/tcp/__10.244.1.5/8080\n"
	tests := []struct {
		name          string
		s             *snapshot.Snapshot
		roots, folded string
		says          []string
	}{
		{name: "iptables: asked, and no rule", s: changed(clientIP(0)), roots: "VIP342 warning",
			says: []string{"worker-1 does not keep clients of 10.96.0.50:80/TCP at their backend, and sessionAffinity ClientIP asks for it", "for 10800 seconds", "-j KUBE-SEP-ONE", "service/web .spec.sessionAffinity ClientIP", "restart kube-proxy"}},
		{name: "iptables: not asked, and there are rules", s: changed(sticky()), roots: "VIP342 warning", says: []string{"for 10800 seconds, and sessionAffinity is None", "--rcheck --seconds 10800"}},
		{name: "iptables: another time", s: changed(clientIP(60), sticky()), roots: "VIP342 warning", says: []string{"for 10800 seconds, where the Service asks for 60 seconds", ".spec.sessionAffinityConfig.clientIP.timeoutSeconds 60"}},
		{name: "iptables: one backend asks and does not remember", s: changed(clientIP(0), sticky("-m recent --set --name KUBE-SEP-ONE --mask 255.255.255.255 --rsource ", "")), roots: "VIP342 warning", says: []string{"at 1 of 2 backends only", "-j KUBE-SEP-ONE"}},
		{name: "iptables: one backend remembers and does not ask", s: changed(clientIP(0), sticky(askTwo, "")), roots: "VIP342 warning", says: []string{"at 1 of 2 backends only"}},
		{name: "iptables: asked, and kube-proxy that may be about to follow is stopped", s: changed(clientIP(0), madeJustNow, func(s *snapshot.Snapshot) {
			setText(s, snapshot.ProxyProcess, func(string) string { return "1201 T kube-proxy\n" })
		}), roots: "VIP342 warning", says: []string{"1201 T kube-proxy"}},
		{name: "iptables: asked just now", s: changed(clientIP(0), madeJustNow)},
		{name: "iptables: asked, and kube-proxy started just now", s: changed(clientIP(0), proxyStarted(3*time.Second))},
		{name: "nft: asked, and no set", s: nftWith(nftNode(), clientIP(0)), roots: "VIP342 warning", says: []string{"does not keep clients", "sudo nft list chain ip kube-proxy"}},
		{name: "nft: not asked, and there are sets", s: nftSticky(), roots: "VIP342 warning", says: []string{"for 10800 seconds, and sessionAffinity is None"}},
		{name: "nft: another time", s: nftWith(nftSticky("timeout 3h", "timeout 1h"), clientIP(0)), roots: "VIP342 warning", says: []string{"for 3600 seconds, where the Service asks for 10800 seconds"}},
		{name: "nft: one backend does not ask", s: nftWith(nftSticky(ask1, ""), clientIP(0)), roots: "VIP342 warning", says: []string{"at 1 of 2 backends only"}},
		{name: "no kube-proxy, which explains it", s: changed(clientIP(0), noProxy), roots: "VIP330 warning", folded: "VIP342 warning"},

		{name: "not: asked, and the rules are there", s: changed(clientIP(0), sticky())},
		{name: "not: asked for another time, and the rules have it", s: changed(clientIP(60), sticky("--seconds 10800", "--seconds 60"))},
		{name: "not: neither"},
		{name: "not: nft, asked, and the sets are there", s: nftWith(nftSticky(), clientIP(0))},
		{name: "not: nft, a client is remembered", s: nftWith(nftSticky("timeout 3h\n\t}\n\n\tset affinity-BB", "timeout 3h\n\t\telements = { 10.244.1.9 timeout 3h expires 2h59m, 172.31.250.11 timeout 3h expires 1m }\n\t}\n\n\tset affinity-BB"), clientIP(0))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.s == nil {
				tt.s = nodeFixture()
			}
			checkNode(t, tt.s, Options{}, tt.roots, tt.folded, tt.says)
		})
	}
}

// TestAffinityOfOracles takes affinity out of kube-proxy's own recorded rules,
// and out of the Service, and changes the time.
func TestAffinityOfOracles(t *testing.T) {
	if _, err := os.Stat(oracleDir); err != nil {
		t.Skipf("kube-proxy's recorded rules are not here: %v", err)
	}
	for _, name := range []string{"iptables-rules-002-TestOverallIPTablesRules", "nftables-rules-003-TestOverallNFTablesRules", "nftables-rules-004-TestOverallNFTablesRulesIPv6"} {
		var o oracle
		readJSON(t, filepath.Join(oracleDir, name+".json"), &o)
		var texts map[string]any
		readJSON(t, filepath.Join(oracleDir+"-kernel", name+".real.json"), &texts)
		for _, key := range oracleTexts[o.Mode] {
			text := textOf(t, texts[key])
			var kept strings.Builder
			for line := range strings.Lines(text) {
				if !strings.Contains(line, "--rcheck") && !strings.Contains(line, "saddr @affinity-") {
					kept.WriteString(line)
				}
			}
			mutants := map[string]string{
				"another time": strings.NewReplacer("--seconds 10800", "--seconds 10801", "timeout 3h", "timeout 4h", `"timeout": 10800`, `"timeout": 10801`, `"timeout":10800`, `"timeout":10801`).Replace(text),
			}
			if key != "nftJSON" {
				mutants["no rule"] = kept.String()
			}
			for what, mutant := range mutants {
				if mutant == text {
					t.Errorf("%s %s: %s changes nothing", name, key, what)
				}
				if got := affinityCodes(t, &o, mutant); got != "VIP342" {
					t.Errorf("%s %s, %s: %q", name, key, what, got)
				}
			}
			if got := affinityCodes(t, &o, text); got != "" {
				t.Errorf("%s %s as it is: %q", name, key, got)
			}
			unasked := o
			unasked.Services = nil
			for _, svc := range o.Services {
				svc.Spec.SessionAffinity = corev1.ServiceAffinityNone
				unasked.Services = append(unasked.Services, svc)
			}
			if got := affinityCodes(t, &unasked, text); got != "VIP342" {
				t.Errorf("%s %s, not asked: %q", name, key, got)
			}
		}
	}
}

func affinityCodes(t *testing.T, o *oracle, rules string) string {
	t.Helper()
	var codes []string
	for _, svc := range Walk(o.snapshot(rules), Options{All: true}).Services {
		for _, d := range svc.Diagnoses {
			if d.Layer == diagnosis.LayerNode && d.Severity != diagnosis.Info {
				codes = append(codes, string(d.Code))
				soundOnNode(t, d)
			}
		}
	}
	return strings.Join(codes, " ")
}
