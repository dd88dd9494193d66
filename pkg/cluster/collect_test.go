package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/vipwalk/vipwalk/pkg/cluster"
	"github.com/vipwalk/vipwalk/pkg/cluster/apitest"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

var at = time.Date(2026, 11, 3, 9, 30, 0, 0, time.UTC)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func service(namespace, name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta(namespace, name), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"},
		Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	if change != nil {
		change(s)
	}
	return s
}

func pod(namespace, name, app string, ready corev1.ConditionStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(namespace, name)}
	p.Labels = map[string]string{"app": app}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

// world are the objects of a small cluster with a healthy Service shop/orders.
func world(more ...runtime.Object) []runtime.Object {
	return append([]runtime.Object{
		service("shop", "orders", nil),
		pod("shop", "orders-1", "orders", corev1.ConditionTrue),
		&discoveryv1.EndpointSlice{ObjectMeta: meta("shop", "orders-x"), AddressType: discoveryv1.AddressTypeIPv4},
		&appsv1.Deployment{ObjectMeta: meta("shop", "orders")},
		&corev1.Namespace{ObjectMeta: meta("", "shop")},
		&corev1.Node{ObjectMeta: meta("", "w1")},
		&networkingv1.NetworkPolicy{ObjectMeta: meta("shop", "deny")},
		&corev1.ConfigMap{ObjectMeta: meta("kube-system", "kube-proxy"), Data: map[string]string{"config.conf": "mode: iptables\n"}},
		pod("kube-system", "kube-proxy-1", "kube-proxy", corev1.ConditionTrue),
		pod("other", "elsewhere", "x", corev1.ConditionTrue),
	}, more...)
}

func client(t *testing.T, s *apitest.Server) *cluster.Client {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, err := s.WriteKubeconfig(dir, "shop")
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(dir, "cache")
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.CacheDir = &kubeconfig, &cache
	c, err := cluster.New(flags, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(cache); err == nil {
			t.Error("something was cached on disk")
		}
	})
	return c.WithClock(func() time.Time { return at })
}

func orders() cluster.Scope {
	return cluster.Scope{Services: []types.NamespacedName{{Namespace: "shop", Name: "orders"}}}
}

func paths(s *apitest.Server) []string {
	var out []string
	for _, r := range s.Requests() {
		p := strings.TrimPrefix(strings.TrimPrefix(r.Path, "/apis/"), "/api/v1/")
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// first are the requests that every walk of shop/orders makes.
var first = []string{
	"discovery.k8s.io/v1/namespaces/shop/endpointslices", "namespaces", "namespaces/kube-system/configmaps/kube-proxy",
	"namespaces/kube-system/pods", "namespaces/shop/pods", "namespaces/shop/services", "networking.k8s.io/v1/networkpolicies", "nodes",
}

func TestCollectRequests(t *testing.T) {
	for _, c := range []struct {
		name   string
		world  []runtime.Object
		setup  func(*apitest.Server)
		scope  cluster.Scope
		beyond []string // the first requests
		rounds int
	}{
		{name: "healthy", world: world(), scope: orders(), rounds: 1},
		{
			name: "selector matches nothing", scope: orders(), rounds: 2,
			world: []runtime.Object{service("shop", "orders", nil), pod("shop", "a", "order", corev1.ConditionTrue), world()[7]},
			beyond: []string{"apps/v1/namespaces/shop/daemonsets", "apps/v1/namespaces/shop/deployments",
				"apps/v1/namespaces/shop/statefulsets", "namespaces/shop/events"},
		},
		{
			name: "a pod that is not ready", scope: orders(), rounds: 2,
			world:  world(pod("shop", "orders-2", "orders", corev1.ConditionFalse)),
			beyond: []string{"namespaces/shop/events"},
		},
		{
			name: "load balancer pending", rounds: 2,
			world: world(service("shop", "lb", func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Spec.Selector["app"] = "orders"
			})),
			scope:  cluster.Scope{Services: []types.NamespacedName{{Namespace: "shop", Name: "lb"}}},
			beyond: []string{"namespaces/shop/events"},
		},
		{
			name: "no selector", rounds: 2,
			world:  world(service("shop", "bare", func(s *corev1.Service) { s.Spec.Selector = nil })),
			scope:  cluster.Scope{Services: []types.NamespacedName{{Namespace: "shop", Name: "bare"}}},
			beyond: []string{"namespaces/shop/endpoints"},
		},
		{
			name: "external name", rounds: 1,
			world: world(service("shop", "ext", func(s *corev1.Service) { s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName} })),
			scope: cluster.Scope{Services: []types.NamespacedName{{Namespace: "shop", Name: "ext"}}},
		},
		{
			name: "not found", world: world(), rounds: 2,
			scope:  cluster.Scope{Services: []types.NamespacedName{{Namespace: "shop", Name: "absent"}}},
			beyond: []string{"services"},
		},
		{
			name: "client in another namespace", world: world(), rounds: 1,
			scope:  cluster.Scope{Services: orders().Services, ClientPod: &types.NamespacedName{Namespace: "other", Name: "elsewhere"}},
			beyond: []string{"namespaces/other/pods"},
		},
		{
			name: "client in another namespace and no pod selected", rounds: 2,
			world: []runtime.Object{service("shop", "orders", nil)},
			scope: cluster.Scope{Services: orders().Services, ClientPod: &types.NamespacedName{Namespace: "other", Name: "elsewhere"}},
			// The budget leaves no room for events, nor for the other ConfigMap.
			beyond: []string{"apps/v1/namespaces/shop/daemonsets", "apps/v1/namespaces/shop/deployments",
				"apps/v1/namespaces/shop/statefulsets", "namespaces/other/pods"},
		},
		{
			name: "kube-proxy configured elsewhere", rounds: 2, scope: orders(),
			world:  slices.Concat(world()[:7], world()[8:]),
			beyond: []string{"namespaces/kube-system/configmaps/kube-proxy-config"},
		},
		{
			name: "Antrea is there", rounds: 2, scope: orders(),
			world:  world(pod(snapshot.ProxyNamespace, "antrea-agent-1", "antrea", corev1.ConditionTrue)),
			beyond: []string{"namespaces/kube-system/configmaps/antrea-config"},
		},
		{
			name: "policies forbidden cluster-wide", world: world(), rounds: 2, scope: orders(),
			setup:  func(s *apitest.Server) { s.Forbid(snapshot.NetworkPolicies, "") },
			beyond: []string{"networking.k8s.io/v1/namespaces/shop/networkpolicies"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := apitest.New(t, c.world...)
			s.Quiet = 150 * time.Millisecond
			if c.setup != nil {
				c.setup(s)
			}
			if _, err := client(t, s).Collect(t.Context(), c.scope); err != nil {
				t.Fatal(err)
			}
			want := slices.Sorted(slices.Values(append(slices.Clone(first), c.beyond...)))
			if diff := cmp.Diff(want, paths(s)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if n := len(s.Requests()); n > cluster.MaxRequests {
				t.Errorf("%d requests", n)
			}
			if s.Rounds() != c.rounds {
				t.Errorf("%d rounds, want %d", s.Rounds(), c.rounds)
			}
			for _, r := range s.Requests() {
				if r.UserAgent != "vipwalk/1.2.3" || !strings.Contains(r.Accept, "protobuf") {
					t.Errorf("user agent %q, accepts %q", r.UserAgent, r.Accept)
				}
			}
		})
	}
}

func TestCollectInKubeSystemListsPodsOnce(t *testing.T) {
	s := apitest.New(t, world(service("kube-system", "dns", func(s *corev1.Service) { s.Spec.Selector["app"] = "kube-proxy" }))...)
	snap, err := client(t, s).Collect(t.Context(), cluster.Scope{Services: []types.NamespacedName{{Namespace: "kube-system", Name: "dns"}}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Requests()); n != len(first)-1 {
		t.Errorf("%d requests: %v", n, paths(s))
	}
	if len(snap.Objects.Pods) != 1 {
		t.Errorf("pods: %v", snap.Objects.Pods)
	}
}

func TestCollectResolvesAnAddress(t *testing.T) {
	s := apitest.New(t, world(service("pay", "cards", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.77", nil }))...)
	s.Quiet = 150 * time.Millisecond
	snap, err := client(t, s).Collect(t.Context(), cluster.Scope{ResolveAddress: true, Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.77")}})
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[snapshot.Resource]bool{snapshot.Services: true, snapshot.EndpointSlices: false} {
		if got := snap.Reads.Has(r, ""); got != want {
			t.Errorf("%s of all namespaces read: %v", r, got)
		}
	}
	for _, r := range []snapshot.Resource{snapshot.EndpointSlices, snapshot.Pods, snapshot.Deployments} {
		if !snap.Reads.Has(r, "pay") {
			t.Errorf("%s of the owner's namespace were not read", r)
		}
	}
	if n := len(s.Requests()); n > cluster.MaxRequests || s.Rounds() != 3 {
		t.Errorf("%d requests in %d rounds: %v", n, s.Rounds(), paths(s))
	}
}

func TestCollectRecordsWhatWasReadAndFound(t *testing.T) {
	s := apitest.New(t, world()...)
	snap, err := client(t, s).Collect(t.Context(), orders())
	if err != nil {
		t.Fatal(err)
	}
	if !snap.TakenAt.Equal(at) {
		t.Errorf("taken at %s", snap.TakenAt)
	}
	if diff := cmp.Diff([]snapshot.Input{{Kind: "api", Ref: s.URL, At: at}}, snap.Inputs); diff != "" {
		t.Error(diff)
	}
	want := snapshot.Reads{
		{Resource: snapshot.Services, Namespace: "shop", Status: snapshot.Done},
		{Resource: snapshot.EndpointSlices, Namespace: "shop", Status: snapshot.Done},
		{Resource: snapshot.Pods, Namespace: "kube-system", Status: snapshot.Done},
		{Resource: snapshot.Pods, Namespace: "shop", Status: snapshot.Done},
		{Resource: snapshot.Nodes, Status: snapshot.Done},
		{Resource: snapshot.Namespaces, Status: snapshot.Done},
		{Resource: snapshot.NetworkPolicies, Status: snapshot.Done},
		{Resource: snapshot.ConfigMaps, Namespace: "kube-system", Name: "kube-proxy", Status: snapshot.Done},
	}
	if diff := cmp.Diff(want, snap.Reads); diff != "" {
		t.Error(diff)
	}
	o := &snap.Objects
	if len(o.Services) != 1 || len(o.Pods) != 2 || len(o.Nodes) != 1 || len(o.NetworkPolicies) != 1 || len(o.ConfigMaps) != 1 || len(o.EndpointSlices) != 1 {
		t.Errorf("%+v", o)
	}
}

func TestCollectFullReadsEveryKind(t *testing.T) {
	for name, scope := range map[string]cluster.Scope{
		"a namespace": {Namespaces: []string{"shop"}, Full: true},
		"all":         {All: true},
	} {
		s := apitest.New(t, world()...)
		snap, err := client(t, s).Collect(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range snapshot.Resources {
			if r != snapshot.ConfigMaps && !snap.Reads.Has(r, "shop") {
				t.Errorf("%s: %s was not read", name, r)
			}
		}
		if got := snap.Reads.Has(snapshot.Pods, ""); got != scope.All {
			t.Errorf("%s: pods of all namespaces read: %v", name, got)
		}
	}
}

func TestCollectForbidden(t *testing.T) {
	t.Run("pods", func(t *testing.T) {
		s := apitest.New(t, world()...)
		s.Forbid(snapshot.Pods, "shop")
		snap, err := client(t, s).Collect(t.Context(), orders())
		if err != nil {
			t.Fatal(err)
		}
		want := snapshot.Read{
			Resource: snapshot.Pods, Namespace: "shop", Status: snapshot.Failed,
			Why:    `forbidden: pods is forbidden: User "tester" cannot list resource "pods" in API group "" in the namespace "shop"`,
			Supply: "kubectl create role vipwalk-pods -n shop --verb=get,list --resource=pods && kubectl create rolebinding vipwalk-pods -n shop --role=vipwalk-pods --user=tester   # or docs/rbac.yaml, which has every rule",
		}
		if diff := cmp.Diff(want, snap.Reads.Of(snapshot.Pods, "shop")); diff != "" {
			t.Error(diff)
		}
		if !snap.Reads.Has(snapshot.Services, "shop") || !snap.Reads.Has(snapshot.Pods, "kube-system") {
			t.Error("what is allowed was not read")
		}
	})
	t.Run("everything", func(t *testing.T) {
		s := apitest.New(t, world()...)
		for _, r := range snapshot.Resources {
			s.Forbid(r, "*")
		}
		snap, err := client(t, s).Collect(t.Context(), orders())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range snap.Reads {
			if r.Status != snapshot.Failed || !strings.Contains(r.Why, "forbidden") || !strings.Contains(r.Supply, "--user=tester") {
				t.Errorf("%+v", r)
			}
		}
		cm := snap.Reads.Object(snapshot.ConfigMaps, "kube-system", "kube-proxy")
		if want := "kubectl create role vipwalk-configmaps -n kube-system --verb=get --resource=configmaps --resource-name=kube-proxy &&"; !strings.HasPrefix(cm.Supply, want) {
			t.Errorf("supply %q, want %q", cm.Supply, want)
		}
		if len(snap.Reads) < 8 || len(s.Requests()) > cluster.MaxRequests {
			t.Errorf("%d reads, %d requests", len(snap.Reads), len(s.Requests()))
		}
	})
	t.Run("all namespaces, but not one", func(t *testing.T) {
		s := apitest.New(t, world()...)
		for _, r := range snapshot.Resources {
			s.Forbid(r, "")
		}
		snap, err := client(t, s).Collect(t.Context(), cluster.Scope{Namespaces: []string{"shop"}, All: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []snapshot.Resource{snapshot.Services, snapshot.EndpointSlices, snapshot.Pods, snapshot.NetworkPolicies} {
			if !snap.Reads.Has(r, "shop") {
				t.Errorf("%s of the namespace that may be read were not", r)
			}
		}
	})
}

func TestCollectLeavesOutWhatTheBudgetForbids(t *testing.T) {
	s := apitest.New(t, service("shop", "orders", nil))
	scope := orders()
	scope.ClientPod = &types.NamespacedName{Namespace: "other", Name: "x"}
	snap, err := client(t, s).Collect(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	if got := snap.Reads.Of(snapshot.Events, "shop"); got.Status != snapshot.Failed || !strings.Contains(got.Why, "12 requests") || got.Supply == "" {
		t.Errorf("%+v", got)
	}
}

// TestCollectOfANamespaceHasNoBudget: a Service of each sort calls for
// everything, and nothing is left out.
func TestCollectOfANamespaceHasNoBudget(t *testing.T) {
	s := apitest.New(t, world(service("shop", "typo", nil), service("shop", "bare", func(s *corev1.Service) { s.Spec.Selector = nil }))...)
	snap, err := client(t, s).Collect(t.Context(), cluster.Scope{Namespaces: []string{"shop"}, ClientPod: &types.NamespacedName{Namespace: "other", Name: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range snap.Reads {
		if r.Status != snapshot.Done {
			t.Errorf("%+v", r)
		}
	}
	if !snap.Reads.Has(snapshot.Endpoints, "shop") || !snap.Reads.Has(snapshot.Deployments, "shop") || snap.Reads.Has(snapshot.Pods, "") {
		t.Errorf("reads: %+v", snap.Reads)
	}
}

func TestCollectResourceThatIsNotServed(t *testing.T) {
	s := apitest.New(t, world()...)
	s.Lack(snapshot.ServiceCIDRs)
	s.Lack(snapshot.IPAddresses)
	snap, err := client(t, s).Collect(t.Context(), cluster.Scope{Namespaces: []string{"shop"}, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	got := snap.Reads.Of(snapshot.ServiceCIDRs, "")
	want := snapshot.Read{Resource: snapshot.ServiceCIDRs, Status: snapshot.Failed,
		Why: "the API server does not serve servicecidrs.networking.k8s.io", Supply: "kubectl api-resources --api-group=networking.k8s.io"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func manyPods(n int) []runtime.Object {
	var out []runtime.Object
	for i := range n {
		out = append(out, pod("shop", fmt.Sprintf("orders-%04d", i), "orders", corev1.ConditionTrue))
	}
	return out
}

func TestCollectPages(t *testing.T) {
	for name, expire := range map[string]int{"in three pages": 0, "again in one piece": 1} {
		t.Run(name, func(t *testing.T) {
			s := apitest.New(t, world(manyPods(1200)...)...)
			s.Expire(snapshot.Pods, expire)
			snap, err := client(t, s).Collect(t.Context(), orders())
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, p := range snap.Objects.Pods {
				if p.Namespace == "shop" {
					n++
				}
			}
			if n != 1201 || !snap.Reads.Has(snapshot.Pods, "shop") {
				t.Errorf("%d pods, %+v", n, snap.Reads.Of(snapshot.Pods, "shop"))
			}
			if !slices.IsSortedFunc(snap.Objects.Pods, func(a, b corev1.Pod) int {
				return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
			}) {
				t.Error("not sorted")
			}
		})
	}
}

func TestCollectUnauthorized(t *testing.T) {
	s := apitest.New(t, world()...)
	s.Unauthorized = true
	_, err := client(t, s).Collect(t.Context(), orders())
	if err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), s.URL) || strings.Contains(err.Error(), apitest.Token) {
		t.Error(err)
	}
}

// TestCollectUnreachable: nothing listens; something listens and never
// answers; a web server answers; all end within the deadline.
func TestCollectUnreachable(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close() // never accepts
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	other := apitest.New(t)
	for _, r := range snapshot.Resources {
		other.Lack(r)
	}
	for name, c := range map[string]struct{ server, want string }{
		"closed":             {"http://user:S3CRET@" + closed.Addr().String(), "connection refused"},
		"deaf":               {"http://user:S3CRET@" + deaf.Addr().String(), "no answer within the time given"},
		"no API server":      {other.URL, "could not find the requested resource"},
		"no such host":       {"http://vipwalk.invalid:1", "vipwalk.invalid"},
		"plain text for TLS": {strings.Replace(other.URL, "http:", "https:", 1), "HTTP response to HTTPS"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := genericclioptions.NewConfigFlags(true)
			empty := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(empty, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			flags.KubeConfig, flags.APIServer = &empty, &c.server
			cl, err := cluster.New(flags, "0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = cl.Collect(ctx, orders())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "kubectl cluster-info") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "S3CRET") {
				t.Errorf("the error holds credentials: %v", err)
			}
		})
	}
}

func TestCollectStalls(t *testing.T) {
	for name, setup := range map[string]func(*apitest.Server){
		"no answer":      func(s *apitest.Server) { s.Silence(snapshot.Nodes) },
		"half an answer": func(s *apitest.Server) { s.Stall(snapshot.Nodes) },
	} {
		t.Run(name, func(t *testing.T) {
			s := apitest.New(t, world()...)
			setup(s)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			snap, err := client(t, s).Collect(ctx, orders())
			if err != nil {
				t.Fatal(err)
			}
			if got := snap.Reads.Of(snapshot.Nodes, ""); got.Status != snapshot.Failed || !strings.Contains(got.Why, "--timeout") || got.Supply != "kubectl get nodes" {
				t.Errorf("%+v", got)
			}
			if !snap.Reads.Has(snapshot.Pods, "shop") {
				t.Error("what did answer is lost")
			}
		})
	}
}

func TestCollectInterrupted(t *testing.T) {
	s := apitest.New(t, world()...)
	s.Silence(snapshot.Nodes)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client(t, s).Collect(ctx, orders()); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	s := apitest.New(t)
	good, err := s.WriteKubeconfig(dir, "shop")
	if err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("\x00{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ kubeconfig, context, want string }{
		"no such file":    {filepath.Join(dir, "absent"), "", "absent"},
		"no such context": {good, "nowhere", "nowhere"},
		"garbage":         {garbage, "", "garbage"},
	} {
		flags := genericclioptions.NewConfigFlags(true)
		flags.KubeConfig, flags.Context = &c.kubeconfig, &c.context
		if _, err := cluster.New(flags, "0"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &good
	c, err := cluster.New(flags, "0")
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace() != "shop" || c.Server() != s.URL {
		t.Errorf("namespace %q, server %q", c.Namespace(), c.Server())
	}
}

// TestNoSecretGetsIn plants a marker in every place of the objects and the
// kubeconfig that may hold a secret.
func TestNoSecretGetsIn(t *testing.T) {
	const marker = "S3CRET"
	p := pod("shop", "orders-1", "orders", corev1.ConditionFalse)
	p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: marker, "vault/token": marker}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: marker}}
	p.Spec = corev1.PodSpec{
		Volumes:          []corev1.Volume{{Name: marker, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: marker}}}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: marker}}, ServiceAccountName: marker,
		Containers: []corev1.Container{{
			Name: "a", Command: []string{marker}, Args: []string{marker}, Env: []corev1.EnvVar{{Name: "A", Value: marker}},
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: marker}}}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				Exec:    &corev1.ExecAction{Command: []string{marker}},
				HTTPGet: &corev1.HTTPGetAction{Path: "/?k=" + marker, HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: marker}}},
			}},
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{marker}}}},
		}},
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: marker}}}}
	event := &corev1.Event{ObjectMeta: meta("shop", "e"), InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "orders-1"},
		Reason: "Unhealthy", Message: "Liveness probe failed: " + marker}
	other := &corev1.Event{ObjectMeta: meta("shop", "f"), InvolvedObject: corev1.ObjectReference{Kind: "Secret", Name: marker}, Message: marker}
	cm := &corev1.ConfigMap{ObjectMeta: meta("kube-system", "kube-proxy"),
		Data: map[string]string{"config.conf": "mode: ipvs\nclientConnection: {kubeconfig: " + marker + "}", "kubeconfig.conf": marker}}
	s := apitest.New(t, service("shop", "orders", nil), p, event, other, cm)

	snap, err := client(t, s).Collect(t.Context(), cluster.Scope{Namespaces: []string{"shop"}, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Objects.Pods) != 1 || len(snap.Objects.Events) != 1 || len(snap.Objects.ConfigMaps) != 1 {
		t.Fatalf("the objects are not there: %+v", snap.Objects)
	}
	dump, err := json.Marshal(snap)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(dump, []byte(marker)) {
		t.Errorf("the Snapshot holds the marker: %s", dump)
	}
	var bundle bytes.Buffer
	if err := snapshot.WriteBundle(&bundle, snap); err != nil {
		t.Fatal(err)
	}
	back, err := snapshot.ReadBundle(&bundle)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(snap, back); diff != "" {
		t.Errorf("the bundle differs from what was collected:\n%s", diff)
	}
}
