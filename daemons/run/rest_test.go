package run

import (
	"slices"
	"testing"
)

func TestWhatIsAddedIsDoneAtEveryRest(t *testing.T) {
	var r Rest
	var done []string
	r.Add(func() { done = append(done, "a") })
	r.do()
	r.Add(func() { done = append(done, "b") })
	r.do()
	if want := []string{"a", "a", "b"}; !slices.Equal(done, want) {
		t.Errorf("%v was done, want %v", done, want)
	}
}
