package nftables

import (
	"errors"
	"fmt"
)

// Errors of a text that no ruleset can be made of.
var (
	// ErrEmpty: there is nothing in the text. The node may have no rules, or
	// nothing was read; the text doesn't tell.
	ErrEmpty = errors.New("the input is empty")
	// ErrNoTable: neither a table in the text form nor nft's JSON.
	ErrNoTable = errors.New(`no table in the input: expected the output of nft list ruleset, or of nft -j list ruleset, with lines such as "table ip NAME {" or {"nftables": [...]}`)
	// ErrJSON: the text is JSON, and not nft's.
	ErrJSON = errors.New(`this JSON is not nft's: expected {"nftables": [...]}`)
	// ErrBinary: the text holds bytes that nft does not write.
	ErrBinary = errors.New("binary input")
	// ErrTooLarge: the text is larger than the 4 GiB that Parse can index.
	ErrTooLarge = errors.New("the input is larger than 4 GiB")
)

// ProblemKind says what a Problem is about.
type ProblemKind string

const (
	// UnknownLine: a line, or an object, that is no part of nft's output.
	UnknownLine ProblemKind = "unknown-line"
	// UnknownRule: a rule of which a part is not understood. It stays in its
	// chain as one that may or may not match.
	UnknownRule ProblemKind = "unknown-rule"
	// UnknownElements: a set or map whose elements are not all there, or not
	// all understood. What is asked of it can't be decided.
	UnknownElements ProblemKind = "unknown-elements"
	// UnknownChain: a base chain of which it is not understood where it is
	// hooked. It is not walked.
	UnknownChain ProblemKind = "unknown-chain"
	// Truncated: the end of the text is missing.
	Truncated ProblemKind = "truncated"
	// Duplicate: a table or chain that the text holds twice.
	Duplicate ProblemKind = "duplicate"
	// OtherFamily: a table of a family whose packets are not walked (arp,
	// bridge, netdev).
	OtherFamily ProblemKind = "other-family"
	// IptablesView: a table of iptables-nft, seen through nft, which hides
	// parts of its rules. iptables-save shows them.
	IptablesView ProblemKind = "iptables-view"
	// Flowtable: packets of established connections may bypass the rules.
	Flowtable ProblemKind = "flowtable"
)

// Problem is something in the text that was not understood or is missing, or
// that the reader should know of.
type Problem struct {
	Kind ProblemKind
	// Line and Column count from 1; Column counts bytes.
	Line, Column int
	// Text is what stands there, Message what is wrong with it.
	Text, Message string
}

func (p Problem) String() string {
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}
