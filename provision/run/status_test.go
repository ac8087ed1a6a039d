package run_test

import (
	"strings"
	"testing"
)

// A misspelt address would leave no machine to look at, and all that is left would be well.
func TestTheStatusOfWhatIsNotThereIsAnError(t *testing.T) {
	w := newWorld(t, control)
	w.mustApply()
	w.engine.Targets = []string{"machine.other"}
	if list, err := w.engine.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "-target machine.other: there is no such machine") {
		t.Errorf("the status of a machine that is not declared is %v, %v", list, err)
	}
}
