package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// crashEnv makes TestCrash the process that is to be killed.
const crashEnv = "VIPWALK_TEST_CRASH"

// TestCrash kills a process that runs a cluster, and holds the kernel to
// ending all that it started.
func TestCrash(t *testing.T) {
	if why := cluster.Missing(); why != "" {
		t.Skip(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	if os.Getenv(crashEnv) != "" {
		runUntilKilled(ctx, t)
	}
	if _, err := cluster.FindBinaries(ctx); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run", "^TestCrash$")
	cmd.Env = append(os.Environ(), crashEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var pid int
		if _, err := fmt.Sscanf(lines.Text(), "running %d", &pid); err == nil {
			pids = append(pids, pid)
		}
		if strings.HasPrefix(lines.Text(), "all started") {
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if len(pids) < 5 {
		t.Fatalf("the cluster ran %d processes, want at least 5", len(pids))
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = cluster.Until(wait, "every process has ended", func(context.Context) (string, error) {
		for _, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Sprintf("process %d is still there", pid), nil
			}
		}
		return "", nil
	})
	if err != nil {
		t.Error(err)
	}
}

func runUntilKilled(ctx context.Context, t *testing.T) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddNode(ctx, "n1", "iptables"); err != nil {
		t.Fatal(err)
	}
	for _, pid := range descendants(os.Getpid()) {
		fmt.Println("running", pid)
	}
	fmt.Println("all started")
	<-ctx.Done()
}
