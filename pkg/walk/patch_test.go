package walk

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
)

// TestPatchesDoWhatWasSimulated applies the patch of every fix that patches the
// Service, as a shell would read the command, and compares with what the
// simulation did to the copy; then the undo, which must lead back.
func TestPatchesDoWhatWasSimulated(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skipf("no shell: %v", err)
	}
	tried := 0
	for _, in := range incidents {
		c := newCluster(in.edits...)
		o := Options{Targets: []Target{target(t, cmpOr(in.ask, "web"))}}
		if in.with != nil {
			in.with(&o)
		}
		w := newWorld(c.Snapshot, o)
		p := w.pass(w.resolve()[0])
		p.run()
		for _, f := range p.findings {
			for _, pr := range f.Fixes {
				if pr.Change == nil || !strings.HasPrefix(pr.Fix.Commands[0], "kubectl patch service ") {
					continue
				}
				tried++
				s := cloneFor(c.Snapshot, "shop")
				if err := pr.Change(s); err != nil {
					t.Errorf("%s: %s: %v", in.name, pr.Fix.Title, err)
					continue
				}
				before, want := c.service(), findService(s, "shop", "web")
				got := applied(t, before, pr.Fix.Commands[1])
				if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
					t.Errorf("%s: %s: %s (-simulated +patched)\n%s", in.name, pr.Fix.Title, pr.Fix.Commands[1], diff)
				}
				for _, undo := range pr.Fix.Undo {
					if diff := cmp.Diff(before.Spec, applied(t, got, undo).Spec, cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("%s: undo %s (-before +after)\n%s", in.name, undo, diff)
					}
				}
			}
		}
	}
	if tried < 10 {
		t.Errorf("only %d patches were tried", tried)
	}
}

// applied is the Service after a kubectl patch command.
func applied(t *testing.T, svc *corev1.Service, command string) *corev1.Service {
	t.Helper()
	out, err := exec.Command("sh", "-c", `kubectl() { for a in "$@"; do printf '%s\0' "$a"; done; }; `+command).Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	args := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(args) != 8 || args[0] != "patch" || args[6] != "-p" {
		t.Fatalf("%s: a shell reads %q", command, args)
	}
	var doc any
	remarshal(t, svc, &doc)
	switch args[5] {
	case "--type=merge":
		var patch any
		if err := json.Unmarshal([]byte(args[7]), &patch); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		doc = mergePatch(doc, patch)
	case "--type=json":
		var ops []jsonOp
		if err := json.Unmarshal([]byte(args[7]), &ops); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		for _, op := range ops {
			if err := jsonPatch(doc, op); err != nil {
				t.Fatalf("%s: %v", command, err)
			}
		}
	default:
		t.Fatalf("%s: unknown kind of patch %s", command, args[5])
	}
	var got corev1.Service
	remarshal(t, doc, &got)
	return &got
}

func remarshal(t *testing.T, from, to any) {
	t.Helper()
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mergePatch is RFC 7386.
func mergePatch(doc, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	d, ok := doc.(map[string]any)
	if !ok {
		d = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(d, k)
		} else {
			d[k] = mergePatch(d[k], v)
		}
	}
	return d
}

// jsonPatch is test and replace of RFC 6902.
func jsonPatch(doc any, op jsonOp) error {
	parts := strings.Split(strings.TrimPrefix(op.Path, "/"), "/")
	for _, part := range parts[:len(parts)-1] {
		switch d := doc.(type) {
		case map[string]any:
			doc = d[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(d) {
				return fmt.Errorf("no element %s", part)
			}
			doc = d[i]
		}
	}
	m, ok := doc.(map[string]any)
	last := parts[len(parts)-1]
	if !ok {
		return fmt.Errorf("%s is not there", op.Path)
	}
	switch op.Op {
	case "test":
		if !reflect.DeepEqual(m[last], op.Value) {
			return fmt.Errorf("test of %s: %v is not %v", op.Path, m[last], op.Value)
		}
	case "replace":
		if _, there := m[last]; !there {
			return fmt.Errorf("%s is not there", op.Path)
		}
		m[last] = op.Value
	default:
		return fmt.Errorf("unknown operation %s", op.Op)
	}
	return nil
}
