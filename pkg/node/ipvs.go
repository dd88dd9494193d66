package node

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// virtualServersFile holds the virtual servers of this network namespace and
// their real servers (net/netfilter/ipvs/ip_vs_ctl.c). It is there when ip_vs is
// in the kernel, and reading it loads nothing. All other ways do: ipvsadm and
// every look-up of IPVS's netlink family by its name load ip_vs, and a kernel
// without it would then seem to be one with an empty table.
const virtualServersFile = "proc/net/ip_vs"

var partIPSet = part{module: "ip_set", symbol: "ip_set_type_register"}

// ipvs reads the virtual servers, and the sets that the rules around them (and
// many a network plugin's) ask.
func (m Machine) ipvs(ctx context.Context, k kernel) []snapshot.Text {
	return []snapshot.Text{m.virtualServers(), m.sets(ctx, k)}
}

func (m Machine) virtualServers() snapshot.Text {
	t := snapshot.Text{Kind: snapshot.ProcIPVS, Ref: "/" + virtualServersFile, Status: snapshot.Done}
	content, err := m.readFile(virtualServersFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m.hasNetFiles():
		t.Why = "the file is absent: ip_vs is not in the kernel, so it has no virtual server"
	case err != nil:
		return m.unreadable(snapshot.ProcIPVS, virtualServersFile, err)
	}
	t.Content = content
	return t
}

// hasNetFiles says whether /proc/net is shown at all: a /proc mounted with
// subset=pid has none, and then an absent file means nothing.
func (m Machine) hasNetFiles() bool {
	_, err := fs.Stat(m.FS, "proc/net")
	return err == nil
}

// sets reads the contents of all ipsets. ipset speaks nfnetlink, which loads
// ip_set where it is not; where a set exists, its type is loaded already.
func (m Machine) sets(ctx context.Context, k kernel) snapshot.Text {
	t := snapshot.Text{Kind: snapshot.IpsetSave, Ref: "ipset save", Status: snapshot.Failed}
	none := snapshot.Text{Kind: snapshot.IpsetSave, Ref: "/proc/modules", Status: snapshot.Done, Why: "the kernel has no ip_set loaded, so it holds no set"}
	program := m.installed("ipset")
	switch {
	case k.ipSet == absent:
		return none
	case k.ipSet == unknown && k.loadable:
		t.Why, t.Supply = "not run: it cannot be told whether ip_set is in the kernel, and running ipset would load it if it is not", "sudo ipset save"
		return t
	case program == "":
		t.Why, t.Supply = "no ipset is installed to list the kernel's sets", "install the ipset package, then: "+rerun
		return t
	}
	t = m.command(ctx, snapshot.IpsetSave, program, "save")
	if k.ipSet == unknown && strings.Contains(t.Why, "Cannot open session to kernel") {
		none.Ref = t.Ref
		return none
	}
	return t
}
