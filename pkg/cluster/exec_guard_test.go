package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// SetMost lowers what a command may write.
func (e *Execs) SetMost(bytes int) { e.most = bytes }

// TestExecGuard: nothing passes but the opening of a channel for an allowed
// command, and the guard of what reads refuses even that.
func TestExecGuard(t *testing.T) {
	const path, query = "/api/v1/namespaces/kube-system/pods/kube-proxy-x/exec", "command=cat&command=%2Fproc%2Fmodules&container=kube-proxy&stderr=true&stdout=true"
	for _, c := range []struct {
		name, method, path, query string
		header                    map[string]string
		body, host                string
		passes                    bool
	}{
		{name: "WebSocket", method: "GET", header: map[string]string{"Sec-Websocket-Protocol": "v5.channel.k8s.io"}, passes: true},
		{name: "SPDY", method: "POST", passes: true},

		{name: "no channel", method: "POST", header: map[string]string{"X": "y"}},
		{name: "PUT", method: "PUT"},
		{name: "DELETE", method: "DELETE"},
		{name: "override", method: "POST", header: map[string]string{"X-Stream-Protocol-Version": "v4", "X-HTTP-Method-Override": "DELETE"}},
		{name: "body", method: "POST", body: "{}"},
		{name: "another host", method: "POST", host: "elsewhere.example"},
		{name: "another command", method: "POST", query: "command=sh&container=kube-proxy&stdout=true"},
		{name: "a command more", method: "POST", query: query + "&command=x"},
		{name: "no command", method: "POST", query: "container=kube-proxy&stdout=true"},
		{name: "standard input", method: "POST", query: query + "&stdin=true"},
		{name: "standard input, off", method: "POST", query: query + "&stdin=false"},
		{name: "terminal", method: "POST", query: query + "&tty=true"},
		{name: "two containers", method: "POST", query: query + "&container=x"},
		{name: "parameter unknown", method: "POST", query: query + "&pretty=true"},
		{name: "malformed", method: "POST", query: query + "&%zz"},
		{name: "semicolon", method: "POST", query: query + ";stdin=true"},
		{name: "create a pod", method: "POST", path: "/api/v1/namespaces/kube-system/pods"},
		{name: "attach", method: "POST", path: "/api/v1/namespaces/kube-system/pods/kube-proxy-x/attach"},
		{name: "portforward", method: "POST", path: "/api/v1/namespaces/kube-system/pods/kube-proxy-x/portforward"},
		{name: "eviction", method: "POST", path: "/api/v1/namespaces/kube-system/pods/kube-proxy-x/eviction"},
		{name: "node proxy", method: "POST", path: "/api/v1/nodes/w1/proxy/exec/kube-system/kube-proxy-x/kube-proxy"},
		{name: "a service called pods", method: "POST", path: "/api/v1/namespaces/kube-system/services/pods/exec"},
		{name: "dots", method: "POST", path: "/api/v1/namespaces/kube-system/pods/../exec"},
		{name: "more path", method: "POST", path: path + "/x"},
		{name: "other group", method: "POST", path: "/apis/x/v1/namespaces/kube-system/pods/kube-proxy-x/exec"},
		{name: "hidden slash", method: "POST", path: "/api/v1/namespaces/kube-system/pods/a%2Fb/exec"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path == "" {
				c.path = path
			}
			if c.query == "" {
				c.query = query
			}
			if c.header == nil {
				c.header = map[string]string{"X-Stream-Protocol-Version": "v4.channel.k8s.io"}
			}
			host := "api.example"
			if c.host != "" {
				host = c.host
			}
			u, err := url.Parse("https://" + host + c.path + "?" + c.query)
			if err != nil {
				t.Fatal(err)
			}
			request := func() *http.Request {
				r := &http.Request{Method: c.method, URL: u, Header: http.Header{}}
				for k, v := range c.header {
					r.Header[k] = []string{v}
				}
				if c.body != "" {
					r.Body = io.NopCloser(strings.NewReader(c.body))
				}
				return r
			}
			w := &wire{}
			g := &execGuard{next: w, host: "api.example", allowed: func(argv []string) error {
				if strings.Join(argv, " ") == "cat /proc/modules" {
					return nil
				}
				return fmt.Errorf("%q is not allowed", argv)
			}}
			_, err = g.RoundTrip(request())
			if c.passes && (err != nil || w.sent != 1) {
				t.Errorf("refused: %v", err)
			}
			if !c.passes && (!errors.Is(err, ErrNotAllowed) || w.sent != 0) {
				t.Errorf("sent %d times, error %v", w.sent, err)
			}
			w.sent = 0
			if _, err := Guard(w, "").RoundTrip(request()); !errors.Is(err, ErrNotRead) || w.sent != 0 {
				t.Errorf("the guard of what reads let it through: %v", err)
			}
		})
	}
}
