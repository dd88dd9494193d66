package node

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGet(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("method %s", r.Method)
		}
		_, _ = w.Write([]byte("nftables"))
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("x", 4*maxAnswer)))
	})
	mux.Handle("/elsewhere", http.RedirectHandler("/ok", http.StatusFound))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for _, tt := range []struct {
		path, status string
		size         int
	}{{"/ok", "HTTP/1.1 200 OK", 8}, {"/long", "HTTP/1.1 200 OK", maxAnswer}, {"/elsewhere", "HTTP/1.1 302 Found", -1}} {
		a, err := Get(context.Background(), srv.URL+tt.path)
		if err != nil || a.Status != tt.status || tt.size >= 0 && len(a.Body) != tt.size {
			t.Errorf("%s: %q, %d bytes, %v", tt.path, a.Status, len(a.Body), err)
		}
	}
}

// TestGetFrozen asks a server whose kernel accepts the connection and whose
// process never does, as a stopped kube-proxy's.
func TestGetFrozen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Get(context.Background(), "http://"+l.Addr().String()+"/healthz"); err == nil || err.Error() != "no answer within 1s" {
		t.Errorf("got %v", err)
	}
}

func TestGetRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if _, err := Get(context.Background(), "http://"+addr+"/healthz"); err == nil || !strings.Contains(err.Error(), "connect") {
		t.Errorf("got %v", err)
	}
}
