package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// image is a container of kube-proxy's image: what cat finds, and what else
// can be run. Everything that is run is recorded.
type image struct {
	files    map[string]string
	programs map[string]string // by command line
	ran      []string
}

func (i *image) run(_ context.Context, argv []string) (string, error) {
	if err := AllowedInContainer(argv); err != nil {
		return "", err
	}
	line := strings.Join(argv, " ")
	i.ran = append(i.ran, line)
	if argv[0] == "cat" {
		if content, ok := i.files[argv[1]]; ok {
			return content, nil
		}
		return "", fmt.Errorf("exit status 1: cat: %s: No such file or directory", argv[1])
	}
	for _, prefix := range []string{line, argv[0] + " ...", argv[0] + " " + argv[1] + " ..."} {
		if out, ok := i.programs[prefix]; ok {
			if argv[0] == "grep" {
				return out, errors.New("exit status 2")
			}
			return out, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", argv[0])
}

func (i *image) read(t *testing.T) *snapshot.NodeState {
	t.Helper()
	s, err := Container{Run: i.run, Now: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 5, time.UTC) }}.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func proxyImage() *image {
	return &image{
		files: map[string]string{
			"/proc/modules":                      "nf_tables 1 0 - Live 0x0\nnft_compat 1 0 - Live 0x0\nip_set 1 0 - Live 0x0\n",
			"/proc/sys/kernel/osrelease":         "6.1.0\n",
			"/proc/sys/kernel/hostname":          "worker-1\n",
			"/proc/net/ip_vs":                    procIPVS,
			"/lib/modules/6.1.0/modules.builtin": "kernel/net/ipv6/ipv6.ko\n",
		},
		programs: map[string]string{
			"iptables-nft-save -c":            "*nat\nCOMMIT\n",
			"ip6tables-nft-save -c":           "*nat\nCOMMIT\n",
			"nft -j list tables":              `{"nftables": [{"table": {"family": "ip", "name": "kube-proxy"}}]}`,
			"nft -j list table ip kube-proxy": `{"nftables": []}`,
			"ipset save":                      "create S hash:ip\n",
			"grep -sH ...":                    "/proc/sys/net/ipv4/ip_forward:1\n/proc/sys/kernel/other:1\nno such line\n",
			"grep -rsH ...":                   "/proc/sys/net/ipv4/conf/eth0.100/rp_filter:2\n/proc/sys/net/ipv4/conf/all/forwarding:1\n",
		},
	}
}

func TestContainer(t *testing.T) {
	i := proxyImage()
	s := i.read(t)
	if s.Via != "exec" || s.Name != "" || !s.At.Equal(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("got via %q, name %q, at %s", s.Via, s.Name, s.At)
	}
	for kind, want := range map[snapshot.TextKind]string{
		snapshot.IptablesSave: "*nat\nCOMMIT\n", snapshot.Ip6tablesSave: "*nat\nCOMMIT\n", snapshot.IpsetSave: "create S hash:ip\n",
		snapshot.ProcIPVS: procIPVS, snapshot.Hostname: "worker-1\n", snapshot.ModulesBuiltin: "kernel/net/ipv6/ipv6.ko\n",
		snapshot.Sysctl: "net.ipv4.conf.all.forwarding = 1\nnet.ipv4.conf.eth0/100.rp_filter = 2\nnet.ipv4.ip_forward = 1\n",
	} {
		if x := s.Text(kind); x.Status != snapshot.Done || x.Content != want {
			t.Errorf("%s: %+v", kind, x)
		}
	}
	if x := s.Text(snapshot.IPAddr); x.Status != snapshot.Failed || !strings.Contains(x.Why, "executable file not found") {
		t.Errorf("ip addr: %+v", x)
	}
	for _, kind := range []snapshot.TextKind{snapshot.Conntrack, snapshot.ProxyProcess, snapshot.PodSockets, snapshot.ProxyMode} {
		if x := s.Text(kind); x.Status != snapshot.NotRead {
			t.Errorf("%s: %+v", kind, x)
		}
	}
	for _, line := range i.ran {
		if n := len(i.ran) - len(slices.DeleteFunc(slices.Clone(i.ran), func(l string) bool { return l == line })); n > 1 {
			t.Errorf("%s was run %d times", line, n)
		}
	}
}

// What would load a module is not run, as on the node itself.
func TestContainerLoadsNothing(t *testing.T) {
	i := proxyImage()
	i.files["/proc/modules"] = "bridge 1 0 - Live 0x0\n"
	i.files["/proc/net/ip_tables_names"] = "nat\n"
	i.programs["iptables-legacy-save -c"] = "*nat\nCOMMIT\n"
	delete(i.files, "/proc/net/ip_vs")
	s := i.read(t)
	for _, line := range i.ran {
		for _, word := range []string{"nft", "ipset", "ip6tables"} {
			if strings.HasPrefix(line, word) || strings.Contains(line, "-nft-") {
				t.Errorf("ran %s", line)
			}
		}
	}
	if x := s.Text(snapshot.IptablesSave); x.Content != "*nat\nCOMMIT\n" || x.Ref != "iptables-legacy-save -c" {
		t.Errorf("got %+v", x)
	}
	delete(i.files, "/lib/modules/6.1.0/modules.builtin") // now it cannot be told
	if x := i.read(t).Text(snapshot.IpsetSave); x.Status != snapshot.Failed || !strings.HasPrefix(x.Why, "not run") {
		t.Errorf("got %+v", x)
	}
}

func TestContainerWithNothing(t *testing.T) {
	_, err := Container{Run: (&image{}).run, Now: time.Now}.Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nothing could be read") {
		t.Errorf("got %v", err)
	}
	gone := func(context.Context, []string) (string, error) { return "", errors.New("pods \"x\" not found") }
	if _, err := (Container{Run: gone, Now: time.Now}).Read(t.Context()); err == nil || !strings.Contains(err.Error(), `pods "x" not found`) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Container{Run: proxyImage().run, Now: time.Now}).Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The command lines are tried with this machine's own cat and grep.
func TestContainerCommandsWork(t *testing.T) {
	run := func(ctx context.Context, argv []string) (string, error) {
		if argv[0] != "cat" && argv[0] != "grep" {
			return "", errors.New("executable file not found")
		}
		var stderr strings.Builder
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = failure(err, stderr.String())
		}
		return string(out), err
	}
	s, err := Container{Run: run, Now: time.Now}.Read(t.Context())
	if err != nil {
		t.Skipf("no cat and grep here: %v", err)
	}
	here, err := Local(t.Context())
	if err != nil {
		t.Skip(err)
	}
	count := func(s *snapshot.NodeState) (names []string) {
		for line := range strings.Lines(s.Text(snapshot.Sysctl).Content) {
			if name, _, _ := strings.Cut(line, " = "); name != "net.netfilter.nf_conntrack_count" {
				names = append(names, name)
			}
		}
		return names
	}
	if diff := cmp.Diff(count(here), count(s)); diff != "" {
		t.Errorf("sysctls of this machine (-) and by grep (+):\n%s", diff)
	}
	if got, want := s.Text(snapshot.ProcModules), here.Text(snapshot.ProcModules); got.Content != want.Content {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAllowedInContainer(t *testing.T) {
	for line, ok := range map[string]bool{
		"cat /proc/modules":                              true,
		"cat /proc/net/ip_vs":                            true,
		"cat /lib/modules/6.1.0-9-amd64/modules.builtin": true,
		"iptables-nft-save -c":                           true,
		"ip6tables-legacy-save -c":                       true,
		"ipset save":                                     true,
		"nft -j list table ip kube-proxy":                true,
		"ip addr":                                        true,
		strings.Join(append([]string{"grep"}, grepFiles...), " "):      true,
		strings.Join(append([]string{"grep"}, grepInterfaces...), " "): true,

		"":                              false,
		"cat":                           false,
		"cat /etc/shadow":               false,
		"cat /proc/modules /etc/shadow": false,
		"cat /proc/1/environ":           false,
		"cat /var/lib/kube-proxy/kubeconfig.conf":                 false,
		"cat /var/run/secrets/kubernetes.io/serviceaccount/token": false,
		"cat /lib/modules/../../etc/modules.builtin":              false,
		"cat /lib/modules/6.1.0/../modules.builtin":               false,
		"cat /proc/sys/../modules":                                false,
		"cat /proc/kallsyms":                                      false,
		"grep -r . /":                                             false,
		"grep -rsH ^ /proc/sys/net/ipv4/conf":                     false,
		"sh -c ls":                                                false,
		"/bin/cat /proc/modules":                                  false,
		"/usr/sbin/ipset save":                                    false,
		"../ipset save":                                           false,
		"ipset restore":                                           false,
		"iptables-save -t nat":                                    false,
		"iptables-restore":                                        false,
		"nft flush ruleset":                                       false,
		"modprobe ip_vs":                                          false,
		"kube-proxy --cleanup":                                    false,
		"env":                                                     false,
	} {
		if err := AllowedInContainer(strings.Split(line, " ")); (err == nil) != ok {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func FuzzAllowedInContainer(f *testing.F) {
	f.Add("cat", "/proc/modules")
	f.Add("cat", "/lib/modules/6.1.0/modules.builtin")
	f.Add("ipset", "save")
	f.Fuzz(func(t *testing.T, program, arg string) {
		if AllowedInContainer([]string{program, arg}) != nil {
			return
		}
		switch {
		case program == "cat" && (slices.Contains(catFiles, arg) || strings.HasPrefix(arg, "/lib/modules/") && strings.HasSuffix(arg, "/modules.builtin") && strings.Count(arg, "/") == 4 && !strings.Contains(arg, "/..")):
		case Allowed("/usr/sbin/"+program, arg) == nil && !strings.Contains(program, "/"):
		default:
			t.Fatalf("%q %q allowed", program, arg)
		}
	})
}
