package apitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// Exec is a pods/exec endpoint over WebSocket (v5.channel.k8s.io) and SPDY/3.1
// (v4.channel.k8s.io), as an API server of today has it. One that is forbidden
// by verb answers as RBAC does: WebSocket is a get, SPDY a create.
type Exec struct {
	// Run runs a command in a container. An exit status below 0 is for one that
	// could not be started; stderr then says why.
	Run func(c Call) (stdout, stderr string, exit int)
	// NoWebSocket and NoSPDY answer the one and the other as a server without it.
	NoWebSocket, NoSPDY bool
	// NoGet and NoCreate forbid the verbs.
	NoGet, NoCreate bool
	// Stall never ends a command.
	Stall bool

	mu    sync.Mutex
	calls []Call
}

// Call is one command that was asked for.
type Call struct {
	Namespace, Pod, Container string
	Argv                      []string
	// Over is websocket or spdy.
	Over string
}

// Calls are the commands that were run, in order of arrival.
func (e *Exec) Calls() []Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Call(nil), e.calls...)
}

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	r = r.WithContext(klog.NewContext(r.Context(), logr.Discard())) // a client that goes is no error
	call, why := parseExec(r)
	switch {
	case why != "":
		s.mu.Lock()
		s.violations = append(s.violations, r.Method+" "+r.URL.RequestURI()+" ("+why+")")
		s.mu.Unlock()
		status(w, http.StatusBadRequest, "BadRequest", why)
		return
	case r.Method == http.MethodGet && s.Exec.NoGet, r.Method == http.MethodPost && s.Exec.NoCreate:
		status(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("pods %q is forbidden: User %q cannot %s resource \"pods/exec\" in API group \"\" in the namespace %q",
			call.Pod, "tester", map[string]string{"GET": "get", "POST": "create"}[r.Method], call.Namespace))
		return
	case !s.hasPod(call):
		status(w, http.StatusNotFound, "NotFound", fmt.Sprintf("pods %q not found", call.Pod))
		return
	}
	if wsstream.IsWebSocketRequest(r) {
		call.Over = "websocket"
		s.Exec.webSocket(w, r, call, s.done)
		return
	}
	call.Over = "spdy"
	s.Exec.spdy(w, r, call, s.done)
}

// parseExec takes a request apart, and says what about it no client of ours
// may ask for.
func parseExec(r *http.Request) (c Call, why string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) != 7 || parts[0] != "api" || parts[2] != "namespaces" || parts[4] != "pods" {
		return c, "not a pod's exec"
	}
	q := r.URL.Query()
	c = Call{Namespace: parts[3], Pod: parts[5], Container: q.Get("container"), Argv: q["command"]}
	switch {
	case q.Get("stdin") != "" || q.Get("tty") != "":
		return c, "with standard input or a terminal"
	case q.Get("stdout") != "true" || q.Get("stderr") != "true":
		return c, "without output"
	case len(c.Argv) == 0:
		return c, "without a command"
	}
	return c, ""
}

func (s *Server) hasPod(c Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects[snapshot.Pods] {
		if key(o) == c.Namespace+"/"+c.Pod {
			return true
		}
	}
	return false
}

// answer runs the command and writes what came of it; the exit status goes
// last, as JSON.
func (e *Exec) answer(c Call, stdout, stderr, errors io.Writer, done <-chan struct{}) {
	e.mu.Lock()
	e.calls = append(e.calls, c)
	e.mu.Unlock()
	if e.Stall {
		<-done
		return
	}
	out, complaint, exit := e.Run(c)
	result := metav1.Status{Status: metav1.StatusSuccess}
	switch {
	case exit < 0:
		result = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: "Internal error occurred: " + complaint}
		complaint = ""
	case exit > 0:
		result = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: fmt.Sprintf("command terminated with exit code %d", exit),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit)}}},
		}
	}
	// The client may have gone; then nobody is there to be told.
	_, _ = io.WriteString(stderr, complaint)
	for len(out) > 0 {
		n := min(len(out), 16<<10)
		if _, err := io.WriteString(stdout, out[:n]); err != nil {
			return
		}
		out = out[n:]
	}
	b, err := json.Marshal(result)
	if err == nil {
		_, _ = errors.Write(b)
	}
}

func (e *Exec) webSocket(w http.ResponseWriter, r *http.Request, c Call, done <-chan struct{}) {
	if e.NoWebSocket {
		http.Error(w, "unable to upgrade: missing upgrade headers in request", http.StatusBadRequest)
		return
	}
	// Standard input, output, errors, the exit status, and the terminal's size.
	channels := []wsstream.ChannelType{wsstream.IgnoreChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.IgnoreChannel}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{remotecommand.StreamProtocolV5Name: {Binary: true, Channels: channels}})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return
	}
	defer conn.Close()
	e.answer(c, streams[remotecommand.StreamStdOut], streams[remotecommand.StreamStdErr], streams[remotecommand.StreamErr], done)
}

func (e *Exec) spdy(w http.ResponseWriter, r *http.Request, c Call, done <-chan struct{}) {
	if e.NoSPDY {
		status(w, http.StatusForbidden, "Forbidden", "this server does not speak SPDY")
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		return
	}
	created := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			created <- s
		}()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for len(streams) < 3 {
		select {
		case s := <-created:
			streams[s.Headers().Get("streamType")] = s
		case <-conn.CloseChan():
			return
		case <-done:
			return
		}
	}
	e.answer(c, streams["stdout"], streams["stderr"], streams["error"], done)
	for _, s := range streams {
		_ = s.Close()
	}
}
