package config_test

import (
	"testing"
	"time"
	_ "time/tzdata"

	"clusterctl/hcl/config"
)

func TestWindowsAreOpenDuringTheirHours(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	nights := config.Window{Days: []time.Weekday{time.Saturday}, From: 23 * time.Hour, To: 4 * time.Hour, Zone: berlin}
	noon := config.Window{
		Days: []time.Weekday{time.Monday, time.Tuesday},
		From: 12 * time.Hour,
		To:   13*time.Hour + 30*time.Minute,
		Zone: time.UTC,
	}
	always := config.Window{Days: []time.Weekday{0, 1, 2, 3, 4, 5, 6}, Zone: time.UTC}
	for _, row := range []struct {
		w     config.Window
		at    string
		open  bool
		opens string
	}{
		{noon, "2026-11-23T11:59:59Z", false, "2026-11-23T12:00:00Z"}, // a Monday
		{noon, "2026-11-23T12:00:00Z", true, "2026-11-24T12:00:00Z"},
		{noon, "2026-11-23T13:29:59Z", true, "2026-11-24T12:00:00Z"},
		{noon, "2026-11-23T13:30:00Z", false, "2026-11-24T12:00:00Z"},
		{noon, "2026-11-24T14:00:00Z", false, "2026-11-30T12:00:00Z"},
		{nights, "2026-11-28T21:59:00Z", false, "2026-11-28T22:00:00Z"}, // Saturday, 23:00 local time
		{nights, "2026-11-28T22:00:00Z", true, "2026-12-05T22:00:00Z"},
		{nights, "2026-11-29T02:59:00Z", true, "2026-12-05T22:00:00Z"}, // Sunday night
		{nights, "2026-11-29T03:00:00Z", false, "2026-12-05T22:00:00Z"},
		{nights, "2026-10-25T02:59:00Z", true, "2026-10-31T22:00:00Z"}, // the night with 25 hours
		{nights, "2026-10-25T03:00:00Z", false, "2026-10-31T22:00:00Z"},
		{always, "2026-11-23T00:00:00Z", true, "2026-11-24T00:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, row.at)
		if err != nil {
			t.Fatal(err)
		}
		if open, opens := row.w.IsOpen(at), row.w.NextOpening(at).UTC().Format(time.RFC3339); open != row.open ||
			opens != row.opens {
			t.Errorf("at %s: open %t, next at %s; want %t, %s", row.at, open, opens, row.open, row.opens)
		}
	}
}
