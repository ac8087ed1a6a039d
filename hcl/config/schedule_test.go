package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
)

func TestCronBecomesCalendarEventsAndTimes(t *testing.T) {
	const from = "2026-01-01T10:30" // a Thursday
	for cron, want := range map[string]struct{ calendar, next string }{
		"0 */6 * * *":         {"*-*-* 00,06,12,18:00:00 UTC", "2026-01-01T12:00"},
		"*/20 * * * *":        {"*-*-* *:00,20,40:00 UTC", "2026-01-01T10:40"},
		"30 10 * * *":         {"*-*-* 10:30:00 UTC", "2026-01-02T10:30"},
		"15 3 * * mon-wed":    {"Mon,Tue,Wed *-*-* 03:15:00 UTC", "2026-01-05T03:15"},
		"0 0 1,15 * *":        {"*-*-01,15 00:00:00 UTC", "2026-01-15T00:00"},
		"0 0 1 * 7":           {"*-*-01 00:00:00 UTC|Sun *-*-* 00:00:00 UTC", "2026-01-04T00:00"},
		"0 0 29 feb *":        {"*-02-29 00:00:00 UTC", "2028-02-29T00:00"},
		"5/25 * * * *":        {"*-*-* *:05,30,55:00 UTC", "2026-01-01T10:55"},
		"@daily":              {"*-*-* 00:00:00 UTC", "2026-01-02T00:00"},
		"0 22-23 * jan-MAR *": {"*-01,02,03-* 22,23:00:00 UTC", "2026-01-01T22:00"},
	} {
		s := config.Schedule{Cron: cron}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", cron, err)
			continue
		}
		if got := strings.Join(s.Calendar(), "|"); got != want.calendar {
			t.Errorf("%s: %s, want %s", cron, got, want.calendar)
		}
		at, err := time.Parse("2006-01-02T15:04", from)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(at).Format("2006-01-02T15:04"); got != want.next {
			t.Errorf("%s: next at %s, want %s", cron, got, want.next)
		}
	}
}

func TestInvalidCronExpressionsAreRejected(t *testing.T) {
	for _, cron := range []string{"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
		"* * * * 8", "*/0 * * * *", "a * * * *", "5-1 * * * *", "0 0 31 feb *", "-1 * * * *", "@never",
		"1,,2 * * * *"} {
		s := config.Schedule{Cron: cron + " "}
		if err := s.Check(); err == nil {
			t.Errorf("%q is taken, as %v", cron, s.Calendar())
		}
	}
}

func TestSchedulesAreOverdueAfterTwoMissedTimes(t *testing.T) {
	last := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, s := range []config.Schedule{{Every: time.Hour}, {Cron: "@hourly"}} {
		for ago, want := range map[time.Duration]bool{time.Hour: false, 2 * time.Hour: false, 2*time.Hour +
			2*time.Minute: true} {
			if got := s.IsOverdue(last, last.Add(ago)); got != want {
				t.Errorf("%s after %s: %v", fmt.Sprint(s), ago, got)
			}
		}
	}
	if (config.Schedule{Every: time.Hour, Jitter: time.Hour}).IsOverdue(last, last.Add(2*time.Hour+30*time.Minute)) {
		t.Error("its jitter is not waited for")
	}
}
