package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const dirPrefix = "vipwalk-cluster-"

// newDir makes the directory of a cluster and holds a lock in it, by which a
// later one knows the living from the dead. Directories of clusters whose
// process is gone are removed first.
func newDir() (dir string, unlock func(), err error) {
	all, err := lockFile(filepath.Join(os.TempDir(), dirPrefix+"all.lock"))
	if err != nil {
		return "", nil, err
	}
	defer all()
	removeLeftovers()
	if dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return "", nil, fmt.Errorf("making a directory: %w", err)
	}
	unlock, err = lockFile(filepath.Join(dir, "lock"))
	return dir, unlock, err
}

func removeLeftovers() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*", "lock"))
	for _, lock := range locks {
		f, err := os.Open(lock)
		if err != nil {
			continue // its owner removes it at this moment
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(filepath.Dir(lock))
		}
		f.Close()
	}
}
