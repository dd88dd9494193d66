package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// product is the program under test, built once.
type product struct {
	once sync.Once
	path string
	err  error
}

// Vipwalk returns the path of the program under test, which is built from the
// main module's cmd/vipwalk the first time; $VIPWALK_BINARY names a ready one.
func (c *Cluster) Vipwalk(ctx context.Context) (string, error) {
	c.product.once.Do(func() { c.product.path, c.product.err = c.buildVipwalk(ctx) })
	return c.product.path, c.product.err
}

func (c *Cluster) buildVipwalk(ctx context.Context) (string, error) {
	if path := os.Getenv("VIPWALK_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	module, err := moduleDir()
	if err != nil {
		return "", err
	}
	path := c.file("vipwalk")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/vipwalk")
	cmd.Dir = filepath.Join(module, "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cmd/vipwalk: %w\n%s", err, out)
	}
	return path, nil
}

// Output is what a run of the program under test gave.
type Output struct {
	Args           []string
	Stdout, Stderr string
	ExitCode       int
}

// Report parses the output of -o json.
func (o Output) Report() (Report, error) {
	var r Report
	if err := json.Unmarshal([]byte(o.Stdout), &r); err != nil {
		return Report{}, fmt.Errorf("reading the report of vipwalk %v (exit code %d, stderr %q): %w", o.Args, o.ExitCode, o.Stderr, err)
	}
	return r, nil
}

// Report is the part of a WalkReport that these tests judge.
type Report struct {
	Kind     string    `json:"kind"`
	Services []Service `json:"services"`
}

// Service is one walked Service.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Verdict   string `json:"verdict"`
	Layers    []struct {
		Layer   int    `json:"layer"`
		Status  string `json:"status"`
		Summary string `json:"summary"`
	} `json:"layers"`
	Diagnoses []Diagnosis `json:"diagnoses"`
}

// Diagnosis is one diagnosis of a report.
type Diagnosis struct {
	Code     string   `json:"code"`
	Name     string   `json:"name"`
	Severity string   `json:"severity"`
	Title    string   `json:"title"`
	Found    string   `json:"found"`
	CausedBy []string `json:"causedBy"`
	Evidence []struct {
		Source string `json:"source"`
		Quote  string `json:"quote"`
	} `json:"evidence"`
}

// RunVipwalk runs the program under test on this machine as a user of the
// cluster.
func (c *Cluster) RunVipwalk(ctx context.Context, user string, args ...string) (Output, error) {
	kubeconfig, err := c.Kubeconfig(user)
	if err != nil {
		return Output{}, err
	}
	return c.RunVipwalkWith(ctx, kubeconfig, args...)
}

// RunVipwalkWith is RunVipwalk with a kubeconfig of the caller's.
func (c *Cluster) RunVipwalkWith(ctx context.Context, kubeconfig string, args ...string) (Output, error) {
	path, err := c.Vipwalk(ctx)
	if err != nil {
		return Output{}, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	return runProduct(cmd, kubeconfig, args)
}

// RunVipwalk runs the program under test on the node, as root, with a
// kubeconfig of the user that works there.
func (n *Node) RunVipwalk(ctx context.Context, user string, args ...string) (Output, error) {
	path, err := n.cluster.Vipwalk(ctx)
	if err != nil {
		return Output{}, err
	}
	kubeconfig, err := n.cluster.InnerKubeconfig(user)
	if err != nil {
		return Output{}, err
	}
	return runProduct(n.Command(ctx, append([]string{path}, args...)...), kubeconfig, args)
}

func runProduct(cmd *exec.Cmd, kubeconfig string, args []string) (Output, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "NO_COLOR=1")
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Output{}, fmt.Errorf("running vipwalk %v: %w", args, err)
	}
	return Output{Args: args, Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}, nil
}

// NodeState runs `vipwalk node-state` on the node and returns the path of a
// file that holds its output. As on a worker node, there is no kubeconfig.
func (n *Node) NodeState(ctx context.Context) (path string, err error) {
	vipwalk, err := n.cluster.Vipwalk(ctx)
	if err != nil {
		return "", err
	}
	out, err := runProduct(n.Command(ctx, vipwalk, "node-state"), "", []string{"node-state"})
	if err != nil {
		return "", err
	}
	if out.ExitCode != 0 {
		return "", fmt.Errorf("vipwalk node-state on %s: exit code %d: %s", n.Name, out.ExitCode, out.Stderr)
	}
	path = n.cluster.file("node-state-" + n.Name)
	return path, os.WriteFile(path, []byte(out.Stdout), 0o600)
}
