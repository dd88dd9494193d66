package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
)

// document is one YAML document or one JSON value of a source, as JSON.
type document struct {
	*source
	raw  json.RawMessage
	from int // where it begins in the source, in bytes
	to   int
	yaml bool
}

// documents calls f for each document of the source, in order.
func (s *source) documents(f func(*document) error) error {
	trimmed := strings.TrimLeft(s.text, " \t\r\n")
	if strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "{{") || strings.HasPrefix(trimmed, "[") {
		return s.jsonDocuments(f)
	}
	return s.yamlDocuments(f)
}

// jsonDocuments reads one JSON value after the other. `kubectl cluster-info
// dump` prints pods' logs between them, with marks around each.
func (s *source) jsonDocuments(f func(*document) error) error {
	at := 0
	for {
		at = s.skipBetween(at)
		if at >= len(s.text) {
			return nil
		}
		dec := json.NewDecoder(strings.NewReader(s.text[at:]))
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return s.jsonError(at, err)
		}
		to := at + int(dec.InputOffset())
		if err := f(&document{source: s, raw: raw, from: at, to: to}); err != nil {
			return err
		}
		at = to
	}
}

const (
	logsStart = "==== START logs for "
	logsEnd   = "\n==== END logs for "
)

func (s *source) skipBetween(at int) int {
	for {
		rest := strings.TrimLeft(s.text[at:], " \t\r\n")
		at = len(s.text) - len(rest)
		switch {
		case strings.HasPrefix(rest, "---"):
			at += len("---")
		case strings.HasPrefix(rest, logsStart):
			end := strings.Index(rest, logsEnd)
			if end < 0 {
				return len(s.text)
			}
			at += end + len(logsEnd)
			if nl := strings.IndexByte(s.text[at:], '\n'); nl >= 0 {
				at += nl
			} else {
				return len(s.text)
			}
		default:
			return at
		}
	}
}

func (s *source) jsonError(at int, err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: not valid JSON: %w", s.offset(at+int(syntax.Offset)-1), err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the JSON ends too early: the file is cut short", s.offset(len(s.text)))
	}
	return fmt.Errorf("%s: not valid JSON: %w", s.offset(at), err)
}

// yamlDocuments splits at the marks between documents, which YAML allows at
// the start of a line and nowhere else.
func (s *source) yamlDocuments(f func(*document) error) error {
	from, at := 0, 0
	for at < len(s.text) {
		end := len(s.text)
		if nl := strings.IndexByte(s.text[at:], '\n'); nl >= 0 {
			end = at + nl + 1
		}
		if separator(s.text[at:end]) {
			if err := s.yamlDocument(from, at, f); err != nil {
				return err
			}
			// What follows the mark on its line is of the next document, but
			// is a comment or nothing in practice.
			from = end
			if rest := strings.TrimSpace(s.text[at+3 : end]); rest != "" && rest[0] != '#' && s.text[at] == '-' {
				from = at + 3
			}
		}
		at = end
	}
	return s.yamlDocument(from, len(s.text), f)
}

func separator(line string) bool {
	if !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "...") {
		return false
	}
	return len(line) == 3 || strings.ContainsRune(" \t\r\n", rune(line[3]))
}

func (s *source) yamlDocument(from, to int, f func(*document) error) error {
	text := s.text[from:to]
	if onlyComments(text) {
		return nil
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return s.yamlError(from, to, err)
	}
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return f(&document{source: s, raw: raw, from: from, to: to, yaml: true})
}

func onlyComments(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

var yamlLine = lazyregexp.New(`line (\d+): `)

// yamlError places a YAML error: at the first line without which what stands
// before it would be valid. The library's own line is often that of the block
// around it.
func (s *source) yamlError(from, to int, err error) error {
	text := s.text[from:to]
	if better := parse(text); better != nil {
		err = better
	}
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = strings.Replace(message, m[0], "", 1)
	}
	if n := firstBadLine(text); n > 0 {
		line = n
	}
	hint := ""
	if strings.Contains(text, "{{") {
		hint = "; this looks like a Helm template: render it first (helm template) and give the result"
	}
	return fmt.Errorf("%s: not valid YAML: %s%s", s.offset(s.lineStart(from, to, line)), message, hint)
}

func parse(text string) error {
	var node yamlv3.Node
	return yamlv3.Unmarshal([]byte(text), &node)
}

const (
	// maxSearch bounds the text that is searched for its first bad line, in
	// bytes, and maxParses how often a part of it is parsed.
	maxSearch = 1 << 20
	maxParses = 400
	// lookAhead is the longest value over several lines, in lines, that is not
	// taken for the error.
	lookAhead = 40
)

// firstBadLine finds the line, from 1, after which no more lines make the text
// valid: by halving, and then by looking on for a longer valid beginning, since
// a value over several lines is not valid at each of them. It returns 0 where
// it cannot tell.
func firstBadLine(text string) int {
	if len(text) > maxSearch || parse(text) == nil {
		return 0
	}
	ends := []int{0}
	for line := range strings.Lines(text) {
		ends = append(ends, ends[len(ends)-1]+len(line))
	}
	good, bad, parses := 0, len(ends)-1, 0
	valid := func(n int) bool {
		parses++
		return parse(text[:ends[n]]) == nil
	}
	for bad-good > 1 {
		if mid := (good + bad) / 2; valid(mid) {
			good = mid
		} else {
			bad = mid
		}
	}
	for n := good + 2; n < len(ends) && n <= good+lookAhead && parses < maxParses; n++ {
		if valid(n) {
			good = n
		}
	}
	return good + 1
}

// lineStart is where the content of the n-th line (from 1) after from begins.
func (s *source) lineStart(from, to, n int) int {
	at := from
	for ; n > 1; n-- {
		nl := strings.IndexByte(s.text[at:to], '\n')
		if nl < 0 {
			break
		}
		at += nl + 1
	}
	for at < to && (s.text[at] == ' ' || s.text[at] == '\t') {
		at++
	}
	return at
}

// place is where in the source the value at a path is: the path of keys
// (string) and indices (int) from the document's root, or as much of it as is
// there.
func (d *document) place(path []any) string {
	text := d.text[d.from:d.to]
	if d.yaml {
		var root yamlv3.Node
		if err := yamlv3.Unmarshal([]byte(text), &root); err != nil || len(root.Content) == 0 {
			return d.offset(d.from)
		}
		n := descend(root.Content[0], path)
		line := strings.Count(d.text[:d.from], "\n") + n.Line
		return d.position(max(line, 1), max(n.Column, 1))
	}
	return d.offset(d.from + offsetOf(text, path))
}

func descend(n *yamlv3.Node, path []any) *yamlv3.Node {
	for _, step := range path {
		next := child(n, step)
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

func child(n *yamlv3.Node, step any) *yamlv3.Node {
	for hops := 0; n.Kind == yamlv3.AliasNode && hops < 10; hops++ {
		n = n.Alias
	}
	switch step := step.(type) {
	case string:
		if n.Kind != yamlv3.MappingNode {
			return nil
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	case int:
		if n.Kind == yamlv3.SequenceNode && step < len(n.Content) {
			return n.Content[step]
		}
	}
	return nil
}
