package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxInput bounds one file or stream, in bytes.
const maxInput = 512 << 20

// readInput reads a file or stream whole, and makes it UTF-8 with plain
// newlines. It is an error if it is empty, too long, or no text.
func readInput(r io.Reader) (string, error) {
	var b strings.Builder // a string that need not be copied, of hundreds of megabytes perhaps
	if f, ok := r.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			if info.Size() > maxInput {
				return "", fmt.Errorf("%d MiB, over the %d MiB that are read", info.Size()>>20, maxInput>>20)
			}
			b.Grow(int(info.Size()) + 1)
		}
	}
	_, err := io.Copy(&b, io.LimitReader(r, maxInput+1))
	switch raw := b.String(); {
	case err != nil:
		return "", err
	case len(raw) > maxInput:
		return "", fmt.Errorf("over %d MiB", maxInput>>20)
	case strings.TrimSpace(raw) == "":
		return "", errEmpty
	default:
		s := plain(raw)
		return s, checkText(s)
	}
}

var errEmpty = errors.New("empty: did the command that was to fill it fail? (iptables-save prints nothing without root)")

// plain decodes what a Windows shell may have made of a tool's output.
func plain(s string) string {
	switch {
	case strings.HasPrefix(s, "\xff\xfe"):
		return newlines(fromUTF16([]byte(s[2:]), binary.LittleEndian))
	case strings.HasPrefix(s, "\xfe\xff"):
		return newlines(fromUTF16([]byte(s[2:]), binary.BigEndian))
	}
	return newlines(strings.TrimPrefix(s, "\xef\xbb\xbf"))
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
	if utf8.ValidString(s) && !hasControl(s) {
		return nil
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

// hasControl says whether a byte is there that no line of text has.
func hasControl(s string) bool {
	i := 0
	for ; i+8 <= len(s); i += 8 { // eight bytes at a time: most are above all of these
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		if (w-0x2020202020202020)&^w&0x8080808080808080 == 0 {
			continue
		}
		if controls(s[i : i+8]) {
			return true
		}
	}
	return controls(s[i:]) || strings.ContainsRune(s, utf8.RuneError)
}

func controls(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != '\x1b' {
			return true
		}
	}
	return false
}

func notText(line int) error {
	return fmt.Errorf("line %d: binary data, not the text output of a tool", line)
}

// splitLines splits into lines without their ends.
func splitLines(s string) []string {
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
