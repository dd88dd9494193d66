package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vipwalk/vipwalk/pkg/cluster"
	"github.com/vipwalk/vipwalk/pkg/cluster/apitest"
	"github.com/vipwalk/vipwalk/pkg/report"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// TestBundleWalksToTheSameBytes: what was collected from an API server, with a
// node's state beside it, walks to the same report, byte for byte, as the
// bundle that it is written to.
func TestBundleWalksToTheSameBytes(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "testdata", "script", "capture.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	_, objects, ok := strings.Cut(string(script), "-- cluster.yaml --\n")
	if !ok {
		t.Fatal("capture.txtar has no cluster.yaml")
	}
	if i := strings.Index(objects, "\n-- "); i >= 0 {
		objects = objects[:i+1]
	}
	server := apitest.New(t)
	if err := server.AddYAML([]byte(objects)); err != nil {
		t.Fatal(err)
	}
	server.Forbid(snapshot.Nodes, "")
	client, err := cluster.NewForConfig(&rest.Config{Host: server.URL, BearerToken: apitest.Token}, "test")
	if err != nil {
		t.Fatal(err)
	}
	client = client.WithClock(func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC) })
	live, err := client.Collect(t.Context(), cluster.Scope{Namespaces: []string{"production"}, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	live.Nodes = []*snapshot.NodeState{{Name: "worker-1", At: live.TakenAt, Via: "node-state", Texts: []snapshot.Text{
		{Kind: snapshot.IptablesSave, Ref: "iptables-save -c", Status: snapshot.Done, Content: "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*filter\n:FORWARD DROP [7:420]\nCOMMIT\n"},
		{Kind: snapshot.IPAddr, Status: snapshot.Failed, Why: "no such program"},
	}}}

	var bundle bytes.Buffer
	if err := snapshot.WriteBundle(&bundle, live); err != nil {
		t.Fatal(err)
	}
	read, err := snapshot.ReadBundle(bytes.NewReader(bundle.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	want, got := walkedJSON(t, live), walkedJSON(t, read)
	if !bytes.Equal(want, got) {
		t.Errorf("the bundle's report differs from the live one\nlive:\n%s\nbundle:\n%s", want, got)
	}
	for _, must := range []string{`"VIP102"`, `"ref": "nodes"`, `"node": "worker-1"`} {
		if !bytes.Contains(want, []byte(must)) {
			t.Errorf("the report has no %s: the test shows less than it means to\n%s", must, want)
		}
	}
}

func walkedJSON(t *testing.T, s *snapshot.Snapshot) []byte {
	t.Helper()
	var out bytes.Buffer
	r := walk.Walk(s, walk.Options{Targets: []walk.Target{{Namespace: "production", Name: "orders"}}, Version: "test"})
	if err := report.JSON(&out, r, report.Options{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
