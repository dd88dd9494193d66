//go:build linux

package iptables

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// everyMatch is a ruleset of each match and target whose listing is known.
const everyMatch = `*mangle
:PREROUTING ACCEPT [0:0]
-A PREROUTING -j MARK --set-xmark 0x4000/0x4000
-A PREROUTING -j MARK --set-xmark 0x4000/0x0
-A PREROUTING -j MARK --set-xmark 0x4000/0xffffffff
-A PREROUTING -j MARK --set-xmark 0x0/0xff
-A PREROUTING -j MARK --set-xmark 0x10/0xf0
-A PREROUTING -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -j CONNMARK --set-xmark 0x10/0xffffffff
-A PREROUTING -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff
-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xf
-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A PREROUTING -p tcp -j TPROXY --on-port 15001 --on-ip 127.0.0.1 --tproxy-mark 0x1/0xff
-A PREROUTING -p udp -j CHECKSUM --checksum-fill
COMMIT
*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -s 10.9.0.0/16 -j CT --notrack
-A PREROUTING -s 10.8.0.0/16 -j CT --zone 5
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.0.0.1:80 --persistent
-A PREROUTING -p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.5:80-90 --random
-A PREROUTING -p tcp -j REDIRECT --to-ports 8080-8090 --random
-A PREROUTING -p tcp -j REDIRECT
-A PREROUTING -d 10.0.0.0/24 -j NETMAP --to 192.168.0.0/24
-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE --random-fully
-A POSTROUTING -p tcp -j MASQUERADE --to-ports 100-200
-A POSTROUTING -p tcp -j SNAT --to-source 1.2.3.4:1-5 --random-fully
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:X - [0:0]
-A INPUT -p tcp -m tcp --sport 1:1024 ! --dport 80 -j X
-A INPUT -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j X
-A INPUT -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j X
-A INPUT -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A INPUT -p icmp -m icmp --icmp-type 3/4 -j ACCEPT
-A INPUT -p udp -m multiport ! --dports 80,443,1000:2000 -j X
-A INPUT -p udp -m multiport --sports 80 -j X
-A INPUT -p udp -m multiport --ports 80 -j X
-A INPUT -m conntrack ! --ctstate INVALID,NEW -j X
-A INPUT -m conntrack --ctstate DNAT --ctproto 6 --ctorigdst 1.2.3.4 --ctorigdstport 80 --ctstatus ASSURED --ctdir ORIGINAL -j X
-A INPUT -m conntrack ! --ctorigdst 1.2.3.0/24 -j X
-A INPUT -m state --state NEW -j X
-A INPUT -m mark ! --mark 0x4000/0x4000 -j X
-A INPUT -m mark --mark 0x7 -j X
-A INPUT -m connmark --mark 0x80/0x80 -j X
-A INPUT -m connmark ! --mark 0x80 -j X
-A INPUT -m addrtype --src-type UNICAST ! --dst-type LOCAL --limit-iface-in -j X
-A INPUT -m statistic --mode random --probability 0.50000000000 -j X
-A INPUT -m statistic --mode random ! --probability 0.50000000000 -j X
-A INPUT -m statistic --mode nth --every 3 --packet 1 -j X
-A INPUT -m recent --rcheck --seconds 10800 --reap --name A --mask 255.255.255.255 --rsource -j X
-A INPUT -m recent --set --name A --mask 255.255.255.255 --rdest -j X
-A INPUT -m recent ! --update --seconds 5 --hitcount 3 --rttl --name A --mask 255.255.255.0 --rsource -j X
-A INPUT -s 10.3.0.0/16 -j REJECT --reject-with icmp-port-unreachable
-A INPUT -p tcp -m tcp --dport 99 -j REJECT --reject-with tcp-reset
-A INPUT -m physdev ! --physdev-is-in -j X
-A INPUT -m physdev  --physdev-in eth0 --physdev-is-bridged -j X
-A INPUT -m iprange --src-range 10.0.0.1-10.0.0.5 ! --dst-range 10.1.0.1-10.1.0.5 -j X
-A INPUT -m limit --limit 5/min -j LOG --log-prefix "a b: "
-A INPUT -s 10.4.0.0/16 -j NFLOG --nflog-prefix "x y" --nflog-group 2
-A INPUT -m pkttype ! --pkt-type broadcast -j X
-A INPUT ! -s 10.0.0.0/8 -i eth+ -g X
-A INPUT ! -p tcp -f -j X
-A INPUT -p 99 -j X
-A INPUT -m comment --comment "a /* b -j X" -j X
-A INPUT -m comment --comment "no target"
-A INPUT -m comment --comment one -m comment --comment "two \"quoted\" words" -j X
-A INPUT -s 10.0.0.1/255.0.0.255 -j X
-A INPUT -m ttl --ttl-eq 1 -j X
-A INPUT -p tcp -m tcpmss --mss 1:500 -j X
-A INPUT -m length --length 40:1500 -j X
-A INPUT -m mac --mac-source 00:11:22:33:44:55 -j X
-A INPUT -m hashlimit --hashlimit-upto 5/sec --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name foo -m mark --mark 0x1 -j X
-A INPUT -m policy --dir in --pol ipsec -j X
-A INPUT -m cgroup --cgroup 5 -m conntrack --ctstate NEW -j X
-A INPUT -s 10.5.0.0/16 -j NFQUEUE --queue-num 3 --queue-bypass
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
-A OUTPUT -m owner --uid-owner 1337 -j RETURN
-A OUTPUT -m owner ! --gid-owner 1337 -j RETURN
-A OUTPUT -m owner --socket-exists -j RETURN
COMMIT
`

// inNamespace runs a script in a network namespace of its own.
func inNamespace(t *testing.T, script, stdin string) (string, error) {
	t.Helper()
	cmd := exec.Command("unshare", "-n", "sh", "-c", script)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}

func needTools(t *testing.T, names ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: network namespaces can't be made")
	}
	for _, n := range append(names, "unshare") {
		if _, err := exec.LookPath(n); err != nil {
			t.Skipf("no %s on this machine", n)
		}
	}
}

// forms are what the tool prints of one ruleset, in several forms.
const forms = `
cat > /dev/null <<END
END
%[1]s-restore || exit 1
%[1]s-save; echo "=== %[2]s"
for t in raw mangle nat filter; do echo "\$ %[2]s -t $t -S"; %[2]s -t $t -S || exit 1; done; echo "=== %[2]s"
for t in raw mangle nat filter; do echo "\$ %[2]s -t $t -S -v"; %[2]s -t $t -S -v || exit 1; done; echo "=== %[2]s"
for t in raw mangle nat filter; do echo "\$ %[2]s -t $t -L -n"; %[2]s -t $t -L -n || exit 1; done; echo "=== %[2]s"
for t in raw mangle nat filter; do echo "\$ %[2]s -t $t -nvL --line-numbers"; %[2]s -t $t -nvL --line-numbers || exit 1; done; echo "=== %[2]s"
for t in raw mangle nat filter; do echo "\$ %[2]s -t $t -vL"; %[2]s -t $t -vL || exit 1; done
`

var nfacct = regexp.MustCompile(` -m nfacct --nfacct-name +\S+`)

// TestToolForms loads rules into a kernel, has the tool print them in every
// form, and expects the same rules of each: what iptables-save gives is what
// iptables -S and -L give.
func TestToolForms(t *testing.T) {
	needTools(t, "iptables-legacy-restore", "iptables-nft-restore")
	inputs := map[string]string{"every match": everyMatch}
	dir := filepath.Join("..", "..", "..", "..", "shared", "oracles", "kube-proxy", "v1.37.2-kernel")
	files, _ := filepath.Glob(filepath.Join(dir, "iptables-*.real.json"))
	for i, f := range files {
		if i%4 != 0 { // each fourth, for the time that it takes
			continue
		}
		var in struct{ LegacySave string }
		oracletest.ReadJSON(t, f, &in)
		if in.LegacySave != "" {
			// The objects that nfacct counts with are not there to be named.
			inputs[filepath.Base(f)] = nfacct.ReplaceAllString(in.LegacySave, "")
		}
	}
	for name, text := range inputs {
		for _, backend := range []string{"iptables-legacy", "iptables-nft"} {
			tool := backend
			if strings.Contains(name, "ipv6") {
				tool = strings.Replace(backend, "iptables", "ip6tables", 1)
			}
			t.Run(name+"/"+backend, func(t *testing.T) {
				out, err := inNamespace(t, fmt.Sprintf(forms, tool, tool), text)
				if err != nil {
					t.Fatalf("the kernel does not take the rules: %v", err)
				}
				printed := strings.Split(out, "=== "+tool+"\n")
				want := everyRule(t, printed[0])
				for i, form := range []string{"-S", "-S -v", "-L -n", "-nvL --line-numbers", "-vL"} {
					compareRules(t, form, want, everyRule(t, printed[i+1]))
				}
			})
		}
	}
}

// everyRule parses a text and gives its rules' expressions by table and chain.
func everyRule(t *testing.T, text string) map[string][]string {
	t.Helper()
	rs, problems, err := Parse(text, Options{Strict: true})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, p := range problems {
		if p.Kind != FamilyGuessed && p.Kind != LegacyPresent {
			t.Errorf("%s: %s", p, p.Text)
		}
	}
	out := map[string][]string{}
	for _, table := range rs.Tables() {
		for c := range rs.AllChains(table.Name) {
			key := table.Name + " " + c.Name + " " + c.Policy
			rules := []string{}
			for r := range c.Rules() {
				rules = append(rules, fmt.Sprintf("%s %t %s", r.Target, r.Goto, sortedExprs(r)))
			}
			if !c.Known {
				t.Errorf("%s is not known whole", key)
			}
			if c.Policy == "" || len(rules) > 0 { // nft prints a base chain that is not there
				out[key] = rules
			}
		}
	}
	return out
}

// sortedExprs prints a rule's matches, in no order, and its actions.
func sortedExprs(r netfilter.Rule) string {
	var m []string
	actions := ""
	for _, e := range r.Exprs {
		if e.Do != nil {
			actions += fmt.Sprintf(" %T%v", e.Do, e.Do)
			continue
		}
		if e.Match == nil {
			continue
		}
		m = append(m, fmt.Sprintf("%T%v", e.Match, e.Match))
	}
	slices.Sort(m)
	return strings.Join(m, " ") + " =>" + actions
}

// withoutInterfaces is what is left where the form prints no interfaces.
func withoutInterfaces(in map[string][]string) map[string][]string {
	out := map[string][]string{}
	for k, rules := range in {
		out[k] = []string{}
		for _, r := range rules {
			r = interfaces.ReplaceAllString(r+" ", "")
			out[k] = append(out[k], strings.Join(strings.Fields(r), " "))
		}
	}
	return out
}

var interfaces = regexp.MustCompile(`netfilter\.(Not\{)?(Interface)?\{(source|destination) \S+ (true|false)\}+ |netfilter.Undecidably\{the rule may be for one interface[^}]*\} `)

func compareRules(t *testing.T, form string, want, got map[string][]string) {
	t.Helper()
	if form == "-L -n" {
		want, got = withoutInterfaces(want), withoutInterfaces(got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("iptables %s (-iptables-save +got)\n%s", form, diff)
	}
}
