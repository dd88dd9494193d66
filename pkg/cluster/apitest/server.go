// Package apitest is a Kubernetes API server for tests: it serves objects from
// memory as lists and gets, with paging and selectors, and can be told to
// forbid, to lack a resource, to be slow or to stall. It knows no verb but
// GET; any other is a Violation.
package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// Token is the credential in the kubeconfig that WriteKubeconfig writes; tests
// look for it where it must not be.
const Token = "S3CRET-bearer-token"

// Server is one API server. Set it up before the first request.
type Server struct {
	// URL is http://127.0.0.1:PORT.
	URL string
	// Unauthorized answers every request with 401.
	Unauthorized bool
	// Quiet, where it is set, makes the server hold its answers until no
	// request has come in for so long. A client that asks in rounds then shows
	// them: see Rounds.
	Quiet time.Duration
	// Exec, where it is set, answers requests to run commands in pods.
	Exec *Exec

	http *httptest.Server
	done chan struct{}

	mu         sync.Mutex
	objects    map[snapshot.Resource][]object
	forbidden  map[where]bool
	missing    map[snapshot.Resource]bool
	stalled    map[snapshot.Resource]bool
	silent     map[snapshot.Resource]bool
	expire     map[snapshot.Resource]int
	requests   []Request
	violations []string
	round      *round
	rounds     int
}

type object = map[string]any

type where struct {
	resource  snapshot.Resource
	namespace string
}

// Request is one request that came in.
type Request struct {
	Method, Path, Query, UserAgent, Accept string
}

// Start serves the objects until Close.
func Start(objects ...runtime.Object) (*Server, error) {
	s := &Server{
		done: make(chan struct{}), objects: map[snapshot.Resource][]object{}, forbidden: map[where]bool{},
		missing: map[snapshot.Resource]bool{}, stalled: map[snapshot.Resource]bool{}, silent: map[snapshot.Resource]bool{},
		expire: map[snapshot.Resource]int{},
	}
	if err := s.Add(objects...); err != nil {
		return nil, err
	}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = s.http.URL
	return s, nil
}

// New is Start for a test: it is closed when the test ends, and fails it where
// a request was not a GET.
func New(t testing.TB, objects ...runtime.Object) *Server {
	t.Helper()
	s, err := Start(objects...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, v := range s.Violations() {
			t.Errorf("the API server was sent %s", v)
		}
	})
	return s
}

// Close ends the server, and every request that stalls.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.done:
		s.mu.Unlock()
		return
	default:
		close(s.done)
	}
	s.mu.Unlock()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Add adds typed objects, as they are: what a client must leave out may be in
// them.
func (s *Server) Add(objects ...runtime.Object) error {
	for _, o := range objects {
		b, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("add %T: %w", o, err)
		}
		var u object
		if err := json.Unmarshal(b, &u); err != nil {
			return fmt.Errorf("add %T: %w", o, err)
		}
		if u["kind"] == nil || u["kind"] == "" {
			u["kind"] = strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
		}
		if err := s.add(u); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) add(u object) error {
	kind, _ := u["kind"].(string)
	for _, r := range snapshot.Resources {
		apiVersion, k := snapshot.KindOf(r)
		if k != kind {
			continue
		}
		u["apiVersion"] = apiVersion
		s.mu.Lock()
		defer s.mu.Unlock()
		s.objects[r] = append(s.objects[r], u)
		slices.SortStableFunc(s.objects[r], func(a, b object) int { return strings.Compare(key(a), key(b)) })
		return nil
	}
	return fmt.Errorf("kind %q is not one that is served", kind)
}

// Forbid refuses lists and gets of a resource in a namespace with 403: "" for
// those of all namespaces (and of cluster-scoped resources), "*" for each and
// every one.
func (s *Server) Forbid(r snapshot.Resource, namespace string) {
	s.forbidden[where{r, namespace}] = true
}

// Lack answers with 404 as a server does that does not serve the resource.
func (s *Server) Lack(r snapshot.Resource) { s.missing[r] = true }

// Silence never answers requests for the resource.
func (s *Server) Silence(r snapshot.Resource) { s.silent[r] = true }

// Stall answers requests for the resource with half of the body.
func (s *Server) Stall(r snapshot.Resource) { s.stalled[r] = true }

// Expire answers the next n requests for a further page of the resource with
// 410, as a server does whose history was compacted.
func (s *Server) Expire(r snapshot.Resource, n int) { s.expire[r] = n }

// Requests are all that came in, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Rounds counts how often requests came in, each time after the answers to
// those before; Quiet has to be set.
func (s *Server) Rounds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds
}

// Violations lists requests that were not a GET.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// Kubeconfig is a kubeconfig for this server, with Token, and namespace in
// force.
func (s *Server) Kubeconfig(namespace string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts:
- name: test
  context: {cluster: test, user: tester, namespace: %q}
clusters:
- name: test
  cluster: {server: %q}
users:
- name: tester
  user: {token: %q}
`, namespace, s.URL, Token)
}

// WriteKubeconfig writes it into a folder and returns the file's name.
func (s *Server) WriteKubeconfig(dir, namespace string) (string, error) {
	name := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(name, []byte(s.Kubeconfig(namespace)), 0o600); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return name, nil
}
