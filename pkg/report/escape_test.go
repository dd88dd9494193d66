package report

import (
	"strings"
	"testing"
	"unicode"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

func TestEscape(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"app=orders", "app=orders"},
		{"", ""},
		{"grüße, 世界", "grüße, 世界"},
		{"\x1b[31mred", `\x1b[31mred`},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"\u202eabc\u2066", `\u202eabc\u2066`},
		{"no\u00a0break", `no\u00a0break`},
		{"zero\u200bwidth", `zero\u200bwidth`},
		{"c1 \u009b31m", `c1 \u009b31m`},
		{"\xff\xfe", `\xff\xfe`},
		{"tag \U000e0041", `tag \U000e0041`},
		{"del\x7f", `del\x7f`},
		{`back\slash`, `back\slash`},
	} {
		if got := Escape(tc.in); got != tc.want {
			t.Errorf("Escape(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestEscapeLinesKeepsNewlinesAndTabs(t *testing.T) {
	if got, want := EscapeLines("a\tb\n\x1b[2J\n"), "a\tb\n\\x1b[2J\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Escape(s)
		if i := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("Escape(%q) = %q: not printable at %d", s, got, i)
		}
		if again := Escape(got); again != got {
			t.Errorf("escaping twice changes %q to %q", got, again)
		}
	})
}

func TestWrap(t *testing.T) {
	for _, tc := range []struct {
		in    string
		width int
		want  string
	}{
		{"", 20, ""},
		{"one two three four", 10, "one two|three four"},
		{"a-word-that-is-longer-than-the-width", 10, "a-word-tha|t-is-longe|r-than-the|-width"},
		{"fits exact", 10, "fits exact"},
	} {
		if got := strings.Join(Wrap(tc.in, tc.width), "|"); got != tc.want {
			t.Errorf("wrap(%q, %d) = %q, want %q", tc.in, tc.width, got, tc.want)
		}
	}
}

func TestPercent(t *testing.T) {
	for p, want := range map[float64]string{1: "100%", 1.0 / 3: "33%", 0.005: "0.5%", 0.0001: "<0.1%", 0: "0%"} {
		if got := percent(p); got != want {
			t.Errorf("percent(%v) = %q, want %q", p, got, want)
		}
	}
}

// What decides and is no rule has neither table nor chain.
func TestPathDecidedByWhatIsNoRule(t *testing.T) {
	path := diagnosis.Path{Client: "any pod", Frontend: "10.96.0.1:443/TCP", Node: "n1", Outcomes: []diagnosis.Outcome{
		{Verdict: "drop", To: "10.96.0.1:443", Probability: 1, Rules: []diagnosis.Rule{{Text: "net.ipv4.ip_forward=0"}}},
	}}
	var b strings.Builder
	p := newPrinter(&b, Options{})
	s := diagnosis.Service{Paths: []diagnosis.Path{path}}
	p.drawPath(&s, &s.Paths[0], drawing{})
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	want := "  path      any pod > 10.96.0.1:443/TCP on n1 > DROP by net.ipv4.ip_forward=0\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
