package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// execTimeout bounds one command: a large ruleset takes iptables-nft-save a
	// few seconds, and as long again on the way here.
	execTimeout   = 20 * time.Second
	maxExecErrors = 64 << 10
)

// maxOutput bounds what one command may write, in bytes.
const maxOutput = 128 << 20

// Execs runs allowed commands in containers, and can do nothing else: see
// execGuard. The client that reads has no part in it.
type Execs struct {
	config  *rest.Config
	rest    rest.Interface
	allowed func(argv []string) error
	most    int
}

// Execs returns what runs commands in pods. allowed gives an error for a
// command line that may not run, and decides for each of them, here and once
// more next to the wire.
func (c *Client) Execs(allowed func(argv []string) error) (*Execs, error) {
	cfg := rest.CopyConfig(c.config)
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, configError(err)
	}
	before := cfg.WrapTransport
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		rt = &execGuard{next: rt, host: u.Host, root: strings.TrimSuffix(u.Path, "/"), allowed: allowed}
		if before != nil {
			rt = before(rt)
		}
		return rt
	}
	cfg.UserAgent = "vipwalk/" + c.version
	cfg.Timeout = 0 // of a whole answer; each command has its own
	return &Execs{config: cfg, rest: c.rest[corev1.SchemeGroupVersion], allowed: allowed, most: maxOutput}, nil
}

// ContainerRef names a container.
type ContainerRef struct{ Namespace, Pod, Container string }

func (r ContainerRef) String() string { return r.Namespace + "/" + r.Pod }

// Run runs a command in a container and returns what it wrote to its standard
// output, also beside an error. It is tried over WebSocket, as kubectl does,
// and over SPDY where that is not to be had (API servers before 1.30, some
// proxies). A command has 20 seconds, and may write 128 MiB.
func (e *Execs) Run(ctx context.Context, in ContainerRef, argv []string) (string, error) {
	if err := e.allowed(argv); err != nil {
		return "", fmt.Errorf("%w: %w", err, ErrNotAllowed)
	}
	ctx, cancel := context.WithTimeoutCause(klog.NewContext(ctx, logr.Discard()), execTimeout, fmt.Errorf("no end within %s", execTimeout))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	executor, err := e.executor(in, argv)
	if err != nil {
		return "", configError(err)
	}
	stdout := &output{max: e.most, over: func() { stop(fmt.Errorf("over %d MiB of output", e.most>>20)) }}
	stderr := &output{max: maxExecErrors, over: func() {}}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
	if cause := context.Cause(ctx); cause != nil {
		return "", cause // the output is still being written to by whoever is left behind
	}
	if err != nil {
		err = execError(err, stderr.String())
	}
	return stdout.String(), err
}

func (e *Execs) executor(in ContainerRef, argv []string) (remotecommand.Executor, error) {
	r := e.rest.Get().Namespace(in.Namespace).Resource("pods").Name(in.Pod).SubResource("exec").
		Param("container", in.Container).Param("stdout", "true").Param("stderr", "true")
	for _, arg := range argv {
		r = r.Param("command", arg)
	}
	u := r.URL()
	web, err := remotecommand.NewWebSocketExecutor(e.config, http.MethodGet, u.String())
	if err != nil {
		return nil, err
	}
	wrapper, upgrader, err := spdy.RoundTripperFor(e.config)
	if err != nil {
		return nil, err
	}
	old, err := remotecommand.NewSPDYExecutorRejectRedirects(wrapper, upgrader, http.MethodPost, u)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(web, old, func(err error) bool {
		// No channel was opened, so no command ran. Who may create pods/exec and
		// not get it is refused WebSocket alone.
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// execError says how a command ended, with the first line that it complained
// with, or why none was run.
func execError(err error, stderr string) error {
	var ended exec.ExitError
	if errors.As(err, &ended) {
		return fmt.Errorf("exit status %d%s", ended.ExitStatus(), firstLine(stderr))
	}
	why := strings.TrimPrefix(strings.TrimSpace(reason(err)), "unable to upgrade connection: ")
	if apierrors.IsForbidden(err) || strings.Contains(why, "is forbidden: User ") { // over SPDY only the message comes back
		return fmt.Errorf("forbidden: %s (the role vipwalk-exec of docs/rbac.yaml allows it)", why)
	}
	return errors.New(why)
}

func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return ": " + line[:min(len(line), 300)]
		}
	}
	return ""
}

// output keeps up to max bytes, and tells of more once. It never fails: what
// writes to it would go on all the same, and log.
type output struct {
	kept bytes.Buffer // no part of output, whose Write would be passed by for its ReadFrom
	max  int
	over func()
	full bool
}

func (o *output) String() string { return o.kept.String() }

func (o *output) Write(p []byte) (int, error) {
	switch {
	case o.full:
	case o.kept.Len()+len(p) > o.max:
		o.full = true
		o.over()
	default:
		o.kept.Write(p)
	}
	return len(p), nil
}
