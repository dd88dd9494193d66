// Package oracletest is what the tests of the netfilter packages share: where
// the data beside the repository is, the flows that kube-proxy's own tests
// recorded and how a walk is held to them, and what holds of any walk.
package oracletest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Shared is a file or folder of the data that tests read in place, next to the
// repository. The test is skipped where it isn't.
func Shared(t testing.TB, parts ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("no go.mod above the test: the shared data can't be found")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(append([]string{dir, "..", "shared"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the shared data is not beside the repository: %v", err)
	}
	return path
}

// ReadJSON reads a JSON file into a value.
func ReadJSON(t testing.TB, path string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(ReadFile(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// ReadFile reads a file.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
