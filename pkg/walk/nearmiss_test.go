package walk

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompareLabels(t *testing.T) {
	type m = map[string]string
	for _, tt := range []struct {
		name           string
		selector, have m
		// want is the selector that is proposed, nil for no near miss.
		want m
	}{
		{"one letter", m{"app": "orders-api"}, m{"app": "order-api"}, m{"app": "order-api"}},
		{"case of the key", m{"App": "orders"}, m{"app": "orders"}, m{"app": "orders"}},
		{"separator", m{"app": "orders_api"}, m{"app": "orders-api"}, m{"app": "orders-api"}},
		{"other key, same value", m{"app": "orders"}, m{"app.kubernetes.io/name": "orders", "pod-template-hash": "77"}, m{"app.kubernetes.io/name": "orders"}},
		{"other key and a letter", m{"k8s-app": "orders"}, m{"app": "order"}, m{"app": "order"}},
		{"unknown key, same value", m{"product": "orders"}, m{"team": "orders"}, m{"team": "orders"}},
		{"unknown key, a value that says nothing", m{"enabled": "true"}, m{"spot": "true"}, nil},
		{"something behind it", m{"app": "orders"}, m{"app": "orders-api"}, m{"app": "orders-api"}},
		{"unrelated", m{"app": "orders"}, m{"app": "payments"}, nil},
		{"numbers differ on purpose", m{"app": "shard-1"}, m{"app": "shard-2"}, nil},
		{"short words are not near", m{"app": "db"}, m{"app": "da"}, nil},
		{"one of two is another", m{"app": "orders", "track": "stable"}, m{"app": "orders", "track": "canary"}, m{"app": "orders", "track": "canary"}},
		{"one of two is missing", m{"app": "orders", "track": "stable"}, m{"app": "orders"}, m{"app": "orders"}},
		{"two of three are another", m{"app": "orders", "track": "stable", "tier": "a"}, m{"app": "orders", "track": "canary", "tier": "b"}, nil},
		{"a letter in one and another track", m{"app": "orderz", "track": "stable"}, m{"app": "orders", "track": "canary"}, nil},
		{"never by a volatile label", m{"app": "77d6f"}, m{"pod-template-hash": "77d6f"}, nil},
		{"a match is no near miss", m{"app": "orders"}, m{"app": "orders"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := compareLabels(tt.selector, tt.have)
			if ok != (tt.want != nil) {
				t.Fatalf("near miss %v (%+v), want %v", ok, got, tt.want)
			}
			if ok && !cmp.Equal(got.selector, tt.want) {
				t.Errorf("proposes %v, want %v", got.selector, tt.want)
			}
			if ok && len(got.has)+len(got.lacks) == 0 {
				t.Error("does not say what differs")
			}
		})
	}
}

func TestNearest(t *testing.T) {
	got := nearest("orders", []string{"orders", "order", "ordesr", "payments", "Orders"})
	if diff := cmp.Diff([]string{"Orders", "order", "ordesr"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
