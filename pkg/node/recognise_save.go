package node

import (
	"io"
	"slices"

	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
)

// oneSave is the section of a text that is one iptables-save's from its first
// line to its last, of one program and with no table twice; file is where it is mapped from, or nil. Any other text has
// to be gone through by its lines. What was learnt of the text on the way goes
// with it.
func oneSave(text string, file io.ReaderAt) (*section, bool) {
	skim, ok := iptables.SkimFile(text, file)
	if !ok {
		return nil, false
	}
	s := &section{tool: toolSave, end: len(text), whole: true, skim: skim}
	for i, t := range skim.Tables() {
		d := dump{family: families[t.Family], tables: append(s.save.tables, t.Name)}
		switch t.Backend {
		case netfilter.NFT:
			d.variant = variantNft
		case netfilter.Legacy:
			d.variant = variantLegacy
		}
		switch {
		case d.family == familyUnknown, slices.Contains(s.save.tables, t.Name), tableOf("*"+t.Name) == "":
			return nil, false
		case i > 0 && (d.family != s.save.family || d.variant != s.save.variant):
			return nil, false
		}
		s.save = d
	}
	return s, true
}

var families = map[netfilter.Family]addressFamily{netfilter.IPv4: familyIPv4, netfilter.IPv6: familyIPv6}
