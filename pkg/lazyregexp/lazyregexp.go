// Package lazyregexp has regular expressions that are compiled when they are
// first used. Those of all packages take milliseconds to compile, which every
// start of the program would pay, and a run uses few of them.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression. It is safe for concurrent use.
type Regexp struct {
	expr string
	once sync.Once
	rx   *regexp.Regexp
}

// New makes one of an expression, which must be valid: like
// regexp.MustCompile, but the panic comes at the first use, so that a test has
// to use each.
func New(expr string) *Regexp { return &Regexp{expr: expr} }

// Get is the compiled expression.
func (r *Regexp) Get() *regexp.Regexp {
	r.once.Do(func() { r.rx = regexp.MustCompile(r.expr) })
	return r.rx
}

// MatchString says whether it matches anywhere in s.
func (r *Regexp) MatchString(s string) bool { return r.Get().MatchString(s) }

// FindStringSubmatch gives the leftmost match and those of its groups, or nil.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.Get().FindStringSubmatch(s) }

// FindAllStringSubmatch is FindStringSubmatch for up to n matches, all where n is
// negative.
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.Get().FindAllStringSubmatch(s, n)
}

// FindStringSubmatchIndex is FindStringSubmatch as places in s.
func (r *Regexp) FindStringSubmatchIndex(s string) []int { return r.Get().FindStringSubmatchIndex(s) }

// FindStringIndex gives where the leftmost match begins and ends, or nil.
func (r *Regexp) FindStringIndex(s string) []int { return r.Get().FindStringIndex(s) }

// ReplaceAllString is s with each match replaced; $1 is the first group.
func (r *Regexp) ReplaceAllString(s, by string) string { return r.Get().ReplaceAllString(s, by) }
