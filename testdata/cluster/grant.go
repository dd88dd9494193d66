package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// GrantReader creates the ClusterRoles and Roles of a file of YAML documents,
// binds them to the user Reader, who has no other right, and returns when the
// API server has taken notice.
func (c *Cluster) GrantReader(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the reader's rights: %w", err)
	}
	granted := 0
	for _, doc := range strings.Split("\n"+string(text), "\n---") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		switch kind.Kind {
		case "ClusterRole":
			err = c.grantClusterRole(ctx, doc)
		case "Role":
			err = c.grantRole(ctx, doc)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("granting a %s of %s: %w", kind.Kind, path, err)
		}
		granted++
	}
	if granted == 0 {
		return fmt.Errorf("%s holds no ClusterRole and no Role", path)
	}
	return nil
}

func (c *Cluster) grantClusterRole(ctx context.Context, doc string) error {
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(doc), &role); err != nil {
		return err
	}
	rbac := c.Client.RbacV1()
	if _, err := rbac.ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name + "-" + Reader}}
	binding.RoleRef, binding.Subjects = toReader("ClusterRole", role.Name)
	if _, err := rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.waitGranted(ctx, "", role.Rules)
}

func (c *Cluster) grantRole(ctx context.Context, doc string) error {
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict([]byte(doc), &role); err != nil {
		return err
	}
	rbac := c.Client.RbacV1()
	if _, err := rbac.Roles(role.Namespace).Create(ctx, &role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: role.Name + "-" + Reader}}
	binding.RoleRef, binding.Subjects = toReader("Role", role.Name)
	if _, err := rbac.RoleBindings(role.Namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.waitGranted(ctx, role.Namespace, role.Rules)
}

func toReader(kind, name string) (rbacv1.RoleRef, []rbacv1.Subject) {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		[]rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: Reader}}
}

// waitGranted waits until the authorizer, which watches roles and bindings,
// allows Reader what the first of the rules says.
func (c *Cluster) waitGranted(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) error {
	if len(rules) == 0 {
		return nil
	}
	r := rules[0]
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: r.Verbs[0], Group: r.APIGroups[0], Resource: r.Resources[0]}
	if len(r.ResourceNames) > 0 {
		attributes.Name = r.ResourceNames[0]
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: Reader, ResourceAttributes: attributes}}
	return Until(ctx, fmt.Sprintf("%s may %s %s", Reader, attributes.Verb, attributes.Resource), func(ctx context.Context) (string, error) {
		answer, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		if !answer.Status.Allowed {
			return "not yet", nil
		}
		return "", nil
	})
}
