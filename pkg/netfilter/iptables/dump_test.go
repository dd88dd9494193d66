package iptables

import (
	"os"
	"strconv"
	"testing"
)

// TestWriteDump writes a large dump to measure the whole program with:
// VIPWALK_DUMP=/tmp/dump.txt VIPWALK_SERVICES=10000 VIPWALK_ENDPOINTS=10.
func TestWriteDump(t *testing.T) {
	path := os.Getenv("VIPWALK_DUMP")
	if path == "" {
		return // nobody asked for one
	}
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	t.Logf("%d rules", generate(f, number("VIPWALK_SERVICES", 10000), number("VIPWALK_ENDPOINTS", 10)))
}
