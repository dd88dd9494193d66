package walk

import (
	"os/exec"
	"testing"
)

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{
		"orders":        "orders",
		"app=orders-1":  "app=orders-1",
		"":              "''",
		"a b":           "'a b'",
		"$(reboot)":     "'$(reboot)'",
		"it's":          `'it'\''s'`,
		"jsonpath={.a}": "jsonpath='{.a}'",
		"a=":            "a=",
		"a= b":          "a=' b'",
		"a;b\n`c`":      "'a;b\n`c`'",
		"{\"a\":null}":  `'{"a":null}'`,
		"\u00e4":        "'\u00e4'",
		"--as=~root/*?": "--as='~root/*?'",
	} {
		if got := shellQuote(in); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzShellQuote(f *testing.F) {
	f.Add("it's $HOME")
	sh, err := exec.LookPath("sh")
	if err != nil {
		f.Skipf("no shell: %v", err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for i := range len(s) {
			if s[i] == 0 {
				return // no shell word holds it, and no API string that gets here
			}
		}
		out, err := exec.Command(sh, "-c", "printf %s "+shellQuote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("shell made %q of %q (%v)", out, s, err)
		}
	})
}
