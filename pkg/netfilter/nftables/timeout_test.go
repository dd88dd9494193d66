package nftables

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTimeouts(t *testing.T) {
	const text = `table ip kube-proxy {
	set affinity-A {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 3h
	}

	set affinity-B/c {
		type ipv4_addr
		flags dynamic,timeout
		timeout 1d1m30s
		elements = { 10.0.0.1 timeout 1d1m30s expires 5s }
	}

	set cluster-ips {
		type ipv4_addr
		elements = { 10.0.0.1 }
	}
}
table ip other {
	set affinity-A {
		type ipv4_addr
		timeout 5s
	}
}
`
	const json = `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "kube-proxy", "handle": 1}},
	{"set": {"family": "ip", "name": "affinity-A", "table": "kube-proxy", "type": "ipv4_addr", "handle": 30, "size": 65535, "flags": ["timeout"], "timeout": 10800}},
	{"set": {"family": "ip", "name": "affinity-B/c", "table": "kube-proxy", "type": "ipv4_addr", "handle": 31, "flags": ["timeout"], "timeout": 86490, "elem": [{"elem": {"val": "10.0.0.1", "expires": 5}}]}},
	{"set": {"family": "ip", "name": "cluster-ips", "table": "kube-proxy", "type": "ipv4_addr", "handle": 2, "elem": ["10.0.0.1"]}}]}`
	want := map[string]time.Duration{"affinity-A": 3 * time.Hour, "affinity-B/c": 24*time.Hour + 90*time.Second}
	for name, in := range map[string]string{"text": text, "json": json} {
		if diff := cmp.Diff(want, Timeouts(in, "kube-proxy")); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	for _, in := range []string{"", "kube-proxy", "# kube-proxy\n", "{\"nftables\": kube-proxy"} {
		if got := Timeouts(in, "kube-proxy"); len(got) != 0 {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"3h": 3 * time.Hour, "1d": 24 * time.Hour, "2d3h4m5s": 51*time.Hour + 4*time.Minute + 5*time.Second, "500ms;": 500 * time.Millisecond} {
		if got, ok := readDuration(text); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "x", "d", "3x", "1dx"} {
		if got, ok := readDuration(text); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
