package netfilter

import "net/netip"

// slab hands out values of one type that live as long as a walk. Their memory
// serves the next walk again.
type slab[T any] struct {
	chunks [][]T
	chunk  int // the one that is handed out of
	used   int // of it
}

const (
	slabChunk = 64
	// mostKept bounds the chunks that are kept for the next walk.
	mostKept = 256
)

// take gives n values in one piece, to be overwritten.
func (s *slab[T]) take(n int) []T {
	for {
		if s.chunk == len(s.chunks) {
			s.chunks = append(s.chunks, make([]T, max(n, slabChunk)))
		}
		if c := s.chunks[s.chunk]; s.used+n <= len(c) {
			s.used += n
			return c[s.used-n : s.used : s.used]
		}
		s.chunk, s.used = s.chunk+1, 0
	}
}

func (s *slab[T]) reset() {
	if len(s.chunks) > mostKept {
		s.chunks = nil
	}
	s.chunk, s.used = 0, 0
}

// place is the part of a memoKey that tells most keys apart and is quick to
// hash.
type place struct {
	chain    *ChainDef
	ret      *frame
	rule     int32
	expr     int32
	station  int32
	mark     uint32
	dst      netip.Addr
	dstPort  uint16
	hook     uint8
	tracking uint8
}

func (k *memoKey) place() place {
	p := place{
		chain: k.chain, ret: k.ret, rule: int32(k.rule), expr: int32(k.expr), station: int32(k.station),
		mark: k.Mark, dst: k.Dst, dstPort: k.DstPort, hook: uint8(len(k.Hook)),
	}
	if k.snat {
		p.tracking = 1
	}
	return p
}

// memo remembers what a walk found from a place on.
type memo struct {
	at      map[place]int32 // index into entries, plus 1
	entries []memoEntry
}

type memoEntry struct {
	key     memoKey
	results []result
	next    int32 // another of the same place, plus 1
}

func (m *memo) get(k *memoKey) ([]result, bool) {
	for i := m.at[k.place()]; i > 0; i = m.entries[i-1].next {
		if e := &m.entries[i-1]; e.key == *k {
			return e.results, true
		}
	}
	return nil, false
}

func (m *memo) put(k *memoKey, rs []result) {
	p := k.place()
	m.entries = append(m.entries, memoEntry{*k, rs, m.at[p]})
	m.at[p] = int32(len(m.entries))
}

func (m *memo) reset() {
	if len(m.entries) > mostKept*slabChunk {
		m.entries, m.at = nil, nil
	}
	m.entries = m.entries[:0]
	if len(m.at) > 1024 || m.at == nil {
		m.at = make(map[place]int32) // clearing a large map costs by its size
	} else {
		clear(m.at)
	}
}
