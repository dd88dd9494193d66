package walk

import (
	"testing"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// TestReportWithoutEvidence: it is no diagnosis, no panic, and the layer is not
// ok for it.
func TestReportWithoutEvidence(t *testing.T) {
	w := newWorld(nodeFixture(), Options{})
	p := w.pass(question{service: &w.snap.Objects.Services[0]})
	p.running = staleBackend
	p.Report(Finding{Title: "something is stale"})
	if len(p.findings) != 0 {
		t.Errorf("%d findings without evidence", len(p.findings))
	}
	if m := p.missing[diagnosis.LayerNode]; len(m) != 1 || m[0].Supply == "" {
		t.Errorf("the layer lacks %v, want one thing with its supply", m)
	}
}
