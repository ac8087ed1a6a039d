package workload

import "strings"

// goingError reports that a declared object exists but is being deleted. It can be created again once it is gone.
type goingError struct{ finalizers []string }

func (e goingError) Error() string {
	return "the one that is there is being deleted" + waitsFor(e.finalizers)
}

// waitsFor describes what delays the deletion of an object.
func waitsFor(finalizers []string) string {
	if len(finalizers) == 0 {
		return ""
	}
	return ": it waits for " + strings.Join(finalizers, ", ")
}
