package workload

import "strings"

// deletingError reports that a declared object exists but is being deleted. It can be created again once it is gone.
type deletingError struct{ finalizers []string }

func (e deletingError) Error() string {
	return "the one that is there is being deleted" + deletionDelay(e.finalizers)
}

// deletionDelay describes what delays the deletion of an object.
func deletionDelay(finalizers []string) string {
	if len(finalizers) == 0 {
		return ""
	}
	return ": it waits for " + strings.Join(finalizers, ", ")
}
