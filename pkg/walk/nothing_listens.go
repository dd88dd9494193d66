package walk

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// nothingListens: no process of a backend's pod listens on the port that the
// packets go to.
var nothingListens = &Check{
	Code: diagnosis.NothingListens, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		for _, d := range p.deafBackends() {
			if !d.elsewhere {
				p.reportDeaf(d)
			}
		}
	},
}

// listensOnLoopbackOnly: a process of the pod listens on the port, and not on
// the address that the packets go to.
var listensOnLoopbackOnly = &Check{
	Code: diagnosis.ListensOnLoopbackOnly, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		for _, d := range p.deafBackends() {
			if d.elsewhere {
				p.reportDeaf(d)
			}
		}
	},
}

// podSocket is a listening socket of a pod's.
type podSocket struct {
	protocol corev1.Protocol
	v6       bool
	at       netip.AddrPort
	line     int
	text     string
}

// podSockets are the listening sockets of a node's pods, by the pod's UID; a pod
// that has none is in it with none. none is the line that says so.
type podSockets map[string]*socketsOf

type socketsOf struct {
	list []podSocket
	line int // the first of the pod's
	text string
}

// readSockets reads "UID PROTO ADDRESS:PORT" and "UID none".
func readSockets(st *snapshot.NodeState) podSockets {
	out := podSockets{}
	for _, t := range st.All(snapshot.PodSockets) {
		if t.Status != snapshot.Done {
			continue
		}
		n := 0
		for line := range strings.Lines(t.Content) {
			n++
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			s := podSocket{line: n, text: strings.TrimSpace(line)}
			if f[1] != "none" {
				at, err := netip.ParseAddrPort(f[len(f)-1])
				if err != nil || len(f) != 3 {
					continue
				}
				s.at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
				s.v6 = strings.HasSuffix(f[1], "6")
				s.protocol = corev1.Protocol(strings.ToUpper(strings.TrimSuffix(f[1], "6")))
			}
			of := out[f[0]]
			if of == nil {
				of = &socketsOf{line: n, text: s.text}
				out[f[0]] = of
			}
			if f[1] != "none" {
				of.list = append(of.list, s)
			}
		}
	}
	return out
}

// deaf are backends of one node that do not listen where packets go, for the
// same reason.
type deaf struct {
	view     *nodeView
	frontend proxy.Frontend
	port     uint16
	// elsewhere: something listens on the port, at addresses that packets do not
	// go to.
	elsewhere bool
	pods      []*corev1.Pod
	sockets   []*socketsOf
	addrs     []netip.Addr
	of        int // backends of the node that were looked at
}

// deafBackends looks at the backends of each node whose pods' sockets were
// read: those that packets are to go to.
func (p *Pass) deafBackends() []*deaf {
	var out []*deaf
	type key struct {
		view *nodeView
		addr netip.AddrPort
		prot corev1.Protocol
	}
	seen := map[key]bool{}
	looked := map[string]int{}
	for _, pr := range p.probes() {
		f := pr.frontend
		if pr.hairpin || pr.expect.Action != proxy.Forward || f.Protocol == corev1.ProtocolSCTP || len(pr.view.sockets) == 0 {
			continue
		}
		for _, b := range pr.expect.Backends {
			k := key{pr.view, b.Addr, f.Protocol}
			if !b.Local || seen[k] {
				continue
			}
			seen[k] = true
			pod := p.podOf(b)
			if pod == nil {
				continue
			}
			of := pr.view.sockets[string(pod.UID)]
			if of == nil || meshed(pod, of) {
				continue
			}
			group := fmt.Sprint(pr.view.name, b.Addr.Port(), f.Protocol)
			looked[group]++
			good, elsewhere := of.listen(b.Addr, f.Protocol)
			if good {
				continue
			}
			i := slices.IndexFunc(out, func(d *deaf) bool {
				return d.view == pr.view && d.port == b.Addr.Port() && d.frontend.Protocol == f.Protocol && d.elsewhere == elsewhere
			})
			if i < 0 {
				out = append(out, &deaf{view: pr.view, frontend: f, port: b.Addr.Port(), elsewhere: elsewhere})
				i = len(out) - 1
			}
			out[i].pods, out[i].sockets, out[i].addrs = append(out[i].pods, pod), append(out[i].sockets, of), append(out[i].addrs, b.Addr.Addr())
		}
	}
	for _, d := range out {
		d.of = looked[fmt.Sprint(d.view.name, d.port, d.frontend.Protocol)]
	}
	return out
}

// podOf is the pod of a backend, if it was read.
func (p *Pass) podOf(b proxy.Backend) *corev1.Pod {
	for _, e := range p.Endpoints() {
		if e.Addr == b.Addr.Addr() && e.Pod != nil {
			return e.Pod
		}
	}
	return nil
}

// listen says whether a socket of the pod's takes packets to the address, and
// whether one that does not is on the port. A socket on :: may or may not take
// IPv4; it is taken to.
func (of *socketsOf) listen(to netip.AddrPort, protocol corev1.Protocol) (good, elsewhere bool) {
	for _, s := range of.list {
		if s.protocol != protocol || s.at.Port() != to.Port() {
			continue
		}
		a := s.at.Addr()
		if a == to.Addr() || a.IsUnspecified() && (s.v6 || to.Addr().Is4()) {
			return true, false
		}
		elsewhere = true
	}
	return false, elsewhere
}

// meshPorts are those on which the sidecars of meshes take what rules inside
// the pod redirect to them: Istio's, Linkerd's.
var meshPorts = []uint16{15001, 15006, 15008, 4140, 4143}

// meshed says whether a proxy inside the pod may take the packets: what listens
// on the port then does not tell.
func meshed(pod *corev1.Pod, of *socketsOf) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, name := range []string{"istio-proxy", "linkerd-proxy", "consul-dataplane", "kuma-sidecar", "envoy-sidecar"} {
			if c.Name == name {
				return true
			}
		}
	}
	return slices.ContainsFunc(of.list, func(s podSocket) bool { return slices.Contains(meshPorts, s.at.Port()) })
}

func (p *Pass) reportDeaf(d *deaf) {
	port := fmt.Sprintf("%d/%s", d.port, d.frontend.Protocol)
	who := "pod " + d.pods[0].Name
	if len(d.pods) > 1 {
		who = fmt.Sprintf("%d of %s on %s", len(d.pods), count(d.of, "backend"), d.view.label())
	}
	ports, loopback, addrs := d.listening()
	f := Finding{
		Subject:  p.onNode(d.view),
		Title:    fmt.Sprintf("nothing in %s listens on port %s", who, port),
		Expected: fmt.Sprintf("a socket of %s on %s, at the pod's address or at all", who, port),
		Found:    "no process in it listens on any port",
	}
	if len(ports) > 0 {
		f.Found = "its processes listen on " + listed(ports)
	}
	if d.elsewhere {
		f.Title = fmt.Sprintf("%s listens on port %s at the loopback address alone", who, port)
		if !loopback {
			f.Title = fmt.Sprintf("%s listens on port %s, and not at the address that packets go to", who, port)
		}
		f.Found = "it listens at " + listed(addrs) + "; packets come to " + d.addrs[0].String()
	}
	if len(d.pods) == 1 {
		f.Subject = diagnosis.Subject{Kind: "Pod", Namespace: d.pods[0].Namespace, Name: d.pods[0].Name, Node: d.view.name}
	}
	for i, pod := range d.pods[:min(len(d.pods), 2)] {
		of := d.sockets[i]
		line, quote := of.line, of.text
		for _, s := range of.list {
			if s.at.Port() == d.port && s.protocol == d.frontend.Protocol {
				line, quote = s.line, s.text
				break
			}
		}
		command := "sudo sh -c 'for p in $(grep -l pod" + uidPattern(pod.UID) + " /proc/[0-9]*/cgroup); do cat ${p%cgroup}net/tcp ${p%cgroup}net/tcp6; break; done'"
		f.Evidence = append(f.Evidence, d.view.lineEvidence(snapshot.PodSockets, line, quote+"   (pod "+pod.Namespace+"/"+pod.Name+")", command))
	}
	f.Evidence = append(f.Evidence, p.serviceField(".spec.ports", p.portsText()))
	f.Fixes = p.mendDeaf(d, ports)
	p.Report(f)
}

// uidPattern finds a pod's UID in the name of a control group, with dashes or
// with underscores. A UID that is none is any.
func uidPattern(uid types.UID) string {
	if strings.Trim(string(uid), "0123456789abcdef-") != "" {
		return ".*"
	}
	return strings.ReplaceAll(string(uid), "-", ".")
}

// listening lists the ports that the pods listen on, and the addresses on the
// port that was looked for; loopback says that these are loopback addresses.
func (d *deaf) listening() (ports []string, loopback bool, addrs []string) {
	loopback = true
	var all []podSocket
	for _, of := range d.sockets {
		all = append(all, of.list...)
	}
	slices.SortFunc(all, func(a, b podSocket) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.at.Port(), b.at.Port()))
	})
	for _, s := range all {
		text := fmt.Sprintf("%d/%s", s.at.Port(), s.protocol)
		if s.at.Addr().IsLoopback() {
			text += " (loopback)"
		}
		if !slices.Contains(ports, text) {
			ports = append(ports, text)
		}
		if s.at.Port() == d.port && s.protocol == d.frontend.Protocol {
			loopback = loopback && s.at.Addr().IsLoopback()
			if at := s.at.Addr().String(); !slices.Contains(addrs, at) {
				addrs = append(addrs, at)
			}
		}
	}
	return ports, loopback, addrs
}

func (p *Pass) portsText() string {
	var out []string
	for i := range p.Service.Spec.Ports {
		sp := &p.Service.Spec.Ports[i]
		out = append(out, fmt.Sprintf("%d/%s targetPort %s", sp.Port, protocolOf(sp), sp.TargetPort.String()))
	}
	return strings.Join(out, ", ")
}

// mendDeaf: which of the two is right, the process or the Service, is not known.
func (p *Pass) mendDeaf(d *deaf, ports []string) []Proposal {
	pod := d.pods[0]
	out := []Proposal{p.look("see what the process was told to listen on, and have it listen on port "+fmt.Sprint(d.port)+" at 0.0.0.0 or ::",
		kubectl("logs", pod.Name, "-n", pod.Namespace, "--all-containers", "--tail=50"),
		kubectl("get", "pod", pod.Name, "-n", pod.Namespace, "-o", "jsonpath={.spec.containers[*].ports}"))}
	if d.elsewhere || len(ports) != 1 || strings.Contains(ports[0], "loopback") {
		return out
	}
	number, protocol, _ := strings.Cut(ports[0], "/")
	i := slices.IndexFunc(p.Service.Spec.Ports, func(sp corev1.ServicePort) bool {
		return sp.Port == d.frontend.ServicePort && protocolOf(&sp) == d.frontend.Protocol
	})
	if i < 0 || protocol != string(d.frontend.Protocol) {
		return out
	}
	path := fmt.Sprintf("/spec/ports/%d/targetPort", i)
	patch := func(value any) any {
		return []map[string]any{{"op": "replace", "path": path, "value": value}}
	}
	old := p.Service.Spec.Ports[i].TargetPort
	var was any = old.IntValue()
	if old.StrVal != "" {
		was = old.StrVal
	}
	var to int
	if _, err := fmt.Sscan(number, &to); err != nil {
		return out
	}
	return append(out, Proposal{
		Fix: diagnosis.Fix{
			Title:       "or send to port " + number + ", on which it listens, if that is the port that is meant",
			Commands:    tried(p.patchCommand("json", patch(to))),
			BlastRadius: "every client of this port of the Service, at once",
			Undo:        []string{p.patchCommand("json", patch(was))},
			Verify:      p.verify(),
		},
		NotSimulated: "whether the port that it listens on is the one that is meant only a person can tell",
	})
}
