package objects

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// walkJSON visits each value of a JSON text with its path and with the offsets
// where it, or the space before it, begins and where its first token ends,
// until visit returns false.
func walkJSON(text string, visit func(path []any, begins, ends int) bool) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	type level struct {
		array bool
		index int
		key   string
		inKey bool // the next token is a key
	}
	var stack []level
	path := func() []any {
		var p []any
		for _, l := range stack {
			if l.array {
				p = append(p, l.index)
			} else {
				p = append(p, l.key)
			}
		}
		return p
	}
	valueDone := func() {
		if len(stack) == 0 {
			return
		}
		top := &stack[len(stack)-1]
		top.index++
		top.inKey = !top.array
	}
	for {
		begins := int(dec.InputOffset())
		tok, err := dec.Token()
		if err != nil {
			return
		}
		delim, isDelim := tok.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			valueDone()
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].inKey {
			stack[n-1].key, _ = tok.(string)
			stack[n-1].inKey = false
			continue
		}
		if !visit(path(), begins, int(dec.InputOffset())) {
			return
		}
		if isDelim {
			stack = append(stack, level{array: delim == '[', inKey: delim == '{'})
			continue
		}
		valueDone()
	}
}

// pathAt is the path of the value that ends at an offset, which is where the
// decoder says that a value of the wrong type is.
func pathAt(text string, offset int64) []any {
	var found []any
	walkJSON(text, func(path []any, begins, ends int) bool {
		if int64(begins) >= offset {
			return false
		}
		found = path
		return int64(ends) < offset
	})
	return found
}

// offsetOf is where the value at a path begins; of as much of the path as is
// there.
func offsetOf(text string, want []any) int {
	at, longest := 0, -1
	walkJSON(text, func(path []any, begins, _ int) bool {
		if len(path) > longest && len(path) <= len(want) && slices.Equal(path, want[:len(path)]) {
			longest, at = len(path), begins
		}
		return longest < len(want)
	})
	for at < len(text) && strings.IndexByte(" \t\r\n:,", text[at]) >= 0 {
		at++
	}
	return at
}

// pathString writes a path as kubectl explain and API errors do.
func pathString(path []any) string {
	var b strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}
