// Package startup makes a short run of a large program cheap. Of what such a
// run costs, most is that pages of memory are touched for the first time, each
// with a fault of its own, and that a heap of a few megabytes is collected
// although the program ends before it grows.
package startup

import (
	"runtime"
	"runtime/debug"

	"github.com/vipwalk/vipwalk/pkg/startup/heap"
)

// Prepare is to be called first. Unless the user has set GOGC, the first
// collection waits until the heap has 32 MB; from then on the runtime collects
// as it always does.
func Prepare(getenv func(string) string) {
	heap.Populate()
	if getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(firstPercent)
	first := &struct{ _ [16]byte }{}
	runtime.SetFinalizer(first, func(any) { debug.SetGCPercent(100) })
}

// firstPercent of the runtime's least heap, 4 MB, is 32 MB.
const firstPercent = 800
