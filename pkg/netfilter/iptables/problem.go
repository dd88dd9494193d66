package iptables

import (
	"errors"
	"fmt"
)

// Errors of a text that no ruleset can be made of.
var (
	// ErrEmpty: there is nothing in the text. The node may have no rules, or
	// nothing was read; the text doesn't tell.
	ErrEmpty = errors.New("the input is empty")
	// ErrNoTable: not one line is of iptables.
	ErrNoTable = errors.New("no table in the input: expected the output of iptables-save (lines such as *nat), iptables -S or iptables -L")
	// ErrNotUnderstood: see Options.Refuse.
	ErrNotUnderstood = errors.New("not understood")
	// ErrBinary: the text holds bytes that no iptables-save writes.
	ErrBinary = errors.New("binary input")
	// ErrTooLarge: the text is larger than 4 GiB, or larger than 64 MiB and not
	// as iptables-save prints it.
	ErrTooLarge = errors.New("the input is larger than the 4 GiB that are read of an iptables-save, or the 64 MiB of anything else: give it as iptables-save prints it")
)

// ProblemKind says what a Problem is about.
type ProblemKind string

const (
	// UnknownLine: a line that is no part of iptables-save output.
	UnknownLine ProblemKind = "unknown-line"
	// UnknownRule: a rule of which a part is not understood. It stays in its
	// chain as one that may or may not match.
	UnknownRule ProblemKind = "unknown-rule"
	// Truncated: a table whose COMMIT is missing.
	Truncated ProblemKind = "truncated"
	// Undeclared: rules of a chain that the text doesn't declare, as is left
	// when a text was filtered with grep. More rules of it may be missing.
	Undeclared ProblemKind = "undeclared-chain"
	// Duplicate: a table or chain that the text holds twice.
	Duplicate ProblemKind = "duplicate"
	// FamilyGuessed: nothing in the text tells IPv4 from IPv6.
	FamilyGuessed ProblemKind = "family-guessed"
	// TableConcluded: no line names the table, and what is in it tells.
	TableConcluded ProblemKind = "table-concluded"
	// UnknownTable: no line names the table, and nothing in it is certain.
	UnknownTable ProblemKind = "unknown-table"
	// UnknownChain: rows of a listing without the header of their chain.
	UnknownChain ProblemKind = "unknown-chain"
	// Elided: lines were left out on purpose ("...").
	Elided ProblemKind = "elided"
	// Mangled: lines of a listing are run together.
	Mangled ProblemKind = "mangled"
	// Removed: a line that a diff takes out.
	Removed ProblemKind = "removed"
	// OtherFile: a line of another file than the others, by grep's prefix.
	OtherFile ProblemKind = "other-file"
	// LegacyPresent: iptables-nft-save warned of legacy tables beside its own.
	LegacyPresent ProblemKind = "legacy-tables-present"
)

// Problem is something in the text that was not understood or is missing.
type Problem struct {
	Kind ProblemKind
	// Line and Column count from 1; Column counts bytes.
	Line, Column int
	// Text is the line as it stands, Message what is wrong with it.
	Text, Message string
}

func (p Problem) String() string {
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}
