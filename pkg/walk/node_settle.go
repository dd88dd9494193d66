package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netpol"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// lastChange is when the endpoints controller last saw a reason to change a
// slice; it stamps it there for kube-proxy's metrics (EndpointsLastChangeTriggerTime).
const lastChange = "endpoints.kubernetes.io/last-change-trigger-time"

// settle takes back what a probe has against the node where it may be none: the
// expectation hangs on what was not read, a change is so recent that kube-proxy
// may be about to follow, or a network policy asks for the refusal, which is
// layer 4's to tell.
func (p *Pass) settle(pr *probe) {
	pr.blocked = slices.DeleteFunc(pr.blocked, func(o netfilter.Outcome) bool { return p.policed(pr, o) })
	pr.captured = slices.DeleteFunc(pr.captured, p.byServiceLB)
	if !pr.bad() {
		return
	}
	if why := p.unsureOf(pr); why != "" {
		supply := p.supplyOf(pr)
		pr.takeBack(why)
		p.Missing(diagnosis.LayerNode, diagnosis.Missing{
			What: fmt.Sprintf("what %s ought to do with %s for %s", pr.view.label(), frontendText(pr.frontend, pr.dst), pr.caller.label),
			Why:  why, Supply: supply,
		})
		return
	}
	if why := p.recentChange(pr); why != "" && !p.caughtUp(pr) {
		pr.takeBack(why)
		p.Missing(diagnosis.LayerNode, diagnosis.Missing{
			What: "what " + pr.view.label() + " does once kube-proxy has followed", Why: why, Supply: p.again() + "   (again, in a few seconds)",
		})
	}
}

// takeBack makes a probe one that nothing is said of.
func (pr *probe) takeBack(why string) {
	pr.unsure = why
	pr.filtered = nil
	pr.untouched, pr.refused, pr.blocked, pr.stale, pr.wrongPort, pr.unmasked, pr.missing = nil, nil, nil, nil, nil, nil, nil
	pr.captured, pr.walled, pr.stuck = nil, nil, nil
}

// unsureOf says what was not read though the expectation hangs on it.
func (p *Pass) unsureOf(pr *probe) string {
	switch {
	case pr.expect.Unsure != "":
		return pr.expect.Unsure
	case pr.view.name == "" && p.hangsOnNode(pr.frontend):
		return "the Service sends by node, and which node this is was not read"
	case pr.caller.kind == proxy.ExternalClient && p.Client.Kind == FromAddress && !p.snap.Reads.Has(snapshot.Pods, "") &&
		p.nodeByAddress[pr.caller.addr] == nil && p.mayBePod():
		return "whether " + pr.caller.addr.String() + " is a pod's address was not read"
	}
	return p.taken(pr)
}

// taken says what takes the packet out of kube-proxy's hands on purpose, as far
// as can be told: an interface of the node that has the address, as NodeLocal
// DNSCache makes one, or another that programs Services as kube-proxy does. Where
// it goes from there is not known.
func (p *Pass) taken(pr *probe) string {
	if dev := pr.view.host.Interface(pr.dst.Addr()); len(pr.untouched) > 0 && pr.frontend.Kind == proxy.ClusterIP && dev != "" && dev != ipvsDevice {
		return fmt.Sprintf("interface %s of %s has the address, as NodeLocal DNSCache gives it one: a process of the node answers there, or none", dev, pr.view.label())
	}
	return p.takenOnPurpose(pr)
}

func (p *Pass) supplyOf(pr *probe) string {
	switch {
	case pr.view.name == "":
		return "--node-state NODE=FILE   (in place of --node-state FILE)"
	case p.taken(pr) != "":
		return pr.view.supply()
	case pr.view.object == nil:
		return kubectl("get", "node", pr.view.name, "-o", "yaml") + " > node.yaml   (then: --objects node.yaml)"
	}
	return "kubectl get pods -A -o yaml > pods.yaml   (then: --objects pods.yaml)"
}

// hangsOnNode says whether a node's name bears on which endpoints it uses.
func (p *Pass) hangsOnNode(f proxy.Frontend) bool {
	if f.Kind == proxy.ClusterIP && proxy.InternalLocal(p.Service) || f.Kind != proxy.ClusterIP && proxy.ExternalLocal(p.Service) {
		return true
	}
	for _, sl := range p.Slices() {
		for i := range sl.Endpoints {
			if h := sl.Endpoints[i].Hints; h != nil && len(h.ForNodes)+len(h.ForZones) > 0 {
				return true
			}
		}
	}
	return false
}

// readAt is when the node's state was read.
func (p *Pass) readAt(v *nodeView) time.Time {
	if v.state.At.IsZero() {
		return p.snap.TakenAt
	}
	return v.state.At
}

// recentChange says which change came so shortly before the node was read, or
// after, that what the probe found may be the state before it; "" where none
// did, and where something shows that kube-proxy is not about to follow.
func (p *Pass) recentChange(pr *probe) string {
	if len(pr.blocked)+len(pr.filtered)+len(pr.captured)+len(pr.walled)+len(pr.unmasked)+len(pr.stuck) > 0 || pr.anyHookFault() != nil || len(pr.view.frozenProxy()) > 0 {
		return ""
	}
	at := p.readAt(pr.view)
	recent := func(t time.Time) bool { return !t.IsZero() && at.Sub(t) < freshness }
	if recent(p.Service.CreationTimestamp.Time) {
		return "service/" + p.Service.Name + " was made just before the node was read"
	}
	if pr.view.seen.startedAfter(recent) {
		return "kube-proxy had just started when the node was read"
	}
	if len(pr.untouched)+len(pr.wrongPort)+len(pr.missing) > 0 || len(pr.refused) > 0 && !allFresh(p, pr) {
		return ""
	}
	for _, o := range pr.stale {
		if !p.left(o.To.Addr(), recent) {
			return ""
		}
	}
	return "the endpoints of service/" + p.Service.Name + " changed just before the node was read"
}

// startedAfter says whether kube-proxy's container started at such a time.
func (s proxySeen) startedAfter(recent func(time.Time) bool) bool {
	return s.pod != nil && slices.ContainsFunc(s.pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil && recent(c.State.Running.StartedAt.Time)
	})
}

func changedAt(sl *discoveryv1.EndpointSlice) time.Time {
	t, err := time.Parse(time.RFC3339Nano, sl.Annotations[lastChange])
	if err != nil {
		return time.Time{}
	}
	return t
}

// allFresh says whether every backend became ready just now: before, there was
// none to send to.
func allFresh(p *Pass, pr *probe) bool {
	for _, b := range pr.expect.Backends {
		if !p.becameReady(b, pr.view) {
			return false
		}
	}
	return true
}

// left says whether the pod that has the address began to terminate, or ceased
// to be ready, just now; one that is gone is known by its slice alone.
func (p *Pass) left(a netip.Addr, recent func(time.Time) bool) bool {
	if len(p.podsByIP[a]) == 0 {
		return slices.ContainsFunc(p.Slices(), func(sl *discoveryv1.EndpointSlice) bool { return recent(changedAt(sl)) })
	}
	for _, pod := range p.podsByIP[a] {
		if d := pod.DeletionTimestamp; d != nil {
			// It is when the grace period ends, not when it began.
			grace := time.Duration(0)
			if pod.DeletionGracePeriodSeconds != nil {
				grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
			}
			if recent(d.Add(-grace)) {
				return true
			}
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue && recent(c.LastTransitionTime.Time) {
				return true
			}
		}
	}
	return false
}

// policyChains are how the chains begin in which the engines that are known
// enforce network policies.
var policyChains = []string{"KUBE-POD-FW-", "KUBE-NWPLCY-", "KUBE-ROUTER-", "cali-", "WEAVE-NPC", "ANTREA-POL-"}

// policed says whether a rule of a policy engine turned the packet away as the
// policies ask, or may ask.
func (p *Pass) policed(pr *probe, o netfilter.Outcome) bool {
	chain := lastStep(o).Chain
	if !slices.ContainsFunc(policyChains, func(prefix string) bool { return len(chain) >= len(prefix) && chain[:len(prefix)] == prefix }) {
		return false
	}
	if !p.snap.Reads.Has(snapshot.NetworkPolicies, "") {
		return true
	}
	from, to := p.onlyPod(pr.caller.addr), p.onlyPod(o.To.Addr())
	if pr.caller.kind == proxy.NodeClient {
		from = nil
	}
	switch {
	case from != nil && to != nil:
		d := p.policies().Evaluate(netpol.Flow{
			From: netpol.PodPeer(from), To: netpol.PodPeer(to), Port: int32(o.To.Port()), Protocol: pr.frontend.Protocol,
			VIP: pr.dst.Addr(), VIPPort: int32(pr.dst.Port()),
		})
		return d.Verdict != netpol.Allowed
	case to != nil && p.isolates(to, netpol.Ingress):
		return true
	}
	return from != nil && p.isolates(from, netpol.Egress)
}

// onlyPod is the pod that has the address, nil where none has it or several do.
func (p *Pass) onlyPod(a netip.Addr) *corev1.Pod {
	if pods := p.podsByIP[a]; len(pods) == 1 && !pods[0].Spec.HostNetwork {
		return pods[0]
	}
	return nil
}
