package walk

import "strings"

// shellQuote makes one word of s for a POSIX shell. What comes from the
// cluster may be hostile; nothing of it reaches a command unquoted.
func shellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plainInShell(r) }) < 0 {
		return s
	}
	// jsonpath={...} reads better as people write it: jsonpath='{...}'.
	if key, value, ok := strings.Cut(s, "="); ok && key != "" && strings.IndexFunc(key, func(r rune) bool { return !plainInShell(r) }) < 0 {
		return key + "=" + shellQuote(value)
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func plainInShell(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,=@%+", r)
}

// kubectl joins the words of a kubectl command, each quoted.
func kubectl(words ...string) string {
	var b strings.Builder
	b.WriteString("kubectl")
	for _, w := range words {
		b.WriteByte(' ')
		b.WriteString(shellQuote(w))
	}
	return b.String()
}
