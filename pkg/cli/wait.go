package cli

import (
	"context"
	"time"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// waitInterval is the pause between two walks of --wait.
const waitInterval = 2 * time.Second

// walkUntil walks once; with --wait again and again until the report's exit
// code is 0 or the time is up. The last report is the result. Where the last
// walk came to none, its error is, and that is exit code 3.
func (a *app) walkUntil(ctx context.Context, f *walkFlags, run *run) (*diagnosis.Report, error) {
	if f.wait == 0 {
		return a.walkOnce(ctx, f, run)
	}
	until, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	var last *diagnosis.Report
	for {
		r, err := a.walkOnce(until, f, run)
		if err == nil {
			last = r
			if run.criteria.code(r) == exitOK {
				return r, nil
			}
		} else if isUsage(err) {
			return nil, err
		}
		if !pause(until, waitInterval) {
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case last != nil:
				return last, nil
			}
			return nil, unknownErrorf("no verdict within --wait %s: %w", f.wait, err)
		}
	}
}

// pause waits, and says whether there is time left.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
