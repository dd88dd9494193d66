package node

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// The text form of a state, as `vipwalk node-state` prints it:
//
//	=== vipwalk node-state 1
//	tool: v0.1.0
//	hostname: worker-1
//	at: 2026-11-30T12:00:00Z
//	via: local
//	=== iptables-save
//	status: read
//	ref: iptables-nft-save -c
//	---
//	(the text as the tool printed it)
//	=== end
//	=== end of node-state
//
// A line of a text that could be taken for a mark ("===", after any number of
// backslashes) gets one backslash more. A text without a newline at its end
// ends with "=== no newline, end". A value that holds anything unprintable is
// quoted as a Go string.
const (
	mark       = "==="
	stateHead  = "=== vipwalk node-state 1"
	stateEnd   = "=== end of node-state"
	textEnd    = "=== end"
	textEndCut = "=== no newline, end"
	textBegin  = "---"
)

// WriteState writes a state in the text form, which ParseState reads back to
// the same value. tool is the version that writes it.
func WriteState(w io.Writer, state *snapshot.NodeState, tool string) error {
	var b bytes.Buffer
	b.WriteString(stateHead + "\n")
	field(&b, "tool", tool)
	field(&b, "hostname", strings.TrimSuffix(state.Text(snapshot.Hostname).Content, "\n"))
	field(&b, "node", state.Name)
	if !state.At.IsZero() {
		field(&b, "at", state.At.Format(time.RFC3339Nano))
	}
	field(&b, "via", state.Via)
	for _, t := range state.Texts {
		if !validKind(string(t.Kind)) {
			return fmt.Errorf("writing a node's state: %q is not a kind of text", t.Kind)
		}
		b.WriteString(mark + " " + string(t.Kind) + "\n")
		field(&b, "status", string(t.Status))
		field(&b, "ref", t.Ref)
		field(&b, "why", t.Why)
		field(&b, "supply", t.Supply)
		b.WriteString(textBegin + "\n")
		writeContent(&b, t.Content)
	}
	b.WriteString(stateEnd + "\n")
	_, err := w.Write(b.Bytes())
	return err
}

// field writes one value; an empty one is left out.
func field(b *bytes.Buffer, name, value string) {
	if value == "" {
		return
	}
	if q := strconv.Quote(value); q != `"`+value+`"` || value[0] == '"' || strings.TrimSpace(value) != value {
		value = q
	}
	b.WriteString(name + ": " + value + "\n")
}

func writeContent(b *bytes.Buffer, content string) {
	for line := range strings.Lines(content) {
		if escaped(line) {
			b.WriteByte('\\')
		}
		b.WriteString(line)
	}
	if content == "" || strings.HasSuffix(content, "\n") {
		b.WriteString(textEnd + "\n")
		return
	}
	b.WriteString("\n" + textEndCut + "\n")
}

func escaped(line string) bool {
	return strings.HasPrefix(strings.TrimLeft(line, `\`), mark)
}

func validKind(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && s != "end"
}

// jsonState is the JSON form of a state.
type jsonState struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Tool       string     `json:"tool,omitempty"`
	Node       string     `json:"node,omitempty"`
	Hostname   string     `json:"hostname,omitempty"`
	At         time.Time  `json:"at,omitzero"`
	Via        string     `json:"via,omitempty"`
	Texts      []jsonText `json:"texts"`
}

type jsonText struct {
	snapshot.Text
	Content string `json:"content"`
	// ContentBase64 stands in place of Content where that is not UTF-8.
	ContentBase64 string `json:"contentBase64,omitempty"`
}

const (
	stateAPIVersion = "vipwalk.dev/v1"
	stateKind       = "NodeState"
)

// WriteStateJSON writes a state as one JSON object, which ParseState reads
// too.
func WriteStateJSON(w io.Writer, state *snapshot.NodeState, tool string) error {
	out := jsonState{
		APIVersion: stateAPIVersion, Kind: stateKind, Tool: tool, Node: state.Name, At: state.At, Via: state.Via,
		Hostname: strings.TrimSpace(state.Text(snapshot.Hostname).Content),
		Texts:    make([]jsonText, 0, len(state.Texts)),
	}
	for _, t := range state.Texts {
		j := jsonText{Text: t, Content: t.Content}
		if !utf8.ValidString(t.Content) {
			j.Content, j.ContentBase64 = "", base64.StdEncoding.EncodeToString([]byte(t.Content))
		}
		out.Texts = append(out.Texts, j)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}

// ErrNoState is the error for input that holds no state in either form.
var ErrNoState = errors.New(`no "` + stateHead + `" line and no ` + stateKind + ` object`)

// ParseState reads the first state of what WriteState or WriteStateJSON wrote.
// What comes before it (a login banner) is skipped. A state that ends early is
// returned as far as it goes, and the text in which it ends says so in Why.
func ParseState(r io.Reader) (*snapshot.NodeState, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxInput {
		return nil, fmt.Errorf("a node's state of over %d bytes", maxInput)
	}
	states, err := parseStates(string(b))
	if err != nil {
		return nil, err
	}
	return states[0].NodeState, nil
}

// parsedState is a state, and whether it ended before its end.
type parsedState struct {
	*snapshot.NodeState
	cut bool
}

func parseStates(s string) ([]parsedState, error) {
	if trimmed := strings.TrimLeft(s, " \t\r\n"); strings.HasPrefix(trimmed, "{") && !nftJSON.MatchString(trimmed) {
		if state, err := parseJSONState(trimmed); err == nil || !errors.Is(err, ErrNoState) {
			return []parsedState{{NodeState: state}}, err
		}
	}
	if !strings.Contains(sampleOf(s), stateHead) {
		return nil, ErrNoState // nothing as long as that comes before it
	}
	p := &stateParser{rest: s}
	var out []parsedState
	for p.skipTo(stateHead) {
		state, err := p.state()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
		out = append(out, state)
	}
	if len(out) == 0 {
		return nil, ErrNoState
	}
	return out, nil
}

func parseJSONState(s string) (*snapshot.NodeState, error) {
	dec := json.NewDecoder(strings.NewReader(s))
	var in jsonState
	if err := dec.Decode(&in); err != nil {
		if !strings.Contains(s, `"`+stateKind+`"`) {
			return nil, ErrNoState
		}
		return nil, fmt.Errorf("a %s object that is no JSON: %w", stateKind, err)
	}
	if in.Kind != stateKind || in.APIVersion != stateAPIVersion {
		return nil, ErrNoState
	}
	state := &snapshot.NodeState{Name: in.Node, At: in.At, Via: in.Via}
	for i, j := range in.Texts {
		t := j.Text
		if !validKind(string(t.Kind)) {
			return nil, fmt.Errorf("texts[%d]: kind %q is not a kind of text", i, t.Kind)
		}
		if err := checkStatus(t.Status); err != nil {
			return nil, fmt.Errorf("texts[%d]: %w", i, err)
		}
		t.Content = j.Content
		if j.ContentBase64 != "" {
			b, err := base64.StdEncoding.DecodeString(j.ContentBase64)
			if err != nil {
				return nil, fmt.Errorf("texts[%d]: contentBase64: %w", i, err)
			}
			t.Content = string(b)
		}
		state.Texts = append(state.Texts, t)
	}
	return state, nil
}

func checkStatus(s snapshot.ReadStatus) error {
	switch s {
	case snapshot.NotRead, snapshot.Failed, snapshot.Done:
		return nil
	}
	return fmt.Errorf("status %q is none of read, failed", s)
}

// stateParser goes through the text form line by line.
type stateParser struct {
	rest string
	line int // the number of the line that next returned
	// crlf is set where the way here turned every line's end into CRLF.
	crlf bool
	// partial says that the line that next returned is the last one and has no
	// newline: it may be half of one.
	partial bool
}

// next returns the next line, without its end; ok is false at the end.
func (p *stateParser) next() (line string, ok bool) {
	if p.rest == "" {
		return "", false
	}
	var whole bool
	line, p.rest, whole = strings.Cut(p.rest, "\n")
	p.partial = !whole
	p.line++
	if p.crlf {
		line = strings.TrimSuffix(line, "\r")
	}
	return line, true
}

func (p *stateParser) skipTo(want string) bool {
	p.crlf = false
	for {
		line, ok := p.next()
		if !ok {
			return false
		}
		if strings.TrimSuffix(line, "\r") == want {
			p.crlf = strings.HasSuffix(line, "\r")
			return true
		}
	}
}

// state reads a state after its head.
func (p *stateParser) state() (parsedState, error) {
	state := &snapshot.NodeState{}
	fields, end, err := p.fields(map[string]*string{"node": &state.Name, "via": &state.Via})
	if err != nil {
		return parsedState{}, err
	}
	if at := fields["at"]; at != "" {
		if state.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return parsedState{}, fmt.Errorf("at: %w", err)
		}
	}
	for {
		if end == stateEnd {
			return parsedState{state, false}, nil
		}
		if end == "" || p.partial {
			return parsedState{state, true}, nil
		}
		var t snapshot.Text
		var cut bool
		if t, cut, err = p.text(end); err != nil {
			return parsedState{}, err
		}
		state.Texts = append(state.Texts, t)
		if cut {
			return parsedState{state, true}, nil
		}
		end, _ = p.next()
	}
}

// fields reads "name: value" lines up to the next mark, which it returns; ""
// at the end of the input. Fields that are not asked for are returned, or, in
// a later version, unknown and harmless.
func (p *stateParser) fields(into map[string]*string) (rest map[string]string, end string, err error) {
	rest = map[string]string{}
	for {
		line, ok := p.next()
		if !ok || p.partial {
			return rest, "", nil
		}
		if line == textBegin || strings.HasPrefix(line, mark) {
			return rest, line, nil
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, "", fmt.Errorf("expected a field (name: value) or a line that begins with %q, got %q", mark, shorten(line))
		}
		if strings.HasPrefix(value, `"`) {
			if value, err = strconv.Unquote(value); err != nil {
				return nil, "", fmt.Errorf("%s: a quoted value that is not one", name)
			}
		}
		if p, ok := into[name]; ok {
			*p = value
		} else {
			rest[name] = value
		}
	}
}

// text reads one text after its mark.
func (p *stateParser) text(head string) (t snapshot.Text, cut bool, err error) {
	kind, ok := strings.CutPrefix(head, mark+" ")
	if !ok || !validKind(kind) {
		return t, false, fmt.Errorf("expected %q and a kind of text, got %q", mark, shorten(head))
	}
	t.Kind = snapshot.TextKind(kind)
	var status string
	_, end, err := p.fields(map[string]*string{"status": &status, "ref": &t.Ref, "why": &t.Why, "supply": &t.Supply})
	if err != nil {
		return t, false, err
	}
	t.Status = snapshot.ReadStatus(status)
	if err := checkStatus(t.Status); err != nil {
		return t, false, err
	}
	if end != textBegin {
		if end == "" {
			t.Why = cutShort
			return t, true, nil
		}
		return t, false, fmt.Errorf("expected %q before the text of %s, got %q", textBegin, kind, shorten(end))
	}
	if t.Content, cut = p.content(); cut {
		t.Why = cutShort
	}
	return t, cut, nil
}

const cutShort = "the node-state ends inside this text"

// plainContent is content for a text of which no line is escaped, as most are:
// it is taken as it stands. ok is false where it isn't so simple.
func (p *stateParser) plainContent() (content string, ok bool) {
	if p.crlf {
		return "", false
	}
	rest, end := p.rest, textEnd+"\n"
	if !strings.HasPrefix(rest, end) {
		at := strings.Index(rest, "\n"+mark)
		if at < 0 || !strings.HasPrefix(rest[at+1:], end) {
			return "", false
		}
		content = rest[:at+1]
	}
	if strings.HasPrefix(content, `\`) || strings.HasPrefix(content, mark) || strings.Contains(content, "\n\\") {
		return "", false
	}
	p.rest = rest[len(content)+len(end):]
	p.line += strings.Count(content, "\n") + 1
	p.partial = false
	return content, true
}

// content reads a text up to its end.
func (p *stateParser) content() (content string, cut bool) {
	if content, ok := p.plainContent(); ok {
		return content, false
	}
	var b strings.Builder
	for {
		line, ok := p.next()
		switch {
		case !ok:
			return b.String(), true
		case line == textEnd:
			return b.String(), false
		case line == textEndCut:
			return strings.TrimSuffix(b.String(), "\n"), false
		case strings.HasPrefix(line, `\`) && escaped(line):
			line = line[1:]
		}
		b.WriteString(line + "\n")
	}
}
