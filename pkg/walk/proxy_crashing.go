package walk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// proxyCrashing: kube-proxy's pod on a node ends again and again, or was killed
// for its memory. While it is down nobody writes rules; each start writes all
// of them anew. The API tells it of every node, also of those whose rules were
// not read.
var proxyCrashing = &Check{
	Code: diagnosis.ProxyCrashing, Applies: hasFrontends,
	Run: func(p *Pass) {
		probes := p.probes()
		for _, v := range p.node.views {
			if c, ok := p.crashOf(v.seen.pod); ok {
				p.Report(p.crashOn(v, c, badOn(probes, v)))
			}
		}
		for _, g := range p.crashesElsewhere() {
			p.Report(p.crashOfMany(g))
		}
	},
}

// ruleFaults are the codes for rules that are not what the objects ask for:
// what a kube-proxy that does not do its work explains.
var ruleFaults = []diagnosis.Code{
	diagnosis.VIPNotProgrammed, diagnosis.StaleBackend, diagnosis.BackendMissing, diagnosis.RejectedAsEmpty,
	diagnosis.WrongBackendPort, diagnosis.HookMissing, diagnosis.MasqueradeMissing, diagnosis.UnevenOdds,
	diagnosis.VirtualServerMissing, diagnosis.VIPNotOnDummy,
	diagnosis.NodePortNotProgrammed, diagnosis.ExternalIPNotProgrammed, diagnosis.AffinityNotProgrammed,
}

// hasFrontends is the Applies of what the API alone tells of nodes.
func hasFrontends(p *Pass) bool {
	return p.Service != nil && HasVIP(p.Service) && len(p.Frontends()) > 0
}

// badOn says whether a probe of the node found something else than the objects
// ask for.
func badOn(probes []*probe, v *nodeView) bool {
	return slices.ContainsFunc(probes, func(pr *probe) bool { return pr.view == v && pr.bad() })
}

// crash is how one container of kube-proxy fails.
type crash struct {
	pod *corev1.Pod
	st  *corev1.ContainerStatus
	// down: it does not run now.
	down, oom bool
	text      string
}

// crashRecent is how far back an end of a container still counts, and
// crashRestarts how many restarts make it more than an accident: the kubelet
// backs off to five minutes.
const (
	crashRecent   = time.Hour
	crashRestarts = 3
)

// crashOf says how kube-proxy's pod fails; false where it runs as it should.
func (p *Pass) crashOf(pod *corev1.Pod) (crash, bool) {
	if pod == nil || pod.DeletionTimestamp != nil {
		return crash{}, false
	}
	if st := crashLoops(pod); st != nil {
		r, _ := p.stateReason(pod, st)
		return crash{pod: pod, st: st, down: true, oom: killedForMemory(st), text: r.text}, true
	}
	for i := range pod.Status.ContainerStatuses {
		st := &pod.Status.ContainerStatuses[i]
		t := st.LastTerminationState.Terminated
		if t == nil || t.ExitCode == 0 || rebooted(t) || p.snap.TakenAt.Sub(t.FinishedAt.Time) > crashRecent {
			continue
		}
		oom := killedForMemory(st)
		if oom || st.RestartCount >= crashRestarts {
			text := fmt.Sprintf("%s, the last %s ago, %s", count(int(st.RestartCount), "restart"), p.snap.TakenAt.Sub(t.FinishedAt.Time).Round(time.Second), ended(t))
			return crash{pod: pod, st: st, oom: oom, text: text}, true
		}
	}
	return crash{}, false
}

// crashLoops is the container that ended and is not running again, nil where
// there is none.
func crashLoops(pod *corev1.Pod) *corev1.ContainerStatus {
	if pod == nil || finished(pod) {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		st := &pod.Status.ContainerStatuses[i]
		if w := st.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" || st.State.Terminated != nil && !rebooted(st.State.Terminated) {
			return st
		}
	}
	return nil
}

func killedForMemory(st *corev1.ContainerStatus) bool {
	for _, t := range []*corev1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
		if t != nil && t.Reason == "OOMKilled" {
			return true
		}
	}
	return false
}

// rebooted recognises what the kubelet says of a container that went down with
// its node, or with the container runtime.
func rebooted(t *corev1.ContainerStateTerminated) bool {
	return t.ExitCode == 255 && (t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown") || t.ExitCode == 137 && t.Reason == "ContainerStatusUnknown"
}

func (c crash) verb() string {
	switch {
	case c.oom && c.down:
		return "is killed for its memory (OOMKilled), and down"
	case c.oom:
		return "was killed for its memory (OOMKilled)"
	case c.down:
		return "crashes, and is down"
	}
	return "keeps crashing"
}

// crashOn is the finding for a node whose rules were read.
func (p *Pass) crashOn(v *nodeView, c crash, bad bool) Finding {
	f := Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("kube-proxy %s on %s", c.verb(), v.label()),
		Expected: "a kube-proxy that keeps running",
		Found:    c.text + "; the node's rules are as the objects ask for now",
		Evidence: append(c.evidence(), p.knownBugs(v, diagnosis.ProxyCrashing)...),
		Fixes:    p.mendCrash(c),
		Explains: append(slices.Clone(ruleFaults), diagnosis.ProxyUnhealthy, diagnosis.ProxySyncStale, diagnosis.ProxyLogErrors),
	}
	if bad {
		f.Severity, f.Found = diagnosis.Error, c.text+"; the node's rules are not as the objects ask"
	}
	return f
}

func (c crash) evidence() []diagnosis.Evidence {
	out := []diagnosis.Evidence{podEvidence(c.pod, ".status.containerStatuses", fmt.Sprintf("%s: %s; restartCount: %d", c.st.Name, c.text, c.st.RestartCount))}
	return append(out, diagnosis.Evidence{
		Source: "log of container " + c.st.Name + " before it ended", Ref: "pod/" + c.pod.Namespace + "/" + c.pod.Name,
		Quote:   "(not read: the container's own words are the next thing to look at)",
		Command: kubectl("logs", c.pod.Name, "-n", c.pod.Namespace, "-c", c.st.Name, "--previous"),
	})
}

// mendCrash proposes what stops it. What is wrong stands in the log.
func (p *Pass) mendCrash(c crash) []Proposal {
	name := controllerOf(c.pod, "DaemonSet")
	look := diagnosis.Fix{
		Title: "read why it ends, and mend that",
		Commands: []string{
			kubectl("logs", c.pod.Name, "-n", c.pod.Namespace, "-c", c.st.Name, "--previous", "--tail=50"),
			kubectl("describe", "pod", c.pod.Name, "-n", c.pod.Namespace),
		},
		BlastRadius: "these commands only look",
		Undo:        []string{"nothing to undo: these only look"},
		Verify:      []string{kubectl("get", "pod", c.pod.Name, "-n", c.pod.Namespace, "-w"), p.again()},
	}
	out := []Proposal{{Fix: look, NotSimulated: changesNode}}
	if !c.oom || name == "" {
		return out
	}
	return append(out, Proposal{
		Fix: diagnosis.Fix{
			Title: "give it more memory",
			Commands: []string{
				kubectl("get", "daemonset", name, "-n", c.pod.Namespace, "-o", "jsonpath={.spec.template.spec.containers[*].resources}"),
				kubectl("set", "resources", "daemonset/"+name, "-n", c.pod.Namespace, "-c", c.st.Name) + " --limits=memory=AMOUNT   (AMOUNT: twice what it is now)",
			},
			BlastRadius: "kube-proxy of every node restarts, one after another; rules stay meanwhile, and connections go on",
			Undo:        []string{kubectl("rollout", "undo", "daemonset/"+name, "-n", c.pod.Namespace)},
			Verify:      []string{kubectl("rollout", "status", "daemonset/"+name, "-n", c.pod.Namespace), p.again()},
		},
		NotSimulated: "how much memory it needs hangs on the number of Services and endpoints, and cannot be tried on paper",
	})
}

// controllerOf is the name of the pod's owner of that kind, "" where it has none.
func controllerOf(pod *corev1.Pod, kind string) string {
	for _, o := range pod.OwnerReferences {
		if o.Kind == kind {
			return o.Name
		}
	}
	return ""
}

// crashGroup are nodes whose kube-proxy fails in the same way.
type crashGroup struct {
	crash
	nodes []string
}

// crashesElsewhere are the kube-proxies that fail on nodes whose rules were not
// read, and that the client may meet; grouped, because one cause often hits all.
func (p *Pass) crashesElsewhere() []crashGroup {
	var out []crashGroup
	for _, pod := range p.podsByNS[snapshot.ProxyNamespace] {
		if !isProxyPod(pod) || pod.Spec.NodeName == "" || p.examines(pod.Spec.NodeName) || !p.meets(pod.Spec.NodeName) {
			continue
		}
		c, ok := p.crashOf(pod)
		if !ok {
			continue
		}
		i := slices.IndexFunc(out, func(g crashGroup) bool { return g.verb() == c.verb() })
		if i < 0 {
			out = append(out, crashGroup{crash: c})
			i = len(out) - 1
		}
		out[i].nodes = append(out[i].nodes, pod.Spec.NodeName)
	}
	return out
}

// examines says whether the state of a node is among what the walk looks at.
func (p *Pass) examines(node string) bool {
	return slices.ContainsFunc(p.node.views, func(v *nodeView) bool { return v.name == node })
}

// meets says whether the client's packets may meet the rules of a node.
func (p *Pass) meets(node string) bool {
	for _, only := range []string{p.Target.Node, p.clientNode()} {
		if only != "" && only != node {
			return false
		}
	}
	return len(p.opts.Nodes) == 0 || slices.Contains(p.opts.Nodes, node)
}

func (p *Pass) crashOfMany(g crashGroup) Finding {
	f := Finding{
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("kube-proxy %s on %s", g.verb(), join(g.nodes, 3)),
		Expected: "a kube-proxy that keeps running on every node",
		Found:    fmt.Sprintf("%s: %s; the rules there were not read, and follow no change of the Service while it is down", strings.Join(g.nodes[:1], ""), g.text),
		Evidence: g.evidence(),
		Fixes:    p.mendCrash(g.crash),
	}
	f.Subject = p.ServiceSubject()
	if len(g.nodes) == 1 {
		f.Subject.Node = g.nodes[0]
	} else {
		f.Evidence = append(f.Evidence, diagnosis.Evidence{
			Source: "pods in " + snapshot.ProxyNamespace, Ref: "Pod/" + snapshot.ProxyNamespace,
			Quote:   fmt.Sprintf("%d kube-proxy pods fail alike: on %s", len(g.nodes), join(g.nodes, 5)),
			Command: showProxyPods(""),
		})
	}
	return f
}
