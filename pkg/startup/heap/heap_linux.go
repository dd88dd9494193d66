package heap

import (
	"syscall"
	"unsafe"
)

const (
	madvPopulateWrite = 23 // MADV_POPULATE_WRITE, since Linux 5.14
	chunk             = 4 << 20
)

// This package imports next to nothing, so that Go initialises it before most
// others, which then find their pages.
var _ = Populate()

// Populate has the kernel map, at once, the pages that the heap will hand out
// next: from a fresh object to the end of the chunk of address space that the
// runtime got last. What is mapped already stays as it is; on an older kernel
// nothing happens, and it is false.
func Populate() bool {
	from := uintptr(unsafe.Pointer(fresh())) &^ 4095
	to := (from + chunk) &^ (chunk - 1)
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, madvPopulateWrite)
	return errno == 0
}

// fresh is an object of the heap: one that is returned is not on the stack.
//
//go:noinline
func fresh() *[512]byte { return new([512]byte) }
