package node

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// sameTexts knows the texts that were read so far. Nodes of one group often have
// the very same rules; they are looked at once and kept once, so that a thousand
// nodes take the memory of the different ones.
type sameTexts struct {
	seed  maphash.Seed
	texts map[uint64][]string
	files map[fileKey]*stateFile
	// buf is what a file is read into; nothing of it is kept.
	buf []byte
}

// fileKey is a file by its content, as intern gives it, and by what its name
// decides; see nameDecides.
type fileKey struct {
	content *byte
	length  int
	name    string
}

func newSameTexts() *sameTexts {
	return &sameTexts{seed: maphash.MakeSeed(), texts: map[uint64][]string{}, files: map[fileKey]*stateFile{}}
}

// smallText is what is not worth being looked up.
const smallText = 4 << 10

// known finds the copy of a text that is kept; "" where there is none.
func (s *sameTexts) known(text string) string {
	for _, have := range s.texts[maphash.String(s.seed, text)] {
		if have == text {
			return have
		}
	}
	return ""
}

// intern gives the one copy of a text. The copy keeps nothing else alive.
func (s *sameTexts) intern(text string) string {
	if len(text) < smallText {
		return strings.Clone(text)
	}
	if have := s.known(text); have != "" {
		return have
	}
	text = strings.Clone(text)
	h := maphash.String(s.seed, text)
	s.texts[h] = append(s.texts[h], text)
	return text
}

// read is readStream for one file of many: nothing of the file stays but one
// copy of each of its texts, and a file that was read before under another path
// is not looked at again.
func (s *sameTexts) read(path string, file *os.File) (*stateFile, error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return readStream(path, file)
	}
	raw, err := s.readWhole(file, info)
	if err != nil {
		return nil, err
	}
	if have := s.known(raw); have != "" {
		if f := s.files[keyOf(have, path)]; f != nil {
			return f.at(path), nil
		}
	}
	f := &stateFile{path: path}
	text, err := decodeInput(raw, f.look)
	if f, err = f.fill(text, err); err != nil {
		return nil, err
	}
	s.keep(f)
	if len(f.pieces) == 1 && len(f.states) == 0 && f.pieces[0].Content == raw && len(raw) >= smallText {
		s.files[keyOf(f.pieces[0].Content, path)] = f
	}
	return f, nil
}

func keyOf(content, path string) fileKey {
	return fileKey{unsafe.StringData(content), len(content), nameDecides(path)}
}

// readWhole reads a file into the buffer; the text is good until the next one is
// read.
func (s *sameTexts) readWhole(file *os.File, info fs.FileInfo) (string, error) {
	if info.Size() > maxInput {
		return "", fmt.Errorf("%d MiB, over the %d MiB that are read", info.Size()>>20, maxInput>>20)
	}
	if int64(len(s.buf)) < info.Size() {
		s.buf = make([]byte, info.Size())
	}
	buf := s.buf[:info.Size()]
	n, err := io.ReadFull(file, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return unsafe.String(unsafe.SliceData(buf), n), nil
}

// keep replaces every string of a file by a copy of its own, which large texts
// share with those of other files.
func (s *sameTexts) keep(f *stateFile) {
	own := func(texts ...*string) {
		for _, t := range texts {
			*t = s.intern(*t)
		}
	}
	own(&f.hostname)
	for i := range f.pieces {
		p := &f.pieces[i]
		own(&p.Ref, &p.Why, &p.Supply, &p.Content, &p.node)
	}
	for _, st := range f.states {
		own(&st.Name, &st.Via)
		for i := range st.Texts {
			t := &st.Texts[i]
			kind, status := string(t.Kind), string(t.Status)
			own(&kind, &status, &t.Ref, &t.Why, &t.Supply, &t.Content)
			t.Kind, t.Status = snapshot.TextKind(kind), snapshot.ReadStatus(status)
		}
	}
	for i := range f.notes {
		own(&f.notes[i])
	}
}

// nameDecides is what a file's name tells of what it holds.
func nameDecides(path string) string {
	base := filepath.Base(path)
	var out []string
	for _, word := range []string{"legacy", "ip6", "livez"} {
		if strings.Contains(base, word) {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

// at is the same file at another path.
func (f *stateFile) at(path string) *stateFile {
	out := *f
	out.path = path
	out.pieces = append([]piece(nil), f.pieces...)
	for i := range out.pieces {
		if out.pieces[i].Ref == f.path {
			out.pieces[i].Ref = path
		}
	}
	return &out
}
