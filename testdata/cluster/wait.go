package cluster

import (
	"context"
	"fmt"
	"time"
)

// Until asks again and again, every 50 ms, until the condition holds, fails,
// or the context ends. A condition that does not hold yet says why, and the
// last reason becomes part of the error.
func Until(ctx context.Context, what string, condition func(context.Context) (pending string, err error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		pending, err := condition(ctx)
		if err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		if pending == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w; last: %s", what, ctx.Err(), pending)
		case <-tick.C:
		}
	}
}
