// Package startup makes a short run of a large program cheap. Of what such a
// run costs, most is that pages of memory are touched for the first time, each
// with a fault of its own (see package heap), and that a heap of a few megabytes
// is collected although the program ends before it grows.
//
// To import it is enough: it has to act while the packages that a program
// depends on are initialised, for they are what fills the heap.
package startup

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/vipwalk/vipwalk/pkg/startup/heap"
)

var _ = PutOff(os.Getenv)

// firstPercent of the runtime's least heap, 4 MB, is 32 MB.
const firstPercent = 800

// PutOff lets the first collection wait until the heap has 32 MB, unless the
// user has set GOGC; from then on the runtime collects as it always does. It
// says whether it did.
func PutOff(getenv func(string) string) bool {
	heap.Populate()
	if getenv("GOGC") != "" {
		return false
	}
	debug.SetGCPercent(firstPercent)
	first := &struct{ _ [16]byte }{}
	runtime.SetFinalizer(first, func(any) { debug.SetGCPercent(100) })
	return true
}
