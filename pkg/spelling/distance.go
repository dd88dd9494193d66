// Package spelling says how near two words are, so that a typing error in a
// label, a name or a flag can be told from another thing altogether.
package spelling

// Far is larger than any distance between two words that are compared: a
// label's value has at most 63 characters, a key at most 317.
const Far = 1 << 10

// longest is the longest word that is compared; longer ones are Far from any
// other, so that hostile input costs nothing.
const longest = 317

// Distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn one word into the other (optimal string alignment), by
// character.
func Distance(a, b string) int {
	if a == b {
		return 0
	}
	s, t := []rune(a), []rune(b)
	if len(s) > longest || len(t) > longest {
		return Far
	}
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(t)]
}
