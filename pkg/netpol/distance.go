package netpol

import (
	"strings"
	"unicode"

	"github.com/vipwalk/vipwalk/pkg/spelling"
)

// maxDistance is larger than any distance between two words.
const maxDistance = spelling.Far

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
