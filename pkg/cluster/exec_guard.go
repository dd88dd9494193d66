package cluster

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ErrNotAllowed is what a command that is none of the allowed ones, or a
// request for anything but to run one, fails with. It never leaves this process.
var ErrNotAllowed = fmt.Errorf("not one of the commands that --exec may run: %w", ErrNotRead)

// execGuard is the transport of Execs, next to the wire. It lets through
// nothing but the opening of a channel to run one allowed command in one
// container, without standard input and without a terminal: all reads go
// through Guard, and this one refuses them.
type execGuard struct {
	next http.RoundTripper
	host string
	root string
	// allowed says why a command line may not run.
	allowed func(argv []string) error
}

// RoundTrip opens the channel, or refuses to.
func (g *execGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	if why := g.refuses(r); why != "" {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("refusing %s %s: %s: %w", r.Method, r.URL.Path, why, ErrNotAllowed)
	}
	return g.next.RoundTrip(r)
}

func (g *execGuard) refuses(r *http.Request) string {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		return "the method is neither GET (WebSocket) nor POST (SPDY)"
	case r.Body != nil && r.Body != http.NoBody:
		return "it has a body"
	case r.URL.Host != g.host:
		return "it is not for the API server"
	case len(r.Header["X-Stream-Protocol-Version"])+len(r.Header["Sec-Websocket-Protocol"]) == 0:
		return "it opens no channel"
	}
	for name := range r.Header {
		if strings.Contains(strings.ToLower(name), "method") {
			return "header " + name + " asks for another method"
		}
	}
	if why := g.refusedPath(r.URL); why != "" {
		return why
	}
	return g.refusedQuery(r.URL)
}

// refusedPath: ROOT/api/v1/namespaces/NS/pods/POD/exec and no other.
func (g *execGuard) refusedPath(u *url.URL) string {
	rest, ok := strings.CutPrefix(u.Path, g.root+"/api/v1/namespaces/")
	parts := strings.Split(rest, "/")
	if !ok || u.RawPath != "" || len(parts) != 4 || parts[1] != "pods" || parts[3] != "exec" || badName(parts[0]) || badName(parts[2]) {
		return "the path is not that of a pod's exec"
	}
	return ""
}

// badName refuses what is no name of an object, dots that lead elsewhere among
// it.
func badName(s string) bool {
	return s == "" || s[0] == '.' || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") != ""
}

func (g *execGuard) refusedQuery(u *url.URL) string {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "the query is malformed"
	}
	for name, values := range q {
		switch {
		case name == "command":
		case name == "container" && len(values) == 1:
		case (name == "stdout" || name == "stderr") && slices.Equal(values, []string{"true"}):
		default:
			return "parameter " + name + " is not allowed"
		}
	}
	if err := g.allowed(q["command"]); err != nil {
		return err.Error()
	}
	return ""
}
