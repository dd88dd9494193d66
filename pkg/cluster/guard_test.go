package cluster

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// wire records what gets through.
type wire struct{ sent int }

func (w *wire) RoundTrip(*http.Request) (*http.Response, error) {
	w.sent++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestGuard(t *testing.T) {
	const pods = "/api/v1/namespaces/shop/pods"
	for _, c := range []struct {
		name, method, path string
		header             map[string]string
		body               string
		root               string
		passes             bool
	}{
		{name: "list", method: "GET", path: pods + "?limit=500", passes: true},
		{name: "empty method is GET", method: "", path: pods, passes: true},
		{name: "head", method: "HEAD", path: pods, passes: true},
		{name: "get", method: "GET", path: pods + "/a", passes: true},
		{name: "status", method: "GET", path: pods + "/a/status", passes: true},
		{name: "watch", method: "GET", path: pods + "?watch=true", passes: true},
		{name: "cluster-scoped", method: "GET", path: "/api/v1/nodes/w1", passes: true},
		{name: "the namespace itself", method: "GET", path: "/api/v1/namespaces/exec", passes: true},
		{name: "group", method: "GET", path: "/apis/discovery.k8s.io/v1/namespaces/proxy/endpointslices", passes: true},
		{name: "names that read like verbs", method: "GET", path: "/api/v1/namespaces/proxy/pods/exec", passes: true},
		{name: "version", method: "GET", path: "/version", passes: true},
		{name: "behind a prefix", method: "GET", path: "/k8s/clusters/c1" + pods, root: "/k8s/clusters/c1/", passes: true},

		{name: "POST", method: "POST", path: pods},
		{name: "PUT", method: "PUT", path: pods + "/a"},
		{name: "PATCH", method: "PATCH", path: pods + "/a"},
		{name: "DELETE", method: "DELETE", path: pods + "/a"},
		{name: "OPTIONS", method: "OPTIONS", path: pods},
		{name: "CONNECT", method: "CONNECT", path: pods},
		{name: "lower case", method: "delete", path: pods + "/a"},
		{name: "get in lower case is no method", method: "get", path: pods},
		{name: "made up", method: "GETX", path: pods},
		{name: "dry run is still a write", method: "POST", path: pods + "?dryRun=All"},
		{name: "access review", method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"},
		{name: "body", method: "GET", path: pods, body: "{}"},
		{name: "override", method: "GET", path: pods, header: map[string]string{"X-HTTP-Method-Override": "DELETE"}},
		{name: "override, odd case", method: "GET", path: pods, header: map[string]string{"x-http-METHOD-override": "DELETE"}},
		{name: "other override", method: "GET", path: pods, header: map[string]string{"X-Method-Override": "PUT"}},
		{name: "third override", method: "GET", path: pods, header: map[string]string{"X-HTTP-Method": "PUT"}},
		{name: "override by parameter", method: "GET", path: pods + "?_method=DELETE"},
		{name: "upgrade", method: "GET", path: pods, header: map[string]string{"Upgrade": "websocket"}},
		{name: "connection upgrade", method: "GET", path: pods, header: map[string]string{"Connection": "keep-alive, Upgrade"}},
		{name: "websocket", method: "GET", path: pods, header: map[string]string{"Sec-WebSocket-Protocol": "v5.channel.k8s.io"}},
		{name: "exec", method: "GET", path: pods + "/a/exec?command=sh"},
		{name: "attach", method: "GET", path: pods + "/a/attach"},
		{name: "portforward", method: "GET", path: pods + "/a/portforward"},
		{name: "pod proxy", method: "GET", path: pods + "/a/proxy/admin"},
		{name: "service proxy", method: "GET", path: "/api/v1/namespaces/shop/services/a:80/proxy/delete-all"},
		{name: "node proxy", method: "GET", path: "/api/v1/nodes/w1/proxy/run/shop/a/c"},
		{name: "old proxy", method: "GET", path: "/api/v1/proxy/namespaces/shop/services/a"},
		{name: "log", method: "GET", path: pods + "/a/log"},
		{name: "made up subresource", method: "GET", path: pods + "/a/newthing"},
		{name: "status and more", method: "GET", path: pods + "/a/status/exec"},
		{name: "dots", method: "GET", path: pods + "/a/../b/exec"},
		{name: "double slash", method: "GET", path: "/api/v1/namespaces/shop//pods/a/exec"},
		{name: "hidden slash", method: "GET", path: pods + "/a%2Fexec"},
		{name: "no API path", method: "GET", path: "/logs/kubelet.log"},
		{name: "another server", method: "GET", path: pods, root: "/k8s/clusters/c1"},
		{name: "prefix that only looks alike", method: "GET", path: "/k8sx" + pods, root: "/k8s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := url.Parse("https://api.example" + c.path)
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{Method: c.method, URL: u, Header: http.Header{}}
			for k, v := range c.header {
				r.Header[k] = []string{v} // as it is, not in the canonical case
			}
			if c.body != "" {
				r.Body = io.NopCloser(strings.NewReader(c.body))
			}
			w := &wire{}
			_, err = Guard(w, c.root).RoundTrip(r)
			if c.passes {
				if err != nil || w.sent != 1 {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, ErrNotRead) || w.sent != 0 {
				t.Errorf("sent %d times, error %v", w.sent, err)
			}
		})
	}
}
