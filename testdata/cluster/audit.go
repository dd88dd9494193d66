package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
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

// GrantReader creates the ClusterRoles of a file of YAML documents and binds
// them to the user Reader, who has no other right but to ask who he is.
func (c *Cluster) GrantReader(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the ClusterRole: %w", err)
	}
	granted := 0
	for _, doc := range strings.Split("\n"+string(text), "\n---") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		if err := c.grant(ctx, &role); err != nil {
			return fmt.Errorf("granting ClusterRole %s: %w", role.Name, err)
		}
		granted++
	}
	if granted == 0 {
		return fmt.Errorf("%s holds no ClusterRole", path)
	}
	return c.waitReader(ctx)
}

func (c *Cluster) grant(ctx context.Context, role *rbacv1.ClusterRole) error {
	rbac := c.Client.RbacV1()
	if _, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name + "-" + Reader},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: Reader}},
	}, metav1.CreateOptions{})
	return err
}

// waitReader waits until the authorizer knows of the binding.
func (c *Cluster) waitReader(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.credentials.restConfig(c.Server(), Reader))
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return Until(ctx, Reader+" may list services", func(ctx context.Context) (string, error) {
		if _, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}
