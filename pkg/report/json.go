package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	yaml "sigs.k8s.io/yaml/goyaml.v2"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// JSON writes the report as indented JSON; docs/schema/walkreport.json is its
// schema.
func JSON(w io.Writer, r *diagnosis.Report, _ Options) error { return writeJSON(w, r) }

// YAML writes what JSON writes, as YAML with the fields in the same order.
func YAML(w io.Writer, r *diagnosis.Report, _ Options) error { return writeYAML(w, r) }

func writeJSON(w io.Writer, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetIndent("", "  ")
	// The default would write < and > of rules and summaries as \u003c.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(buf.Bytes()))
	return err
}

// escapeJSON writes what the encoder leaves as it is, and a terminal would
// obey (C1 controls, bidirectional overrides), as JSON's own escapes. The text
// means the same. YAML's parser refuses some of them outright.
func escapeJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
		return text // the usual case; a large report need not be copied
	}
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		}
	}
	return out
}

func writeYAML(w io.Writer, v any) error {
	var buf bytes.Buffer
	if err := writeJSON(&buf, v); err != nil {
		return err
	}
	var ordered yaml.MapSlice
	if err := yaml.Unmarshal(buf.Bytes(), &ordered); err != nil {
		return err
	}
	out, err := yaml.Marshal(ordered)
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}
