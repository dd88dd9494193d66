package nftables

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// node is one JSON value, as far as nft's schema needs it.
type node struct {
	// kind is one of { [ " 0 t f n: object, array, string, number, literals.
	kind byte
	// key is the member's name, where the node is a member of an object.
	key string
	// text is a string's value or a number's digits.
	text string
	kids []node
}

// get is a member of an object; nil where there is none.
func (n *node) get(key string) *node {
	if n == nil || n.kind != '{' {
		return nil
	}
	for i := range n.kids {
		if n.kids[i].key == key {
			return &n.kids[i]
		}
	}
	return nil
}

// str is the value of a string or number member, or "".
func (n *node) str(key string) string {
	if m := n.get(key); m != nil && (m.kind == '"' || m.kind == '0') {
		return m.text
	}
	return ""
}

// only is the one member of an object that has one.
func (n *node) only() *node {
	if n == nil || n.kind != '{' || len(n.kids) != 1 {
		return nil
	}
	return &n.kids[0]
}

// mostDeep bounds arrays and objects inside each other.
const mostDeep = 200

// jsonReader reads one JSON value of a text.
type jsonReader struct {
	text string
	at   int
	deep int
}

// value reads the value at the reader's place; false where there is none.
func (r *jsonReader) value(n *node) bool {
	r.blanks()
	if r.at >= len(r.text) {
		return false
	}
	switch c := r.text[r.at]; c {
	case '{', '[':
		return r.composite(n, c)
	case '"':
		s, ok := r.string()
		n.kind, n.text = '"', s
		return ok
	case 't', 'f', 'n':
		for _, word := range []string{"true", "false", "null"} {
			if strings.HasPrefix(r.text[r.at:], word) {
				n.kind, n.text = c, word
				r.at += len(word)
				return true
			}
		}
		return false
	}
	return r.number(n)
}

func (r *jsonReader) blanks() {
	for r.at < len(r.text) && isBlank(r.text[r.at]) {
		r.at++
	}
}

// sign takes a byte if it is the next.
func (r *jsonReader) sign(c byte) bool {
	r.blanks()
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

func (r *jsonReader) composite(n *node, open byte) bool {
	n.kind = open
	end := byte(']')
	if open == '{' {
		end = '}'
	}
	if r.deep++; r.deep > mostDeep {
		return false
	}
	defer func() { r.deep-- }()
	r.at++
	if r.sign(end) {
		return true
	}
	for {
		n.kids = append(n.kids, node{})
		kid := &n.kids[len(n.kids)-1]
		if open == '{' {
			r.blanks()
			if r.at >= len(r.text) || r.text[r.at] != '"' {
				return false
			}
			key, ok := r.string()
			if !ok || !r.sign(':') {
				return false
			}
			kid.key = key
		}
		if !r.value(kid) {
			return false
		}
		if r.sign(end) {
			return true
		}
		if !r.sign(',') {
			return false
		}
	}
}

func (r *jsonReader) number(n *node) bool {
	start := r.at
	for r.at < len(r.text) && (r.text[r.at] >= '0' && r.text[r.at] <= '9' || strings.IndexByte("+-.eE", r.text[r.at]) >= 0) {
		r.at++
	}
	n.kind, n.text = '0', r.text[start:r.at]
	return r.at > start
}

// string reads the string at the reader's place, which is a quote.
func (r *jsonReader) string() (string, bool) {
	start := r.at + 1
	for i := start; i < len(r.text); i++ {
		switch r.text[i] {
		case '"':
			r.at = i + 1
			return r.text[start:i], true
		case '\\':
			return r.escaped(start, i)
		}
	}
	return "", false
}

// escaped goes on with a string that has its first backslash at i.
func (r *jsonReader) escaped(start, i int) (string, bool) {
	var b strings.Builder
	b.WriteString(r.text[start:i])
	for i < len(r.text) {
		c := r.text[i]
		switch {
		case c == '"':
			r.at = i + 1
			return b.String(), true
		case c != '\\':
			b.WriteByte(c)
			i++
			continue
		case i+1 >= len(r.text):
			return "", false
		}
		c = r.text[i+1]
		i += 2
		switch c {
		case '"', '\\', '/':
			b.WriteByte(c)
		case 'b', 'f', 'n', 'r', 't':
			b.WriteByte("\b\f\n\r\t"[strings.IndexByte("bfnrt", c)])
		case 'u':
			u, ok := hex4(r.text, i)
			if !ok {
				return "", false
			}
			i += 4
			if utf16.IsSurrogate(u) {
				low, ok := rune(0), false
				if strings.HasPrefix(r.text[i:], `\u`) {
					low, ok = hex4(r.text, i+2)
				}
				if u = utf16.DecodeRune(u, low); ok && u != utf8.RuneError {
					i += 6
				}
			}
			b.WriteRune(u)
		default:
			return "", false
		}
	}
	return "", false
}

func hex4(s string, at int) (rune, bool) {
	if at+4 > len(s) {
		return 0, false
	}
	n, err := strconv.ParseUint(s[at:at+4], 16, 32)
	return rune(n), err == nil
}

// skip passes over one value without keeping it: end is the offset behind it,
// or -1 where the text ends first.
func skip(text string, at int) (end int) {
	depth := 0
	for i := at; i < len(text); {
		switch text[i] {
		case '"':
			for i++; ; i++ {
				if i >= len(text) {
					return -1
				}
				if text[i] == '"' {
					break
				}
				if text[i] == '\\' {
					i++
				}
			}
			i++
			if depth == 0 {
				return i
			}
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i // what was skipped is a number or a literal
			}
			depth--
			i++
			if depth == 0 {
				return i
			}
		case ',':
			if depth == 0 {
				return i
			}
			i++
		default:
			i++
		}
	}
	return -1
}
