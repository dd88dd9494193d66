package walk

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nodeCase is a state of the fixture, and what layer 3 is to say of it.
type nodeCase struct {
	name   string
	change []func(*snapshot.Snapshot)
	opts   func(*Options)
	// roots and folded are layer 3's codes with their severity.
	roots, folded []string
	// says must stand in the first diagnosis of the layer, not must not.
	says, not []string
	status    diagnosis.Status
	// lacks must stand in what the layer is missing.
	lacks []string
}

func runNodeCases(t *testing.T, cases []nodeCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s := nodeFixture()
			for _, c := range tt.change {
				c(s)
			}
			o := Options{Targets: []Target{{Namespace: "shop", Name: "web"}}}
			if tt.opts != nil {
				tt.opts(&o)
			}
			checkNodeCase(t, tt, Walk(s, o).Services[0])
		})
	}
}

func checkNodeCase(t *testing.T, tt nodeCase, svc diagnosis.Service) {
	t.Helper()
	var roots, folded []string
	first := ""
	for _, d := range svc.Diagnoses {
		if d.Layer != diagnosis.LayerNode {
			continue
		}
		completeOnNode(t, d)
		if first == "" {
			first = everything(d)
		}
		if line := string(d.Code) + " " + string(d.Severity); len(d.CausedBy) == 0 {
			roots = append(roots, line)
		} else {
			folded = append(folded, line)
		}
	}
	if diff := cmp.Diff(tt.roots, roots); diff != "" {
		t.Errorf("roots (-want +got)\n%s\n%s", diff, describe(svc))
	}
	if diff := cmp.Diff(tt.folded, folded); diff != "" {
		t.Errorf("folded (-want +got)\n%s\n%s", diff, describe(svc))
	}
	for _, text := range tt.says {
		if !strings.Contains(first, text) {
			t.Errorf("the first diagnosis does not say %q\n%s", text, first)
		}
	}
	for _, text := range tt.not {
		if strings.Contains(first, text) {
			t.Errorf("the first diagnosis says %q\n%s", text, first)
		}
	}
	layer := svc.Layers[2]
	if layer.Status != tt.status {
		t.Errorf("layer 3 is %s (%s), want %s\n%s", layer.Status, layer.Summary, tt.status, describe(svc))
	}
	var missing strings.Builder
	for _, m := range layer.Missing {
		missing.WriteString(m.What + ": " + m.Why + ": " + m.Supply + "\n")
	}
	for _, text := range tt.lacks {
		if !strings.Contains(missing.String(), text) {
			t.Errorf("what is missing does not say %q\n%s", text, missing.String())
		}
	}
}

// completeOnNode is sound for what speaks of nodes: their commands run there.
func completeOnNode(t *testing.T, d diagnosis.Diagnosis) {
	t.Helper()
	if d.Title == "" || strings.HasSuffix(d.Title, ".") || strings.Contains(d.Title, "\n") {
		t.Errorf("%s: title %q is no line", d.Code, d.Title)
	}
	if d.Expected == "" || d.Found == "" || len(d.Evidence) == 0 || len(d.Fixes) == 0 {
		t.Errorf("%s lacks something: %+v", d.Code, d)
	}
	for _, e := range d.Evidence {
		if e.Source == "" || e.Quote == "" || e.Command == "" {
			t.Errorf("%s: evidence %+v lacks something", d.Code, e)
		}
	}
	for _, f := range d.Fixes {
		if f.Title == "" || len(f.Commands) == 0 || f.BlastRadius == "" || f.Undo == nil || len(f.Verify) == 0 || f.Simulated.Status == "" {
			t.Errorf("%s: fix %+v lacks something", d.Code, f)
		}
	}
}

// onProxyPod changes the pod of worker-1's kube-proxy.
func onProxyPod(change func(*corev1.Pod)) func(*snapshot.Snapshot) {
	return onProxyPodOf("worker-1", change)
}

func onProxyPodOf(node string, change func(*corev1.Pod)) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		for i := range s.Objects.Pods {
			if s.Objects.Pods[i].Name == "kube-proxy-"+node {
				change(&s.Objects.Pods[i])
			}
		}
	}
}

func proxyStatus(st corev1.ContainerStatus) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		st.Name = "kube-proxy"
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{st}
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "kube-proxy"}}
		if st.State.Running == nil {
			unready(pod)
		}
	}
}

func endedWith(code int32, reason string, ago time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(takenAt.Add(-ago))}}
}

var (
	runs     = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(takenAt.Add(-time.Minute))}}
	backsOff = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s"}}
)

func noProcess(s *snapshot.Snapshot) {
	dropText(s, snapshot.ProxyMode)
	setText(s, snapshot.ProxyProcess, func(string) string { return "" })
}

func image(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = name }
}

func TestProxyCrashing(t *testing.T) {
	stale := rules("10.244.2.6", "10.244.2.99")
	loop := corev1.ContainerStatus{RestartCount: 12, State: backsOff, LastTerminationState: endedWith(2, "Error", time.Minute)}
	runNodeCases(t, []nodeCase{
		{name: "in a crash loop, and stale", change: []func(*snapshot.Snapshot){onProxyPod(proxyStatus(loop)), noProcess, stale},
			roots: []string{"VIP331 error"}, folded: []string{"VIP302 error", "VIP303 warning"}, status: fail,
			says: []string{"kube-proxy crashes, and is down on worker-1", "CrashLoopBackOff after 12 restarts, ended with exit code 2", "kubectl logs kube-proxy-worker-1 -n kube-system -c kube-proxy --previous"}},
		{name: "in a crash loop, and the rules are right for now", change: []func(*snapshot.Snapshot){onProxyPod(proxyStatus(loop)), noProcess},
			roots: []string{"VIP331 warning"}, status: warn},
		{name: "killed for its memory, and stale", change: []func(*snapshot.Snapshot){
			onProxyPod(proxyStatus(corev1.ContainerStatus{RestartCount: 1, State: runs, LastTerminationState: endedWith(137, "OOMKilled", time.Minute)})), stale},
			roots: []string{"VIP331 error"}, folded: []string{"VIP302 error", "VIP303 warning"}, status: fail,
			says: []string{"was killed for its memory (OOMKilled) on worker-1", "1 restart, the last 1m0s ago, ended with exit code 137 (OOMKilled)", "kubectl set resources daemonset/kube-proxy -n kube-system -c kube-proxy --limits=memory=AMOUNT"}},
		{name: "keeps restarting", change: []func(*snapshot.Snapshot){
			onProxyPod(proxyStatus(corev1.ContainerStatus{RestartCount: 4, State: runs, LastTerminationState: endedWith(1, "Error", 10*time.Minute)}))},
			roots: []string{"VIP331 warning"}, status: warn, says: []string{"kube-proxy keeps crashing on worker-1", "4 restarts, the last 10m0s ago"}},
		{name: "in IPVS mode, with what is known of that release", change: []func(*snapshot.Snapshot){onProxyPod(proxyStatus(loop)), onProxyPod(image("registry.k8s.io/kube-proxy:v1.31.2")), noProcess, func(s *snapshot.Snapshot) {
			dropText(s, snapshot.IptablesSave)
			s.Objects.ConfigMaps[0].Data["config.conf"] = "kind: KubeProxyConfiguration\nmode: ipvs\n"
		}}, roots: []string{"VIP331 warning"}, status: unknown, says: []string{"kubernetes#111806"}},
		{name: "on a node that was not read", change: []func(*snapshot.Snapshot){onProxyPodOf("worker-2", proxyStatus(loop))},
			roots: []string{"VIP331 warning"}, status: warn, says: []string{"kube-proxy crashes, and is down on worker-2", "the rules there were not read"}},
		{name: "on all nodes, and none was read", change: []func(*snapshot.Snapshot){onProxyPod(proxyStatus(loop)), onProxyPodOf("worker-2", proxyStatus(loop)), func(s *snapshot.Snapshot) { s.Nodes = nil }},
			roots: []string{"VIP331 warning"}, status: unknown, says: []string{"on worker-1 and worker-2", "2 kube-proxy pods fail alike"}},
		{name: "not VIP331: it crashes on a node that the client does not meet", change: []func(*snapshot.Snapshot){onProxyPodOf("worker-2", proxyStatus(loop))}, opts: calledBy(OnePod, "client"), status: diagnosis.OK},
		{name: "not VIP331: it restarted with its node", change: []func(*snapshot.Snapshot){
			onProxyPod(proxyStatus(corev1.ContainerStatus{RestartCount: 9, State: runs, LastTerminationState: endedWith(255, "Unknown", 10*time.Minute)}))}, status: diagnosis.OK},
		{name: "not VIP331: it was killed for its memory long ago", change: []func(*snapshot.Snapshot){
			onProxyPod(proxyStatus(corev1.ContainerStatus{RestartCount: 9, State: runs, LastTerminationState: endedWith(137, "OOMKilled", 10*time.Hour)}))}, status: diagnosis.OK},
		{name: "not VIP331: pods were not read", change: []func(*snapshot.Snapshot){func(s *snapshot.Snapshot) {
			s.Objects.Pods = slices.DeleteFunc(s.Objects.Pods, func(p corev1.Pod) bool { return p.Namespace == "kube-system" })
		}}, status: diagnosis.OK},
	})
}

func TestKnownBugsAreNamed(t *testing.T) {
	stale := rules("10.244.2.6", "10.244.2.99")
	runNodeCases(t, []nodeCase{
		{name: "a release that loses updates", change: []func(*snapshot.Snapshot){onProxyPod(image("registry.k8s.io/kube-proxy:v1.28.3")), stale},
			roots: []string{"VIP302 error"}, folded: []string{"VIP303 warning"}, status: fail, says: []string{"kubernetes#121362"}},
		{name: "a release that does not", change: []func(*snapshot.Snapshot){onProxyPod(image("registry.k8s.io/kube-proxy:v1.33.1")), stale},
			roots: []string{"VIP302 error"}, folded: []string{"VIP303 warning"}, status: fail, not: []string{"kubernetes#"}},
	})
}

func TestParseRelease(t *testing.T) {
	for in, want := range map[string]int{
		"v1.28.4": 28_004, "1.28.4": 28_004, "v1.31.2-eks-a737599": 31_002, "v1.30.1+k3s1": 30_001, "v1.30.0-alpha.1": 30_000,
		"": -1, "latest": -1, "v2.0.0": -1, "v1.x.1": -1, "v1.30": -1, "v1.-3.4": -1, "v1.30.9999999999999": -1,
	} {
		if got := parseRelease(in); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"registry.k8s.io/kube-proxy:v1.28.4": "v1.28.4", "host:5000/kube-proxy": "", "host:5000/a/kube-proxy:v1.2.3@sha256:00": "v1.2.3", "": "",
	} {
		if got := imageTag(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
