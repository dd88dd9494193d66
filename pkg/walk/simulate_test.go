package walk

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// onWorker1 gives worker-1's rules back to the fixture.
func onWorker1(change ...func(*snapshot.Snapshot)) edit {
	return func(c cluster) {
		c.Nodes = nodeFixture().Nodes
		for _, f := range change {
			f(c.Snapshot)
		}
	}
}

// emptied makes worker-1's rules those of a Service without endpoints.
func emptied(s *snapshot.Snapshot) {
	rules("-A KUBE-SERVICES -d 10.96.0.50/32 -p tcp -m comment --comment \"shop/web cluster IP\" -m tcp --dport 80 -j KUBE-SVC-WEB\n", "")(s)
	rules("-A KUBE-NODEPORTS -p tcp -m comment --comment \"shop/web\" -m tcp --dport 30080 -j KUBE-EXT-WEB\n", "")(s)
	rules("-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n", "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"+
		"-A KUBE-SERVICES -d 10.96.0.50/32 -p tcp -m comment --comment \"shop/web has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable\n"+
		"-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment \"shop/web has no endpoints\" -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j REJECT --reject-with icmp-port-unreachable\n")(s)
}

func firstFix(t *testing.T, s diagnosis.Service) diagnosis.Fix {
	t.Helper()
	if len(s.Diagnoses) == 0 || len(s.Diagnoses[0].Fixes) == 0 {
		t.Fatalf("no fix:\n%s", describe(s))
	}
	return s.Diagnoses[0].Fixes[0]
}

func TestSimulation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		edits  []edit
		status diagnosis.SimulationStatus
		before string
		after  string
		why    string
	}{
		{"selector, with the node's rules", []edit{selector("app", "webb"), onWorker1(emptied)}, diagnosis.Confirmed,
			"0 ready backends, layers 1, 2 fail", "2 ready backends, layers 1-4 ok", ""},
		{"selector, on a node whose kube-proxy does not run", []edit{selector("app", "webb"), onWorker1(emptied, noProxy)}, diagnosis.Confirmed,
			"0 ready backends, layer 3 warn; 1, 2 fail", "2 ready backends, layers 1, 2, 4 ok; 3 fail", ""},
		{"scaled to zero, with the node's rules", []edit{scale(0), onWorker1(emptied)}, diagnosis.Confirmed,
			"0 ready backends, layers 1, 2 fail", "1 ready backend, layers 1-4 ok", "assuming the new pods become ready"},
		{"selector that would lead to pods that crash", []edit{each(crashes), selector("app", "webb")}, diagnosis.Refuted, "", "", "it would bring VIP202: none of 2 endpoints is ready: 2 crash"},
		{"scaled to zero, and targetPort names no port", []edit{scale(0), named("nope")}, diagnosis.Refuted, "", "", "it would bring VIP107"},
		{"one of two faults: the other stays, and the report says so", []edit{named("htpp"), each(crashes)}, diagnosis.Confirmed, "0 ready backends, layers 1, 2 fail", "0 ready backends, layer 1 ok; 2 fail; 3, 4 not examined", ""},
		{"external Local to Cluster", []edit{externalLocal, onlyOn("worker-1")}, diagnosis.Confirmed, "2 ready backends, layer 1 warn", "2 ready backends, layers 1, 2, 4 ok; 3 not examined", ""},
		{"a quota", []edit{scale(2), func(c cluster) {
			c.event("ReplicaSet", "web-1111", "Warning", "FailedCreate", "exceeded quota: team, requested: pods=1")
		}}, diagnosis.NotSimulated, "", "", "quotas are not among the facts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := incident{edits: tt.edits}.walk(t)
			sim := firstFix(t, s).Simulated
			if sim.Status != tt.status || !strings.Contains(sim.Why, tt.why) || (tt.why == "" && sim.Why != "") {
				t.Errorf("%s (%s), want %s (%s)\n%s", sim.Status, sim.Why, tt.status, tt.why, describe(s))
			}
			if tt.before != "" && sim.Before != tt.before {
				t.Errorf("before %q, want %q", sim.Before, tt.before)
			}
			if !strings.HasPrefix(sim.After, tt.after) {
				t.Errorf("after %q, want %q", sim.After, tt.after)
			}
		})
	}
}

func TestSimulationOfAFixThatCannotBeApplied(t *testing.T) {
	c := newCluster(selector("app", "webb"))
	w := newWorld(c.Snapshot, Options{Targets: []Target{target(t, "web")}})
	p := w.pass(w.resolve()[0])
	p.run()
	p.findings[0].Fixes[0].Change = func(*snapshot.Snapshot) error { return errors.New("no such object") }
	w.simulate(p)
	if sim := p.findings[0].Fixes[0].Fix.Simulated; sim.Status != diagnosis.NotSimulated || sim.Why != "no such object" {
		t.Errorf("got %+v", sim)
	}
}

// TestWalkChangesNothing walks every incident twice and compares the snapshot
// before and after, and the two reports.
func TestWalkChangesNothing(t *testing.T) {
	for _, in := range incidents {
		c := newCluster(in.edits...)
		before := c.Clone()
		o := Options{Targets: []Target{target(t, cmpOr(in.ask, "web"))}}
		if in.with != nil {
			in.with(&o)
		}
		one, two := asJSON(t, Walk(c.Snapshot, o)), asJSON(t, Walk(c.Snapshot, o))
		if one != two {
			t.Errorf("%s: two walks differ\n%s", in.name, cmp.Diff(one, two))
		}
		if diff := cmp.Diff(before, c.Clone()); diff != "" {
			t.Errorf("%s: the walk changed the snapshot\n%s", in.name, diff)
		}
	}
}

func asJSON(t *testing.T, r *diagnosis.Report) string {
	t.Helper()
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestNothingUnreadIsOK takes away one resource at a time from a healthy
// cluster. A layer that needs it is then unknown and says what would supply it;
// it is never ok.
func TestNothingUnreadIsOK(t *testing.T) {
	for _, tt := range []struct {
		resource snapshot.Resource
		edit     edit
		one, two diagnosis.Status
	}{
		{snapshot.Pods, func(c cluster) { c.Objects.Pods = nil }, unknown, unknown},
		{snapshot.EndpointSlices, func(c cluster) { c.Objects.EndpointSlices = nil }, diagnosis.OK, unknown},
		{snapshot.EndpointSlices, func(c cluster) { externalLocal(c); c.Objects.EndpointSlices = nil }, unknown, unknown},
		{snapshot.EndpointSlices, func(c cluster) { manual(c); c.Objects.EndpointSlices = nil }, unknown, unknown},
		{snapshot.Nodes, func(c cluster) { internalLocal(c); c.Objects.Nodes = nil }, unknown, diagnosis.OK},
		{snapshot.Nodes, func(c cluster) { c.Objects.Nodes = nil }, diagnosis.OK, diagnosis.OK},
		{snapshot.Events, func(c cluster) {}, diagnosis.OK, diagnosis.OK},
		{snapshot.Deployments, func(c cluster) { c.Objects.Deployments = nil }, diagnosis.OK, diagnosis.OK},
	} {
		t.Run(string(tt.resource), func(t *testing.T) {
			s := incident{edits: []edit{tt.edit, func(c cluster) { c.unread(tt.resource) }}}.walk(t)
			for i, want := range []diagnosis.Status{tt.one, tt.two} {
				l := s.Layers[i]
				if l.Status != want {
					t.Errorf("layer %d is %s (%s), want %s", l.Layer, l.Status, l.Summary, want)
				}
				if want == unknown && (len(l.Missing) == 0 || !strings.Contains(l.Missing[0].What, string(tt.resource)) || l.Missing[0].Why != "forbidden" || !strings.Contains(l.Missing[0].Supply, "grant")) {
					t.Errorf("layer %d does not say what is missing: %+v", l.Layer, l.Missing)
				}
			}
			if len(s.Diagnoses) > 0 {
				t.Errorf("what was not read was diagnosed:\n%s", describe(s))
			}
		})
	}
}

func TestReconcileSlices(t *testing.T) {
	c := newCluster(named("http"), first(func(_ cluster, p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 }))
	if n := len(c.Objects.EndpointSlices); n != 2 {
		t.Fatalf("%d slices for two numbers of one named port, want 2", n)
	}
	for i := range c.Objects.EndpointSlices {
		if sl := &c.Objects.EndpointSlices[i]; len(sl.Endpoints) != 1 || len(sl.Ports) != 1 {
			t.Errorf("slice %s has %d endpoints and %d ports", sl.Name, len(sl.Endpoints), len(sl.Ports))
		}
	}
	c = newCluster(manual, func(c cluster) { c.service().Spec.Selector = map[string]string{"app": "web"}; c.sync() })
	if n := len(c.Objects.EndpointSlices); n != 2 {
		t.Errorf("%d slices, want the hand-made one and the controller's", n)
	}
	c = newCluster(func(c cluster) {
		svc := c.service()
		svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		for i, pod := range c.webPods() {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: []string{"fd00::5", "fd00::6"}[i]})
		}
		c.sync()
	})
	if n := len(c.Objects.EndpointSlices); n != 2 {
		t.Errorf("%d slices for two families, want 2", n)
	}
}

func TestLayersText(t *testing.T) {
	for _, tt := range []struct {
		in   []diagnosis.Layer
		want string
	}{
		{[]diagnosis.Layer{1}, "1"}, {[]diagnosis.Layer{1, 2}, "1, 2"}, {[]diagnosis.Layer{1, 2, 3, 4}, "1-4"},
		{[]diagnosis.Layer{1, 2, 4}, "1, 2, 4"}, {[]diagnosis.Layer{2, 3, 4}, "2-4"},
	} {
		if got := layersText(tt.in); got != tt.want {
			t.Errorf("layersText(%v) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
