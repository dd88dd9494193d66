package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// fake is a machine made of a few files; what it is asked to run is recorded.
type fake struct {
	Machine
	files fstest.MapFS
	ran   []string
}

// newFake is a Debian node with modules, kube-proxy and both backends' tools,
// and neither backend in the kernel.
func newFake() *fake {
	f := &fake{files: fstest.MapFS{
		"proc/self/ns/net":                          link("net:[1]"),
		"proc/self/ns/pid":                          link(initialPIDNamespace),
		"proc/1/comm":                               file("systemd\n"),
		"proc/modules":                              file("bridge 1 0 - Live 0x0\n"),
		"proc/kallsyms":                             file(strings.Repeat("0000000000000000 T do_nothing\n", 2000)),
		"proc/sys/kernel/osrelease":                 file("6.1.0\n"),
		"proc/sys/net/ipv4/ip_forward":              file("1\n"),
		"proc/sys/net/ipv4/conf/all/forwarding":     file("1\n"),
		"proc/sys/net/ipv4/conf/eth0.100/rp_filter": file("2\n"),
		"proc/42/comm":                              file("kube-proxy\n"),
		"proc/42/stat":                              file("42 (kube-proxy) T 1 42"),
		"proc/42/ns/net":                            link("net:[1]"),
		"proc/43/comm":                              file("kube-proxy\n"),
		"proc/43/stat":                              file("43 (kube-proxy) S 1 43"),
		"proc/43/ns/net":                            link("net:[2]"),
		"usr/bin/ip":                                file(""),
	}}
	for _, p := range []string{"iptables", "ip6tables"} {
		f.files["usr/sbin/"+p+"-save"] = link("/etc/alternatives/" + p + "-save")
		f.files["etc/alternatives/"+p+"-save"] = link("/usr/sbin/" + p + "-nft-save")
		f.files["usr/sbin/"+p+"-nft-save"] = link("xtables-nft-multi")
		f.files["usr/sbin/"+p+"-legacy-save"] = link("xtables-legacy-multi")
	}
	f.files["usr/sbin/xtables-nft-multi"], f.files["usr/sbin/xtables-legacy-multi"] = file(""), file("")
	f.Machine = Machine{
		FS: f.files,
		Run: func(_ context.Context, program string, args ...string) (string, error) {
			line := strings.Join(append([]string{path.Base(program)}, args...), " ")
			if err := Allowed(program, args...); err != nil {
				return "", err
			}
			f.ran = append(f.ran, line)
			return "output of " + line + "\n", nil
		},
		Get: func(_ context.Context, url string) (Answer, error) {
			if url == proxyModeURL {
				return Answer{Status: "HTTP/1.1 200 OK", Code: 200, Body: "iptables"}, nil
			}
			return Answer{Status: "HTTP/1.1 503 Service Unavailable", Code: 503, Body: "{}"}, nil
		},
		Hostname: func() (string, error) { return "worker-1", nil },
		Uname:    func() (string, error) { return "Linux worker-1 6.1.0", nil },
		Root:     true,
		Now:      func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 5, time.UTC) },
	}
	return f
}

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s), Mode: 0o444} }

func link(to string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
}

// rulesOf reads one family, in sequence, so that what ran is in order.
func (f *fake) rulesOf(fam family) []snapshot.Text {
	return f.rules(context.Background(), f.kernel(), fam)
}

type got struct {
	Kind    snapshot.TextKind
	Status  snapshot.ReadStatus
	Content string
	Why     string // how it begins
}

func TestRules(t *testing.T) {
	const nft, compat = "nf_tables 1 0 - Live 0x0\n", "nft_compat 1 0 - Live 0x0\n"
	const done, failed = snapshot.Done, snapshot.Failed
	const nftOut, legacyOut = "output of iptables-nft-save -c\n", "output of iptables-legacy-save -c\n"
	noTables := got{snapshot.TableNames, done, "", "the file is absent"}
	tests := []struct {
		name  string
		setup func(*fake)
		want  []got
		ran   []string
	}{
		{"neither in the kernel", func(*fake) {},
			[]got{{snapshot.IptablesSave, done, "", "the kernel has no nf_tables loaded"}, noTables}, nil},
		{"nft loaded", func(f *fake) { f.files["proc/modules"] = file(nft + compat) },
			[]got{{snapshot.IptablesSave, done, nftOut, ""}, noTables}, []string{"iptables-nft-save -c"}},
		{"legacy with no table", func(f *fake) { f.files["proc/net/ip_tables_names"] = file("") },
			[]got{{snapshot.IptablesSave, done, "", "the kernel has no nf_tables loaded"}, {snapshot.TableNames, done, "", ""}}, nil},
		{"legacy alone", func(f *fake) { f.files["proc/net/ip_tables_names"] = file("nat\nfilter\n") },
			[]got{{snapshot.IptablesSave, done, legacyOut, ""}, {snapshot.TableNames, done, "nat\nfilter\n", ""}}, []string{"iptables-legacy-save -c"}},
		{"both", func(f *fake) {
			f.files["proc/modules"] = file(nft + compat)
			f.files["proc/net/ip_tables_names"] = file("nat\n")
		},
			[]got{{snapshot.IptablesSave, done, nftOut, ""}, {snapshot.IptablesLegacySave, done, legacyOut, ""}, {snapshot.TableNames, done, "nat\n", ""}},
			[]string{"iptables-nft-save -c", "iptables-legacy-save -c"}},
		{"nft loaded without nft_compat", func(f *fake) { f.files["proc/modules"] = file(nft) },
			[]got{{snapshot.IptablesSave, failed, "", "not run: nf_tables is loaded but nft_compat is not"}, noTables}, nil},
		{"built in, by modules.builtin", func(f *fake) {
			f.files["lib/modules/6.1.0/modules.builtin"] = file("kernel/net/netfilter/nf_tables.ko\nkernel/net/netfilter/nft_compat.ko\n")
		},
			[]got{{snapshot.IptablesSave, done, nftOut, ""}, noTables}, []string{"iptables-nft-save -c"}},
		{"built in, by kallsyms", func(f *fake) {
			f.files["proc/kallsyms"] = file("0 T nft_do_chain\n0 t nft_match_dump\n")
		},
			[]got{{snapshot.IptablesSave, done, nftOut, ""}, noTables}, []string{"iptables-nft-save -c"}},
		{"a module's symbol is not built in", func(f *fake) {
			f.files["proc/kallsyms"] = file(strings.Repeat("0 T x\n", 2000) + "0 T nft_do_chain\t[nf_tables]\n")
		},
			[]got{{snapshot.IptablesSave, done, "", "the kernel has no nf_tables loaded"}, noTables}, nil},
		{"cannot tell", func(f *fake) { delete(f.files, "proc/kallsyms") },
			[]got{{snapshot.IptablesSave, failed, "", "not run: it cannot be told whether nf_tables"}, noTables}, nil},
		{"cannot tell, but nothing can be loaded", func(f *fake) {
			delete(f.files, "proc/kallsyms")
			f.files["proc/sys/kernel/modules_disabled"] = file("1\n")
		},
			[]got{{snapshot.IptablesSave, done, nftOut, ""}, noTables}, []string{"iptables-nft-save -c"}},
		{"no modules in this kernel", func(f *fake) {
			delete(f.files, "proc/modules")
			delete(f.files, "proc/kallsyms")
		},
			[]got{{snapshot.IptablesSave, done, nftOut, ""}, noTables}, []string{"iptables-nft-save -c"}},
		{"no modules and no nf_tables", func(f *fake) {
			delete(f.files, "proc/modules")
			delete(f.files, "proc/kallsyms")
			f.Run = func(context.Context, string, ...string) (string, error) {
				return "", errors.New("exit status 1: iptables-save/1.8.9 Failed to initialize nft: Protocol not supported")
			}
		},
			[]got{{snapshot.IptablesSave, done, "", "the kernel has no nf_tables"}, noTables}, nil},
		{"nft loaded, no nft program", func(f *fake) {
			f.files["proc/modules"] = file(nft + compat)
			delete(f.files, "usr/sbin/xtables-nft-multi")
		},
			[]got{{snapshot.IptablesSave, failed, "", "the kernel has nf_tables, and no iptables-save"}, noTables}, nil},
		{"legacy tables, no legacy program", func(f *fake) {
			f.files["proc/net/ip_tables_names"] = file("nat\n")
			delete(f.files, "usr/sbin/xtables-legacy-multi")
		},
			[]got{{snapshot.IptablesSave, failed, "", "legacy tables exist (nat), and no iptables-legacy-save"}, {snapshot.TableNames, done, "nat\n", ""}}, nil},
		{"iptables before 1.8", func(f *fake) {
			f.files["proc/net/ip_tables_names"] = file("nat\n")
			delete(f.files, "usr/sbin/iptables-legacy-save")
			f.files["usr/sbin/iptables-save"] = link("xtables-multi")
			f.files["usr/sbin/xtables-multi"] = file("")
		},
			[]got{{snapshot.IptablesSave, done, "output of iptables-save -c\n", ""}, {snapshot.TableNames, done, "nat\n", ""}}, []string{"iptables-save -c"}},
		{"a script that picks a variant is not run", func(f *fake) {
			f.files["proc/net/ip_tables_names"] = file("nat\n")
			delete(f.files, "usr/sbin/iptables-legacy-save")
			f.files["usr/sbin/iptables-save"] = link("iptables-wrapper")
			f.files["usr/sbin/iptables-wrapper"] = file("#!/bin/sh\n")
		},
			[]got{{snapshot.IptablesSave, failed, "", "legacy tables exist"}, {snapshot.TableNames, done, "nat\n", ""}}, nil},
		{"a link that goes round", func(f *fake) {
			f.files["proc/net/ip_tables_names"] = file("nat\n")
			f.files["usr/sbin/iptables-legacy-save"] = link("iptables-legacy-save")
			delete(f.files, "usr/sbin/iptables-save")
		},
			[]got{{snapshot.IptablesSave, failed, "", "legacy tables exist"}, {snapshot.TableNames, done, "nat\n", ""}}, nil},
		{"not root", func(f *fake) {
			f.Root = false
			f.files["proc/modules"] = file(nft + compat)
			f.Run = func(context.Context, string, ...string) (string, error) {
				return "", errors.New("exit status 4: Permission denied (you must be root)")
			}
		},
			[]got{{snapshot.IptablesSave, failed, "", "needs root: exit status 4"}, noTables}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.setup(f)
			var have []got
			for _, x := range f.rulesOf(ipv4) {
				if x.Status == failed && x.Supply == "" {
					t.Errorf("%s failed without a command that would supply it", x.Kind)
				}
				have = append(have, got{x.Kind, x.Status, x.Content, x.Why})
			}
			for i := range have {
				if i < len(tt.want) && tt.want[i].Why != "" && strings.HasPrefix(have[i].Why, tt.want[i].Why) {
					have[i].Why = tt.want[i].Why
				}
			}
			if diff := cmp.Diff(tt.want, have); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.ran, f.ran); diff != "" {
				t.Errorf("ran: %s", diff)
			}
		})
	}
}

func TestReadMachine(t *testing.T) {
	f := newFake()
	f.files["lib/modules/6.1.0/modules.builtin"] = file("kernel/net/ipv6/ipv6.ko\nkernel/fs/ext4/ext4.ko\n")
	f.files["proc/net/stat/nf_conntrack"] = file("entries found\n00000001 00000000\n")
	f.files["proc/net/ip_vs"] = file("TCP  0A600032:0050 rr\n")
	f.files["proc/net/nf_conntrack"] = file("ipv4 2 tcp 6 9 ESTABLISHED src=10.0.0.1 dst=10.96.0.50 sport=1 dport=80 src=10.0.0.2 dst=10.0.0.1 sport=80 dport=1\nipv4 2 tcp 6 9 ESTABLISHED src=10.0.0.1 dst=10.96.0.50 sport=1 dport=81 src=10.0.0.2 dst=10.0.0.1 sport=80 dport=1\n")
	f.Run = func(_ context.Context, program string, args ...string) (string, error) {
		return "output of " + strings.Join(append([]string{path.Base(program)}, args...), " ") + "\n", Allowed(program, args...)
	}
	s, err := f.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s.Via != "local" || s.Name != "" || !s.At.Equal(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("got via %q, name %q, at %s", s.Via, s.Name, s.At)
	}
	want := map[snapshot.TextKind]string{
		snapshot.IptablesSave:  "",
		snapshot.Ip6tablesSave: "",
		snapshot.NftRuleset:    "",
		snapshot.TableNames:    "",
		snapshot.TableNames6:   "",
		snapshot.IPAddr:        "output of ip addr\n",
		snapshot.IPRoute:       "output of ip route show table all\n",
		snapshot.IPRule:        "output of ip rule\n",
		snapshot.IP6Rule:       "output of ip -6 rule\n",
		snapshot.Conntrack:     "ipv4 2 tcp 6 9 ESTABLISHED src=10.0.0.1 dst=10.96.0.50 sport=1 dport=80 src=10.0.0.2 dst=10.0.0.1 sport=80 dport=1\n",
		snapshot.ConntrackStat: "entries found\n00000001 00000000\n",
		snapshot.PodSockets:    "",
		snapshot.ProcIPVS:      "TCP  0A600032:0050 rr\n",
		snapshot.IpsetSave:     "",

		snapshot.ModulesBuiltin: "kernel/net/ipv6/ipv6.ko\n",
		snapshot.Sysctl:         "net.ipv4.conf.all.forwarding = 1\nnet.ipv4.conf.eth0/100.rp_filter = 2\nnet.ipv4.ip_forward = 1\n",
		snapshot.ProcModules:    "bridge 1 0 - Live 0x0\n",
		snapshot.ProxyProcess:   "42 T kube-proxy\n",
		snapshot.ProxyMode:      "iptables\n",
		snapshot.ProxyHealthz:   "HTTP/1.1 503 Service Unavailable\n{}",
		snapshot.Hostname:       "worker-1\n",
		snapshot.Uname:          "Linux worker-1 6.1.0\n",
	}
	have := map[snapshot.TextKind]string{}
	for _, x := range s.Texts {
		if x.Status != snapshot.Done {
			t.Errorf("%s: %s", x.Kind, x.Why)
		}
		if x.Ref == "" {
			t.Errorf("%s does not say where it is from", x.Kind)
		}
		have[x.Kind] = x.Content
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestReadMachineDone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := newFake().Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f := newFake()
	f.FS = fstest.MapFS{}
	if _, err := f.Read(context.Background()); err == nil || !strings.Contains(err.Error(), "/proc is not mounted") {
		t.Errorf("got %v", err)
	}
}

func TestProcesses(t *testing.T) {
	tests := []struct {
		name   string
		setup  func(*fake)
		status snapshot.ReadStatus
		text   string // the content, or the reason
	}{
		{"one here, one in another namespace", func(*fake) {}, snapshot.Done, "42 T kube-proxy\n"},
		{"none", func(f *fake) { delete(f.files, "proc/42/comm") }, snapshot.Done, ""},
		{"none seen from a container", func(f *fake) {
			delete(f.files, "proc/42/comm")
			f.files["proc/self/ns/pid"] = link("pid:[4026532000]")
		}, snapshot.Failed, "PID namespace of its own"},
		{"seen from a node that is a container", func(f *fake) {
			f.files["proc/self/ns/pid"] = link("pid:[4026532000]")
		}, snapshot.Done, "42 T kube-proxy\n"},
		{"others hidden", func(f *fake) {
			for name := range f.files {
				if !strings.HasPrefix(name, "proc/self/") {
					delete(f.files, name)
				}
			}
		}, snapshot.Failed, "without root"},
		{"a name with a parenthesis and a space", func(f *fake) {
			f.files["proc/42/stat"] = file("42 (a) R (b) D 1 42")
		}, snapshot.Done, "42 D kube-proxy\n"},
		{"a hostile name", func(f *fake) { f.files["proc/42/comm"] = file("kube-proxy\n99 S x\n") }, snapshot.Done, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.setup(f)
			x := f.processes()
			if x.Status != tt.status || x.Status == snapshot.Done && x.Content != tt.text || !strings.Contains(x.Content+x.Why, tt.text) {
				t.Errorf("got %s %q %q", x.Status, x.Content, x.Why)
			}
		})
	}
}

func TestProxyFailures(t *testing.T) {
	f := newFake()
	f.Get = func(_ context.Context, url string) (Answer, error) {
		if url == proxyModeURL {
			return Answer{Status: "HTTP/1.1 404 Not Found", Code: 404}, nil
		}
		return Answer{}, fmt.Errorf("no answer within %s", getTimeout)
	}
	x := f.proxy(context.Background())[1:]
	for i, want := range []string{"404 Not Found", "no answer within 1s"} {
		if x[i].Status != snapshot.Failed || !strings.Contains(x[i].Why, want) || x[i].Supply == "" {
			t.Errorf("got %+v, want %q", x[i], want)
		}
	}
	if kinds := []snapshot.TextKind{x[0].Kind, x[1].Kind}; !slices.Equal(kinds, []snapshot.TextKind{snapshot.ProxyMode, snapshot.ProxyHealthz}) {
		t.Errorf("got %v", kinds)
	}
}

func TestProxyIsNotAskedWhereNoneRuns(t *testing.T) {
	f := newFake()
	delete(f.files, "proc/42/comm")
	f.Get = func(_ context.Context, url string) (Answer, error) {
		t.Errorf("asked %s", url)
		return Answer{}, nil
	}
	for _, x := range f.proxy(context.Background())[1:] {
		if x.Status != snapshot.Failed || !strings.HasPrefix(x.Why, "not asked") || x.Supply == "" {
			t.Errorf("got %+v", x)
		}
	}
}
