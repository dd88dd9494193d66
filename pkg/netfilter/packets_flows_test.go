//go:build linux

package netfilter_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// packetFile is one recording of kube-proxy: the Services, the node, and the
// flows with what kube-proxy's own tracer says of them.
type packetFile struct{ *oracletest.File }

// packetFlow is a packet to send.
type packetFlow struct {
	name  string
	src   netip.Addr
	dst   netip.AddrPort
	proto netfilter.Protocol
	// recorded: output and masq are what kube-proxy's tracer says.
	recorded bool
	output   string
	masq     bool
}

func (f *packetFile) v6() bool {
	if len(f.Flows) > 0 {
		return strings.Contains(f.Flows[0].SourceIP, ":")
	}
	return f.Proxier.IPFamily == "IPv6"
}

// addresses are the node's own.
func (f *packetFile) addresses() []netip.Addr {
	texts := f.NodeIPs
	if len(texts) == 0 {
		texts = []string{f.Proxier.NodeIP}
	}
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// packets are the flows of the file; those that are turned away at an address
// other than the node's also as the node itself would send them, which no file
// has. A file without flows gives a packet of a pod to each address of its
// Services, and one from outside.
func (f *packetFile) packets(t *testing.T) []packetFlow {
	var out []packetFlow
	for _, r := range f.Flows {
		out = append(out, packetFlow{
			name: r.Name, src: netip.MustParseAddr(r.SourceIP), dst: netip.AddrPortFrom(netip.MustParseAddr(r.DestIP), r.DestPort),
			proto: netfilter.Protocol(strings.ToLower(r.Protocol)), recorded: true, output: r.Output, masq: r.Masq,
		})
	}
	for _, r := range out {
		own := f.addresses()
		i := slices.IndexFunc(own, func(a netip.Addr) bool { return a.Is6() == r.src.Is6() })
		if (r.output == "REJECT" || r.output == "DROP") && i >= 0 && !slices.Contains(own, r.dst.Addr()) && r.src != own[i] {
			out = append(out, packetFlow{name: r.name + ", from the node", src: own[i], dst: r.dst, proto: r.proto})
		}
	}
	if len(out) > 0 {
		return out
	}
	pod, outside := netip.MustParseAddr("10.0.0.77"), netip.MustParseAddr("203.0.113.77")
	if f.v6() {
		pod, outside = netip.MustParseAddr("fd00:10::77"), netip.MustParseAddr("2600:5200::77")
	}
	for _, svc := range f.Services {
		for _, p := range svc.Spec.Ports {
			to := func(name string, a netip.Addr, port uint16, src netip.Addr) {
				if a.Is6() == f.v6() && port != 0 {
					out = append(out, packetFlow{
						name: svc.Metadata.Name + " " + name, src: src, dst: netip.AddrPortFrom(a, port), proto: netfilter.Protocol(strings.ToLower(p.Protocol)),
					})
				}
			}
			if a, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil {
				to("cluster IP", a, p.Port, pod)
				to("cluster IP, from outside", a, p.Port, outside)
			}
			to("node port", f.addresses()[0], p.NodePort, outside)
			for _, s := range externals(svc) {
				to("external IP", s, p.Port, outside)
				to("external IP, from a pod", s, p.Port, pod)
			}
		}
	}
	if len(out) == 0 {
		t.Errorf("%s has no flow and no Service", f.Name)
	}
	return out
}

// ports are those that a flow of the file goes to, or may end at.
func (f *packetFile) ports(t *testing.T) []uint16 {
	var out []uint16
	for _, flow := range f.packets(t) {
		out = append(out, flow.dst.Port())
		for _, text := range strings.Split(flow.output, ", ") {
			if to, err := netip.ParseAddrPort(text); err == nil {
				out = append(out, to.Port())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// externals are a Service's external and load balancer addresses.
func externals(s oracletest.Service) []netip.Addr {
	texts := slices.Clone(s.Spec.ExternalIPs)
	for _, in := range s.Status.LoadBalancer.Ingress {
		texts = append(texts, in.IP)
	}
	var out []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// differs says in what the kernel does not do what kube-proxy's tracer says, ""
// where it does. The tracer takes every packet for one that came in by
// PREROUTING, whoever sent it.
func (f packetFlow) differs(got map[fate]int) string {
	if !f.recorded {
		return ""
	}
	var to []string
	masq := false
	for s := range got {
		masq = masq || s.masq
		switch s.verdict {
		case netfilter.DNAT:
			to = append(to, s.to.String())
		case netfilter.Accept:
			if f.output != "ACCEPT" && f.output != "" {
				to = append(to, "untouched")
			} else {
				to = append(to, f.output) // a rule's ACCEPT can't be seen from outside
			}
		default:
			to = append(to, strings.ToUpper(string(s.verdict)))
		}
	}
	slices.Sort(to)
	want := strings.Split(f.output, ", ")
	slices.Sort(want)
	switch {
	case !slices.Equal(to, want):
		return "the kernel does " + strings.Join(to, ", ") + ", the tracer " + f.output
	case masq && !f.masq:
		return "the kernel masquerades, the tracer does not"
	case !masq && f.masq:
		return "the tracer masquerades, the kernel does not"
	}
	return ""
}
