//go:build !linux

package node

import "os"

// mapFile maps no file on this system: it is read.
func mapFile(*os.File, int) (string, bool) { return "", false }

// reserve has nothing to give on this system: memory grows as it is needed.
func reserve(int) []byte { return nil }
