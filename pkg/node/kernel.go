package node

import (
	"bufio"
	"errors"
	"io/fs"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// presence says whether a part of the kernel is there without anything being
// loaded for it.
type presence int

const (
	unknown presence = iota
	absent
	present
)

// kernel is what is known of the kernel's modules before any program runs.
type kernel struct {
	text snapshot.Text // /proc/modules
	// loadable is false where no module can be loaded at all: the kernel has
	// no modules, or modules_disabled is set.
	loadable bool
	nfTables presence
	// nftCompat matters beside nf_tables: iptables-nft-save asks it for the
	// revision of each match that it meets, which would load it.
	nftCompat presence
	ipSet     presence
}

// The parts are found by name in /proc/modules and modules.builtin, and by a
// function of theirs in /proc/kallsyms, which lists built-in code too.
var (
	partNfTables  = part{module: "nf_tables", symbol: "nft_do_chain"}
	partNftCompat = part{module: "nft_compat", symbol: "nft_match_dump"}
)

type part struct{ module, symbol string }

func (m Machine) kernel() kernel {
	const name = "proc/modules"
	k := kernel{text: snapshot.Text{Kind: snapshot.ProcModules, Ref: "/" + name, Status: snapshot.Done}, loadable: true}
	modules, err := m.readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.text.Why = "the kernel has no loadable modules"
		k.loadable = false
	case err != nil:
		k.text = m.unreadable(snapshot.ProcModules, name, err)
		return k
	}
	k.text.Content = modules
	if off, err := m.readFile("proc/sys/kernel/modules_disabled"); err == nil && strings.TrimSpace(off) == "1" {
		k.loadable = false
	}
	loaded := map[string]bool{}
	for line := range strings.Lines(modules) {
		if name, _, ok := strings.Cut(line, " "); ok {
			loaded[name] = true
		}
	}
	k.nfTables = m.presence(loaded, partNfTables)
	k.nftCompat = m.presence(loaded, partNftCompat)
	k.ipSet = m.presence(loaded, partIPSet)
	return k
}

func (m Machine) presence(loaded map[string]bool, p part) presence {
	if loaded[p.module] {
		return present
	}
	if release, err := m.readFile("proc/sys/kernel/osrelease"); err == nil {
		builtin, err := m.readFile("lib/modules/" + strings.TrimSpace(release) + "/modules.builtin")
		if err == nil && builtin != "" {
			if strings.Contains(builtin, "/"+p.module+".ko") {
				return present
			}
			return absent
		}
	}
	return m.symbol(p.symbol)
}

// symbol looks for a function of the kernel's own (not of a module) in
// /proc/kallsyms. Addresses are hidden from most users there, names are not.
func (m Machine) symbol(name string) presence {
	f, err := m.FS.Open("proc/kallsyms")
	if err != nil {
		return unknown
	}
	defer f.Close()
	lines := 0
	for sc := bufio.NewScanner(f); sc.Scan(); lines++ {
		fields := strings.Fields(sc.Text())
		if len(fields) == 3 && fields[2] == name {
			return present
		}
	}
	// A kernel without all its symbols (CONFIG_KALLSYMS_ALL does not matter
	// for functions) lists tens of thousands; a masked file is empty.
	if lines < 1000 {
		return unknown
	}
	return absent
}

// nftRun says whether iptables-nft-save may run. Where it may not, none is
// true if the kernel cannot hold a rule of it; else why says what stands in
// the way.
func (k kernel) nftRun() (may, none bool, why string) {
	switch {
	case k.nfTables == absent:
		return false, true, "the kernel has no nf_tables loaded, so it holds no rule of the nft backend"
	case !k.loadable:
		return true, false, ""
	case k.nfTables == unknown:
		return false, false, "not run: it cannot be told whether nf_tables is in the kernel (no /lib/modules/RELEASE/modules.builtin, no /proc/kallsyms), and running it would load nf_tables if it is not"
	case k.nftCompat != present:
		return false, false, "not run: nf_tables is loaded but nft_compat is not, which iptables-nft loads with its first rule; running it could load nft_compat"
	}
	return true, false, ""
}
