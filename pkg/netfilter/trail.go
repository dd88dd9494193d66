package netfilter

// note is one thing that a walk met: a rule that matched, a policy, or
// something that could not be decided.
type note struct {
	table   *Table
	chain   *ChainDef
	rule    *Rule
	text    string // instead of a rule's
	line    int
	why     string // why it could not be decided
	unknown bool
}

// trail is a list of notes that results share the tails of.
type trail struct {
	note
	next *trail
}

// before puts notes ahead of a trail.
func (w *walker) before(notes []note, t *trail) *trail {
	if len(notes) == 0 {
		return t
	}
	own := w.trails.take(len(notes))
	for i := len(notes) - 1; i >= 0; i-- {
		own[i] = trail{notes[i], t}
		t = &own[i]
	}
	return t
}

func (w *walker) before1(n note, t *trail) *trail {
	own := &w.trails.take(1)[0]
	*own = trail{n, t}
	return own
}

func (n note) step() Step {
	s := Step{Line: n.line, Text: n.text}
	if n.table != nil {
		s.Source, s.Table = n.table.Source, n.table.Name
	}
	if n.chain != nil {
		s.Chain = n.chain.Name
	}
	if n.rule != nil {
		s.Line, s.Text = n.rule.Line, n.rule.Text
	}
	return s
}

// union is a followed by what only b has.
func (w *walker) union(a, b *trail) *trail {
	if a == b {
		return a
	}
	have := map[note]bool{}
	for t := a; t != nil; t = t.next {
		have[t.note] = true
	}
	var more []note
	for t := b; t != nil; t = t.next {
		if !have[t.note] {
			have[t.note] = true
			more = append(more, t.note)
		}
	}
	if len(more) == 0 {
		return a
	}
	var all []note
	for t := a; t != nil; t = t.next {
		all = append(all, t.note)
	}
	return w.before(append(all, more...), nil)
}
