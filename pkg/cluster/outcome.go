package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// outcome records how a request ended.
func outcome(r request, err error) snapshot.Read {
	rd := snapshot.Read{Resource: r.resource, Namespace: r.namespace, Name: r.name, Status: snapshot.Done}
	if err == nil {
		return rd
	}
	rd.Status = snapshot.Failed
	switch {
	case apierrors.IsForbidden(err):
		rd.Why = "forbidden: " + snapshot.RedactText(statusMessage(err))
		rd.Supply = allow(r, userOf(rd.Why))
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		rd.Why = "the API server does not serve " + string(r.resource)
		rd.Supply = "kubectl api-resources --api-group=" + group(r.resource)
	default:
		rd.Why = reason(err)
		rd.Supply = show(r)
	}
	return rd
}

// leftOut records a request that the budget did not allow.
func leftOut(r request) snapshot.Read {
	return snapshot.Read{
		Resource: r.resource, Namespace: r.namespace, Name: r.name, Status: snapshot.Failed,
		Why:    fmt.Sprintf("not asked for: a walk of one Service makes at most %d requests", MaxRequests),
		Supply: "vipwalk capture",
	}
}

// statusMessage is the API server's own message, without what client-go puts
// around it.
func statusMessage(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}

// reason says in a few words why a request failed. The URL that net/http puts
// into its errors is left out: the server is named once, without credentials.
func reason(err error) string {
	// client-go does not wrap the error of a body that stalls.
	if errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		return "no answer within the time given (--timeout)"
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		if ue.Timeout() {
			return "no answer within the time given (--request-timeout)"
		}
		err = ue.Err
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if code := int(status.Status().Code); code >= 500 {
			return snapshot.RedactText(fmt.Sprintf("%d %s: %s", code, http.StatusText(code), statusMessage(err)))
		}
		return snapshot.RedactText(statusMessage(err))
	}
	return snapshot.RedactText(err.Error())
}

// forbiddenUser finds the user in the API server's message.
var forbiddenUser = lazyregexp.New(`User "([A-Za-z0-9][A-Za-z0-9@._:/-]*)"`)

// userOf is the user that was refused, or a placeholder where its name is
// nothing to put into a command.
func userOf(why string) string {
	if m := forbiddenUser.FindStringSubmatch(why); m != nil {
		return m[1]
	}
	return "USER"
}

// allow is the command with which an administrator lets the user read a
// resource, where it was refused.
func allow(r request, user string) string {
	plural, _, _ := strings.Cut(string(r.resource), ".")
	name := "vipwalk-" + plural
	verbs, resource := "get,list", string(r.resource)
	if r.name != "" {
		verbs, resource = "get", resource+" --resource-name="+r.name
	}
	if r.namespace == "" {
		return fmt.Sprintf("kubectl create clusterrole %[1]s --verb=%[2]s --resource=%[3]s && kubectl create clusterrolebinding %[1]s --clusterrole=%[1]s --user=%[4]s   # or docs/rbac.yaml, which has every rule",
			name, verbs, resource, user)
	}
	return fmt.Sprintf("kubectl create role %[1]s -n %[5]s --verb=%[2]s --resource=%[3]s && kubectl create rolebinding %[1]s -n %[5]s --role=%[1]s --user=%[4]s   # or docs/rbac.yaml, which has every rule",
		name, verbs, resource, user, r.namespace)
}

// show is the kubectl command that asks for the same.
func show(r request) string {
	where := ""
	switch {
	case r.namespace != "":
		where = " -n " + r.namespace
	case r.resource.Namespaced():
		where = " -A"
	}
	return strings.TrimSpace(fmt.Sprintf("kubectl get %s %s", r.resource, r.name)) + where
}

func group(r snapshot.Resource) string {
	_, g, _ := strings.Cut(string(r), ".")
	return g
}
