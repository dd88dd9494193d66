package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxInput bounds one file or stream, in bytes.
const maxInput = 512 << 20

// readInput reads a file or stream whole, and makes it UTF-8 with plain
// newlines. It is an error if it is empty, too long, or no text.
func readInput(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return "", err
	case len(b) > maxInput:
		return "", fmt.Errorf("over %d MiB", maxInput>>20)
	case len(bytes.TrimSpace(b)) == 0:
		return "", errEmpty
	}
	s := plain(b)
	return s, checkText(s)
}

var errEmpty = errors.New("empty: did the command that was to fill it fail? (iptables-save prints nothing without root)")

// plain decodes what a Windows shell may have made of a tool's output.
func plain(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte{0xff, 0xfe}):
		return newlines(fromUTF16(b[2:], binary.LittleEndian))
	case bytes.HasPrefix(b, []byte{0xfe, 0xff}):
		return newlines(fromUTF16(b[2:], binary.BigEndian))
	}
	return newlines(string(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))))
}

func fromUTF16(b []byte, order binary.ByteOrder) string {
	units := make([]uint16, 0, len(b)/2)
	for ; len(b) >= 2; b = b[2:] {
		units = append(units, order.Uint16(b))
	}
	return string(utf16.Decode(units))
}

func newlines(s string) string {
	if !strings.Contains(s, "\r\n") {
		return s
	}
	return strings.ReplaceAll(s, "\r\n", "\n")
}

// checkText refuses what no tool prints.
func checkText(s string) error {
	if strings.HasPrefix(s, "\x1f\x8b") {
		return errors.New("gzip data, not text: if vipwalk capture wrote it, give it with --bundle")
	}
	odd := 0
	for n, line := range splitLines(s) {
		for _, r := range line {
			switch {
			case r == 0:
				return notText(n + 1)
			case r == utf8.RuneError, r < ' ' && r != '\t' && r != '\r' && r != '\x1b':
				odd++
			}
		}
		// A comment of a rule may be in another encoding; a program or an
		// archive is odd all over.
		if odd > 16 && odd > len(s)/20 {
			return notText(n + 1)
		}
	}
	return nil
}

func notText(line int) error {
	return fmt.Errorf("line %d: binary data, not the text output of a tool", line)
}

// splitLines splits into lines without their ends.
func splitLines(s string) []string {
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
