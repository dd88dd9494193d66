package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// kube-proxy's own servers, at their default addresses (pkg/proxy/apis/config:
// metricsBindAddress and healthzBindAddress). The first answers on the
// loopback address alone.
const (
	proxyModeURL = "http://127.0.0.1:10249/proxyMode"
	healthzURL   = "http://127.0.0.1:10256/healthz"
)

const (
	getTimeout = time.Second
	maxAnswer  = 64 << 10
)

// Answer is what a server said.
type Answer struct {
	Status string // the status line: "HTTP/1.1 200 OK"
	Code   int
	Body   string
}

// Getter asks by HTTP GET.
type Getter func(ctx context.Context, url string) (Answer, error)

// Get is the Getter for this machine's own servers: within one second, through
// no proxy, following no redirect, keeping up to 64 KiB.
func Get(ctx context.Context, url string) (Answer, error) {
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: getTimeout}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       getTimeout,
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, noAnswer(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{}, noAnswer(err)
	}
	return Answer{Status: resp.Proto + " " + resp.Status, Code: resp.StatusCode, Body: string(body)}, nil
}

// noAnswer tells a process that hangs (stopped, or its machine swamped) from
// one that is not there.
func noAnswer(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no answer within %s", getTimeout)
	}
	return err
}

// proxy looks for a proxy's process, and asks kube-proxy for its mode and
// health. The questions are packets over the loopback device, which the
// node's rules count as any other; where it is seen that no proxy runs,
// nothing is asked.
func (m Machine) proxy(ctx context.Context) []snapshot.Text {
	processes := m.processes()
	if processes.Status == snapshot.Done && processes.Content == "" {
		return []snapshot.Text{processes, notAsked(snapshot.ProxyMode, proxyModeURL), notAsked(snapshot.ProxyHealthz, healthzURL)}
	}
	health := make(chan snapshot.Text, 1)
	go func() {
		health <- m.ask(ctx, snapshot.ProxyHealthz, healthzURL, func(a Answer) (string, error) {
			return a.Status + "\n" + a.Body, nil
		})
	}()
	mode := m.ask(ctx, snapshot.ProxyMode, proxyModeURL, func(a Answer) (string, error) {
		if a.Code != http.StatusOK {
			return "", fmt.Errorf("answered %s", shorten(a.Status))
		}
		return strings.TrimSpace(a.Body) + "\n", nil
	})
	return []snapshot.Text{processes, mode, <-health}
}

func notAsked(kind snapshot.TextKind, url string) snapshot.Text {
	return snapshot.Text{Kind: kind, Ref: "curl -s " + url, Status: snapshot.Failed,
		Why: "not asked: no process of a Service proxy runs in this network namespace", Supply: "curl -s -m 1 " + url}
}

func (m Machine) ask(ctx context.Context, kind snapshot.TextKind, url string, render func(Answer) (string, error)) snapshot.Text {
	t := snapshot.Text{Kind: kind, Ref: "curl -s " + url, Status: snapshot.Done}
	a, err := m.Get(ctx, url)
	if err == nil {
		t.Content, err = render(a)
	}
	if err != nil {
		t.Status, t.Why, t.Supply = snapshot.Failed, err.Error(), "curl -s -m 1 "+url
	}
	return t
}
