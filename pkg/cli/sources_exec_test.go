package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vipwalk/vipwalk/pkg/cluster/apitest"
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// liveIncident serves an incident's objects as a live cluster, whose kube-proxy
// pods have its nodes' states: what cat, grep, iptables and nft would say there.
func liveIncident(t *testing.T, name string) (server *apitest.Server, kubeconfig string) {
	t.Helper()
	s, err := snapshot.ReadBundleFile(filepath.Join("..", "..", "testdata", "incidents", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	server = apitest.New(t, objectsOf(s)...)
	server.Exec = &apitest.Exec{Run: func(c apitest.Call) (string, string, int) {
		for i := range s.Objects.Pods {
			if s.Objects.Pods[i].Name == c.Pod {
				return answerFrom(s.Node(s.Objects.Pods[i].Spec.NodeName), strings.Join(c.Argv, " "))
			}
		}
		return "", "no such pod", -1
	}}
	kubeconfig, err = server.WriteKubeconfig(t.TempDir(), "default")
	if err != nil {
		t.Fatal(err)
	}
	return server, kubeconfig
}

func objectsOf(s *snapshot.Snapshot) (out []runtime.Object) {
	o := &s.Objects
	for i := range o.Services {
		out = append(out, &o.Services[i])
	}
	for i := range o.EndpointSlices {
		out = append(out, &o.EndpointSlices[i])
	}
	for i := range o.Pods {
		out = append(out, &o.Pods[i])
	}
	for i := range o.Nodes {
		out = append(out, &o.Nodes[i])
	}
	for i := range o.Namespaces {
		out = append(out, &o.Namespaces[i])
	}
	for i := range o.ConfigMaps {
		out = append(out, &o.ConfigMaps[i])
	}
	return out
}

// answerFrom is what kube-proxy's image would say on a node of that state.
func answerFrom(st *snapshot.NodeState, line string) (stdout, stderr string, exit int) {
	kinds := map[string]snapshot.TextKind{
		"iptables-nft-save -c": snapshot.IptablesSave, "ip6tables-nft-save -c": snapshot.Ip6tablesSave,
		"cat /proc/net/ip_tables_names": snapshot.TableNames, "cat /proc/net/ip6_tables_names": snapshot.TableNames6,
	}
	program, rest, _ := strings.Cut(line, " ")
	switch {
	case st == nil:
		return "", "no such node", -1
	case kinds[line] != "":
		return st.Text(kinds[line]).Content, "", 0
	case line == "cat /proc/modules":
		return "nf_tables 1 0 - Live 0x0\nnft_compat 1 0 - Live 0x0\n", "", 0
	case line == "nft -j list tables":
		return `{"nftables": []}`, "", 0
	case program == "grep":
		for setting := range strings.Lines(st.Text(snapshot.Sysctl).Content) {
			name, value, _ := strings.Cut(setting, " = ")
			stdout += "/proc/sys/" + strings.NewReplacer(".", "/", "/", ".").Replace(name) + ":" + value
		}
		return stdout, "", 2
	case program == "cat":
		return "", "cat: " + rest + ": No such file or directory", 1
	}
	return "", fmt.Sprintf("exec: %q: executable file not found in $PATH", program), -1
}

func runExec(t *testing.T, args ...string) (r diagnosis.Report, code int, stderr string) {
	t.Helper()
	var out bytes.Buffer
	code, stderr = runWith(t.Context(), strings.NewReader(""), &out, append(args, "--local=false", "-o", "json")...)
	if code <= 1 || out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out.String(), stderr)
		}
	}
	return r, code, stderr
}

func layer3(r diagnosis.Report) diagnosis.LayerResult { return r.Services[0].Layers[2] }

func TestExecOnNodes(t *testing.T) {
	for incident, want := range map[string]diagnosis.Status{"healthy": diagnosis.OK, "forward-drop": diagnosis.Fail} {
		t.Run(incident, func(t *testing.T) {
			server, kubeconfig := liveIncident(t, incident)
			r, _, stderr := runExec(t, "orders", "-n", "production", "--exec", "--kubeconfig", kubeconfig)
			if got := layer3(r); got.Status != want {
				t.Errorf("layer 3: %s, %s\n%s", got.Status, got.Summary, stderr)
			}
			ran := map[string]bool{}
			for _, c := range server.Exec.Calls() {
				line := strings.Join(c.Argv, " ")
				ran[line] = true
				if c.Container != "kube-proxy" || c.Over != "websocket" {
					t.Errorf("%+v", c)
				}
				if !strings.Contains(stderr, "note:   "+line+"\n") {
					t.Errorf("%s ran and was not shown", line)
				}
			}
			if !ran["iptables-nft-save -c"] || len(ran) < 6 {
				t.Errorf("ran %v", ran)
			}
			for _, node := range []string{"worker-1", "worker-2"} {
				i := slices.IndexFunc(r.Inputs, func(in diagnosis.Input) bool { return in.Kind == "exec" && in.Node == node })
				if i < 0 || r.Inputs[i].Error != "" || !strings.HasPrefix(r.Inputs[i].Ref, "kube-system/kube-proxy-") || !strings.Contains(stderr, r.Inputs[i].Ref+" -c kube-proxy ("+node+")") {
					t.Errorf("%s is not among the inputs, or was not shown: %+v", node, r.Inputs)
				}
			}
		})
	}
}

// Without --exec nothing runs anywhere.
func TestNoExecUnasked(t *testing.T) {
	server, kubeconfig := liveIncident(t, "healthy")
	if r, _, stderr := runExec(t, "orders", "-n", "production", "--kubeconfig", kubeconfig); layer3(r).Status != diagnosis.Unknown || stderr != "" {
		t.Errorf("layer 3: %+v\n%s", layer3(r), stderr)
	}
	for _, r := range server.Requests() {
		if r.Method != "GET" || strings.Contains(r.Path, "exec") {
			t.Errorf("sent %+v", r)
		}
	}
}

func TestExecOnSomeNodes(t *testing.T) {
	for nodes, want := range map[string][]string{"1": {"worker-1"}, "worker-2": {"worker-2"}, "all": {"worker-1", "worker-2"}, "7": {"worker-1", "worker-2"}} {
		server, kubeconfig := liveIncident(t, "healthy")
		r, _, _ := runExec(t, "orders", "-n", "production", "--exec", "--nodes", nodes, "--kubeconfig", kubeconfig)
		var got []string
		for _, in := range r.Inputs {
			if in.Kind == "exec" {
				got = append(got, in.Node)
			}
		}
		if !slices.Equal(got, want) || len(server.Exec.Calls()) == 0 {
			t.Errorf("--nodes %s: read %v", nodes, got)
		}
	}
	// The client's node comes first.
	server, kubeconfig := liveIncident(t, "healthy")
	var client string
	s, _ := snapshot.ReadBundleFile(filepath.Join("..", "..", "testdata", "incidents", "healthy.tar.gz"))
	for i := range s.Objects.Pods {
		if p := &s.Objects.Pods[i]; p.Namespace == "production" && p.Spec.NodeName == "worker-2" {
			client = p.Name
		}
	}
	runExec(t, "orders", "-n", "production", "--exec", "--nodes", "1", "--from", "pod/"+client, "--kubeconfig", kubeconfig)
	for _, c := range server.Exec.Calls() {
		if p := s.Objects.Pods; !slices.ContainsFunc(p, func(p corev1.Pod) bool { return p.Name == c.Pod && p.Spec.NodeName == "worker-2" }) {
			t.Errorf("ran on another node: %+v", c)
		}
	}
}

// A node that could not be read is unknown, and says why.
func TestExecFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*apitest.Exec)
		want   string
	}{
		"forbidden": {func(e *apitest.Exec) { e.NoGet, e.NoCreate = true, true }, "forbidden: "},
		"no programs": {func(e *apitest.Exec) {
			e.Run = func(apitest.Call) (string, string, int) { return "", "exec: no such file", -1 }
		}, "nothing could be read: /proc/modules: "},
		"never ends": {func(e *apitest.Exec) { e.Stall = true }, "no answer within --timeout 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			server, kubeconfig := liveIncident(t, "healthy")
			c.change(server.Exec)
			r, code, stderr := runExec(t, "orders", "-n", "production", "--exec", "--timeout", "2s", "--kubeconfig", kubeconfig)
			if len(r.Services) != 1 {
				t.Fatalf("exit %d\n%s", code, stderr)
			}
			if l := layer3(r); l.Status != diagnosis.Unknown || r.Services[0].Verdict == diagnosis.OK {
				t.Errorf("layer 3: %+v", l)
			}
			n := 0
			for _, in := range r.Inputs {
				if in.Kind == "exec" && strings.Contains(in.Error, c.want) {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%+v", r.Inputs)
			}
		})
	}
}

func TestExecNeedsAPI(t *testing.T) {
	for _, args := range [][]string{{"--bundle", "x.tar.gz"}, {"--objects", "x"}} {
		if code, stderr := runWith(t.Context(), nil, &bytes.Buffer{}, append(args, "--exec")...); code != exitUsage || !strings.Contains(stderr, "--exec needs the API") {
			t.Errorf("%v: exit %d\n%s", args, code, stderr)
		}
	}
}
