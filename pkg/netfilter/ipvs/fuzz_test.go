package ipvs

import (
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		header + "TCP  10.96.0.1:443 rr persistent 10800\n  -> 172.31.250.1:6443            Masq    1      0          2         \n",
		"-A -t 10.96.0.1:443 -s rr -p 10800\n-a -t 10.96.0.1:443 -r 172.31.250.1:6443 -m -w 1\n",
		"TCP  0A607833:0050 rr  persistent 2700000 FFFFFFFF\n  -> 0AF40306:1F90      Masq    1      0          0         \n",
		"FWM  5 IPv6 sh (sh-port)\n  -> [fd00::1]:0 Tunnel 0 0 0", "-a -f", "-A -t [::1]:1 -b", "->", "TCP", "FWM 99999999999 x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, problems, err := Parse(text, "fuzz")
		if err != nil {
			if v != nil {
				t.Fatal("a list comes with an error")
			}
			return
		}
		if len(problems) > 0 && v.Partial() == "" {
			t.Fatal("a text that was not understood counts as whole")
		}
		for _, s := range v.All() {
			if (s.Mark == 0) != s.Addr.IsValid() || s.Line < 1 {
				t.Fatalf("%+v", s)
			}
			for _, r := range s.Real {
				if !r.Addr.IsValid() || r.Weight < netfilter.NotShown || r.Line < s.Line {
					t.Fatalf("%+v", r)
				}
			}
		}
		if again := Merge(v, v); again == nil || len(again.All()) > len(v.All()) {
			t.Fatal("merging with itself adds")
		}
	})
}
