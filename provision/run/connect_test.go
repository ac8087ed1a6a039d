package run_test

import (
	"sync"
	"testing"

	"clusterctl/provision/run/report"
)

// A run reports that it connects before the first machine answers.
func TestRunsReportThatTheyConnect(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	var mu sync.Mutex
	var first []string
	w.engine.Report = func(e report.Event) {
		mu.Lock()
		defer mu.Unlock()
		if len(first) < 2 && (e.Kind == report.Phase || e.Kind == report.Connect) {
			first = append(first, e.Kind+" "+e.Message)
		}
	}
	w.mustApply()
	if len(first) == 0 || first[0] != "phase connecting to 2 machines" {
		t.Errorf("the first events are %q", first)
	}
}
