package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// readText reads a file as --node-state does, and returns the text of a kind.
func readText(t *testing.T, name, content string, kind snapshot.TextKind) snapshot.Text {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	states, _, err := ReadFiles([]string{"worker-1=" + path}, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return states[0].Text(kind)
}

func TestRecogniseCilium(t *testing.T) {
	for name, content := range map[string]string{
		"list.txt":  "ID   Frontend            Service Type   Backend\n1    10.96.0.1:443/TCP   ClusterIP      1 => 10.0.0.1:6443/TCP (active)\n                                        2 => 10.0.0.2:6443/TCP (active)\n",
		"list.json": "[\n  {\n    \"spec\": {\"id\": 1}\n  }\n]\n",
		"map.txt":   "SERVICE ADDRESS         BACKEND ADDRESS (REVNAT_ID) (SLOT)\n10.96.0.1:443/TCP (1)   10.0.0.1:6443/TCP (1) (1)\n",
		"map.json":  "{\n  \"10.96.0.1:443/TCP (1)\": [\n    \"10.0.0.1:6443/TCP (1) (1)\"\n  ]\n}\n",
	} {
		if got := readText(t, name, content, snapshot.CiliumServices); got.Status != snapshot.Done || got.Content != content {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
