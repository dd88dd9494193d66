package nftables

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// shared is the folder of data that tests read in place, next to the
// repository; the test is skipped where it isn't.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the shared data is not beside the repository: %v", err)
	}
	return path
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// forms are the forms in which the oracles hold each ruleset.
var forms = []string{"nftList", "nftListHandles", "nftJSON"}

type oracleFlow struct {
	Name     string `json:"name"`
	SourceIP string `json:"sourceIP"`
	Protocol string `json:"protocol"`
	DestIP   string `json:"destIP"`
	DestPort uint16 `json:"destPort"`
	Output   string `json:"output"`
	Masq     bool   `json:"masq"`
}

// oracleText is one form of a kernel file's ruleset; JSON is there as a string
// or as itself.
func oracleText(t testing.TB, in map[string]json.RawMessage, form string) string {
	t.Helper()
	raw, ok := in[form]
	if !ok {
		t.Fatalf("no %s", form)
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// TestOracle walks every packet flow of kube-proxy's own unit tests through
// the rules as a real kernel gave them back: 218 flows, from the text of nft
// list, with and without handles, and from its JSON. No difference is excused
// here; one that turns up is a fault, or has to be named with its reason.
func TestOracle(t *testing.T) {
	dir := shared(t, "oracles", "kube-proxy")
	files, err := filepath.Glob(filepath.Join(dir, "v1.37.2", "nftables-flow-*.json"))
	if err != nil || len(files) != 43 {
		t.Fatalf("found %d flow files, want 43 (%v)", len(files), err)
	}
	walked := map[string]int{}
	for _, file := range files {
		var in struct {
			NodeIPs []string     `json:"nodeIPs"`
			Flows   []oracleFlow `json:"flows"`
		}
		readJSON(t, file, &in)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		var kernel map[string]json.RawMessage
		readJSON(t, filepath.Join(dir, "v1.37.2-kernel", name+".real.json"), &kernel)
		host := oracleHost(in.NodeIPs)
		for _, form := range forms {
			rs, problems, err := Parse(oracleText(t, kernel, form), Options{Source: form, Whole: true, Strict: true})
			if err != nil || len(problems) > 0 {
				t.Errorf("%s %s: %v %v", name, form, err, problems)
				continue
			}
			for _, f := range in.Flows {
				walked[form]++
				if got := replay(rs, host, f); got != want(f) {
					t.Errorf("%s %s %q\n from %s to %s:%d/%s\n got  %+v\n want %+v", name, form, f.Name, f.SourceIP, f.DestIP, f.DestPort, f.Protocol, got, want(f))
				}
			}
		}
	}
	for _, form := range forms {
		if walked[form] != 218 {
			t.Errorf("walked %d flows of %s, want 218", walked[form], form)
		}
	}
	t.Logf("walked %v", walked)
}

func oracleHost(nodeIPs []string) *netfilter.StaticHost {
	h := &netfilter.StaticHost{Complete: true, Forward4: netfilter.True, Forward6: netfilter.True}
	for _, ip := range nodeIPs {
		h.Addresses = append(h.Addresses, netip.MustParseAddr(ip))
	}
	return h
}

// end is an outcome in the oracle's terms.
type end struct {
	Output string
	Masq   bool
}

func want(f oracleFlow) end {
	out := strings.Split(f.Output, ", ")
	slices.Sort(out)
	return end{strings.Join(out, ", "), f.Masq}
}

// replay walks the flow and says how it ends, as the oracle does: the
// endpoints that may be chosen, or DROP, REJECT, ACCEPT, or nothing.
func replay(rs *netfilter.Ruleset, host netfilter.Host, f oracleFlow) end {
	outcomes := netfilter.Walk(rs, host, netfilter.Packet{
		Src: netip.MustParseAddr(f.SourceIP), Dst: netip.MustParseAddr(f.DestIP),
		Protocol: netfilter.Protocol(f.Protocol), DstPort: f.DestPort,
	})
	var out []string
	e := end{}
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

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
