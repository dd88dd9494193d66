package iptables

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/internal/oracletest"
)

// viewed is all that a ruleset shows of itself.
type viewed struct {
	Tables []netfilter.TableInfo
	Whole  [2]bool
	Legacy [2]bool
	Chains []viewedChain
}

type viewedChain struct {
	Source, Table, Name string
	Line, NumRules      int
	Declared, Known     bool
	Base                *netfilter.Base
	Policy              string
	Rules               []netfilter.Rule
	To                  map[netip.Addr][]int // for some destinations: the lines that may match
}

func view(rs *netfilter.Ruleset, dsts []netip.Addr) viewed {
	v := viewed{
		Tables: rs.Tables(),
		Whole:  [2]bool{rs.Whole(netfilter.IPv4), rs.Whole(netfilter.IPv6)},
		Legacy: [2]bool{rs.LegacyUnread(netfilter.IPv4), rs.LegacyUnread(netfilter.IPv6)},
	}
	names := map[string]bool{}
	for _, t := range v.Tables {
		if names[t.Name] {
			continue
		}
		names[t.Name] = true
		for c := range rs.AllChains(t.Name) {
			vc := viewedChain{
				Source: c.Source, Table: c.Table, Name: c.Name, Line: c.Line, NumRules: c.NumRules,
				Declared: c.Declared, Known: c.Known, Base: c.Base, Policy: c.Policy, To: map[netip.Addr][]int{},
			}
			// Asked twice, as the first questions are answered without an index.
			for range mostSeeks + 2 {
				for _, d := range dsts {
					vc.To[d] = nil
					for r := range c.RulesTo(d) {
						vc.To[d] = append(vc.To[d], r.Line)
					}
				}
			}
			for r := range c.Rules() {
				vc.Rules = append(vc.Rules, r)
			}
			v.Chains = append(v.Chains, vc)
		}
	}
	return v
}

// sameIndex says how the index of plain texts and the other one differ on a
// text; "" where they don't, or where the text is not plain.
func sameIndex(text string, opt Options, split int) (diff string, isPlain bool) {
	p, ok := skim(text, nil, split)
	if read, okToo := skim(text, strings.NewReader(text), split); ok != okToo {
		return fmt.Sprintf("plain in memory is %v, as a file %v", ok, okToo), ok
	} else if ok {
		p = read // the same but for how it was read
	}
	if !ok {
		return "", false
	}
	fast, problems, ok := p.ruleset(opt)
	if !ok {
		return "", false
	}
	opt.Whole = opt.Whole || opt.Saved && ShowsAll(text)
	x := newIndexer(text, opt)
	x.index()
	slow := x.ruleset()
	var dsts []netip.Addr
	for _, word := range strings.Fields(text) {
		a, _, _ := strings.Cut(word, "/")
		if ip, err := netip.ParseAddr(a); err == nil && len(dsts) < 5 {
			dsts = append(dsts, ip)
		}
	}
	want, got := view(slow, dsts), view(fast, dsts)
	if len(x.problems) == len(problems) && (len(problems) == 0 || reflect.DeepEqual(x.problems, problems)) && reflect.DeepEqual(want, got) {
		return "", true
	}
	opts := cmp.Options{
		cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
		cmp.Exporter(func(t reflect.Type) bool { return strings.HasSuffix(t.PkgPath(), "pkg/netfilter") }),
	}
	return cmp.Diff(x.problems, problems, opts) + cmp.Diff(want, got, opts) + "(they are not deeply equal)", true
}

// savedOptions are those of a text that may be all that a node has.
var savedOptions = Options{Source: "s", Family: netfilter.IPv4, Saved: true}

// TestPlainIndexAgrees holds the index of plain texts to the other one: on the
// rules of kube-proxy's own tests as a kernel gave them back. Every one of them
// is plain.
func TestPlainIndexAgrees(t *testing.T) {
	dir := oracletest.Shared(t, "oracles", "kube-proxy")
	files, err := filepath.Glob(filepath.Join(dir, "v1.37.2-kernel", "iptables-flow-*.real.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d files (%v)", len(files), err)
	}
	for _, file := range files {
		var saves map[string]any
		oracletest.ReadJSON(t, file, &saves)
		for _, form := range []string{"legacySave", "nftSave", "legacySaveWithCounters", "nftSaveWithCounters"} {
			text := saves[form].(string)
			diff, isPlain := sameIndex(text, Options{Source: form, Saved: true}, splitFrom)
			if diff != "" || !isPlain {
				t.Errorf("%s %s: plain %v; the indexes differ (-other +plain)\n%s", filepath.Base(file), form, isPlain, diff)
			}
		}
	}
	t.Logf("%d files in 4 forms", len(files))
}

// TestPlainIndexByTwo has texts gone through by two goroutines: large ones, a
// large table behind a small one, and texts that are not plain.
func TestPlainIndexByTwo(t *testing.T) {
	text, _ := generated(300, 5)
	at := strings.LastIndex(text, "# Generated")
	nat, filter := text[:at], text[at:]
	bare := strings.Join(slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(s string) bool { return strings.HasPrefix(s, "#") }), "")
	counted := strings.ReplaceAll(text, "\n-A ", "\n[12:345] -A ")
	for _, c := range []struct {
		name, text string
		isPlain    bool
	}{
		{"as generated", text, true},
		{"with counters", counted, true},
		{"the small table first", filter + nat, true},
		{"without comments", bare, true},
		{"without the last line end", strings.TrimSuffix(text, "\n"), true},
		{"a warning of legacy tables", text + "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n", true},
		{"a chain's rules apart", strings.Replace(text, "COMMIT\n", "-A KUBE-MARK-MASQ -j ACCEPT\nCOMMIT\n", 1), false},
		{"a chain without declaration", strings.Replace(text, "COMMIT\n", "-A NEW -j ACCEPT\nCOMMIT\n", 1), false},
		{"no COMMIT", text[:strings.LastIndex(text, "COMMIT")], false},
		{"a line that is none", strings.Replace(text, "COMMIT\n", "x\nCOMMIT\n", 1), false},
		{"escaped lines", strings.Replace(text, "COMMIT\n", `-A KUBE-MARK-MASQ -j X\n-A Y -j Z`+"\nCOMMIT\n", 1), false},
		{"a table twice", text + nat, false},
		{"a zero byte", text[:len(text)/2] + "\x00" + text[len(text)/2:], false},
		{"lines that end as on Windows", strings.ReplaceAll(text, "\n", "\r\n"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, split := range []int{1, splitFrom} {
				diff, isPlain := sameIndex(c.text, savedOptions, split)
				if isPlain != c.isPlain {
					t.Errorf("split %d: plain is %v, want %v", split, isPlain, c.isPlain)
				}
				if diff != "" {
					t.Errorf("split %d: the indexes differ (-other +plain)\n%s", split, diff)
				}
			}
		})
	}
}

// FuzzPlainIndex: a text that counts as plain reads as the other index has it.
func FuzzPlainIndex(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
		f.Add("# Generated by iptables-save v1.8.9 on Mon Nov 30 17:26:12 2026\n" + s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, opt := range []Options{savedOptions, {Whole: true}} {
			if diff, _ := sameIndex(text, opt, 1); diff != "" {
				t.Errorf("the indexes differ (-other +plain)\n%s", diff)
			}
		}
	})
}

// TestPlainIPv4: it reads what netip reads, and nothing else.
func TestPlainIPv4(t *testing.T) {
	for _, s := range []string{
		"10.96.0.1/32 -j X", "0.0.0.0/32 ", "255.255.255.255/32 ", "10.96.0.1/24 ", "10.96.0.1 ", "10.96.0.1/32", "256.0.0.1/32 ", "01.0.0.1/32 ",
		"10.96.0/32 ", "10.96.0.1.2/32 ", "a.b.c.d/32 ", "", "1..2.3/32 ", "1000.1.1.1/32 ", "10.0.0.00/32 ", "fd00::1/128 ",
	} {
		got, ok := plainIPv4(s)
		addr, rest, slash := strings.Cut(s, "/")
		want, err := netip.ParseAddr(addr)
		if wantOK := err == nil && want.Is4() && slash && strings.HasPrefix(rest, "32 "); ok != wantOK || ok && got != want {
			t.Errorf("%q: %v %v, want %v %v", s, got, ok, want, wantOK)
		}
	}
}

// TestDestinationIndex: Next finds the rules of addresses that many rules name.
func TestDestinationIndex(t *testing.T) {
	var lines []string
	for i := range 1000 {
		switch i % 5 {
		case 0:
			lines = append(lines, "-A K -p tcp -j ACCEPT")
		default:
			lines = append(lines, "-A K -d 10.0.0."+strconv.Itoa(i%7)+"/32 -j ACCEPT")
		}
	}
	x := indexDsts(len(lines), func(i int) (netip.Addr, bool) { return leadingDst(lines[i]) })
	for d := range 9 {
		dst := netip.AddrFrom4([4]byte{10, 0, 0, byte(d)})
		var got, want []int
		for i := x.next(0, len(lines), dst); i < len(lines); i = x.next(i+1, len(lines), dst) {
			got = append(got, i)
		}
		for i, line := range lines {
			if a, ok := leadingDst(line); !ok || a == dst {
				want = append(want, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d rules, want %d", dst, len(got), len(want))
		}
	}
}
