package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// round is a set of requests that are answered together.
type round struct {
	timer    *time.Timer
	answered chan struct{}
}

// asked is a request's path, taken apart.
type asked struct {
	resource        snapshot.Resource
	plural          string
	group           string
	namespace, name string
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.record(r)
	if s.Exec != nil && strings.HasSuffix(r.URL.Path, "/exec") {
		s.serveExec(w, r)
		return
	}
	if r.Method != http.MethodGet {
		status(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "this server only answers GET")
		return
	}
	if s.Unauthorized {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	a, ok := parsePath(r.URL.Path)
	if !ok || s.missing[a.resource] {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if s.silent[a.resource] {
		s.wait(r)
		return
	}
	s.hold(r)
	if s.forbidden[where{a.resource, a.namespace}] || s.forbidden[where{a.resource, "*"}] {
		status(w, http.StatusForbidden, "Forbidden", a.refusal())
		return
	}
	if a.name != "" {
		s.serveOne(w, a)
		return
	}
	s.serveList(w, r, a)
}

func (s *Server) record(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, UserAgent: r.UserAgent(), Accept: r.Header.Get("Accept"),
	})
	if r.Method != http.MethodGet && !(s.Exec != nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/exec")) {
		s.violations = append(s.violations, r.Method+" "+r.URL.RequestURI())
	}
}

// wait returns when the client or the server gives up.
func (s *Server) wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.done:
	}
}

// hold waits for the end of the round that the request belongs to.
func (s *Server) hold(r *http.Request) {
	if s.Quiet == 0 {
		return
	}
	s.mu.Lock()
	if s.round == nil {
		cur := &round{answered: make(chan struct{})}
		cur.timer = time.AfterFunc(s.Quiet, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.round == cur {
				s.round = nil
			}
			close(cur.answered)
		})
		s.round = cur
		s.rounds++
	} else {
		s.round.timer.Reset(s.Quiet)
	}
	cur := s.round
	s.mu.Unlock()
	select {
	case <-cur.answered:
	case <-r.Context().Done():
	case <-s.done:
	}
}

// parsePath reads /api/v1/... and /apis/GROUP/VERSION/...
func parsePath(p string) (asked, bool) {
	parts := strings.Split(strings.Trim(p, "/"), "/")
	var a asked
	switch {
	case len(parts) >= 3 && parts[0] == "api" && parts[1] == "v1":
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis" && parts[2] == "v1":
		a.group, parts = parts[1], parts[3:]
	default:
		return a, false
	}
	if len(parts) >= 3 && parts[0] == "namespaces" {
		a.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) == 2 {
		a.name = parts[1]
	}
	a.plural = parts[0]
	full := a.plural
	if a.group != "" {
		full += "." + a.group
	}
	for _, r := range snapshot.Resources {
		if string(r) == full && len(parts) <= 2 {
			a.resource = r
			return a, true
		}
	}
	return a, false
}

func (a asked) refusal() string {
	verb, where := "list", "at the cluster scope"
	if a.name != "" {
		verb = "get"
	}
	if a.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.namespace)
	}
	return fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q %s", a.plural, "tester", verb, a.plural, a.group, where)
}

func (s *Server) serveOne(w http.ResponseWriter, a asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects[a.resource] {
		if text(o, "metadata.namespace") == a.namespace && text(o, "metadata.name") == a.name {
			reply(w, http.StatusOK, o)
			return
		}
	}
	status(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", a.plural, a.name))
}

func (s *Server) serveList(w http.ResponseWriter, r *http.Request, a asked) {
	q := r.URL.Query()
	if q.Get("continue") != "" && s.expired(a.resource) {
		status(w, http.StatusGone, "Expired", "The provided continue parameter is too old to display a consistent list result")
		return
	}
	items, err := s.matching(a, q)
	if err != nil {
		status(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	start, _ := strconv.Atoi(q.Get("continue"))
	start = min(max(start, 0), len(items))
	meta := object{"resourceVersion": "1"}
	page := items[start:]
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && len(page) > limit {
		page = page[:limit]
		meta["continue"] = strconv.Itoa(start + limit)
	}
	apiVersion, kind := snapshot.KindOf(a.resource)
	list := object{"apiVersion": apiVersion, "kind": kind + "List", "metadata": meta, "items": page}
	if s.stalled[a.resource] {
		s.half(w, r, list)
		return
	}
	reply(w, http.StatusOK, list)
}

func (s *Server) expired(r snapshot.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expire[r] == 0 {
		return false
	}
	s.expire[r]--
	return true
}

// half sends the first half of an answer, and then nothing more.
func (s *Server) half(w http.ResponseWriter, r *http.Request, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b[:len(b)/2])
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	s.wait(r)
}

func (s *Server) matching(a asked, q url.Values) ([]object, error) {
	ls, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	fs, err := fields.ParseSelector(q.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []object{}
	for _, o := range s.objects[a.resource] {
		if a.namespace != "" && text(o, "metadata.namespace") != a.namespace {
			continue
		}
		if ls.Matches(labelsOf(o)) && fs.Matches(fieldsOf{o}) {
			out = append(out, o)
		}
	}
	return out, nil
}

// fieldsOf answers for any field that is a string.
type fieldsOf struct{ o object }

func (f fieldsOf) Has(field string) bool   { return f.Get(field) != "" }
func (f fieldsOf) Get(field string) string { return text(f.o, field) }

func labelsOf(o object) labels.Set {
	out := labels.Set{}
	meta, _ := o["metadata"].(object)
	in, _ := meta["labels"].(object)
	for k, v := range in {
		out[k], _ = v.(string)
	}
	return out
}

// text is the string at a path of fields, or "".
func text(o object, path string) string {
	head, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		v, _ := o[head].(string)
		return v
	}
	next, _ := o[head].(object)
	return text(next, rest)
}

func key(o object) string { return text(o, "metadata.namespace") + "/" + text(o, "metadata.name") }

func status(w http.ResponseWriter, code int, reason, message string) {
	reply(w, code, object{
		"apiVersion": "v1", "kind": "Status", "metadata": object{}, "status": "Failure",
		"message": message, "reason": reason, "code": code,
	})
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
