package nftables

import "strings"

// token is one word of a rule or of a set's elements.
type token struct {
	text string
	at   int // offset in the text that was split
	// quoted: it stood in quotes, so it is a name, whatever it looks like.
	quoted bool
}

// is says whether the token is that word or sign, not in quotes.
func (t token) is(word string) bool { return !t.quoted && t.text == word }

// isSign says whether a byte is a token of its own.
func isSign(c byte) bool {
	switch c {
	case '{', '}', '(', ')', ',', ';', '|':
		return true
	}
	return false
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// lex splits text into tokens, appended to buf. A comment (#) ends a line; nft
// quotes strings without escapes. bad is the offset of a quote that is not
// closed, or -1.
func lex(text string, buf []token) (tokens []token, bad int) { return split(text, buf, true) }

// lexRule is lex for the text of one rule, from which comments were cut: a "#"
// in it came out of JSON, and must not hide what follows.
func lexRule(text string, buf []token) (tokens []token, bad int) { return split(text, buf, false) }

func split(text string, buf []token, comments bool) (tokens []token, bad int) {
	for i := 0; i < len(text); {
		c := text[i]
		start := i
		switch {
		case isBlank(c):
			i++
			continue
		case c == '#' && comments:
			if end := strings.IndexByte(text[i:], '\n'); end >= 0 {
				i += end
				continue
			}
			return buf, -1
		case c == '"':
			end := strings.IndexByte(text[i+1:], '"')
			if end < 0 {
				return buf, i
			}
			i += end + 2
			buf = append(buf, token{text: text[start+1 : i-1], at: start, quoted: true})
		case isSign(c):
			i++
			buf = append(buf, token{text: text[start:i], at: start})
		default:
			for i < len(text) && !isBlank(text[i]) && !isSign(text[i]) && text[i] != '"' {
				i++
			}
			buf = append(buf, token{text: text[start:i], at: start})
		}
	}
	return buf, -1
}
