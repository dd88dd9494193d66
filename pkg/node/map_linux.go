package node

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile gives the content of a regular file as it is in the page cache,
// without a copy. The mapping stays as long as the program runs, so that the
// text may be kept. Reading it faults where the file was cut short meanwhile:
// see debug.SetPanicOnFault.
func mapFile(f *os.File, size int) (string, bool) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return "", false // a file system that doesn't map
	}
	return unsafe.String(unsafe.SliceData(b), len(b)), true
}

// reserve gives n bytes of which only those that are written take memory.
func reserve(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // fewer faults, where it is to be had
	return b
}
