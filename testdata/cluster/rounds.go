package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// quiet is how long no new request may have come before a round is over. A
// client that had more to ask at once would have asked by then.
const quiet = 400 * time.Millisecond

// Rounds stands before the API server and counts in how many rounds a client
// asks: it holds every request until no more have come for a while, and then
// lets all of them go at once, so that a request that needs an earlier one's
// answer always falls into a later round.
type Rounds struct {
	server *httptest.Server

	mu      sync.Mutex
	waiting []chan struct{}
	timer   *time.Timer
	rounds  [][]string // "GET /api/v1/pods", as they came
}

// NewRounds starts it, and writes a kubeconfig for the user that leads to it.
func (c *Cluster) NewRounds(user string) (r *Rounds, kubeconfig string, err error) {
	target, err := url.Parse(c.Server())
	if err != nil {
		return nil, "", fmt.Errorf("finding the API server: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.credentials.ca)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	r = &Rounds{}
	r.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-r.hold(req.Method + " " + req.URL.RequestURI())
		proxy.ServeHTTP(w, req)
	}))
	kubeconfig = c.file(user + ".rounds.kubeconfig")
	return r, kubeconfig, c.writeInsecureKubeconfig(kubeconfig, r.server.URL, user)
}

// writeInsecureKubeconfig is for a server with a certificate of its own.
func (c *Cluster) writeInsecureKubeconfig(path, server, user string) error {
	if err := c.credentials.writeKubeconfig(path, server, user); err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: true}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Chmod(path, 0o600)
}

func (r *Rounds) hold(request string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.rounds = append(r.rounds, nil)
		r.timer = time.AfterFunc(quiet, r.release)
	} else {
		r.timer.Reset(quiet)
	}
	last := len(r.rounds) - 1
	r.rounds[last] = append(r.rounds[last], request)
	released := make(chan struct{})
	r.waiting = append(r.waiting, released)
	return released
}

func (r *Rounds) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.waiting {
		close(w)
	}
	r.waiting = nil
}

// Close stops it and returns the rounds.
func (r *Rounds) Close() [][]string {
	r.server.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.rounds)
}
