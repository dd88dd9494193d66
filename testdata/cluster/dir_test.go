package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNewDirRemovesTheDeadOnly(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	living, unlock, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	dead := filepath.Join(os.TempDir(), dirPrefix+"dead")
	if err := os.MkdirAll(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, unlockSecond, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	defer unlockSecond()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the directory of a dead cluster: %v, want it gone", err)
	}
	for _, dir := range []string{living, second} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the directory of a living cluster: %v", err)
		}
	}
}
