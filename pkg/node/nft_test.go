package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

func TestNftTables(t *testing.T) {
	const (
		done, failed = snapshot.Done, snapshot.Failed
		loaded       = "nf_tables 1 0 - Live 0x0\n"
		both         = `{"nftables": [{"metainfo": {}}, {"table": {"family": "ip", "name": "kube-proxy", "handle": 1}}, {"table": {"family": "ip", "name": "nat", "handle": 2}}, {"table": {"family": "bridge", "name": "b", "handle": 3}}]}`
		odd          = `{"nftables": [{"table": {"family": "ip", "name": "-f x"}}]}`
		nat          = `{"nftables": [{"table": {"family": "ip", "name": "nat", "handle": 2}}]}`
	)
	tests := []struct {
		name  string
		setup func(*fake)
		out   map[string]string // of commands; any other fails
		save  snapshot.Text
		want  []got
		saved got // what then is said of iptables-save
		ran   []string
	}{
		{name: "no nf_tables", setup: func(f *fake) { f.files["proc/modules"] = file("") },
			want: []got{{snapshot.NftRuleset, done, "", "the kernel has no nf_tables loaded"}}},
		{name: "cannot tell", setup: func(f *fake) { f.files["proc/modules"] = file(""); delete(f.files, "proc/kallsyms") },
			want: []got{{snapshot.NftRuleset, failed, "", "not run: it cannot be told"}}},
		{name: "no nft", setup: func(f *fake) { delete(f.files, "usr/sbin/nft") },
			want: []got{{snapshot.NftRuleset, failed, "", "the kernel has nf_tables, and no nft"}}},
		{name: "no table", out: map[string]string{"nft -j list tables": `{"nftables": []}`},
			save:  snapshot.Text{Kind: snapshot.IptablesSave, Ref: "iptables-nft-save -c", Status: failed, Why: "not run"},
			want:  []got{{snapshot.NftRuleset, done, "", "nf_tables has no table"}},
			saved: got{snapshot.IptablesSave, done, "", "nf_tables has no table of iptables-nft"},
			ran:   []string{"nft -j list tables"}},
		{name: "iptables' tables are shown by iptables-save", out: map[string]string{"nft -j list tables": both, "nft -j list table ip kube-proxy": "KP"},
			save:  snapshot.Text{Kind: snapshot.IptablesSave, Ref: "iptables-nft-save -c", Status: done, Content: "*nat\n"},
			want:  []got{{snapshot.NftRuleset, done, "KP", ""}, {snapshot.NftTables, done, both, ""}},
			saved: got{snapshot.IptablesSave, done, "*nat\n", ""},
			ran:   []string{"nft -j list tables", "nft -j list table ip kube-proxy"}},
		{name: "or by nft, where that was not read", out: map[string]string{"nft -j list tables": both, "nft -j list table ip kube-proxy": "KP", "nft -j list table ip nat": "NAT"},
			save:  snapshot.Text{Kind: snapshot.IptablesSave, Ref: "iptables-nft-save -c", Status: failed, Why: "not run"},
			want:  []got{{snapshot.NftRuleset, done, "KP", ""}, {snapshot.NftRuleset, done, "NAT", ""}, {snapshot.NftTables, done, both, ""}},
			saved: got{snapshot.IptablesSave, failed, "", "not run"},
			ran:   []string{"nft -j list tables", "nft -j list table ip kube-proxy", "nft -j list table ip nat"}},
		{name: "a table of nft under a name of iptables", out: map[string]string{"nft -j list tables": both, "nft -j list table ip kube-proxy": "KP", "nft -j list table ip nat": "NAT"},
			save:  snapshot.Text{Kind: snapshot.IptablesSave, Ref: "iptables-nft-save -c", Status: done, Content: "# Table `nat' is incompatible, use 'nft' tool.\n"},
			want:  []got{{snapshot.NftRuleset, done, "KP", ""}, {snapshot.NftRuleset, done, "NAT", ""}, {snapshot.NftTables, done, both, ""}},
			saved: got{snapshot.IptablesSave, done, "# Table `nat' is incompatible, use 'nft' tool.\n", ""},
			ran:   []string{"nft -j list tables", "nft -j list table ip kube-proxy", "nft -j list table ip nat"}},
		{name: "nothing but what iptables-save shows", out: map[string]string{"nft -j list tables": nat},
			save:  snapshot.Text{Kind: snapshot.IptablesSave, Ref: "iptables-nft-save -c", Status: done, Content: "*nat\n"},
			want:  []got{{snapshot.NftRuleset, done, "", "iptables-save shows every table"}, {snapshot.NftTables, done, nat, ""}},
			saved: got{snapshot.IptablesSave, done, "*nat\n", ""},
			ran:   []string{"nft -j list tables"}},
		{name: "what is no list of tables", out: map[string]string{"nft -j list tables": "Segmentation fault\n", "nft list tables": "Segmentation fault\n"},
			want: []got{{snapshot.NftRuleset, failed, "", "what it printed is no list of tables"}},
			ran:  []string{"nft -j list tables", "nft list tables"}},
		{name: "nft without JSON", out: map[string]string{"nft list tables": "table inet fw\n", "nft list table inet fw": "FW"},
			want: []got{{snapshot.NftRuleset, done, "FW", ""}, {snapshot.NftTables, done, "table inet fw\n", ""}},
			ran:  []string{"nft -j list tables", "nft list tables", "nft -j list table inet fw", "nft list table inet fw"}},
		{name: "a table that nft can't list", out: map[string]string{"nft -j list tables": both},
			save: snapshot.Text{Kind: snapshot.IptablesSave, Ref: "iptables-nft-save -c", Status: done},
			want: []got{{snapshot.NftRuleset, failed, "", "signal: segmentation fault"}, {snapshot.NftTables, done, both, ""}}, saved: got{snapshot.IptablesSave, done, "", ""},
			ran: []string{"nft -j list tables", "nft -j list table ip kube-proxy", "nft list table ip kube-proxy"}},
		{name: "an odd name", out: map[string]string{"nft -j list tables": odd},
			want: []got{{snapshot.NftRuleset, failed, "", `table ip "-f x" has a name`}, {snapshot.NftTables, done, odd, ""}},
			ran:  []string{"nft -j list tables"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.files["proc/modules"] = file(loaded)
			f.files["usr/sbin/nft"] = file("")
			if tt.setup != nil {
				tt.setup(f)
			}
			run := f.Run
			f.Run = func(ctx context.Context, program string, args ...string) (string, error) {
				if _, err := run(ctx, program, args...); err != nil {
					t.Errorf("refused: %v", err)
				}
				if out, ok := tt.out[f.ran[len(f.ran)-1]]; ok {
					return out, nil
				}
				return "", errors.New("signal: segmentation fault")
			}
			rules := []snapshot.Text{tt.save}
			var have []got
			for _, x := range f.nft(context.Background(), f.kernel(), rules) {
				have = append(have, got{x.Kind, x.Status, x.Content, x.Why})
			}
			for i := range have {
				if i < len(tt.want) && strings.HasPrefix(have[i].Why, tt.want[i].Why) && tt.want[i].Why != "" {
					have[i].Why = tt.want[i].Why
				}
			}
			if diff := cmp.Diff(tt.want, have); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.saved, got{rules[0].Kind, rules[0].Status, rules[0].Content, rules[0].Why}); diff != "" {
				t.Errorf("iptables-save (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.ran, f.ran); diff != "" {
				t.Errorf("ran (-want +got)\n%s", diff)
			}
		})
	}
}
