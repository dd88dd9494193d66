package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipwalk/vipwalk/pkg/cluster"
	"github.com/vipwalk/vipwalk/pkg/cluster/apitest"
)

var proxyPod = cluster.ContainerRef{Namespace: "kube-system", Pod: "kube-proxy-1", Container: "kube-proxy"}

// readsOnly is an allow-list for these tests.
func readsOnly(argv []string) error {
	if len(argv) > 0 && slices.Contains([]string{"cat", "ipset"}, argv[0]) {
		return nil
	}
	return fmt.Errorf("%q is not allowed", argv)
}

func execServer(t *testing.T, e *apitest.Exec) (*apitest.Server, *cluster.Execs) {
	t.Helper()
	s := apitest.New(t, world()...)
	s.Exec = e
	execs, err := client(t, s).Execs(readsOnly)
	if err != nil {
		t.Fatal(err)
	}
	return s, execs
}

// shell is a container that has cat and nothing else.
func shell(c apitest.Call) (stdout, stderr string, exit int) {
	switch {
	case c.Argv[0] == "ipset":
		return "", `OCI runtime exec failed: exec: "ipset": executable file not found in $PATH`, -1
	case c.Argv[1] == "/proc/modules":
		return "nf_tables 1 0 - Live 0x0\n", "", 0
	case c.Argv[1] == "/large":
		return strings.Repeat("0123456789abcde\n", 1<<18), "", 0
	case c.Argv[1] == "/half":
		return "half\n", "cat: /half: Input/output error\nand more\n", 1
	}
	return "", "cat: " + c.Argv[1] + ": No such file or directory\n", 1
}

func TestExec(t *testing.T) {
	for _, way := range []struct {
		name, over string
		exec       *apitest.Exec
	}{
		{"over WebSocket", "websocket", &apitest.Exec{}},
		{"WebSocket alone", "websocket", &apitest.Exec{NoSPDY: true}},
		{"over SPDY, where there is no WebSocket", "spdy", &apitest.Exec{NoWebSocket: true}},
		{"over SPDY, where only create is allowed", "spdy", &apitest.Exec{NoGet: true}},
	} {
		t.Run(way.name, func(t *testing.T) {
			way.exec.Run = shell
			_, execs := execServer(t, way.exec)
			for _, c := range []struct {
				argv        []string
				stdout, err string
			}{
				{[]string{"cat", "/proc/modules"}, "nf_tables 1 0 - Live 0x0\n", ""},
				{[]string{"cat", "/large"}, strings.Repeat("0123456789abcde\n", 1<<18), ""},
				{[]string{"cat", "/half"}, "half\n", "exit status 1: cat: /half: Input/output error"},
				{[]string{"cat", "/a b&command=sh"}, "", "exit status 1: cat: /a b&command=sh: No such file or directory"},
				{[]string{"ipset", "save"}, "", "executable file not found"},
			} {
				out, err := execs.Run(t.Context(), proxyPod, c.argv)
				if out != c.stdout {
					t.Errorf("%q: got %d bytes, want %d", c.argv, len(out), len(c.stdout))
				}
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%q: got error %v, want %q", c.argv, err, c.err)
				}
			}
			calls := way.exec.Calls()
			if len(calls) != 5 {
				t.Fatalf("%d calls", len(calls))
			}
			want := apitest.Call{Namespace: "kube-system", Pod: "kube-proxy-1", Container: "kube-proxy", Argv: []string{"cat", "/a b&command=sh"}, Over: way.over}
			if diff := cmp.Diff(want, calls[3]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestExecFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		exec *apitest.Exec
		in   cluster.ContainerRef
		err  string
	}{
		{"forbidden", &apitest.Exec{NoGet: true, NoCreate: true}, proxyPod, "forbidden: pods \"kube-proxy-1\" is forbidden"},
		{"neither protocol", &apitest.Exec{NoWebSocket: true, NoSPDY: true}, proxyPod, "does not speak SPDY"},
		{"no such pod", &apitest.Exec{}, cluster.ContainerRef{Namespace: "kube-system", Pod: "gone", Container: "x"}, `pods "gone" not found`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.exec.Run = shell
			_, execs := execServer(t, c.exec)
			if out, err := execs.Run(t.Context(), c.in, []string{"cat", "/proc/modules"}); err == nil || out != "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v", out, err)
			}
			if calls := c.exec.Calls(); len(calls) > 0 {
				t.Errorf("ran %v", calls)
			}
		})
	}
}

// A command that does not end, and one that writes without end, are given up.
func TestExecIsBounded(t *testing.T) {
	_, execs := execServer(t, &apitest.Exec{Stall: true, Run: shell})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := execs.Run(ctx, proxyPod, []string{"cat", "/proc/modules"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	const most = 1 << 20
	_, execs = execServer(t, &apitest.Exec{Run: func(apitest.Call) (string, string, int) { return strings.Repeat("x", 4*most), "", 0 }})
	execs.SetMost(most)
	if out, err := execs.Run(t.Context(), proxyPod, []string{"cat", "/proc/modules"}); err == nil || out != "" || !strings.Contains(err.Error(), "of output") {
		t.Errorf("got %d bytes, %v", len(out), err)
	}
}

// What is not allowed never leaves, and the client that reads cannot exec.
func TestExecRefuses(t *testing.T) {
	s, execs := execServer(t, &apitest.Exec{Run: shell})
	for _, argv := range [][]string{nil, {"sh", "-c", "cat /proc/modules"}, {"iptables", "-F"}, {""}} {
		if _, err := execs.Run(t.Context(), proxyPod, argv); !errors.Is(err, cluster.ErrNotAllowed) {
			t.Errorf("%q: got %v", argv, err)
		}
	}
	for _, in := range []cluster.ContainerRef{
		{Namespace: "kube-system", Pod: "a/../b", Container: "x"}, {Namespace: "kube-system", Pod: "..", Container: "x"}, {Namespace: "a/pods", Pod: "b", Container: "x"},
	} {
		if _, err := execs.Run(t.Context(), in, []string{"cat", "/proc/modules"}); err == nil {
			t.Errorf("%v: no error", in)
		}
	}
	if len(s.Requests()) > 0 {
		t.Errorf("sent %v", s.Requests())
	}
	// And reading as ever, with the same client, sends GETs alone.
	if _, err := client(t, s).Collect(t.Context(), orders()); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Requests() {
		if r.Method != "GET" || strings.HasSuffix(r.Path, "/exec") {
			t.Errorf("sent %s %s", r.Method, r.Path)
		}
	}
}
