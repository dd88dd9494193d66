package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCutWhileRead: a file that is cut short while it is read is an error with
// a hint.
func TestCutWhileRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "save.txt")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Skip("files are not mapped here:", err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	sum := 0
	err = whole(func() error {
		for _, c := range b {
			sum += int(c)
		}
		return nil
	})
	var e *exitError
	if !errors.As(err, &e) || e.code != exitUsage || !strings.Contains(err.Error(), "cut short while it was read") {
		t.Errorf("the error is %v (sum %d)", err, sum)
	}
}

// TestOtherPanics: what is no such fault stays a panic.
func TestOtherPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the panic is gone")
		}
	}()
	_ = whole(func() error { panic("another") })
}
