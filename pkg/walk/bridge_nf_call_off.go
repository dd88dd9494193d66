package walk

import (
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// bridgeNfCallOff: a pod and a backend sit on one bridge, and what crosses the
// bridge does not pass the rules. The first packet does, because it is routed;
// the answer crosses the bridge with the backend's address as its source, and
// the client, which asked the VIP, throws it away.
var bridgeNfCallOff = &Check{
	Code: diagnosis.BridgeNfCallOff, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			for _, v6 := range []bool{false, true} {
				off, evidence := v.bridgeCallOff(v6)
				if !off {
					continue
				}
				f := nodeFault{view: v}
				var to []string
				bridge := ""
				for _, s := range p.sentBy(v) {
					dev := v.host.Route(s.to.Addr())
					if s.to.Addr().Is6() == v6 && s.pr.caller.kind == proxy.PodClient && s.masq == netfilter.False && s.backend.Local &&
						dev != "" && v.host.Master(dev) && v.host.Route(s.pr.caller.addr) == dev && v.host.Local(s.to.Addr()) == netfilter.False {
						f.probes, bridge = append(f.probes, s.pr), dev
						to = append(to, s.to.String())
					}
				}
				if len(to) > 0 {
					p.reportBridge(f, v6, bridge, to, evidence)
				}
			}
		}
	},
}

// bridgeCall is the switch by which what crosses a bridge passes the rules. It
// exists while br_netfilter is loaded.
func bridgeCall(v6 bool) string {
	if v6 {
		return "net.bridge.bridge-nf-call-ip6tables"
	}
	return "net.bridge.bridge-nf-call-iptables"
}

// bridgeCallOff says whether the switch is seen to be off, or its module to be
// missing: where bridge itself is a module, br_netfilter cannot be built in.
func (v *nodeView) bridgeCallOff(v6 bool) (bool, []diagnosis.Evidence) {
	if value, read := v.host.Sysctl(bridgeCall(v6)); read {
		return value == "0", []diagnosis.Evidence{v.sysctlEvidence(bridgeCall(v6))}
	}
	t := v.state.Text(snapshot.ProcModules)
	line, quote := findLine(t.Content, "bridge")
	if t.Status != snapshot.Done || line == 0 || !v.moduleLoaded("bridge") || v.moduleLoaded("br_netfilter") {
		return false, nil
	}
	return true, []diagnosis.Evidence{v.lineEvidence(snapshot.ProcModules, line, quote+"   (and no br_netfilter)", "grep -w -e ^bridge -e ^br_netfilter /proc/modules")}
}

func (p *Pass) reportBridge(f nodeFault, v6 bool, bridge string, to []string, evidence []diagnosis.Evidence) {
	v, name := f.view, bridgeCall(v6)
	state, fix := name+" = 0", p.turn(v, "have what crosses a bridge pass the rules", name, "0", "1",
		"all that crosses a bridge of "+v.label()+": it passes iptables' and nft's rules from then on, which may drop what they let by until now (libvirt's and docker's bridges too)")
	if _, read := v.host.Sysctl(name); !read {
		state = "br_netfilter is not loaded"
		fix.Fix.Title = "load br_netfilter, and have what crosses a bridge pass the rules"
		fix.Fix.Commands = append([]string{v.onNodeCommand("sudo modprobe br_netfilter")}, fix.Fix.Commands...)
		fix.Fix.Undo = append(fix.Fix.Undo, v.onNodeCommand("sudo modprobe -r br_netfilter"))
	}
	// Quoted: the bridge, and what hangs on it.
	if line, quote := findLine(v.state.Text(snapshot.IPAddr).Content, bridge+":"); line > 0 {
		evidence = append(evidence, v.lineEvidence(snapshot.IPAddr, line, quote, "ip link show master "+bridge))
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("answers of a backend to a pod on the same bridge of %s pass no rules: %s", v.label(), state),
		Expected: name + " = 1, with pods on bridge " + bridge,
		Found:    state + "; " + strings.Join(to, ", ") + " answers across " + bridge + " with its own address, which the client did not ask; backends elsewhere answer rightly; concerns " + f.affected(),
		Evidence: evidence,
		Fixes:    []Proposal{fix},
	})
}
