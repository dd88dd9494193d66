package cli

import (
	"strings"

	"github.com/vipwalk/vipwalk/pkg/spelling"
)

// nearest finds the candidate that a mistyped word most likely meant; "" where
// none is near.
func nearest(word string, candidates []string) string {
	best, distance := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := spelling.Distance(strings.ToLower(word), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	return best
}
