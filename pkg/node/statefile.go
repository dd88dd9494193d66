package node

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
	"github.com/vipwalk/vipwalk/pkg/netfilter/host"
	"github.com/vipwalk/vipwalk/pkg/netfilter/iptables"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// stateFile is what one file or stream held.
type stateFile struct {
	path string
	// states is set where it was written by vipwalk node-state; else pieces.
	states   []parsedState
	pieces   []piece
	hostname string
	// mapped is where the text lies, if it was mapped.
	mapped io.ReaderAt
	// notes tell what of it is not read.
	notes []string
}

// base is the file's name without folder and ending.
func (f *stateFile) base() string {
	b := filepath.Base(f.path)
	return strings.TrimSuffix(b, filepath.Ext(b))
}

// readStream reads what one file or stream holds.
func readStream(path string, r io.Reader) (*stateFile, error) {
	f := &stateFile{path: path}
	text, file, err := readInput(r, f.look)
	f.mapped = file
	return f.fill(text, err)
}

// fill takes over what readInput gave.
func (f *stateFile) fill(text string, err error) (*stateFile, error) {
	if errors.Is(err, errEmpty) && f.mayBeEmpty() {
		f.pieces = []piece{{Text: snapshot.Text{Kind: snapshot.TextKind(f.base()), Ref: f.path, Status: snapshot.Done}}}
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.states, err = parseStates(text)
	switch {
	case err == nil:
		return f, nil
	case !errors.Is(err, ErrNoState):
		return nil, err
	}
	f.states = nil
	return f, f.recognise(text)
}

// mayBeEmpty says whether nothing at all is an answer: no legacy table, no
// module. It is taken from the name that a bundle gives such a file.
func (f *stateFile) mayBeEmpty() bool {
	switch snapshot.TextKind(f.base()) {
	case snapshot.TableNames, snapshot.TableNames6, snapshot.ProcModules:
		return true
	}
	return false
}

// proxyModes are what kube-proxy's /proxyMode answers; no host is called so.
var proxyModes = []string{"iptables", "ipvs", "nftables"}

var hostnameLine = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

func (f *stateFile) recognise(text string) error {
	sections, odd := recognise(text, f.mapped)
	if len(sections) == 0 {
		switch one := strings.TrimSpace(text); {
		case slices.Contains(proxyModes, one):
			f.pieces = []piece{{Text: f.text(snapshot.ProxyMode, text)}}
			return nil
		case hostnameLine.MatchString(one):
			f.hostname = one
			f.pieces = []piece{{Text: f.text(snapshot.Hostname, text)}}
			return nil
		}
		return notRecognised(odd)
	}
	for _, s := range sections {
		f.section(s, text)
	}
	if len(f.pieces) == 0 {
		return errors.New(strings.Join(f.notes, "; "))
	}
	return nil
}

func notRecognised(odd stranger) error {
	if odd.line == 0 {
		return fmt.Errorf("nothing but comments and blank lines; %s", expected)
	}
	return fmt.Errorf("line %d: not recognised: %q; %s", odd.line, shorten(strings.TrimSpace(odd.text[:min(len(odd.text), mostLooked)])), expected)
}

// look says whether anything is understood of the head of a long input; if
// not, nothing will come of the rest.
func (f *stateFile) look(head string) error {
	if strings.Contains(head, stateHead) || strings.Contains(head, `"`+stateKind+`"`) {
		return nil
	}
	if ok, odd := recognised(head); !ok {
		return fmt.Errorf("nothing of the first %d MiB is recognised: %w", headSize>>20, notRecognised(odd))
	}
	return nil
}

func (f *stateFile) text(kind snapshot.TextKind, content string) snapshot.Text {
	return snapshot.Text{Kind: kind, Ref: f.path, Status: snapshot.Done, Content: content}
}

func (f *stateFile) section(s *section, text string) {
	switch {
	case s.tool == toolSave:
		f.dump(s, text)
	case s.tool == toolListing:
		s.save.family = s.listedFamily(text)
		f.dump(s, text)
	case s.kind == snapshot.TableNames && strings.Contains(f.base(), "ip6"):
		f.pieces = append(f.pieces, piece{Text: f.text(snapshot.TableNames6, s.content(text))})
	case s.kind == snapshot.IPRule && f.rulesOf6(s.content(text)):
		f.pieces = append(f.pieces, piece{Text: f.text(snapshot.IP6Rule, s.content(text))})
	case s.kind == snapshot.Ipvsadm && procVirtualServer.MatchString(s.content(text)):
		f.pieces = append(f.pieces, piece{Text: f.text(snapshot.ProcIPVS, s.content(text))})
	case s.kind != "":
		f.pieces = append(f.pieces, piece{Text: f.text(s.kind, s.content(text))})
	default:
		f.unread(s, text)
	}
}

// rulesOf6 says whether a text of `ip rule` is of IPv6: by what it holds, or
// else by the file's name.
func (f *stateFile) rulesOf6(content string) bool {
	if v6, known := host.RuleFamily(content); known {
		return v6
	}
	return strings.Contains(f.base(), "6")
}

// listedFamily is the family of rules that are not iptables-save's as it prints
// them.
func (s *section) listedFamily(text string) addressFamily {
	family := s.family
	if family == 0 {
		family = iptables.FamilyOf(s.content(text))
	}
	switch family {
	case netfilter.IPv4:
		return familyIPv4
	case netfilter.IPv6:
		return familyIPv6
	}
	return familyUnknown
}

func (f *stateFile) dump(s *section, text string) {
	family, v := s.save.family, s.save.variant
	if family == familyUnknown {
		family = guessFamily(text[s.begin:s.end])
	}
	if family == familyUnknown && strings.Contains(f.base(), "ip6tables") {
		family = familyIPv6
	}
	p := piece{Text: f.text(snapshot.IptablesSave, s.content(text))}
	if s.skim != nil {
		p.Skimmed = s.skim
	}
	if family == familyIPv6 {
		p.Kind = snapshot.Ip6tablesSave
	}
	p.Why = s.note
	switch {
	case v != variantNft && strings.Contains(f.base(), "legacy"):
		p.legacy = 2
	case v == variantLegacy:
		p.legacy = 1
	}
	if s.note != "" {
		f.notes = append(f.notes, s.note)
	}
	f.pieces = append(f.pieces, p)
}

// unread tells of output that is recognised and not read. Where it holds
// rules, the rules are marked as given and not read, so that the walk says
// what would supply them.
func (f *stateFile) unread(s *section, text string) {
	if s.name == "kubectl" {
		f.notes = append(f.notes, fmt.Sprintf("line %d: Kubernetes objects, not a node's state: give them with --objects", s.from+1))
		return
	}
	why := fmt.Sprintf("line %d: recognised as `%s`, which this version does not read", s.from+1, s.name)
	f.notes = append(f.notes, why)
	if !s.rules {
		return
	}
	t := snapshot.Text{Kind: snapshot.IptablesSave, Ref: f.path, Status: snapshot.Failed, Why: why, Supply: "sudo iptables-save -c"}
	if guessFamily(text[s.begin:s.end]) == familyIPv6 {
		t.Kind, t.Supply = snapshot.Ip6tablesSave, "sudo ip6tables-save -c"
	}
	f.pieces = append(f.pieces, piece{Text: t})
}
