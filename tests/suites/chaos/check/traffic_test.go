package check

import (
	"testing"
	"time"
)

func TestFailuresAreExcusedOnlyInsideTheirWindow(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	windows := []Window{{From: start.Add(10 * time.Second), To: start.Add(20 * time.Second)},
		{From: start.Add(30 * time.Second), To: start.Add(40 * time.Second), Machine: "n1"}}
	for _, test := range []struct {
		client  string
		at      time.Duration
		took    float64
		excused bool
	}{
		{"n1", 5 * time.Second, 0.1, false},
		{"n1", 9 * time.Second, 2, true}, // the fault began during the request
		{"n1", 15 * time.Second, 0.1, true},
		{"n1", 21 * time.Second, 0.1, false},
		{"n1", 35 * time.Second, 0.1, true},
		{"n2", 35 * time.Second, 0.1, false},
	} {
		findings := Traffic([]Failure{{Client: test.client, At: start.Add(test.at), Took: test.took}}, windows)
		if (len(findings) == 0) != test.excused {
			t.Errorf("%+v: %v", test, findings)
		}
	}
}

func TestClientsWithTooFewRequestsAreFindings(t *testing.T) {
	if MissedRequests("n1", 10, time.Minute, 10*time.Millisecond) == nil {
		t.Error("ten requests in a minute were taken for enough")
	}
	if f := MissedRequests("n1", 5000, time.Minute, 10*time.Millisecond); f != nil {
		t.Error(f)
	}
}
