package cli

import (
	"context"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

func (a *app) readObjects(context.Context, []string) (*snapshot.Snapshot, error) {
	return nil, usageErrorf("--objects: this build does not read files of objects yet")
}
