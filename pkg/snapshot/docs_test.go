package snapshot

import (
	"os"
	"strings"
	"testing"
)

// TestBundleDocNamesEveryText holds docs/bundle.md to the kinds of text.
func TestBundleDocNamesEveryText(t *testing.T) {
	doc, err := os.ReadFile("../../docs/bundle.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range TextKinds {
		if !strings.Contains(string(doc), "`"+string(k)+"`") {
			t.Errorf("docs/bundle.md does not name %s", k)
		}
	}
}
