package walk

import (
	"fmt"
	"strconv"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/netfilter/conntrack"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

const (
	conntrackCount = "net.netfilter.nf_conntrack_count"
	conntrackMax   = "net.netfilter.nf_conntrack_max"
	// nearlyFull is the part of the table from which on it is said to be; a tenth
	// less where the kernel has thrown connections out already.
	nearlyFull = 0.9
)

// conntrackNearlyFull: the table of connections is full or soon will be. The
// kernel drops the first packet of a connection that finds no room.
var conntrackNearlyFull = &Check{
	Code: diagnosis.ConntrackNearlyFull, Needs: needsOfNode, Applies: onNodes,
	Run: func(p *Pass) {
		p.probes()
		for _, v := range p.node.views {
			used, most, ok := v.conntrackUse()
			if !ok {
				continue
			}
			sums, read := v.conntrackCounters()
			lost := sums["drop"] + sums["early_drop"]
			part := float64(used) / float64(most)
			if part >= nearlyFull || lost > 0 && part >= nearlyFull-0.1 {
				p.reportFull(v, used, most, sums, read)
			}
		}
	},
}

func (v *nodeView) conntrackUse() (used, most uint64, ok bool) {
	a, read1 := v.host.Sysctl(conntrackCount)
	b, read2 := v.host.Sysctl(conntrackMax)
	used, err1 := strconv.ParseUint(a, 10, 64)
	most, err2 := strconv.ParseUint(b, 10, 64)
	return used, most, read1 && read2 && err1 == nil && err2 == nil && most > 0
}

func (v *nodeView) conntrackCounters() (map[string]uint64, bool) {
	t := v.state.Text(snapshot.ConntrackStat)
	if t.Status != snapshot.Done {
		return nil, false
	}
	return conntrack.Counters(t.Content)
}

func (p *Pass) reportFull(v *nodeView, used, most uint64, sums map[string]uint64, read bool) {
	f := Finding{
		Subject:  p.onNode(v),
		Title:    fmt.Sprintf("the table of connections of %s is %d%% full: %d of %d", v.label(), used*100/most, used, most),
		Expected: fmt.Sprintf("room for new connections: less than %d", uint64(nearlyFull*float64(most))),
		Found:    "when it is full, the first packet of a connection is dropped: new connections time out at random, to this Service and to all else",
		Evidence: []diagnosis.Evidence{v.sysctlEvidence(conntrackCount), v.sysctlEvidence(conntrackMax)},
	}
	if used >= most {
		f.Severity = diagnosis.Error
		f.Title = fmt.Sprintf("the table of connections of %s is full: %d of %d", v.label(), used, most)
		f.Found = "the first packet of a new connection is dropped, to this Service and to all else"
	}
	if read {
		quote := fmt.Sprintf("drop %d, early_drop %d, insert_failed %d, since the node started", sums["drop"], sums["early_drop"], sums["insert_failed"])
		f.Evidence = append(f.Evidence, v.lineEvidence(snapshot.ConntrackStat, 0, quote, "cat /proc/net/stat/nf_conntrack"))
	}
	from, to := strconv.FormatUint(most, 10), strconv.FormatUint(most*2, 10)
	f.Fixes = []Proposal{
		p.look("see whose connections they are, before the table is made larger: one client that opens thousands, or closes none",
			v.onNodeCommand("sudo cut -d= -f2,3 /proc/net/nf_conntrack | sort | uniq -c | sort -rn | head")),
		p.turn(v, "make the table twice as large", conntrackMax, from, to, "memory of the kernel, some 320 bytes for each connection; kube-proxy sets this when it starts, by conntrack.maxPerCore and min in its configuration"),
	}
	p.Report(f)
}
