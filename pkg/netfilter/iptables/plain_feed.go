package iptables

import (
	"io"
	"strings"
	"unsafe"
)

const (
	// feedSize is how much of a text is gone through at once, while the processor
	// has it at hand. It is a multiple of plainBlock.
	feedSize = 128 << 10
	// mostCarried bounds the part of a line that is carried on from one piece to
	// the next. No rule is as long.
	mostCarried = 64 << 10
)

// feed gives a text piece by piece, and looks over each on the way. A file is
// read into one buffer, again and again: to touch all pages of a mapping for the
// first time costs several times as much.
type feed struct {
	of   *Skim
	file io.ReaderAt // nil where the text is in memory anyway
	buf  []byte
	have string // the piece at hand: a copy of what stands from base on
	base int
	pos  int // up to here it was fed; a multiple of feedSize, or the end
	// lookTo is up to where the pieces are looked over.
	lookTo int
	// odd: something is in it that no plain text has.
	odd bool
}

// seek makes the next piece the one that an offset is in.
func (f *feed) seek(at int) {
	f.pos = at / feedSize * feedSize
	f.have, f.base = "", f.pos
}

// more gives the next piece, with what is left of this one from an offset on
// ahead of it; false at the end of the text, and where it is odd.
func (f *feed) more(at int) bool {
	n := min(feedSize, len(f.of.text)-f.pos)
	if n <= 0 || f.odd {
		return false
	}
	left, base := "", f.pos
	if f.have != "" {
		left, base = f.have[at-f.base:], at
	}
	piece := f.of.text[f.pos : f.pos+n]
	if f.file == nil {
		f.have = f.of.text[base : f.pos+n]
	} else {
		if len(left) > mostCarried {
			f.odd = true
			return false
		}
		if f.buf == nil {
			f.buf = make([]byte, mostCarried+feedSize)
		}
		l := copy(f.buf, left)
		if read, err := f.file.ReadAt(f.buf[l:l+n], int64(f.pos)); read < n || err != nil && err != io.EOF {
			f.odd = true
			return false
		}
		f.have = unsafe.String(&f.buf[0], l+n)
		piece = f.have[l:]
	}
	f.base = base
	if f.pos < f.lookTo && !f.of.lookOver(piece, f.pos) {
		f.odd = true
		return false
	}
	f.pos += n
	return true
}

// line is the line that begins at an offset, and where the next one does. It is
// good until the next piece. At the end of the text it is "" and the offset.
func (f *feed) line(at int) (line string, next int) {
	for {
		rest := ""
		if i := at - f.base; f.have != "" && i < len(f.have) {
			rest = f.have[i:]
		}
		if i := strings.IndexByte(rest, '\n'); i >= 0 {
			return rest[:i], at + i + 1
		}
		if !f.more(at) {
			return rest, at + len(rest)
		}
	}
}

// lookOver counts the line ends of a piece that stands at an offset, and says
// whether it is free of what no plain text has: zero bytes, and line ends
// written as \n.
func (p *Skim) lookOver(piece string, at int) bool {
	if strings.IndexByte(piece, 0) >= 0 {
		return false
	}
	if i := strings.IndexByte(piece, '\\'); i >= 0 {
		if strings.HasSuffix(piece, `\`) || strings.Contains(piece[i:], `\n`) {
			return false
		}
	}
	for i := 0; i < len(piece); i += plainBlock {
		p.ends[(at+i)/plainBlock] = uint32(strings.Count(piece[i:min(i+plainBlock, len(piece))], "\n"))
	}
	return true
}
