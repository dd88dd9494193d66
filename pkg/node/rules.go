package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// family is IPv4 or IPv6, as netfilter's tools spell it.
type family struct {
	program string // iptables, ip6tables
	save    snapshot.TextKind
	legacy  snapshot.TextKind
	names   snapshot.TextKind
	// namesFile lists the legacy tables that exist, one a line. It is empty
	// where there are none, and absent where ip_tables is not in the kernel.
	namesFile string
}

var (
	ipv4 = family{"iptables", snapshot.IptablesSave, snapshot.IptablesLegacySave, snapshot.TableNames, "proc/net/ip_tables_names"}
	ipv6 = family{"ip6tables", snapshot.Ip6tablesSave, snapshot.Ip6tablesLegacySave, snapshot.TableNames6, "proc/net/ip6_tables_names"}
)

// variant is which of the two kernel interfaces a program speaks.
type variant int

const (
	variantUnknown variant = iota
	variantNft
	variantLegacy
)

// rules reads the rulesets of one family, of both backends where both have
// one, and the list of legacy tables.
func (m Machine) rules(ctx context.Context, k kernel, f family) []snapshot.Text {
	names := m.tableNames(f)
	nft, nftNone := m.nftRules(ctx, k, f)
	legacy, legacyNone := m.legacyRules(ctx, f, names)
	switch {
	case legacyNone && nftNone:
		nft.Why += "; no legacy table exists either"
		nft.Ref += ", " + names.Ref
		return []snapshot.Text{nft, names}
	case legacyNone:
		return []snapshot.Text{nft, names}
	case nftNone:
		return []snapshot.Text{legacy, names}
	}
	legacy.Kind = f.legacy
	return []snapshot.Text{nft, legacy, names}
}

func (m Machine) tableNames(f family) snapshot.Text {
	t := snapshot.Text{Kind: f.names, Ref: "/" + f.namesFile, Status: snapshot.Done}
	content, err := m.readFile(f.namesFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Why = "the file is absent: the legacy backend is not in the kernel, so it has no table"
	case err != nil:
		return m.unreadable(f.names, f.namesFile, err)
	}
	t.Content = content
	return t
}

// nftRules reads the rules that iptables-nft made. none is true where the
// kernel cannot hold any.
func (m Machine) nftRules(ctx context.Context, k kernel, f family) (t snapshot.Text, none bool) {
	program := m.program(variantNft, f.program+"-nft-save", f.program+"-save")
	t = snapshot.Text{Kind: f.save, Ref: f.program + "-nft-save -c", Status: snapshot.Failed}
	may, none, why := k.nftRun()
	switch {
	case none:
		t.Ref, t.Status, t.Why = "/proc/modules", snapshot.Done, why
		return t, true
	case !may:
		t.Why, t.Supply = why, "sudo "+f.program+"-nft-save -c"
		return t, false
	case program == "":
		return m.nftListing(ctx, f), false
	}
	t = m.command(ctx, f.save, program, "-c")
	if !k.loadable && strings.Contains(t.Why, "Protocol not supported") {
		return snapshot.Text{Kind: f.save, Ref: t.Ref, Status: snapshot.Done,
			Why: "the kernel has no nf_tables, so it holds no rule of the nft backend"}, true
	}
	return t, false
}

// nftListing reads the rules where there is an iptables of the nft variant
// and no iptables-save.
func (m Machine) nftListing(ctx context.Context, f family) snapshot.Text {
	t := snapshot.Text{Kind: f.save, Ref: f.program + "-nft-save -c", Status: snapshot.Failed,
		Why:    fmt.Sprintf("the kernel has nf_tables, and no %s-save or %s-nft-save of the nft variant is installed to read it", f.program, f.program),
		Supply: "install the iptables package, then: " + rerun}
	program := m.program(variantNft, f.program+"-nft", f.program)
	if program == "" || m.List == nil {
		return t
	}
	content, err := m.List(ctx, program, f == ipv6)
	if err != nil {
		t.Ref, t.Why = path.Base(program)+" -S", err.Error()
		return t
	}
	return snapshot.Text{Kind: f.save, Ref: path.Base(program) + " -S", Status: snapshot.Done, Content: content}
}

// legacyRules reads the legacy tables that exist. none is true where there are
// none.
func (m Machine) legacyRules(ctx context.Context, f family, names snapshot.Text) (t snapshot.Text, none bool) {
	if names.Status != snapshot.Done {
		return snapshot.Text{Kind: f.save, Ref: f.program + "-legacy-save -c", Status: snapshot.Failed,
			Why: "not run: which legacy tables exist is not known: " + names.Why, Supply: names.Supply}, false
	}
	tables := strings.Fields(names.Content)
	if len(tables) == 0 {
		return t, true
	}
	program := m.program(variantLegacy, f.program+"-legacy-save", f.program+"-save")
	if program == "" {
		return snapshot.Text{Kind: f.save, Ref: f.program + "-legacy-save -c", Status: snapshot.Failed,
			Why:    fmt.Sprintf("legacy tables exist (%s), and no %s-legacy-save is installed to read them", strings.Join(tables, ", "), f.program),
			Supply: "install the iptables package, then: " + rerun}, false
	}
	return m.command(ctx, f.save, program, "-c"), false
}

// command runs a program and makes a Text of it.
func (m Machine) command(ctx context.Context, kind snapshot.TextKind, program string, args ...string) snapshot.Text {
	ref := strings.Join(append([]string{path.Base(program)}, args...), " ")
	t := snapshot.Text{Kind: kind, Ref: ref, Status: snapshot.Done}
	out, err := m.Run(ctx, program, args...)
	if err == nil {
		t.Content = out
		return t
	}
	t.Status, t.Why, t.Supply = snapshot.Failed, err.Error(), ref
	if !m.Root {
		t.Why, t.Supply = "needs root: "+t.Why, rerun
	}
	return t
}

// program finds the first of the names that is a program of that variant, and
// returns its absolute path, or "".
func (m Machine) program(v variant, names ...string) string {
	for _, name := range names {
		for _, dir := range programDirs {
			p := dir + "/" + name
			if m.variant(p) == v {
				return p
			}
		}
	}
	return ""
}

// variant tells from the file that a program is a link to which variant it is.
// Asking the program (--version) would open the socket that loads nfnetlink.
// A script that chooses a variant when it is run (some images have one, which
// rewrites links on its first run) is neither.
func (m Machine) variant(program string) variant {
	switch path.Base(m.resolve(program)) {
	case "xtables-nft-multi":
		return variantNft
	case "xtables-legacy-multi", "xtables-multi": // the latter before 1.8
		return variantLegacy
	}
	return variantUnknown
}

// resolve follows the links at the end of a path; "" where it leads nowhere.
func (m Machine) resolve(p string) string {
	for range 10 {
		name := strings.TrimPrefix(p, "/")
		info, err := fs.Lstat(m.FS, name)
		if err != nil {
			return ""
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return p
		}
		to, err := fs.ReadLink(m.FS, name)
		if err != nil {
			return ""
		}
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(p), to)
		}
		p = path.Clean(to)
	}
	return ""
}
