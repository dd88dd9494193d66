package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// virtualServerMissing: on a node in IPVS mode a virtual server is not there, or
// its real servers, its scheduler or its affinity are not what the objects ask.
// A real server of weight 0 that is no endpoint any more is on its way out, and
// no fault.
var virtualServerMissing = &Check{
	Code: diagnosis.VirtualServerMissing, Needs: needsOfNode, Applies: onNodes,
	Explains: []diagnosis.Code{diagnosis.ConntrackStale},
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			if v.inIPVS() && !p.opts.resynced[v.name] {
				p.compareServers(v)
			}
		}
	},
}

// serverDiff is a virtual server that is not as it ought to be.
type serverDiff struct {
	want proxy.VirtualServer
	have *netfilter.VirtualServer // nil: there is none
	// missing are the backends without a real server, quiesced those at weight 0.
	missing, quiesced []proxy.Backend
	// fresh became ready so shortly before that kube-proxy may be about to add
	// them.
	fresh []proxy.Backend
	// stale are sent to and no endpoint that may be used; wrongPort are of an
	// endpoint's address; sent are sent to otherwise than by masquerading.
	stale, wrongPort, sent []netfilter.RealServer
}

func (d *serverDiff) differs() bool {
	return d.have == nil || len(d.missing)+len(d.quiesced)+len(d.stale)+len(d.wrongPort)+len(d.sent) > 0
}

func (p *Pass) compareServers(v *nodeView) {
	fronts, vips := p.Frontends(), proxy.DummyAddresses(p.Service) // an interface may have a VIP
	var diffs []*serverDiff
	var same []*serverDiff
	for _, w := range proxy.VirtualServers(p.Service, p.Slices(), v.proxyNode(), v.servedAddresses()) {
		if !slices.Contains(fronts, w.Frontend) || w.Frontend.Kind == proxy.NodePort && slices.Contains(vips, w.Addr.Addr()) || p.unsureServer(v, w) {
			continue
		}
		d := p.compareServer(v, w)
		switch {
		case d == nil:
		case d.differs():
			diffs = append(diffs, d)
		default:
			same = append(same, d)
		}
	}
	for _, report := range []func(*nodeView, []*serverDiff){
		p.reportNoServer, p.reportWrongPort, p.reportStaleServer, p.reportMethod, p.reportMissingServer,
	} {
		report(v, diffs)
	}
	for _, report := range []func(*nodeView, []*serverDiff){p.reportScheduler, p.reportWeights, p.reportAffinity} {
		report(v, append(slices.Clone(diffs), same...))
	}
}

// unsureServer notes what keeps the comparison from being one.
func (p *Pass) unsureServer(v *nodeView, w proxy.VirtualServer) bool {
	why, supply := w.Unsure, v.supply()
	at := p.readAt(v)
	switch recent := func(t time.Time) bool { return !t.IsZero() && at.Sub(t) < freshness }; {
	case why != "" && v.object == nil && v.name != "":
		supply = kubectl("get", "node", v.name, "-o", "yaml") + " > node.yaml   (then: --objects node.yaml)"
	case why != "":
	case v.name == "" && p.hangsOnNode(w.Frontend):
		why, supply = "the Service sends by node, and which node this is was not read", "--node-state NODE=FILE   (in place of --node-state FILE)"
	case recent(p.Service.CreationTimestamp.Time) && len(v.frozenProxy()) == 0:
		why, supply = "service/"+p.Service.Name+" was made just before the node was read", p.again()+"   (again, in a few seconds)"
	case v.seen.startedAfter(recent):
		why, supply = "kube-proxy had just started when the node was read", p.again()+"   (again, in a few seconds)"
	}
	if why == "" {
		return false
	}
	p.Missing(diagnosis.LayerNode, diagnosis.Missing{What: "what " + v.label() + " ought to have for " + frontendText(w.Frontend, w.Addr), Why: why, Supply: supply})
	return true
}

// compareServer finds how a virtual server differs; nil where that can't be told.
func (p *Pass) compareServer(v *nodeView, w proxy.VirtualServer) *serverDiff {
	d := &serverDiff{want: w, have: v.virtual.Find(netfilter.Protocol(strings.ToLower(string(w.Frontend.Protocol))), w.Addr)}
	if d.have == nil {
		if why := v.virtual.Partial(); why != "" {
			p.Missing(diagnosis.LayerNode, diagnosis.Missing{What: "virtual server " + serverName(w) + " of " + v.label(), Why: why, Supply: v.showVirtual()})
			return nil
		}
		return d
	}
	weight := map[netip.AddrPort]int{}
	for _, r := range d.have.Real {
		weight[r.Addr] = r.Weight
	}
	frozen := len(v.frozenProxy()) > 0
	wantAddr := map[netip.Addr]bool{}
	wanted := map[netip.AddrPort]bool{}
	for _, b := range w.Backends {
		wantAddr[b.Addr.Addr()], wanted[b.Addr] = true, true
		got, there := weight[b.Addr]
		switch {
		case there && got != 0:
		case p.becameReady(b, v) && !frozen:
			d.fresh = append(d.fresh, b)
		case there:
			d.quiesced = append(d.quiesced, b)
		default:
			d.missing = append(d.missing, b)
		}
	}
	if d.have.Cut != "" {
		d.missing = nil
	}
	at := p.readAt(v)
	for _, r := range d.have.Real {
		switch {
		case r.Weight == 0:
		case !wanted[r.Addr] && wantAddr[r.Addr.Addr()]:
			d.wrongPort = append(d.wrongPort, r)
		case !wanted[r.Addr]:
			if frozen || !p.left(r.Addr.Addr(), func(t time.Time) bool { return !t.IsZero() && at.Sub(t) < freshness }) {
				d.stale = append(d.stale, r)
			}
		case r.Method != netfilter.Masq && r.Method != "":
			d.sent = append(d.sent, r)
		}
	}
	for _, r := range d.wrongPort {
		d.missing = slices.DeleteFunc(d.missing, func(b proxy.Backend) bool { return b.Addr.Addr() == r.Addr.Addr() })
	}
	return d
}

// only are the diffs that one kind of finding is about.
func only(diffs []*serverDiff, has func(*serverDiff) bool) []*serverDiff {
	var out []*serverDiff
	for _, d := range diffs {
		if has(d) {
			out = append(out, d)
		}
	}
	return out
}

// serverNames names the virtual servers of diffs for a sentence.
func serverNames(diffs []*serverDiff) string {
	var out []string
	for _, d := range diffs {
		out = append(out, frontendText(d.want.Frontend, d.want.Addr))
	}
	return join(out, 3)
}

// diffEvidence quotes the first virtual server of diffs, and its real servers
// that pick names.
func (v *nodeView) diffEvidence(diffs []*serverDiff, pick func(*serverDiff) []netfilter.RealServer) []diagnosis.Evidence {
	d := diffs[0]
	out := []diagnosis.Evidence{v.serverEvidence(d.have, d.have.Line, d.have.Text)}
	for i, r := range pick(d) {
		if i == 4 {
			break
		}
		out = append(out, v.serverEvidence(d.have, r.Line, r.Text))
	}
	return out
}

func wantedServers(w proxy.VirtualServer) string {
	if len(w.Backends) == 0 {
		return "a virtual server with no real server: " + w.Why
	}
	return "real servers " + listBackends(w.Backends) + ", each at weight 1 by masquerading"
}

func (p *Pass) reportNoServer(v *nodeView, diffs []*serverDiff) {
	diffs = only(diffs, func(d *serverDiff) bool { return d.have == nil })
	if len(diffs) == 0 {
		return
	}
	var evidence []diagnosis.Evidence
	for i, d := range diffs {
		if i < 3 {
			evidence = append(evidence, v.noServer(d.want))
		}
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s has no virtual server for %s: IPVS knows nothing of it", v.label(), serverNames(diffs)),
		Expected: wantedServers(diffs[0].want),
		Found:    fmt.Sprintf("none of %s is for %s", count(len(v.virtual.All()), "virtual server"), serverNames(diffs)),
		Evidence: slices.Concat(evidence, p.backendsEvidence(diffs[0].want.Backends), v.frozenProxy()),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

func (p *Pass) reportWrongPort(v *nodeView, diffs []*serverDiff) {
	diffs = only(diffs, func(d *serverDiff) bool { return len(d.wrongPort) > 0 })
	if len(diffs) == 0 {
		return
	}
	d := diffs[0]
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s sends %s to the right pod on the wrong port: real server %s", v.label(), serverNames(diffs), listReal(d.wrongPort)),
		Expected: wantedServers(d.want),
		Found:    "real servers " + listReal(d.have.Real),
		Evidence: slices.Concat(v.diffEvidence(diffs, func(d *serverDiff) []netfilter.RealServer { return d.wrongPort }), p.backendsEvidence(d.want.Backends), v.frozenProxy()),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

func (p *Pass) reportStaleServer(v *nodeView, diffs []*serverDiff) {
	diffs = only(diffs, func(d *serverDiff) bool { return len(d.stale) > 0 })
	if len(diffs) == 0 {
		return
	}
	d := diffs[0]
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s still sends %s to %s, not among the endpoints that it may use", v.label(), serverNames(diffs), listReal(d.stale)),
		Expected: wantedServers(d.want),
		Found:    fmt.Sprintf("%s of %s at a weight above 0: %s", count(len(d.stale), "real server"), serverName(d.want), listReal(d.stale)),
		Evidence: slices.Concat(v.diffEvidence(diffs, func(d *serverDiff) []netfilter.RealServer { return d.stale }), []diagnosis.Evidence{p.endpointsEvidence()}, v.frozenProxy()),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

func (p *Pass) reportMethod(v *nodeView, diffs []*serverDiff) {
	diffs = only(diffs, func(d *serverDiff) bool { return len(d.sent) > 0 })
	if len(diffs) == 0 {
		return
	}
	d := diffs[0]
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("%s forwards %s to %s by method %s: the destination stays the VIP, which no pod has", v.label(), serverNames(diffs), listReal(d.sent), d.sent[0].Method),
		Expected: wantedServers(d.want),
		Found:    fmt.Sprintf("method %s, which leaves the destination as it is", d.sent[0].Method),
		Evidence: v.diffEvidence(diffs, func(d *serverDiff) []netfilter.RealServer { return d.sent }),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

// reportMissingServer is about endpoints that get no connection: no real server,
// or one at weight 0.
func (p *Pass) reportMissingServer(v *nodeView, diffs []*serverDiff) {
	diffs = only(diffs, func(d *serverDiff) bool { return d.have != nil && len(d.missing)+len(d.quiesced) > 0 })
	if len(diffs) == 0 {
		return
	}
	d := diffs[0]
	lost := slices.Concat(d.missing, d.quiesced)
	severity, title := diagnosis.Warning, "%s never sends %s to %s, %d of %d usable endpoints"
	if len(lost) == len(d.want.Backends) {
		severity, title = diagnosis.Error, "%s refuses %s: it sends to none of %s, %d of %d usable endpoints"
	}
	var found []string
	if len(d.missing) > 0 {
		found = append(found, "no real server for "+listBackends(d.missing))
	}
	if len(d.quiesced) > 0 {
		found = append(found, "at weight 0, which gets no new connection: "+listBackends(d.quiesced))
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: severity,
		Title:    fmt.Sprintf(title, v.label(), serverNames(diffs), listBackends(lost), len(lost), len(d.want.Backends)),
		Expected: wantedServers(d.want),
		Found:    strings.Join(found, "; "),
		Evidence: slices.Concat(v.diffEvidence(diffs, func(d *serverDiff) []netfilter.RealServer { return d.have.Real }), p.backendsEvidence(lost), v.frozenProxy()),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

// reportScheduler compares with the configuration, or, where that was not read,
// with what most virtual servers of the node have.
func (p *Pass) reportScheduler(v *nodeView, diffs []*serverDiff) {
	want, from := v.scheduler()
	diffs = only(diffs, func(d *serverDiff) bool {
		return d.have != nil && d.have.Scheduler != "" && d.have.Scheduler != want && len(d.have.Real) > 1
	})
	if len(diffs) == 0 || want == "" {
		return
	}
	d := diffs[0]
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("%s shares %s out by scheduler %s, not %s", v.label(), serverNames(diffs), d.have.Scheduler, want),
		Expected: "scheduler " + want + ", " + from,
		Found:    "scheduler " + d.have.Scheduler + schedulerSays(d.have.Scheduler),
		Evidence: v.diffEvidence(diffs, func(*serverDiff) []netfilter.RealServer { return nil }),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

func schedulerSays(s string) string {
	switch s {
	case "sh", "mh":
		return ", by which each client always draws the same backend"
	case "dh":
		return ", by which every client draws the same backend"
	}
	return ""
}

// scheduler is the one that the node's virtual servers ought to have, and why.
func (v *nodeView) scheduler() (name, from string) {
	if v.seen.configured == "ipvs" {
		if s := v.seen.ofIPVS.Scheduler; s != "" {
			return s, "as " + v.seen.configRef + " says (ipvs.scheduler)"
		}
		return "rr", "kube-proxy's default"
	}
	n := map[string]int{}
	best, total := "", 0
	for _, s := range v.virtual.All() {
		if s.Scheduler == "" {
			continue
		}
		n[s.Scheduler]++
		total++
		if n[s.Scheduler] > n[best] || n[s.Scheduler] == n[best] && s.Scheduler < best {
			best = s.Scheduler
		}
	}
	if total < 3 || n[best]*2 <= total {
		return "", ""
	}
	return best, fmt.Sprintf("as %d of the node's %d virtual servers have it", n[best], total)
}

// reportWeights is about weights that are not all the same, where the scheduler
// goes by them.
func (p *Pass) reportWeights(v *nodeView, diffs []*serverDiff) {
	diffs = only(diffs, func(d *serverDiff) bool {
		if d.have == nil || d.have.Scheduler == "rr" || d.have.Scheduler == "lc" || d.have.Scheduler == "" {
			return false
		}
		seen := map[int]bool{}
		for _, r := range d.have.Real {
			if r.Weight > 0 {
				seen[r.Weight] = true
			}
		}
		return len(seen) > 1
	})
	if len(diffs) == 0 {
		return
	}
	d := diffs[0]
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("%s does not share %s out evenly: the weights of its real servers differ", v.label(), serverNames(diffs)),
		Expected: wantedServers(d.want),
		Found:    "weights that differ, and scheduler " + d.have.Scheduler + ", which goes by them",
		Evidence: v.diffEvidence(diffs, func(d *serverDiff) []netfilter.RealServer { return d.have.Real }),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

func (p *Pass) reportAffinity(v *nodeView, diffs []*serverDiff) {
	diffs = only(diffs, func(d *serverDiff) bool {
		return d.have != nil && d.have.Scheduler != "" && d.have.Persistent != (d.want.Timeout > 0)
	})
	if len(diffs) == 0 {
		return
	}
	d := diffs[0]
	found, expected := "no persistence", fmt.Sprintf("persistent %d", d.want.Timeout)
	if d.have.Persistent {
		found, expected = "a virtual server that keeps clients at what they drew", "no persistence"
	}
	affinity := string(p.Service.Spec.SessionAffinity)
	if affinity == "" {
		affinity = string(corev1.ServiceAffinityNone)
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: diagnosis.Warning,
		Title:    fmt.Sprintf("%s does not keep to the session affinity of %s: it asks for %s", v.label(), serverNames(diffs), affinity),
		Expected: expected,
		Found:    found,
		Evidence: append(v.diffEvidence(diffs, func(*serverDiff) []netfilter.RealServer { return nil }), p.serviceField(".spec.sessionAffinity", affinity)),
		Fixes:    []Proposal{p.restartProxy(v)},
	})
}

func listReal(rs []netfilter.RealServer) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Addr.String())
	}
	slices.Sort(out)
	return listed(out)
}
