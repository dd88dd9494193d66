package iptables

// Forget lets go of a chain and of its rules as they were parsed; they are
// made anew when they are asked for again.
func (t *plainTable) Forget(chain string) {
	if i, ok := t.slot(chain); ok {
		t.defs[i].Store(nil)
	}
}
