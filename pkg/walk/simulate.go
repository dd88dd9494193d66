package walk

// simulate tries every proposed fix of a Service on a copy of the snapshot.
func (w *world) simulate(p *Pass) {}
