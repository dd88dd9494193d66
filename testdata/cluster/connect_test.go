package cluster

import "testing"

func TestTally(t *testing.T) {
	for _, c := range []struct {
		tries []Try
		want  string
	}{
		{[]Try{{Result: Answered}, {Result: Answered}}, "answered"},
		{[]Try{{Result: Refused}, {Result: Answered}}, "part answered, part refused"},
		{[]Try{{Result: TimedOut}, {Result: Unreachable}}, "no answer"},
		{[]Try{{Result: Partial}, {Result: TimedOut}}, "part answered late, part no answer"},
	} {
		if got := Tally(c.tries); got != c.want {
			t.Errorf("Tally(%v) = %q, want %q", c.tries, got, c.want)
		}
	}
}
