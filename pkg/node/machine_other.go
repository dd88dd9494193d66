//go:build !linux

package node

import (
	"fmt"
	"runtime"
)

// ThisMachine is an error off Linux: only a Linux machine is a node whose
// rules can be read.
func ThisMachine() (Machine, error) {
	return Machine{}, fmt.Errorf("reading this machine's own state: it runs %s, and only Linux nodes can be read; "+
		"give a node's state with --node-state (ssh NODE sudo vipwalk node-state | vipwalk ... --node-state NODE=-)", runtime.GOOS)
}
