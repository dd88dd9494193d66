package walk

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// kernelModuleMissing: the kernel lacks a part without which kube-proxy's mode
// does not work. What is built in is not missing, though /proc/modules does not
// list it; where that cannot be told, nothing is said.
var kernelModuleMissing = &Check{
	Code: diagnosis.KernelModuleMissing, Needs: needsOfNode, Applies: onNodes,
	Explains: []diagnosis.Code{
		diagnosis.VIPNotProgrammed, diagnosis.VirtualServerMissing, diagnosis.VIPNotOnDummy, diagnosis.ProxyModeDiffers, diagnosis.LeftoverProxyMode,
		diagnosis.ProxyNotRunning, diagnosis.ProxyCrashing, diagnosis.NodePortNotProgrammed, diagnosis.ExternalIPNotProgrammed,
	},
	Run: func(p *Pass) {
		probes := p.probes()
		for _, v := range p.node.views {
			mode := cmp.Or(v.seen.configured, v.seen.mode())
			var lost []string
			for _, name := range v.modulesFor(mode) {
				if v.module(name) == netfilter.False {
					lost = append(lost, name)
				}
			}
			if len(lost) == 0 {
				continue
			}
			severity := diagnosis.Warning
			if v.seen.byRules != mode || slices.ContainsFunc(probes, func(pr *probe) bool { return pr.view == v && pr.bad() }) {
				severity = diagnosis.Error
			}
			p.reportModules(v, mode, lost, severity)
		}
	},
}

// modulesFor are the parts of the kernel that a mode of kube-proxy's cannot do
// without.
func (v *nodeView) modulesFor(mode string) []string {
	switch mode {
	case "ipvs":
		return []string{"ip_vs", "ip_vs_" + cmp.Or(v.seen.ofIPVS.Scheduler, "rr"), "nf_conntrack"}
	case "nftables":
		return []string{"nf_tables", "nf_conntrack"}
	}
	return nil // iptables itself loads what it needs, by either backend
}

// module says whether the kernel has a part: loaded, or built in.
func (v *nodeView) module(name string) netfilter.Tri {
	switch {
	case v.moduleLoaded(name):
		return netfilter.True
	case name == "ip_vs" && v.virtual != nil && len(v.virtual.All()) > 0:
		return netfilter.True
	}
	if _, read := v.host.Sysctl(conntrackMax); name == "nf_conntrack" && read {
		return netfilter.True
	}
	modules, builtin := v.state.Text(snapshot.ProcModules), v.state.Text(snapshot.ModulesBuiltin)
	for line := range strings.Lines(builtin.Content) {
		if moduleName(strings.TrimSuffix(path.Base(strings.TrimSpace(line)), ".ko")) == name {
			return netfilter.True
		}
	}
	if modules.Status != snapshot.Done || builtin.Status != snapshot.Done || strings.TrimSpace(builtin.Content) == "" {
		return netfilter.Unknown
	}
	return netfilter.False
}

// moduleLoaded says whether /proc/modules lists a module.
func (v *nodeView) moduleLoaded(name string) bool {
	for line := range strings.Lines(v.state.Text(snapshot.ProcModules).Content) {
		if first, _, ok := strings.Cut(line, " "); ok && moduleName(first) == name {
			return true
		}
	}
	return false
}

// moduleName is a module's name as the kernel has it: a file's may have dashes.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

func (p *Pass) reportModules(v *nodeView, mode string, lost []string, severity diagnosis.Severity) {
	var load, unload, grep []string
	for _, name := range lost {
		load = append(load, v.onNodeCommand("sudo modprobe "+name))
		unload = append([]string{v.onNodeCommand("sudo modprobe -r " + name)}, unload...)
		grep = append(grep, "-e "+name)
	}
	n := strings.Count(v.state.Text(snapshot.ProcModules).Content, "\n")
	evidence := []diagnosis.Evidence{
		v.lineEvidence(snapshot.ProcModules, 0, fmt.Sprintf("%s, none of them %s", count(n, "module"), strings.Join(lost, " or ")), "grep -w "+strings.Join(grep, " ")+" /proc/modules"),
		v.lineEvidence(snapshot.ModulesBuiltin, 0, "none of them is built in", "grep "+strings.Join(grep, " ")+" /lib/modules/*/modules.builtin"),
	}
	if v.seen.configRef != "" {
		evidence = append(evidence, diagnosis.Evidence{
			Source: v.seen.configRef + " in " + snapshot.ProxyNamespace, Ref: v.seen.configRef, Quote: "mode: " + mode,
			Command: kubectl("get", v.seen.configRef, "-n", snapshot.ProxyNamespace, "-o", "yaml"),
		})
	}
	p.Report(Finding{
		Subject:  p.onNode(v),
		Severity: severity,
		Title:    fmt.Sprintf("the kernel of %s lacks %s, which kube-proxy's %s mode needs", v.label(), join(lost, 3), mode),
		Expected: "modules " + strings.Join(v.modulesFor(mode), ", ") + ", loaded or built in",
		Found:    strings.Join(lost, ", ") + " neither loaded nor built in; kube-proxy loads what it needs when it starts, if it may and the files are there",
		Evidence: evidence,
		Fixes: []Proposal{{
			Fix: diagnosis.Fix{
				Title:       "load " + join(lost, 3) + ", and have it loaded at every start by a file in /etc/modules-load.d/; then restart kube-proxy",
				Commands:    append(load, p.restartProxy(v).Fix.Commands...),
				BlastRadius: "the kernel of " + v.label() + ", and its kube-proxy; where modprobe does not find the module, the kernel has no such package (linux-modules-extra on some) or was updated without a reboot",
				Undo:        unload,
				Verify:      []string{p.again()},
			},
			NotSimulated: changesNode,
		}},
	})
}
