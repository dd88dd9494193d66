package walk

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseClient(t *testing.T) {
	pod := func(ns, name string) Client { return Client{Kind: OnePod, Namespace: ns, Name: name} }
	tests := map[string]Client{
		"":                     {},
		"external":             {Kind: FromExternal},
		"client":               pod("shop", "client"),
		"pod client":           pod("shop", "client"),
		"pod/client":           pod("shop", "client"),
		"pods/client":          pod("shop", "client"),
		"po/client":            pod("shop", "client"),
		"pod/other/client":     pod("other", "client"),
		"other/client":         pod("other", "client"),
		"other/client.v2":      pod("other", "client.v2"),
		"node/worker-1":        {Kind: OnNode, Name: "worker-1"},
		"node worker-1":        {Kind: OnNode, Name: "worker-1"},
		"no/ip-10-0-1-5.local": {Kind: OnNode, Name: "ip-10-0-1-5.local"},
		"10.244.1.9":           {Kind: FromAddress, Addr: netip.MustParseAddr("10.244.1.9")},
		"::ffff:10.244.1.9":    {Kind: FromAddress, Addr: netip.MustParseAddr("10.244.1.9")},
		"fd00::9":              {Kind: FromAddress, Addr: netip.MustParseAddr("fd00::9")},
		"[fd00::9]":            {Kind: FromAddress, Addr: netip.MustParseAddr("fd00::9")},
	}
	for text, want := range tests {
		got, err := ParseClient(text, "shop")
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if d := cmp.Diff(want, got, byAddr); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
	for _, text := range []string{"pod/", "node/", "/client", "a/b/c", "pod/a/b/c", "External", "10.244.1.9:80", "10.244.1.0/24", "fe80::1%eth0", "$(reboot)", "a.b/client", "node/$(reboot)"} {
		if got, err := ParseClient(text, "shop"); err == nil {
			t.Errorf("%q is accepted as %+v", text, got)
		}
	}
}
