package upkeep

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The day since which uses of tokens are recorded stays the first one, across restarts. An impossible day is replaced
// by today.
func TestTokenTrackingKeepsItsFirstDay(t *testing.T) {
	today := time.Date(2026, 11, 23, 23, 0, 0, 0, time.UTC)
	want := TokenTrackingConfigMaps(today)[0].(*corev1.ConfigMap)
	for name, c := range map[string]struct{ day, want string }{
		"earlier": {"2026-01-02", "2026-01-02"}, "today": {"2026-11-23", "2026-11-23"},
		"in the future": {"2027-01-01", "2026-11-23"},
		"no day":        {"soon", "2026-11-23"}, "none": {"", "2026-11-23"},
	} {
		live := want.DeepCopy()
		live.Data[trackedSince] = c.day
		if got := Complete(live, want).(*corev1.ConfigMap).Data[trackedSince]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
