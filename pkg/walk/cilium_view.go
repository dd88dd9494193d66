package walk

import (
	"fmt"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/cilium"
	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// ciliumTable is what steps through Cilium's list of Services have for a table.
const ciliumTable = "cilium"

// readCilium takes Cilium's own list of Services for what the node does, where
// Cilium stands in for kube-proxy and the list was read.
func (v *nodeView) readCilium() {
	if r := v.seen.replacedBy; r == nil || r.kind.name != "Cilium" {
		return
	}
	for _, t := range v.state.All(snapshot.CiliumServices) {
		if t.Status != snapshot.Done {
			v.ciliumLack = &diagnosis.Missing{What: "Cilium's list of Services on " + v.label(), Why: t.Why, Supply: t.Supply}
			continue
		}
		s, problems, err := cilium.Parse(t.Content, textName(t))
		switch {
		case err != nil:
			v.ciliumLack = &diagnosis.Missing{What: "Cilium's list of Services on " + v.label(), Why: textName(t) + ": " + err.Error()}
		case len(problems) > 0:
			// What is left out might be the very Service.
			v.ciliumLack = &diagnosis.Missing{
				What: "Cilium's list of Services on " + v.label(), Why: fmt.Sprintf("%s line %d: %s", textName(t), problems[0].Line, problems[0].Message),
			}
		default:
			v.cilium, v.ciliumLack = s, nil
			return
		}
	}
}

func (v *nodeView) ciliumFrontends() []cilium.Frontend {
	for _, t := range v.state.All(snapshot.CiliumServices) {
		if t.Status == snapshot.Done {
			if s, _, err := cilium.Parse(t.Content, textName(t)); err == nil {
				return s.Frontends
			}
		}
	}
	return nil
}

// lackForReplacement says what is missing of a node on which something stands
// in for kube-proxy; nil where its own list of Services was read.
func (v *nodeView) lackForReplacement() *diagnosis.Missing {
	r := v.seen.replacedBy
	if r == nil || v.cilium != nil {
		return nil
	}
	m := diagnosis.Missing{
		What: "how " + v.label() + " programs Services", Why: r.kind.name + " stands in for kube-proxy there; its state is not kube-proxy's rules",
		Supply: r.supply(v.name),
	}
	if v.ciliumLack != nil {
		m.Why = v.ciliumLack.Why
	}
	return &m
}

// supply is the command that would tell of Services on a node; Cilium's output
// can be given to a walk.
func (r *replacement) supply(node string) string {
	if r.kind.name != "Cilium" {
		return r.command(nil) + "   (read it by hand)"
	}
	if node != "" {
		node = shellQuote(node) + "="
	}
	return r.command(nil) + " > FILE   (then: --node-state " + node + "FILE)"
}

// ciliumOutcomes is what Cilium does with a packet, by its list of Services: it
// draws one of the active backends. Whether it rewrites the source is not in
// the list. A frontend without any answers as service-no-backend-response says,
// and rejects by default.
func (v *nodeView) ciliumOutcomes(pr *probe) []netfilter.Outcome {
	inside := pr.caller.kind != proxy.ExternalClient
	atNode := pr.frontend.Kind == proxy.NodePort
	f := v.cilium.Lookup(pr.dst, string(pr.frontend.Protocol), inside, atNode)
	if f == nil {
		return []netfilter.Outcome{{Verdict: netfilter.None, To: pr.dst, Probability: 1, Masquerade: netfilter.False}}
	}
	step := func(line int, text string) []netfilter.Step {
		return []netfilter.Step{{Source: v.cilium.Source, Table: ciliumTable, Chain: f.Addr.String(), Line: line, Text: text}}
	}
	var active []cilium.Backend
	sum := 0
	for _, b := range f.Backends {
		if b.Active() {
			active = append(active, b)
			sum += b.Weight
		}
	}
	if len(active) == 0 {
		return []netfilter.Outcome{{Verdict: netfilter.Reject, To: pr.dst, Probability: 1, Masquerade: netfilter.False, Steps: step(f.Line, f.Text)}}
	}
	var out []netfilter.Outcome
	for _, b := range active {
		out = append(out, netfilter.Outcome{
			Verdict: netfilter.DNAT, To: b.Addr, Rewritten: true, Probability: float64(b.Weight) / float64(sum),
			Masquerade: netfilter.Unknown, Steps: step(b.Line, b.Text),
		})
	}
	return out
}

// ciliumForms are the codes that Cilium's list of Services can tell of; the
// others are about rules of netfilter.
var ciliumForms = []diagnosis.Code{
	diagnosis.VIPNotProgrammed, diagnosis.StaleBackend, diagnosis.BackendMissing, diagnosis.RejectedAsEmpty, diagnosis.WrongBackendPort,
	diagnosis.NodePortNotProgrammed, diagnosis.ExternalIPNotProgrammed,
}

// pastCilium says whether the running check has nothing to ask of a node whose
// Services are Cilium's.
func (p *Pass) pastCilium(v *nodeView) bool {
	return v.cilium != nil && p.running != nil && !slices.Contains(ciliumForms, p.running.Code)
}

// noCiliumFrontend quotes that Cilium's list has no entry for an address.
func (v *nodeView) noCiliumFrontend(pr *probe) diagnosis.Evidence {
	return diagnosis.Evidence{
		Source: v.cilium.Source + " of " + v.label(), Ref: ciliumTable,
		Quote:   fmt.Sprintf("%s, none for %s", count(len(v.cilium.Frontends), "frontend"), frontendText(pr.frontend, pr.dst)),
		Command: v.seen.replacedBy.command(nil) + " | grep -F " + shellQuote(pr.dst.Addr().String()),
	}
}

// restartCilium is the mend for a list of Services that is not what the objects
// ask: an agent that starts anew reads them all and writes the maps again.
func (p *Pass) restartCilium(v *nodeView) Proposal {
	r := v.seen.replacedBy
	namespace, pod := r.namespace, r.pod
	if namespace == "" {
		namespace = snapshot.ProxyNamespace
	}
	remove := kubectl("delete", "pod", "-n", namespace, pod)
	logs := kubectl("logs", "-n", namespace, pod, "-c", "cilium-agent", "--tail=50") + "   (read this first: it may say why)"
	if pod == "" {
		which := "spec.nodeName=" + v.name
		remove = kubectl("delete", "pod", "-n", namespace, "-l", "k8s-app=cilium", "--field-selector", which)
		logs = kubectl("get", "pods", "-n", namespace, "-l", "k8s-app=cilium", "-o", "wide", "--field-selector", which)
	}
	return Proposal{
		Fix: diagnosis.Fix{
			Title:       "restart Cilium's agent on " + v.label() + ", which reads the Services anew",
			Commands:    []string{logs, remove},
			BlastRadius: "Cilium's agent of " + v.label() + " alone; its eBPF programs go on meanwhile, and no new pod gets a network there until it runs",
			Undo:        []string{"nothing to undo: the restart changes no object and no configuration"},
			Verify:      []string{p.again(), r.command(p)},
		},
		NotSimulated: changesNode,
	}
}
