package docs

import (
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"testing"
)

func TestSchemasAreJSON(t *testing.T) {
	files, err := fs.Glob(FS, "schema/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("schemas %v, %v", files, err)
	}
	for _, f := range files {
		raw, err := fs.ReadFile(FS, f)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(raw) {
			t.Errorf("%s is not JSON", f)
		}
	}
}

// The first line of a page names the code and the diagnosis, because `explain`
// shows it as the title.
func TestPagesBeginWithTheirCode(t *testing.T) {
	files, err := fs.Glob(FS, "codes/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("pages %v, %v", files, err)
	}
	for _, f := range files {
		raw, err := fs.ReadFile(FS, f)
		if err != nil {
			t.Fatal(err)
		}
		code := strings.TrimSuffix(path.Base(f), ".md")
		if !strings.HasPrefix(string(raw), "# "+code+" ") {
			t.Errorf("%s does not begin with \"# %s NAME\"", f, code)
		}
	}
}
