package iptables

import (
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/netfilter"
)

// command is a call of iptables that a paste shows before its output.
type command struct {
	family  netfilter.Family
	backend netfilter.Backend
	// table is the one that is listed; "" for iptables-save of all.
	table string
	// filtered: the output went through grep or the like.
	filtered bool
}

var (
	calls      = lazyregexp.New(`(?:^|[\s/])(ip6?tables|xtables)(-legacy|-nft)?(-save)?(\s.*)?$`)
	barePrompt = lazyregexp.New(`^(\S*@\S+|\[.*\]|bash-[\d.]+|sh-[\d.]+|~|/)?\s*\S*[#$%]$`)
	filters    = lazyregexp.New(`\|\s*(sudo\s+)?(e|f|z)?(grep|awk|sed|head|tail|rg|ag)\b`)
	typed      = lazyregexp.New(`^(.{0,80}?[#$%>]\s+|#\s*)?((sudo|nsenter|kubectl|docker|crictl|ssh|chroot|oc|watch)\s.*)?$`)
)

// readCommand reads a line such as "root@node:~# iptables -t nat -S | grep X".
func readCommand(s string) (c command, ok bool) {
	if len(s) > 500 {
		return c, false
	}
	m := calls.FindStringSubmatchIndex(s)
	if m == nil || !typed.MatchString(strings.TrimRight(s[:m[2]], "/abcdefghijklmnopqrstuvwxyz ")) && !typed.MatchString(s[:m[2]]) {
		return c, false
	}
	group := func(i int) string {
		if m[2*i] < 0 {
			return ""
		}
		return s[m[2*i]:m[2*i+1]]
	}
	c.family = netfilter.IPv4
	if group(1) == "ip6tables" {
		c.family = netfilter.IPv6
	}
	switch group(2) {
	case "-legacy":
		c.backend = netfilter.Legacy
	case "-nft":
		c.backend = netfilter.NFT
	}
	if group(1) == "xtables" {
		c.family, c.backend = 0, netfilter.NFT
	}
	args := group(4)
	c.filtered = filters.MatchString(args)
	args, _, _ = strings.Cut(args, "|")
	lists, table, plain := readArguments(strings.Fields(args))
	if !plain || !lists && group(3) == "" {
		return c, false
	}
	c.table = table
	if lists && table == "" {
		c.table = "filter"
	}
	return c, true
}

// readArguments reads what is asked of iptables; plain is false where it is no
// question but changes something.
func readArguments(args []string) (lists bool, table string, plain bool) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-t" || a == "--table":
			if i+1 < len(args) {
				i++
				table = args[i]
			}
		case strings.HasPrefix(a, "--table="):
			table = strings.TrimPrefix(a, "--table=")
		case a == "--list" || a == "--list-rules":
			lists = true
		case strings.HasPrefix(a, "--"):
		case strings.HasPrefix(a, "-") && len(a) > 1:
			if strings.ContainsAny(a, "ADIRFZNXPE") {
				return false, "", false
			}
			lists = lists || strings.ContainsAny(a, "LS")
			if rest, ok := strings.CutPrefix(a, "-t"); ok && len(rest) > 2 {
				table = rest
			}
			if strings.HasSuffix(a, "t") && i+1 < len(args) {
				i++
				table = args[i]
			}
		}
	}
	return lists, table, true
}

// prompt takes a shell's prompt, with or without a command, for what it is.
// Whatever was typed, the output before it is at its end.
func (x *indexer) prompt(s string) bool {
	if c, ok := readCommand(s); ok {
		x.ran(c)
		return true
	}
	if len(s) < 200 && barePrompt.MatchString(s) {
		x.ran(command{})
		return true
	}
	return false
}
