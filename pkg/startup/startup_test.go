package startup_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/startup"
)

// TestFirstCollection: the first collection is put off, the next ones are not.
func TestFirstCollection(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	startup.PutOff(func(string) string { return "" })
	if got := percent(); got != 800 {
		t.Fatalf("the percentage is %d before the first collection", got)
	}
	for range 1000 { // the finalizer runs some time after
		runtime.GC()
		if percent() == 100 {
			return
		}
	}
	t.Error("the percentage is not set back after a collection")
}

// percent is the one in force.
func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

// TestGOGC: who sets GOGC has it.
func TestGOGC(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	startup.PutOff(func(string) string { return "50" })
	if got := percent(); got != 77 {
		t.Errorf("the percentage is %d", got)
	}
}
