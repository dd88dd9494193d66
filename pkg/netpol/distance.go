package netpol

import (
	"strings"
	"unicode"
)

// maxDistance is larger than any edit distance between two labels, whose
// values have at most 63 characters and whose keys at most 317.
const maxDistance = 1 << 10

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours (optimal string alignment). Words longer than labels can be
// compare as wholly different, so that hostile input costs nothing.
func editDistance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if a == b {
		return 0
	}
	if len(s) > 317 || len(t) > 317 {
		return maxDistance
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

// closeWords says whether one word may be a slip of the pen for the other, at
// that edit distance: at most a third of the longer differs, and not in its
// digits alone, for web-1 and web-2 are two things.
func closeWords(a, b string, distance int) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	longest := max(len([]rune(a)), len([]rune(b)))
	return distance*3 <= longest && distance <= 3 && withoutDigits(a) != withoutDigits(b)
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, s)
}
