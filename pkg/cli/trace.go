package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/node"
	"github.com/vipwalk/vipwalk/pkg/report"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// traceFlags are the packet, the state it is walked through, and the output.
type traceFlags struct {
	from, to, proto, in string
	localProcess        bool
	nodeState           []string
	node                string
	format              string
	out                 outputFlags
}

func (a *app) traceCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace --from IP --to IP:PORT [--node-state [NODE=]PATH...]",
		Short: "Walk one packet through one node's rules",
		Long: "Walk one packet through one node's rules: every way in which it may end, how probable it\n" +
			"is, and the rules it passes, by line. No API is needed. Without --node-state the rules are\n" +
			"this machine's own.\n\n" +
			"The packet is the first of a new connection. A source that is one of the node's own\n" +
			"addresses (as `ip addr` in the state has them), or --local-process, leaves through OUTPUT;\n" +
			"any other comes in through PREROUTING. The exit code is 0 when the packet was walked,\n" +
			"whatever became of it; that a rule could not be decided is a result too.",
		Example: "  PROGRAM trace --from 10.244.1.5 --to 10.96.0.10:53 --proto udp --node-state iptables-save.txt\n" +
			"  ssh worker-1 sudo iptables-save | PROGRAM trace --from 10.244.1.5 --to 10.96.0.1:443 --node-state -",
		Args:                  a.noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.trace(cmd.Context(), f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.from, "from", "", "the source `IP`")
	fs.StringVar(&f.to, "to", "", "the destination `IP:PORT`")
	fs.StringVar(&f.proto, "proto", "tcp", "`PROTOCOL`: tcp, udp, sctp")
	fs.StringVar(&f.in, "in", "", "the `INTERFACE` it arrives on")
	fs.BoolVar(&f.localProcess, "local-process", false, "sent by a process on the node")
	fs.StringArrayVar(&f.nodeState, "node-state", nil, "the node's state from files: `[NODE=]PATH`; - for stdin; repeatable")
	fs.StringVar(&f.node, "node", "", "which node's state, where --node-state has several: `NAME`")
	fs.StringVarP(&f.format, "output", "o", "text", "`FORMAT`: text, json, yaml")
	f.out.addShared(fs)
	return cmd
}

func (a *app) trace(ctx context.Context, f *traceFlags) error {
	render, err := f.renderer()
	if err != nil {
		return err
	}
	packet, err := f.packet()
	if err != nil {
		return err
	}
	state, err := a.traceState(ctx, f)
	if err != nil {
		return err
	}
	rules, err := a.ruleset(state, netfilter.FamilyOf(packet.Dst))
	if err != nil {
		return err
	}
	h := hostOf(state)
	h.Fallback = notLocal(rules, state)
	if h.Local(packet.Src) == netfilter.True && f.in == "" {
		packet.LocalProcess = true
	}
	t := &diagnosis.TraceReport{
		APIVersion: diagnosis.APIVersion, Kind: "TraceReport",
		Packet: diagnosis.Packet{
			From: packet.Src.String(), To: netip.AddrPortFrom(packet.Dst, packet.DstPort).String(),
			Protocol: string(packet.Protocol), In: packet.In, LocalProcess: packet.LocalProcess,
		},
		Outcomes: []diagnosis.Outcome{},
	}
	undecided := false
	for _, o := range netfilter.Walk(rules, h, packet) {
		t.Outcomes = append(t.Outcomes, walk.ReportOutcome(o))
		undecided = undecided || o.Verdict == netfilter.Undecided
	}
	if undecided && rules.Excerpt() {
		a.noteExcerpt(rules, h, packet)
	}
	if undecided && !h.AddressesRead() {
		a.note("the node's own addresses are not in its state; the output of `ip addr` as another --node-state may decide what is unknown")
	}
	if f.out.quiet {
		return nil
	}
	return render(a.Out, t, a.options(&f.out))
}

func (f *traceFlags) renderer() (report.TraceRenderer, error) {
	if err := f.out.validateColor(); err != nil {
		return nil, err
	}
	for _, known := range report.TraceFormats() {
		if known.Name == f.format {
			return known.Render, nil
		}
	}
	return nil, usageErrorf("-o %q: no such format", f.format).hint("one of text, json, yaml")
}

// packet reads the flags that describe it.
func (f *traceFlags) packet() (netfilter.Packet, error) {
	p := netfilter.Packet{In: f.in, LocalProcess: f.localProcess, Protocol: netfilter.Protocol(strings.ToLower(f.proto))}
	switch {
	case f.from == "" || f.to == "":
		return p, usageErrorf("trace needs --from IP and --to IP:PORT").hint("for example --from 10.244.1.5 --to 10.96.0.10:53 --proto udp")
	case !slices.Contains([]netfilter.Protocol{netfilter.TCP, netfilter.UDP, netfilter.SCTP}, p.Protocol):
		return p, usageErrorf("--proto %q: no such protocol", f.proto).hint("one of tcp, udp, sctp")
	case f.in != "" && f.localProcess:
		return p, usageErrorf("--in and --local-process are both given").hint("a packet of a local process comes in by no interface")
	}
	src, err := netip.ParseAddr(f.from)
	if err != nil {
		return p, usageErrorf("--from %q is not an IP address", f.from)
	}
	dst, err := netip.ParseAddrPort(f.to)
	if err != nil || dst.Port() == 0 {
		return p, usageErrorf("--to %q is not an address and a port", f.to).hint("IPv4 10.96.0.10:53, IPv6 [fd00::1]:53")
	}
	p.Src, p.Dst, p.DstPort = src.Unmap(), dst.Addr().Unmap(), dst.Port()
	if p.Src.Is4() != p.Dst.Is4() {
		return p, usageErrorf("--from %s and --to %s are not of one address family", f.from, f.to)
	}
	return p, nil
}

// traceState is the one node's state to walk through.
func (a *app) traceState(ctx context.Context, f *traceFlags) (*snapshot.NodeState, error) {
	if len(f.nodeState) == 0 {
		state, err := node.Local(ctx)
		if err != nil {
			return nil, unknownErrorf("%w", err).hint("--node-state FILE walks through the rules of another machine")
		}
		return state, nil
	}
	s, err := a.readNodeStates(ctx, f.nodeState, f.out.quiet, nil)
	if err != nil {
		return nil, err
	}
	for _, n := range s.Nodes {
		if f.node == n.Name || f.node == "" && len(s.Nodes) == 1 {
			return n, nil
		}
	}
	var names []string
	for _, n := range s.Nodes {
		names = append(names, strconv.Quote(n.Name))
	}
	if f.node != "" {
		return nil, usageErrorf("--node %s: there is no state of it", f.node).hint("there is that of %s", strings.Join(names, ", "))
	}
	return nil, usageErrorf("the state of %d nodes is given, and a packet walks through one", len(names)).hint("--node NAME, one of %s", strings.Join(names, ", "))
}

// hostOf is what a state says of the node besides its rules.
func hostOf(state *snapshot.NodeState) *host.Host {
	h := &host.Host{}
	for _, t := range state.All(snapshot.IPAddr) {
		h.ParseAddr(t.Content)
	}
	for _, t := range state.All(snapshot.IPRoute) {
		h.ParseRoute(t.Content)
	}
	for _, t := range state.All(snapshot.Sysctl) {
		h.ParseSysctl(t.Content)
	}
	return h
}

// note says on stderr that part of an input was not understood. The walk goes
// on: what hangs on it is unknown.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Err, "note: %s\n", escapeMessage(fmt.Sprintf(format, args...)))
}
