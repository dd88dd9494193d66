package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// TestCluster holds the cluster itself to what the other tests trust: a
// healthy Service answers from everywhere and from every backend, a Service
// whose backends are gone refuses, and Stop leaves nothing behind.
func TestCluster(t *testing.T) {
	if why := cluster.Missing(); why != "" {
		t.Skip(why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute) // the first run builds the control plane
	defer cancel()
	binaries, err := cluster.FindBinaries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir()) // other clusters may come and go beside
	before := machine()
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Binaries: binaries})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the control plane took %v", time.Since(began).Round(time.Millisecond))
	stopped := false
	defer func() {
		if !stopped {
			c.Stop()
		}
	}()
	n1, n2, n3 := addNode(ctx, t, c, "n1", "iptables"), addNode(ctx, t, c, "n2", "iptables"), addNode(ctx, t, c, "n3", "nftables")
	web, service := createWeb(ctx, t, c)
	addr := service.Spec.ClusterIP + ":80"

	pod, err := c.PodClient("default", web[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []cluster.Client{pod, n1.Client(), n2.Client(), n3.Client()} {
		tries := c.Connect(ctx, client, addr, 30)
		if got := cluster.Tally(tries); got != "answered" {
			t.Errorf("from %s: %s, want answered: %v", client.Name, got, tries)
		}
		if got := answeredBy(tries); len(got) != len(web) {
			t.Errorf("from %s: answered by %v, want by each of %d pods", client.Name, got, len(web))
		}
	}
	t.Run("the node is a machine of its own", func(t *testing.T) { checkNode(ctx, t, n1) })
	t.Run("kube-proxy's pods are there", func(t *testing.T) {
		if _, err := c.WaitPods(ctx, "kube-system", map[string]string{"k8s-app": "kube-proxy"}, 3, true); err != nil {
			t.Error(err)
		}
	})
	t.Run("a frozen kube-proxy keeps what it wrote", func(t *testing.T) { checkFrozen(ctx, t, c, n1, n2, addr) })
	t.Run("the audit log tells users apart", func(t *testing.T) { checkAudit(ctx, t, c) })

	began = time.Now()
	stopped = true
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("stopping took %v", time.Since(began).Round(time.Millisecond))
	if after := machine(); after != before {
		t.Errorf("the machine before:\n%s\nand after:\n%s", before, after)
	}
}

func addNode(ctx context.Context, t *testing.T, c *cluster.Cluster, name, mode string) *cluster.Node {
	t.Helper()
	began := time.Now()
	n, err := c.AddNode(ctx, name, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("node %s (%s) took %v", name, mode, time.Since(began).Round(time.Millisecond))
	return n
}

var webLabels = map[string]string{"app": "web"}

// createWeb creates a Deployment of four pods, and its Service.
func createWeb(ctx context.Context, t *testing.T, c *cluster.Cluster) ([]corev1.Pod, *corev1.Service) {
	t.Helper()
	replicas := int32(4)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: webLabels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "example.org/web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				}}},
			},
		},
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: webLabels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}}},
	}
	began := time.Now()
	if _, err := c.Client.AppsV1().Deployments("default").Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service, err := c.Client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := settledWeb(ctx, t, c, int(replicas))
	t.Logf("%d pods took %v until the rules had them", replicas, time.Since(began).Round(time.Millisecond))
	return pods, service
}

func settledWeb(ctx context.Context, t *testing.T, c *cluster.Cluster, n int) []corev1.Pod {
	t.Helper()
	pods, err := c.WaitPods(ctx, "default", webLabels, n, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitEndpoints(ctx, "default", "web", cluster.PodIPs(pods)); err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	return pods
}

func answeredBy(tries []cluster.Try) map[string]int {
	by := map[string]int{}
	for _, t := range tries {
		if t.Pod != "" {
			by[t.Pod]++
		}
	}
	return by
}

func checkNode(ctx context.Context, t *testing.T, n *cluster.Node) {
	for _, c := range []struct{ path, want string }{
		{"/proc/sys/kernel/hostname", "n1\n"},
		{"/proc/sys/net/ipv4/ip_forward", "1\n"},
		{"/proc/1/comm", "sleep\n"},
	} {
		if got, err := n.ReadFile(ctx, c.path); err != nil || got != c.want {
			t.Errorf("%s is %q, %v; want %q", c.path, got, err, c.want)
		}
	}
	out, err := n.Exec(ctx, "sh", "-c", "cat /proc/[0-9]*/comm | grep -c kube-proxy")
	if err != nil || strings.TrimSpace(out) != "1" {
		t.Errorf("the node sees %q kube-proxies (%v), want 1", out, err)
	}
}

func checkFrozen(ctx context.Context, t *testing.T, c *cluster.Cluster, n1, n2 *cluster.Node, addr string) {
	if err := n1.StopProxy(ctx); err != nil {
		t.Fatal(err)
	}
	scaleWeb(ctx, t, c, 0)
	if got := cluster.Tally(c.Connect(ctx, n1.Client(), addr, 10)); got != "no answer" {
		t.Errorf("from the frozen node: %s, want no answer", got)
	}
	if got := cluster.Tally(c.Connect(ctx, n2.Client(), addr, 10)); got != "refused" {
		t.Errorf("from the other node: %s, want refused", got)
	}
	if err := n1.ContinueProxy(); err != nil {
		t.Fatal(err)
	}
	scaleWeb(ctx, t, c, 0)
	if got := cluster.Tally(c.Connect(ctx, n1.Client(), addr, 10)); got != "refused" {
		t.Errorf("from the thawed node: %s, want refused", got)
	}
}

func scaleWeb(ctx context.Context, t *testing.T, c *cluster.Cluster, n int) {
	t.Helper()
	scale, err := c.Client.AppsV1().Deployments("default").GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = int32(n)
	if _, err := c.Client.AppsV1().Deployments("default").UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	settledWeb(ctx, t, c, n)
}

func checkAudit(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	requests, end, err := c.Audit(ctx, cluster.Admin, 0)
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]int{}
	for _, r := range requests {
		verbs[r.Verb]++
	}
	if verbs["create"] == 0 || verbs["watch"] == 0 {
		t.Errorf("the admin's verbs are %v, want create and watch among them", verbs)
	}
	if requests, _, err := c.Audit(ctx, cluster.Reader, end); err != nil || len(requests) != 0 {
		t.Errorf("the reader asked %v, %v; want nothing", requests, err)
	}
}

// machine describes what a cluster of this process could leave behind:
// processes, namespaces that are held open, and directories.
func machine() string {
	var out strings.Builder
	for _, pid := range descendants(os.Getpid()) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		fmt.Fprintln(&out, "process", strings.TrimSpace(string(name)))
	}
	spaces, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range spaces {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, "net:") {
			fmt.Fprintln(&out, "held", to)
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "vipwalk-cluster-*", "lock"))
	for _, d := range dirs {
		fmt.Fprintln(&out, "directory", d)
	}
	return out.String()
}

// descendants are the processes that a process started, and theirs.
func descendants(of int) []int {
	children := map[int][]int{}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		pid, _ := strconv.Atoi(filepath.Base(proc))
		parent := parentOf(proc)
		children[parent] = append(children[parent], pid)
	}
	var all []int
	for queue := children[of]; len(queue) > 0; queue = queue[1:] {
		all = append(all, queue[0])
		queue = append(queue, children[queue[0]]...)
	}
	return all
}

func parentOf(proc string) int {
	var parent int
	status, _ := os.ReadFile(filepath.Join(proc, "status"))
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "PPid: %d", &parent); err == nil {
			break
		}
	}
	return parent
}
