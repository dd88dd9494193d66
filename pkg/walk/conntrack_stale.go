package walk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/conntrack"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// conntrackStale: the kernel remembers connections to the Service that go to an
// address that is no endpoint any more, or, from a time before there were rules,
// to the VIP itself. The rules see only a connection's first packet, so right
// rules do not help those. UDP above all: each packet keeps the entry alive.
//
// kube-proxy removes such entries of UDP (the whole table is gone through since
// 1.32) and leaves TCP alone on purpose: a connection to a pod that ends is to
// go on until it is closed. Of TCP only those that nobody answered count.
var conntrackStale = &Check{
	Code: diagnosis.ConntrackStale, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		if len(p.node.views) == 0 {
			return
		}
		known := map[netip.Addr]bool{}
		ready := false
		for _, e := range p.Endpoints() {
			known[e.Addr], ready = true, ready || e.Ready
		}
		for _, v := range p.node.views {
			if len(v.flows) == 0 || p.slicesChangedBefore(v) {
				continue
			}
			var done []proxy.Frontend
			for _, f := range p.Frontends() {
				if !slices.Contains(done, f) {
					done = append(done, f)
					p.reportFlows(v, f, v.staleFlows(f, known, ready))
				}
			}
		}
	},
}

// flowKey is where a connection was first sent to, without the address.
type flowKey struct {
	protocol string
	port     uint16
}

// readFlows indexes the node's connections.
func readFlows(st *snapshot.NodeState) map[flowKey][]*conntrack.Flow {
	var out map[flowKey][]*conntrack.Flow
	for _, t := range st.All(snapshot.Conntrack) {
		if t.Status != snapshot.Done {
			continue
		}
		if out == nil {
			out = map[flowKey][]*conntrack.Flow{}
		}
		flows, _ := conntrack.Parse(t.Content)
		for i := range flows {
			f := &flows[i]
			k := flowKey{f.Protocol, f.Orig.Dst.Port()}
			out[k] = append(out[k], f)
		}
	}
	return out
}

// slicesChangedBefore says whether the Service's endpoints changed so shortly
// before the node was read that kube-proxy may be about to remove entries.
func (p *Pass) slicesChangedBefore(v *nodeView) bool {
	return len(v.frozenProxy()) == 0 && slices.ContainsFunc(p.Slices(), func(sl *discoveryv1.EndpointSlice) bool {
		t, err := time.Parse(time.RFC3339Nano, sl.Annotations[lastChange])
		return err == nil && p.readAt(v).Sub(t) < freshness
	})
}

// staleFlows are a frontend's connections that lead to no endpoint.
func (v *nodeView) staleFlows(f proxy.Frontend, known map[netip.Addr]bool, ready bool) []*conntrack.Flow {
	var out []*conntrack.Flow
	for _, fl := range v.flows[flowKey{strings.ToLower(string(f.Protocol)), uint16(f.Port)}] {
		dst := fl.Orig.Dst.Addr()
		local := v.host.Local(dst)
		switch {
		case f.IP.IsValid() && dst != f.IP, !f.IP.IsValid() && (dst.Is6() != f.V6 || local != netfilter.True):
		case !fl.Rewritten():
			// In IPVS mode, and with a process of the node's behind the address, it
			// need not be rewritten; without an endpoint it cannot be.
			if f.Protocol == corev1.ProtocolUDP && fl.Unreplied && ready && local == netfilter.False && v.seen.mode() != "ipvs" {
				out = append(out, fl)
			}
		case known[fl.Backend().Addr()]:
		case f.Protocol == corev1.ProtocolUDP, fl.State == "SYN_SENT" && fl.Unreplied:
			out = append(out, fl)
		}
	}
	return out
}

func (p *Pass) reportFlows(v *nodeView, f proxy.Frontend, stale []*conntrack.Flow) {
	if len(stale) == 0 {
		return
	}
	var to []string
	own := 0
	var evidence []diagnosis.Evidence
	for _, fl := range stale {
		if !fl.Rewritten() {
			own++
		} else if at := fl.Backend().String(); !slices.Contains(to, at) {
			to = append(to, at)
		}
		if len(evidence) < 3 {
			evidence = append(evidence, v.lineEvidence(snapshot.Conntrack, fl.Line, fl.Text, "sudo grep dst="+fl.Orig.Dst.Addr().String()+" /proc/net/nf_conntrack"))
		}
	}
	dst := stale[0].Orig.Dst
	where := fmt.Sprintf("%s, no endpoint any more", listed(to))
	found := count(len(stale)-own, "connection") + " to " + where
	if own > 0 {
		where = "the address itself, as before there were rules for it"
		if len(to) > 0 {
			where += ", or to " + listed(to)
			found += fmt.Sprintf(", %d to the address itself", own)
		} else {
			found = count(own, "connection") + " to " + where
		}
	}
	severity := diagnosis.Error
	note := "each packet that the client sends keeps the entry alive, and the rules see no packet of it"
	if f.Protocol == corev1.ProtocolTCP {
		severity = diagnosis.Warning
		note = "the client that tries again from the same port gets the same way; others do not"
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: severity,
		Title:    fmt.Sprintf("%s keeps sending %s of %s/%s to %s", v.label(), count(len(stale), "connection"), dst, f.Protocol, where),
		Expected: "tracked connections to the Service's endpoints alone",
		Found:    found + "; " + note,
		Evidence: append(evidence, p.endpointsEvidence()),
		Fixes:    append(p.forgetFlows(v, f, stale), p.restartProxy(v)),
	})
}

// forgetFlows is the mend: the entries are removed, each way by itself.
func (p *Pass) forgetFlows(v *nodeView, f proxy.Frontend, stale []*conntrack.Flow) []Proposal {
	var commands []string
	for _, fl := range stale {
		family := ""
		if fl.Orig.Dst.Addr().Is6() {
			family = " -f ipv6"
		}
		c := v.onNodeCommand(fmt.Sprintf("sudo conntrack -D%s -p %s --orig-dst %s --dport %d --reply-src %s", family, fl.Protocol, fl.Orig.Dst.Addr(), fl.Orig.Dst.Port(), fl.Backend().Addr()))
		if !slices.Contains(commands, c) && len(commands) < 4 {
			commands = append(commands, c)
		}
	}
	return []Proposal{{
		Fix: diagnosis.Fix{
			Title:       "have the kernel forget these connections; the next packet of each takes the rules' way",
			Commands:    commands,
			BlastRadius: fmt.Sprintf("connections to port %d/%s that lead to these addresses; they get no answer as it is", f.Port, f.Protocol),
			Undo:        []string{"nothing to undo: a client's next packet makes a new entry"},
			Verify:      []string{v.onNodeCommand("sudo grep dst="+stale[0].Orig.Dst.Addr().String()+" /proc/net/nf_conntrack") + "   (the addresses above are gone)", p.again()},
		},
		NotSimulated: changesNode,
	}}
}
