package node

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAllowed(t *testing.T) {
	tests := []struct {
		line string
		ok   bool
	}{
		{"/usr/sbin/iptables-save -c", true},
		{"/sbin/ip6tables-legacy-save -c", true},
		{"/usr/sbin/iptables-nft-save -c", true},
		{"/usr/bin/ip addr", true},
		{"/sbin/ip route show table all", true},
		{"/usr/sbin/nft -j list tables", true},
		{"/usr/sbin/nft list tables", true},
		{"/usr/sbin/nft -j list table ip kube-proxy", true},
		{"/usr/sbin/nft list table inet firewalld", true},

		// What would write, create or load.
		{"/usr/sbin/iptables-save", false},
		{"/usr/sbin/iptables-save -t nat", false},
		{"/usr/sbin/iptables-save -c -t nat", false},
		{"/usr/sbin/iptables-legacy-save -c -t nat", false},
		{"/usr/sbin/iptables-save -c -f /etc/passwd", false},
		{"/usr/sbin/iptables-save -M /tmp/evil -c", false},
		{"/usr/sbin/iptables-save -c --modprobe=/tmp/evil", false},
		{"/usr/sbin/iptables -S", false},
		{"/usr/sbin/iptables -t nat -S", false},
		{"/usr/sbin/iptables -F", false},
		{"/usr/sbin/iptables-restore -c", false},
		{"/usr/sbin/iptables-legacy-restore -c", false},
		{"/usr/sbin/ip addr add 10.0.0.1/8 dev eth0", false},
		{"/usr/sbin/ip addr flush", false},
		{"/usr/sbin/ip -batch /tmp/x", false},
		{"/usr/sbin/ip netns exec x sh", false},
		{"/usr/sbin/ip route del default", false},
		{"/usr/sbin/ip rule", true},
		{"/usr/sbin/ip -6 rule", true},
		{"/usr/sbin/ip rule add from all lookup 7", false},
		{"/usr/sbin/ip rule flush", false},
		{"/usr/sbin/ip route", false},
		{"/usr/sbin/ip", false},
		{"/usr/sbin/nft list ruleset", false},
		{"/usr/sbin/nft list table ip -f", false},
		{"/usr/sbin/nft list table ip x;flush", false},
		{"/usr/sbin/nft list table ip x ; flush ruleset", false},
		{"/usr/sbin/nft list table bridge x", false},
		{"/usr/sbin/nft -j -f /tmp/x list table ip x", false},
		{"/usr/sbin/nft flush table ip kube-proxy", false},
		{"/usr/sbin/nft delete table ip kube-proxy", false},
		{"/usr/sbin/nft flush ruleset", false},
		{"/usr/sbin/ipvsadm -Ln", false},
		{"/usr/sbin/ipset save", true},
		{"/usr/sbin/ipset list", false},
		{"/usr/sbin/ipset save KUBE-CLUSTER-IP", false},
		{"/usr/sbin/ipset -f /tmp/x save", false},
		{"/usr/sbin/ipset save -f /tmp/x", false},
		{"/usr/sbin/ipset restore", false},
		{"/usr/sbin/ipset destroy", false},
		{"/usr/sbin/conntrack -L", false},
		{"/usr/sbin/conntrack -F", false},
		{"/sbin/modprobe nf_tables", false},
		{"/usr/sbin/sysctl -w net.ipv4.ip_forward=1", false},
		{"/bin/sh -c iptables-save", false},
		{"/usr/bin/xtables-nft-multi iptables-save -c", false},

		// What is not the system's program.
		{"iptables-save -c", false},
		{"./iptables-save -c", false},
		{"/tmp/iptables-save -c", false},
		{"/home/user/bin/iptables-save -c", false},
		{"/usr/sbin/../../tmp/iptables-save -c", false},
		{"/usr/sbin/./iptables-save -c", false},
		{"/usr/sbin//iptables-save -c", false},
		{"/usr/sbin/iptables-save/ -c", false},
		{"usr/sbin/iptables-save -c", false},
		{"/iptables-save -c", false},
		{"/usr/sbin/IPTABLES-SAVE -c", false},
		{"", false},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			argv := strings.Split(tt.line, " ")
			err := Allowed(argv[0], argv[1:]...)
			if (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
			if tt.ok {
				return
			}
			if _, err := Exec(context.Background(), argv[0], argv[1:]...); err == nil || !strings.Contains(err.Error(), "refusing to run") {
				t.Errorf("Exec: got %v", err)
			}
		})
	}
	for _, args := range [][]string{{"-c", ""}, {"-c "}, {" -c"}, {"-c\x00"}, {"-cc"}, {"-c\n"}} {
		if err := Allowed("/usr/sbin/iptables-save", args...); err == nil {
			t.Errorf("%q allowed", args)
		}
	}
}

func FuzzAllowed(f *testing.F) {
	f.Add("/usr/sbin/iptables-save", "-c")
	f.Add("/sbin/ip", "addr")
	f.Fuzz(func(t *testing.T, program, arg string) {
		if Allowed(program, arg) != nil {
			return
		}
		save := strings.HasSuffix(program, "tables-save") || strings.HasSuffix(program, "tables-nft-save") || strings.HasSuffix(program, "tables-legacy-save")
		if !(save && arg == "-c") && !(strings.HasSuffix(program, "/ip") && (arg == "addr" || arg == "rule")) && !(strings.HasSuffix(program, "/ipset") && arg == "save") {
			t.Fatalf("%q %q allowed", program, arg)
		}
	})
}

func TestBounded(t *testing.T) {
	b := &bounded{max: 10}
	if n, err := io.Copy(b, strings.NewReader("0123456789")); err != nil || n != 10 || b.String() != "0123456789" {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := io.Copy(b, strings.NewReader("x")); !errors.Is(err, errTooLong) {
		t.Errorf("over its bound: %v", err)
	}
}
