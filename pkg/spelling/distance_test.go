package spelling

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"VIP310", "VIP31O", 1}, {"orders", "orders", 0}, {"orders", "oders", 1}, {"orders", "ordres", 1},
		{"orders", "order", 1}, {"web", "wbe", 1}, {"app", "App", 1}, {"ca", "abc", 3}, {"größe", "grösse", 2},
		{strings.Repeat("a", 318), "a", Far},
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func FuzzDistance(f *testing.F) {
	f.Add("orders", "order")
	f.Add("grösse", "größe")
	f.Fuzz(func(t *testing.T, a, b string) {
		d := Distance(a, b)
		if d != Distance(b, a) || (d == 0) != (string([]rune(a)) == string([]rune(b))) && a != b {
			t.Errorf("Distance(%q, %q) = %d", a, b, d)
		}
		if d != Far && d > max(len([]rune(a)), len([]rune(b))) {
			t.Errorf("Distance(%q, %q) = %d, more than the longer has characters", a, b, d)
		}
	})
}
