package oracletest

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// FlowFiles and AllFlows are how many files with flows there are of a mode, and
// how many flows are in them.
var (
	FlowFiles = map[string]int{"iptables": 57, "nftables": 43}
	AllFlows  = map[string]int{"iptables": 246, "nftables": 218}
)

// Parser reads a text; an error is anything that was not understood.
type Parser func(text, source string) (*netfilter.Ruleset, error)

// HoldFlows walks every packet flow of kube-proxy's own unit tests through the
// rules as a real kernel gave them back, in each form. Walk agrees with every
// one, although it knows more than kube-proxy's tracer does: the routing
// decision between INPUT and FORWARD, policies, conntrack states, POSTROUTING.
// No difference is excused here; one that turns up is a fault, or has to be
// named with its reason.
func HoldFlows(t *testing.T, mode string, forms []string, parse Parser) {
	t.Helper()
	walked := map[string]int{}
	for _, f := range Files(t, mode, "flow", FlowFiles[mode]) {
		for _, form := range forms {
			rs, err := parse(f.Text(t, form), form)
			if err != nil {
				t.Errorf("%s %s: %v", f.Name, form, err)
				continue
			}
			for _, flow := range f.Flows {
				walked[form]++
				if got, want := flow.Replay(rs, f.Host()), flow.Want(); got != want {
					flow.Differs(t, f.Name+" "+form, got)
				}
			}
		}
	}
	for _, form := range forms {
		if walked[form] != AllFlows[mode] {
			t.Errorf("walked %d flows of %s, want %d", walked[form], form, AllFlows[mode])
		}
	}
	t.Logf("walked %v", walked)
}

// End is how a packet ends, in the oracle's terms.
type End struct {
	Output string
	Masq   bool
}

// Want is what the recording says, its endpoints sorted.
func (f Flow) Want() End {
	out := strings.Split(f.Output, ", ")
	slices.Sort(out)
	return End{strings.Join(out, ", "), f.Masq}
}

// Replay walks the flow and says how it ends, as the oracle does.
func (f Flow) Replay(rs *netfilter.Ruleset, host netfilter.Host) End {
	outcomes := netfilter.Walk(rs, host, netfilter.Packet{
		Src: netip.MustParseAddr(f.SourceIP), Dst: netip.MustParseAddr(f.DestIP),
		Protocol: netfilter.Protocol(f.Protocol), DstPort: f.DestPort,
	})
	var out []string
	e := End{}
	for _, o := range outcomes {
		e.Masq = e.Masq || o.Masquerade == netfilter.True
		switch o.Verdict {
		case netfilter.DNAT:
			out = append(out, o.To.String())
		case netfilter.None:
			out = append(out, "")
		case netfilter.Undecided:
			out = append(out, "UNDECIDED "+o.Unknowns[0].Text+" "+o.Unknowns[0].Why)
		default:
			out = append(out, strings.ToUpper(string(o.Verdict)))
		}
	}
	slices.Sort(out)
	e.Output = strings.Join(out, ", ")
	return e
}

// Differs reports a flow that ends otherwise than the recording says.
func (f Flow) Differs(t testing.TB, where string, got End) {
	t.Helper()
	t.Errorf("%s %q\n from %s to %s:%d/%s\n got  %+v\n want %+v", where, f.Name, f.SourceIP, f.DestIP, f.DestPort, f.Protocol, got, f.Want())
}
