package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// ErrNotRead is what a request that could change something, or open a channel
// into the cluster, fails with. It never leaves this process.
var ErrNotRead = errors.New("this program only reads")

// Guard wraps a transport so that nothing but plain GET and HEAD requests for
// API objects get through. It refuses every other method, methods hidden in a
// header or parameter, upgrades of the connection, bodies, and the
// subresources that do something even under GET: exec, attach, portforward and
// proxy. root is the path of the API server's URL, where it has one (a server
// behind a proxy may be at https://host/k8s/clusters/c1).
//
// It has to be the innermost wrapper, next to the wire, so that no other one
// can add to a request after it was judged.
func Guard(next http.RoundTripper, root string) http.RoundTripper {
	return &guard{next: next, root: strings.TrimSuffix(path.Clean("/"+root), "/")}
}

type guard struct {
	next http.RoundTripper
	root string
}

// RoundTrip sends the request, or refuses it with ErrNotRead.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if why := g.refuses(r); why != "" {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("refusing %s %s: %s: %w", r.Method, r.URL.Path, why, ErrNotRead)
	}
	return g.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go reach the transport below, to close its
// idle connections.
func (g *guard) WrappedRoundTripper() http.RoundTripper { return g.next }

func (g *guard) refuses(r *http.Request) string {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead:
	default:
		return "the method is not GET"
	}
	if r.Body != nil && r.Body != http.NoBody {
		return "a read has no body"
	}
	if why := refusedHeader(r.Header); why != "" {
		return why
	}
	for name := range r.URL.Query() {
		if strings.EqualFold(name, "_method") {
			return "parameter _method asks for another method"
		}
	}
	return g.refusedPath(r.URL)
}

func refusedHeader(h http.Header) string {
	for name, values := range h {
		switch strings.ToLower(name) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			return "header " + name + " asks for another method"
		case "upgrade", "sec-websocket-key", "sec-websocket-protocol", "x-stream-protocol-version":
			return "header " + name + " asks for a channel"
		case "connection":
			for _, v := range values {
				if strings.Contains(strings.ToLower(v), "upgrade") {
					return "header Connection asks for an upgrade"
				}
			}
		}
	}
	return ""
}

func (g *guard) refusedPath(u *url.URL) string {
	p := u.Path
	if p != path.Clean(p) && p != path.Clean(p)+"/" {
		return "the path is not a plain one"
	}
	if strings.Contains(strings.ToLower(u.RawPath), "%2f") {
		return "the path hides a slash"
	}
	rest, ok := strings.CutPrefix(p, g.root+"/")
	if !ok {
		return "the path is not the API server's"
	}
	parts := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	switch parts[0] {
	case "version", "healthz", "livez", "readyz":
		return ""
	case "api": // api/VERSION/...
		return refusedResource(parts[min(2, len(parts)):])
	case "apis": // apis/GROUP/VERSION/...
		return refusedResource(parts[min(3, len(parts)):])
	}
	return "the path is not that of an API object"
}

// refusedResource judges [namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE...]].
// Only known, harmless shapes pass: a list, an object, and its status.
func refusedResource(parts []string) string {
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 0 && (parts[0] == "proxy" || parts[0] == "redirect") {
		return "the path opens a channel"
	}
	if len(parts) > 2 && (len(parts) > 3 || parts[2] != "status") {
		return "subresource " + parts[2] + " is not read"
	}
	return ""
}
