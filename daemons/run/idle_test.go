package run

import (
	"slices"
	"testing"
)

func TestIdleTasksRunEachTimeTheProcessIsIdle(t *testing.T) {
	var r IdleTasks
	var done []string
	r.Add(func() { done = append(done, "a") })
	r.run()
	r.Add(func() { done = append(done, "b") })
	r.run()
	if want := []string{"a", "a", "b"}; !slices.Equal(done, want) {
		t.Errorf("%v was done, want %v", done, want)
	}
}
