package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
)

func (c *Cluster) auditLog() string { return c.file("audit.log") }

// Request is one request of the API server's audit log.
type Request struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ResponseStatus struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
}

// Audit returns the requests of a user from an offset in the audit log on, and
// the offset of its end. The API server writes a request's line as it answers,
// so a request of a mark is sent first, by another user, and waited for.
func (c *Cluster) Audit(ctx context.Context, username string, from int64) (requests []Request, end int64, err error) {
	client, err := kubernetes.NewForConfig(c.credentials.restConfig(c.Server(), Admin))
	if err != nil {
		return nil, 0, fmt.Errorf("making a client: %w", err)
	}
	mark := fmt.Sprintf("/version?mark=%d", c.marks.Add(1))
	if _, err := client.Discovery().RESTClient().Get().RequestURI(mark).DoRaw(ctx); err != nil {
		return nil, 0, fmt.Errorf("marking the audit log: %w", err)
	}
	err = Until(ctx, "the audit log shows "+mark, func(context.Context) (string, error) {
		all, size, err := readAudit(c.auditLog(), from)
		if err != nil {
			return "", err
		}
		requests, end = nil, size
		marked := false
		for _, r := range all {
			marked = marked || r.RequestURI == mark
			if r.User.Username == username {
				requests = append(requests, r)
			}
		}
		if !marked {
			return "not yet", nil
		}
		return "", nil
	})
	return requests, end, err
}

// readAudit reads whole lines; a line that is still being written is left.
func readAudit(path string, from int64) (all []Request, end int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(from, 0); err != nil {
		return nil, 0, fmt.Errorf("reading the audit log: %w", err)
	}
	end = from
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return all, end, nil
		}
		end += int64(len(line))
		var req Request
		if err := json.Unmarshal([]byte(line), &req); err != nil {
			return nil, 0, fmt.Errorf("reading the audit log at byte %d: %w", end, err)
		}
		all = append(all, req)
	}
}
