// Package conntrack reads tables of tracked connections as text:
// /proc/net/nf_conntrack, `conntrack -L` and `conntrack -E`. A connection has
// two tuples: the addresses of its first packet, and those of the answers, which
// show what the first were rewritten to.
package conntrack

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Tuple is one direction of a connection. Ports are 0 for protocols without.
type Tuple struct{ Src, Dst netip.AddrPort }

// Flow is one tracked connection.
type Flow struct {
	// Protocol is its name, lower case: tcp, udp, sctp, icmp.
	Protocol string
	// Left is how long the entry lives on without another packet, in seconds; -1
	// where the line does not say.
	Left int
	// State is what only some protocols have: SYN_SENT, ESTABLISHED.
	State string
	Orig  Tuple
	Reply Tuple
	// Unreplied: no answer has been seen. Assured: not thrown out early.
	Unreplied, Assured bool
	Line               int
	Text               string
}

// Backend is where the connection's packets go: the source of the answers.
func (f *Flow) Backend() netip.AddrPort { return f.Reply.Src }

// Rewritten says whether the destination of the first packet was rewritten.
func (f *Flow) Rewritten() bool { return f.Reply.Src != f.Orig.Dst }

// Problem is a line that was passed over.
type Problem struct {
	Line    int
	Message string
}

// mostProblems bounds the problems that are kept.
const mostProblems = 100

// Parse reads a table. Lines that are no connections are problems, but for blank
// ones and for what conntrack says of itself. Only tcp, udp, sctp and dccp are
// read: the others have no ports.
func Parse(text string) ([]Flow, []Problem) {
	var flows []Flow
	var problems []Problem
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "conntrack v") {
			continue
		}
		f, ok, err := parseLine(line)
		switch {
		case err != nil && len(problems) < mostProblems:
			problems = append(problems, Problem{n, err.Error()})
		case err == nil && ok:
			f.Line, f.Text = n, line
			flows = append(flows, f)
		}
	}
	return flows, problems
}

var withPorts = map[string]bool{"tcp": true, "udp": true, "sctp": true, "dccp": true, "udplite": true}

// parseLine reads "[NEW] ipv4 2 udp 17 29 src=... dst=... sport=... dport=...
// packets=.. bytes=.. [UNREPLIED] src=... ...". ok is false for a protocol
// without ports.
func parseLine(line string) (f Flow, ok bool, err error) {
	words := strings.Fields(line)
	for len(words) > 0 && strings.HasPrefix(words[0], "[") {
		words = words[1:] // an event's kind or time
	}
	if len(words) >= 2 && (words[0] == "ipv4" || words[0] == "ipv6") {
		words = words[2:]
	}
	if len(words) < 3 {
		return f, false, fmt.Errorf("no tracked connection")
	}
	f.Protocol, f.Left = strings.ToLower(words[0]), -1
	if _, err := strconv.Atoi(words[1]); err != nil {
		return f, false, fmt.Errorf("expected the number of protocol %q, got %q", words[0], words[1])
	}
	words = words[2:]
	if left, err := strconv.Atoi(words[0]); err == nil {
		f.Left, words = left, words[1:]
	}
	tuples := [2]*Tuple{&f.Orig, &f.Reply}
	at := -1 // the tuple that is being read
	for _, w := range words {
		key, value, pair := strings.Cut(w, "=")
		switch {
		case !pair:
			f.word(w, at)
			continue
		case key == "src":
			at++
		}
		if at < 0 || at > 1 {
			continue // what follows the tuples
		}
		if err := tuples[at].set(key, value); err != nil {
			return f, false, err
		}
	}
	if !withPorts[f.Protocol] {
		return f, false, nil
	}
	if at < 1 || !f.Orig.Dst.Addr().IsValid() || !f.Reply.Src.Addr().IsValid() {
		return f, false, fmt.Errorf("not both directions of a connection are in the line")
	}
	return f, true, nil
}

func (f *Flow) word(w string, at int) {
	switch {
	case w == "[UNREPLIED]":
		f.Unreplied = true
	case w == "[ASSURED]":
		f.Assured = true
	case at < 0 && strings.Trim(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == "":
		f.State = w
	}
}

func (t *Tuple) set(key, value string) error {
	switch key {
	case "src", "dst":
		a, err := netip.ParseAddr(value)
		if err != nil {
			return fmt.Errorf("%s=%q is not an address", key, value)
		}
		if a = a.Unmap(); key == "src" {
			t.Src = netip.AddrPortFrom(a, t.Src.Port())
		} else {
			t.Dst = netip.AddrPortFrom(a, t.Dst.Port())
		}
	case "sport", "dport":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return fmt.Errorf("%s=%q is not a port", key, value)
		}
		if key == "sport" {
			t.Src = netip.AddrPortFrom(t.Src.Addr(), uint16(n))
		} else {
			t.Dst = netip.AddrPortFrom(t.Dst.Addr(), uint16(n))
		}
	}
	return nil
}

// Counters are the sums over all processors of /proc/net/stat/nf_conntrack, by
// the names in its header. entries is not a counter and is left out. ok is false
// where the text has no header and line of numbers.
func Counters(text string) (sums map[string]uint64, ok bool) {
	var names []string
	sums = map[string]uint64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if names == nil {
			if len(f) > 2 && f[0] == "entries" {
				names = f
			}
			continue
		}
		if len(f) != len(names) {
			continue
		}
		for i, w := range f {
			n, err := strconv.ParseUint(w, 16, 64)
			if err != nil {
				return nil, false
			}
			if names[i] != "entries" {
				sums[names[i]] += n
			}
			ok = true
		}
	}
	return sums, ok
}
