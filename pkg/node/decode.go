package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// maxInput bounds one file or stream, in bytes.
const maxInput = 512 << 20

const (
	// mapFrom is the size from which on a regular file is mapped, not read.
	mapFrom = 1 << 20
	// headSize is how much of an input is looked at to say whether anything of
	// it is understood. What is not is refused there, however much more would
	// come.
	headSize = 4 << 20
	// textSize is how much is looked at to say whether it is text, and how its
	// lines end, where it is longer than headSize.
	textSize = 64 << 10
	// readSize is how much of a stream is asked for at once.
	readSize = 1 << 20
)

// readInput takes in a file or stream whole, as UTF-8 with plain newlines. A
// large file is mapped, and its text then lies where the file does: file is it.
// It is an error if it is empty, too long, no text, or if look refuses its head.
func readInput(r io.Reader, look func(head string) error) (text string, file io.ReaderAt, err error) {
	raw, file, err := takeIn(r, look)
	if err != nil {
		return "", nil, err
	}
	text, err = decodeInput(raw, look)
	if err != nil || len(text) != len(raw) {
		file = nil // no longer what stands in the file
	}
	return text, file, err
}

// decodeInput is readInput of what was taken in.
func decodeInput(raw string, look func(head string) error) (string, error) {
	if strings.TrimSpace(raw) == "" {
		return "", errEmpty
	}
	s := plain(raw)
	if err := checkText(sampleOf(s)); err != nil {
		return "", err
	}
	if len(s) > headSize {
		return s, look(headOf(s, headSize))
	}
	return s, nil
}

// headOf is at most size bytes of a text's beginning: whole lines where it has
// any.
func headOf(s string, size int) string {
	if len(s) <= size {
		return s
	}
	head := s[:size]
	if i := strings.LastIndexByte(head, '\n'); i >= 0 {
		return head[:i+1]
	}
	return head
}

// sampleOf is what of a text is looked at to say whether it is text: all of it,
// but for a long one.
func sampleOf(s string) string {
	if len(s) < headSize {
		return s
	}
	return headOf(s, textSize)
}

// takeIn maps or reads; file is what it mapped.
func takeIn(r io.Reader, look func(head string) error) (text string, file io.ReaderAt, err error) {
	read := func() (string, io.ReaderAt, error) {
		text, err := readAll(r, look)
		return text, nil, err
	}
	f, ok := r.(*os.File)
	if !ok {
		return read()
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return read()
	}
	if info.Size() > maxInput {
		return "", nil, fmt.Errorf("%d MiB, over the %d MiB that are read", info.Size()>>20, maxInput>>20)
	}
	if at, err := f.Seek(0, io.SeekCurrent); err == nil && at == 0 && info.Size() >= mapFrom {
		if s, ok := mapFile(f, int(info.Size())); ok {
			return s, f, nil
		}
	}
	return read()
}

// readAll reads to the end into memory that need not be copied as it grows. It
// stops early at a head that look refuses.
func readAll(r io.Reader, look func(head string) error) (string, error) {
	first := make([]byte, mapFrom)
	n, err := io.ReadFull(r, first)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return string(first[:n]), nil
	case err != nil:
		return "", err
	}
	buf := reserve(maxInput + 1)
	grows := buf == nil
	if grows {
		buf = make([]byte, 2*headSize)
	}
	copy(buf, first)
	looked := false
	for {
		if !looked && n >= headSize {
			if err := lookAt(string(buf[:headSize]), look); err != nil {
				return "", err
			}
			looked = true
		}
		if n == len(buf) && grows && n <= maxInput {
			buf = append(buf, make([]byte, min(n, maxInput+1-n))...)
		}
		if n > maxInput {
			return "", fmt.Errorf("over %d MiB", maxInput>>20)
		}
		m, err := r.Read(buf[n:min(len(buf), n+readSize)])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return unsafe.String(unsafe.SliceData(buf), n), nil
		case err != nil:
			return "", err
		}
	}
}

// lookAt judges a head before the rest is read.
func lookAt(head string, look func(head string) error) error {
	if strings.TrimSpace(head) == "" {
		return nil
	}
	head = plain(head)
	if err := checkText(sampleOf(head)); err != nil {
		return err
	}
	return look(headOf(head, headSize-1)) // of whole lines
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
	if !strings.Contains(sampleOf(s), "\r\n") {
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
