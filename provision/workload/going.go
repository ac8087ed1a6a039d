package workload

import "strings"

// goingError says that an object is declared and that the one there is being deleted: what waits until it is gone makes
// it anew.
type goingError struct{ finalizers []string }

func (e goingError) Error() string {
	return "the one that is there is being deleted" + waitsFor(e.finalizers)
}

// waitsFor says what keeps an object that is being deleted.
func waitsFor(finalizers []string) string {
	if len(finalizers) == 0 {
		return ""
	}
	return ": it waits for " + strings.Join(finalizers, ", ")
}
